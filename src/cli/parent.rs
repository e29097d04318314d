//! The end of the parent process, seen as the end of standard input.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Resolves when standard input has ended, or cannot be read any more. Discards the bytes before
/// the end.
///
/// The kernel closes the write end of a pipe when its holder dies, even by a signal that cannot be
/// caught.
pub(super) async fn standard_input_ended() {
    let (ended, end) = oneshot::channel::<()>();
    // A thread of its own: standard input may be a file or a terminal, and a reactor cannot wait
    // for these. The thread is never joined, because its read cannot be interrupted.
    let reader = thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // `copy` retries a read that a signal interrupts.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        // The receiver is gone if a signal came first.
        let _ = ended.send(());
    });
    if let Err(error) = reader {
        tracing::error!(%error, "cannot watch standard input; stopping");
        return;
    }
    // An error means that the thread is gone, and with it the watch.
    let _ = end.await;
}
