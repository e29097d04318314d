//! The client against real daemons that stop, are killed, and come back.

use std::time::Duration;

use crate::support::Setup;
use crate::support::program::{Said, program};
use snowbank_client::{Client, ClientOptions};

#[test]
fn next_asks_the_next_address_if_one_fails() {
    let mut daemons = ["1", "2"].map(|worker| Setup::new().args(["--worker-id", worker]).start());
    let addresses = daemons.each_ref().map(|daemon| daemon.tcp().to_string()).join(",");
    let next = || {
        let mut next = program();
        Said::by(next.args(["next", "-n", "2"]).env("SNOWBANK_ADDRESS", &addresses))
    };
    let worker_id =
        |ids: &str| ids.lines().next().and_then(|id| id.parse::<u64>().ok()).map(|id| id >> 12 & 31);
    assert_eq!(worker_id(&next().out), Some(1), "the first address serves");
    daemons[0].kill();
    assert_eq!(worker_id(&next().out), Some(2), "the second address serves");
    daemons[1].kill();
    let Said { code, err, .. } = next();
    assert!(code != Some(0) && daemons.iter().all(|daemon| err.contains(&daemon.tcp().to_string())), "{err}");
}

/// The daemons are like two containers that do not share a lock directory.
#[tokio::test]
async fn two_daemons_with_the_same_worker_id_are_refused() {
    let daemons = [(); 2].map(|()| Setup::new().args(["--worker-id", "77"]).start());
    let [first, second] = daemons.each_ref().map(|daemon| daemon.tcp().to_string());
    let options = ClientOptions::new([&first, &second]).expect("addresses");
    let client = Client::new(options.timeout(Duration::from_secs(30))).expect("a runtime is there");
    let began = std::time::Instant::now();
    let error = loop {
        match client.batch(1).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => break error,
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nobody noticed");
    };
    let text = error.to_string();
    for part in [&first, &second, "worker ID 77"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
