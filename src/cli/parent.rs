//! The end of whoever started the process, seen as the end of its standard input.

use std::io::{self, Read};
use std::thread;

use tokio::sync::oneshot;

/// Resolves when standard input has ended, or cannot be read any more; what comes before that is thrown away.
///
/// The kernel closes the write end of a pipe whose holder has died of whatever cause, also of one that it could not catch.
pub(super) async fn standard_input_ended() {
    let (ended, end) = oneshot::channel::<()>();
    // A thread of its own: standard input may be a file or a terminal, and these cannot be waited for like sockets. It is
    // never joined, as nobody could interrupt its read.
    let reader = thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut thrown_away = [0; 256];
        loop {
            match io::stdin().lock().read(&mut thrown_away) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        // Nobody listens any more where a signal came first.
        let _ = ended.send(());
    });
    if let Err(error) = reader {
        tracing::error!(%error, "cannot watch standard input; stopping");
        return;
    }
    // An error means that the thread is gone, and with it the watch.
    let _ = end.await;
}
