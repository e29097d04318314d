//! `SharedIds`: one buffer for many tasks and threads.

use std::sync::mpsc;
use std::time::Duration;

use snowbank_client::IdsOptions;
use snowbank_wire::ErrorCode;

use crate::fake_daemon::FakeDaemon;
use crate::{client, ms};

/// If a caller that waits for the refill abandons its call, the next one waits for the same refill.
#[tokio::test]
async fn a_cancelled_caller_leaves_the_refill_to_the_others() {
    let (answer, answers) = mpsc::channel();
    let answers = std::sync::Mutex::new(answers);
    let daemon = FakeDaemon::start(move |_, peer| {
        peer.greet();
        let (_, tag) = peer.read_next();
        answers.lock().expect("no panic").recv().expect("the test lets the daemon answer");
        peer.send_run(tag, 7, 2);
        let (_, tag) = peer.read_next();
        peer.refuse(tag, ErrorCode::Exhausted, None, "");
        peer.wait_for_close();
    });
    let ids = client(&[&daemon]).shared_ids(IdsOptions::default().max_age(Duration::from_secs(3_600)));
    let ids = ids.expect("IDs");
    let cancelled = tokio::spawn({
        let ids = ids.clone();
        async move { ids.next().await }
    });
    tokio::time::sleep(ms(50)).await;
    let waiting = tokio::spawn({
        let ids = ids.clone();
        async move { ids.next().await }
    });
    tokio::time::sleep(ms(50)).await;
    cancelled.abort();
    cancelled.await.expect_err("the call was cancelled");
    answer.send(()).expect("the daemon waits");
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    assert_eq!(ids.next().await, Ok(8));
    let error = ids.next().await.expect_err("no ID is left");
    assert_eq!(error.code(), Some(ErrorCode::Exhausted));
}
