//! A request for a source by its index, INFO and PING.

use snowbank_client::layout::Run;
use snowbank_client::protocol::{Next, Wait};

use crate::fake_daemon::FakeDaemon;
use crate::{client, ms};

#[tokio::test]
async fn a_batch_has_the_requested_ids() {
    let daemon = FakeDaemon::start(|_, peer| {
        peer.greet();
        let (next, tag) = peer.read_next();
        let wait = Wait::at_most(ms(250));
        assert_eq!(next, Next { count: 5, source: 3, wait, explicit: false, partial: true });
        let runs = [Run { first: 100, count: 2, stride: 10 }, Run { first: 200, count: 1, stride: 0 }];
        peer.send_runs(tag, &runs, true);
        peer.send_run(tag, 300, 1);
        peer.wait_for_close();
    });
    let client = client(&[&daemon]);
    let batch = client.batch(5).source(3).max_wait(ms(250)).partial().await.expect("IDs");
    assert_eq!(batch.iter().collect::<Vec<_>>(), [100, 110, 200, 300]);
    assert_eq!((batch.len(), batch.endpoint()), (4, &*daemon.name()));
}
