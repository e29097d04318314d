//! Decides when a running daemon stops, by a signal, the end of standard input or a loss, and for
//! how long it still serves.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::server::{Health, StartError, TRY_TIMEOUT};
use crate::service::{self, Notifier};

/// The signals that stop the daemon. They are caught, so they do not end the process.
pub(super) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    /// Catches the signals from now on.
    pub(super) fn catch() -> Result<Stops, StartError> {
        Ok(Stops { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Completes when a stop is requested while the daemon waits for worker IDs.
    pub(super) async fn run_waiting(&mut self, notifier: &Notifier, health: &Health, ends_with_stdin: bool) {
        tokio::select! {
            () = self.asked(ends_with_stdin) => {}
            () = service::attend(notifier, health) => {}
        }
        notifier.stopping(health.announce_stop().longest.max(TRY_TIMEOUT));
        tracing::info!("stopping: the daemon has no worker ID, and no request to answer");
    }

    /// Completes when a stop is requested after the daemon's wait for worker IDs, but before the
    /// daemon serves.
    pub(super) async fn run_starting(&mut self, notifier: &Notifier, ends_with_stdin: bool) {
        self.asked(ends_with_stdin).await;
        notifier.stopping(TRY_TIMEOUT);
        tracing::info!("stopping: the daemon returns the worker IDs that it has just taken");
    }

    /// Completes when a signal, or the end of standard input, asks for a stop.
    async fn asked(&mut self, ends_with_stdin: bool) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = standard_input_ended(), if ends_with_stdin => {}
        }
    }

    /// Completes when the listeners must close. Until then, reports to the service manager. Runs
    /// `beside` until a stop is requested.
    pub(super) async fn run(
        mut self,
        notifier: &Notifier,
        health: &Health,
        is_probed: bool,
        ends_with_stdin: bool,
        beside: impl Future<Output = ()>,
    ) {
        let mut attend = pin!(service::attend(notifier, health));
        // A stop by a person at a terminal, or by the end of a parent process, does not wait for
        // load balancers.
        let is_announced = tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => true,
            () = &mut attend => false,
            () = standard_input_ended(), if ends_with_stdin => false,
            () = beside => false,
            () = health.await_loss() => false,
        };
        let limits = health.announce_stop();
        let delay = limits.drain_delay.filter(|_| is_probed && is_announced);
        notifier.stopping(delay.unwrap_or_default() + limits.longest);
        if let Some(delay) = delay {
            tracing::info!(?delay, "stopping: /readyz reports it, and the listeners close after drain_delay");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                () = attend => {}
            }
        }
        tracing::info!("stopping: the daemon answers the requests that have arrived");
    }
}

/// Catches a signal from now on, so that the signal does not end the process.
pub(super) fn catch(kind: SignalKind) -> Result<Signal, StartError> {
    // The runtime is needed only to register the signal: any reactor of the process delivers it.
    let runtime = runtime::Builder::new_current_thread().enable_io().build();
    let caught = runtime.and_then(|runtime| {
        let _entered = runtime.enter();
        signal(kind)
    });
    caught.map_err(|error| StartError::no_thread(&error))
}

/// Resolves when standard input has ended, or cannot be read any more. Discards the bytes before
/// the end.
///
/// The kernel closes the write end of a pipe when its holder dies, even by a signal that cannot be
/// caught.
async fn standard_input_ended() {
    let (ended, end) = oneshot::channel::<()>();
    // A reactor cannot wait for standard input that is a file or a terminal, so a thread reads it.
    // The thread is never joined, because its read cannot be interrupted.
    let reader = thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // `copy` retries a read that a signal interrupts.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        // If a signal came first, the receiver is gone.
        let _ = ended.send(());
    });
    if let Err(error) = reader {
        tracing::error!(%error, "cannot watch standard input; stopping");
        return;
    }
    // An error would mean that the thread is gone. To stop is then right, too.
    let _ = end.await;
}
