//! Decides when a daemon stops, and for how long it still serves. It stops by a signal, the end of
//! standard input, a loss or a refused start.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::server::reading::handle::Health;
use crate::server::shared::start_error::StartError;
use crate::service::Notifier;

/// The signals that the daemon obeys. They are caught, so they do not end the process.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// True if the end of standard input stops the daemon, too.
    ends_with_stdin: bool,
}

impl Signals {
    /// Catches the signals from now on. So the daemon outlives the terminal that started it, and a
    /// signal during the start is obeyed once the daemon listens.
    ///
    /// # Errors
    /// The system has no reactor left.
    pub fn catch(ends_with_stdin: bool) -> Result<Signals, StartError> {
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
            ends_with_stdin,
        })
    }

    /// Completes when the listeners must close. Runs `attend` meanwhile, which serves the service
    /// manager, and calls `reload` at each hang-up.
    pub(super) async fn obey(
        mut self,
        notifier: &Notifier,
        health: &Health,
        is_probed: bool,
        attend: impl Future<Output = ()>,
        reload: impl Fn(),
    ) {
        let mut attend = pin!(attend);
        let hang_ups = async {
            while self.hang_up.recv().await.is_some() {
                reload();
            }
        };
        // A stop by a person at a terminal, or by the end of a parent process, does not wait for
        // load balancers.
        let is_announced = tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => true,
            () = &mut attend => false,
            () = standard_input_ended(), if self.ends_with_stdin => false,
            () = hang_ups => false,
            () = health.await_loss() => false,
        };
        let delay = health.announce_stop().filter(|_| is_probed && is_announced);
        notifier.stopping(delay.unwrap_or_default() + health.longest_stop());
        if let Some(delay) = delay {
            tracing::info!(
                ?delay,
                "stopping: /readyz reports it, and the listeners close after drain_delay, or at once after another SIGTERM or Ctrl-C"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                () = attend => {}
            }
        }
        if health.refused().is_none() {
            tracing::info!("stopping: the daemon answers the requests that have arrived");
        }
    }
}

/// Catches a signal from now on, so that the signal does not end the process.
fn catch(kind: SignalKind) -> Result<Signal, StartError> {
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
