//! A target that makes no mistake, as slow as configured.

use std::time::Duration;

use super::scripted::fake_daemon::{Asked, FakeDaemon};
use super::scripted::{INFO, Ids};

/// Runs a target that answers at once.
pub(crate) fn sound() -> FakeDaemon {
    slow(Duration::ZERO)
}

/// Runs a target that waits before each answer.
pub(crate) fn slow(wait: Duration) -> FakeDaemon {
    let ids = Ids::default();
    FakeDaemon::start(move |_, peer| {
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => {
                    std::thread::sleep(wait);
                    peer.send_run(tag, ids.take(next.count), next.count)
                }
                _ => peer.send(|out| {
                    snowbank_client::protocol::reply::encode_info(out, tag, INFO.as_bytes());
                }),
            };
            if !goes_on {
                return;
            }
        }
    })
}
