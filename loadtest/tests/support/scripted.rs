//! Targets that answer requests by a script: a function that each test writes.

pub(crate) mod fake_daemon;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use fake_daemon::{Asked, FakeDaemon, Peer};
use snowbank_wire::Next;

const EPOCH_MS: u64 = 1_288_834_974_657;
const WORKER: u64 = 3 << 12;
pub(crate) const INFO: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"name":"default","kind":"snowflake","layout":"twitter","worker_ids":[3]}]}"#;
pub(crate) const WORKER_4: &str = r#"{"protocol":1,"max_count":1000,"sources":[
    {"name":"default","layout":"twitter","worker_ids":[4]}]}"#;

/// The number of a request, counted over all connections from 0.
pub(crate) type Number = u64;

/// Hands out valid IDs of worker 3.
#[derive(Default)]
pub(crate) struct Ids(pub(crate) Mutex<u64>);

impl Ids {
    pub(crate) fn take(&self, count: u32) -> u64 {
        let mut next_id = self.0.lock().expect("no panic");
        let first = (*next_id).max(first_of_tick(0));
        *next_id = first + u64::from(count);
        first
    }
}

/// Returns the first ID of the tick that is `ahead_ms` after now.
pub(crate) fn first_of_tick(ahead_ms: i64) -> u64 {
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    (now_ms - EPOCH_MS).saturating_add_signed(ahead_ms) << 22 | WORKER
}

/// Runs a target that sends `info`, and calls the script to answer each request. The script returns
/// false to close the connection.
pub(crate) fn target(
    info: &'static str,
    script: impl Fn(Number, &Ids, &mut Peer, Next, u16) -> bool + Send + Sync + 'static,
) -> FakeDaemon {
    let ids = Ids::default();
    let requests = AtomicU64::new(0);
    FakeDaemon::start(move |_, peer| {
        while let Some((asked, tag)) = peer.read() {
            let goes_on = match asked {
                Asked::Next(next) => script(requests.fetch_add(1, Ordering::SeqCst), &ids, peer, next, tag),
                _ => peer.send(|out| {
                    snowbank_wire::reply::encode_info(out, tag, info.as_bytes());
                }),
            };
            if !goes_on {
                return;
            }
        }
    })
}

/// Runs a target that makes no mistake.
pub(crate) fn sound_target() -> FakeDaemon {
    sound_but_for(INFO)
}

/// Runs a target that hands out IDs of worker 3 of Twitter's layout, whatever `info` says.
pub(crate) fn sound_but_for(info: &'static str) -> FakeDaemon {
    target(info, |_, ids, peer, next, tag| peer.send_run(tag, ids.take(next.count), next.count))
}

/// Runs a target that answers at most `requests_per_s`, however many requests wait. Counts requests
/// in `asks`.
pub(crate) fn with_capacity(requests_per_s: f64, asks: Arc<AtomicU64>) -> FakeDaemon {
    let free_at = Mutex::new(Instant::now());
    target(INFO, move |_, ids, peer, next, tag| {
        asks.fetch_add(1, Ordering::SeqCst);
        let due = {
            let mut free_at = free_at.lock().expect("no panic");
            *free_at = (*free_at).max(Instant::now()) + Duration::from_secs_f64(1.0 / requests_per_s);
            *free_at
        };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        peer.send_run(tag, ids.take(next.count), next.count)
    })
}

/// Listens, and calls `with` with each connection. Returns the address of the listener.
pub(crate) fn listener(with: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(with));
    address
}
