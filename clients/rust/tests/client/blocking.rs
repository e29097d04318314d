//! The blocking client, outside a runtime and inside one.

use std::collections::HashSet;

use snowbank_client::blocking::Client;
use snowbank_client::{Error, IdsOptions};

use crate::fake_daemon::FakeDaemon;
use crate::options;

#[test]
fn threads_draw_different_ids_without_a_runtime() {
    let daemon = FakeDaemon::honest(1);
    let client = Client::new(options(&[&daemon])).expect("a client");
    let ids = client.ids(IdsOptions::default()).expect("IDs");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let ids = ids.clone();
            std::thread::spawn(move || (0..1_000).map(|_| ids.next_i64().expect("an ID")).collect::<Vec<_>>())
        })
        .collect();
    let drawn: Vec<i64> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 8_000);
    drop(client);
    // A buffer keeps its client alive.
    for _ in 0..100_000 {
        ids.next().expect("an ID");
    }
}

#[test]
fn a_batch_iterates_and_an_error_prints_as_one_line() -> Result<(), Error> {
    let daemon = FakeDaemon::honest(100);
    let client = Client::new(options(&[&daemon]))?;
    let ids: Vec<u64> = client.batch(3)?.into_iter().collect();
    assert_eq!(ids, [100, 101, 102]);
    assert_eq!(client.info()?.max_count, 1_000_000);
    let error = client.batch_from("orders", 1).expect_err("no such source");
    // This is how Rust prints an error that `main` returns.
    let expected = format!("{} has no source named \"orders\"; it has default", daemon.name());
    assert_eq!(format!("{error:?}"), expected);
    Ok(())
}

/// A blocking call in async code blocks the thread, and does not panic.
#[tokio::test]
async fn a_blocking_call_works_inside_a_runtime() {
    let daemon = FakeDaemon::honest(1);
    let client = Client::new(options(&[&daemon])).expect("a client");
    assert_eq!(client.batch(2).expect("IDs").len(), 2);
}
