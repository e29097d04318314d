//! The client against scripted daemons on loopback, for behaviour without a case in
//! clients/conformance.

#[path = "../fake_daemon/lib.rs"]
mod fake_daemon;

mod blocking;
mod fork;
mod ids;
mod outages;
mod refusals;
mod shared_ids;

use std::time::Duration;

use fake_daemon::FakeDaemon;
use snowbank_client::{Client, ClientOptions};
use tokio::time::sleep;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Options with limits that even a busy machine meets.
pub(crate) fn patient<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> ClientOptions {
    let limit = Duration::from_secs(40);
    let options = ClientOptions::new(addresses).expect("sound addresses").backoff(ms(1), ms(20));
    options.timeout(limit).connect_timeout(limit).answer_timeout(limit)
}

pub(crate) fn options(daemons: &[&FakeDaemon]) -> ClientOptions {
    patient(daemons.iter().map(|daemon| daemon.name()))
}

pub(crate) fn client(daemons: &[&FakeDaemon]) -> Client {
    Client::new(options(daemons)).expect("a client")
}

/// Waits until the condition holds. Panics after far more time than that should take.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        sleep(ms(1)).await;
    }
    panic!("waited in vain: {what}");
}
