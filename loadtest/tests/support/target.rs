//! A target that does nothing wrong, as slow as wanted.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::fake_daemon::{Asked, FakeDaemon};

const EPOCH_MS: u64 = 1_288_834_974_657;
const WORKER: u64 = 3 << 12;
const INFO: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"index":0,"name":"default","kind":"snowflake","layout":"twitter","worker_ids":[3]}]}"#;

/// One that answers at once.
pub(crate) fn sound() -> FakeDaemon {
    slow(Duration::ZERO)
}

/// One that waits before each answer, on each connection.
pub(crate) fn slow(wait: Duration) -> FakeDaemon {
    let next_id = Mutex::new(0_u64);
    FakeDaemon::start(move |_, peer| {
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => {
                    std::thread::sleep(wait);
                    let first = {
                        let mut next_id = next_id.lock().expect("no panic");
                        let now_ms = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
                        let first = (*next_id).max((now_ms - EPOCH_MS) << 22 | WORKER);
                        *next_id = first + u64::from(next.count);
                        first
                    };
                    peer.send_run(tag, first, next.count)
                }
                _ => peer.send(|out| {
                    snowbank::protocol::reply::encode_info(out, tag, INFO.as_bytes());
                }),
            };
            if !goes_on {
                return;
            }
        }
    })
}
