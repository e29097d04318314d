//! The guarantees for every ID, over many connections of one daemon.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::ids::{assert_distinct, twitter_unix_ms, twitter_worker, unix_ms};
use crate::support::wire::{self, EXPLICIT, Run};
use crate::support::{Ask, Daemon, Random, Reply, Setup, Wire};
use snowbank_client::{Client, ClientOptions};

/// The default settings that bound an ID's tick, in ms.
const BURST_WINDOW_MS: u64 = 10;
const MAX_AHEAD_MS: u64 = 10_000;
const TICK_MS: u64 = 1;

/// Sends a request, and checks the tick of each ID. When the request was sent, the tick was at most
/// `burst_window` old. When the reply came, the tick was at most `max_ahead` in the future.
fn next_in_time(wire: &mut Wire, ask: Ask) -> Vec<Run> {
    let sent_ms = unix_ms();
    let runs = wire.next(ask).runs();
    let received_ms = unix_ms();
    for run in &runs {
        let first_ms = twitter_unix_ms(run.first);
        let last_ms = twitter_unix_ms(run.last());
        assert!(
            first_ms >= sent_ms - BURST_WINDOW_MS - TICK_MS,
            "an ID of {first_ms} ms is too old for a request sent at {sent_ms} ms"
        );
        assert!(
            last_ms <= received_ms + MAX_AHEAD_MS,
            "an ID of {last_ms} ms is too far ahead of a reply received at {received_ms} ms"
        );
    }
    runs
}

/// Draws IDs on one connection in batches of mixed sizes, and checks that they increase.
fn draw(daemon: &Daemon, seed: u64, total: u64) -> Vec<Run> {
    let mut random = Random::seeded(seed);
    let mut wire = daemon.connect();
    let mut drawn: Vec<Run> = Vec::new();
    let mut count = 0;
    while count < total {
        let size = random.pick(&[1, 1, 1, 2, 7, 100, 1_000, 4_096, 10_000, 30_000]);
        for run in next_in_time(&mut wire, Ask::of(size).wait_ms(10_000)) {
            let last = drawn.last();
            assert!(last.is_none_or(|last| last.last() < run.first), "{run:?} is not above {last:?}");
            assert_eq!(run.stride, 1);
            assert_eq!(twitter_worker(run.first), twitter_worker(run.last()));
            drawn.push(run);
        }
        count += u64::from(size);
    }
    drawn
}

#[test]
fn millions_of_ids_are_distinct_increasing_and_near_the_clock() {
    const CONNECTIONS: u64 = 8;
    const IDS_EACH: u64 = 400_000;
    // On a machine with fewer cores than shards, the kernel may interrupt a shard at any
    // instruction.
    let daemon = Setup::new().args(["--worker-id", "33", "--shards", "4"]).start();
    let drawn: Vec<Run> = thread::scope(|scope| {
        let daemon = &daemon;
        let draws: Vec<_> =
            (0..CONNECTIONS).map(|seed| scope.spawn(move || draw(daemon, seed, IDS_EACH))).collect();
        draws.into_iter().flat_map(|draw| draw.join().expect("no panic")).collect()
    });
    let total: u64 = drawn.iter().map(|run| u64::from(run.count)).sum();
    assert!(total >= CONNECTIONS * IDS_EACH);
    assert!(drawn.iter().all(|run| twitter_worker(run.first) == 33));
    assert_distinct(drawn);
    daemon.stop();
}

#[test]
fn info_has_exactly_the_keys_of_the_protocol() {
    let daemon = Setup::new().args(["--worker-id", "0-2", "--order", "strict"]).start();
    let Reply::Info(21, text) = daemon.connect().call(&wire::info(21)) else {
        panic!("no INFO");
    };
    let mut info: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut own = |key: &str| info.as_object_mut().and_then(|info| info.remove(key)).expect("the key exists");
    assert!(own("instance").as_str().is_some_and(|instance| !instance.is_empty()), "{text}");
    assert!(own("clock_unix_ms").as_u64().is_some_and(|clock| clock > 1_700_000_000_000), "{text}");
    let layout = "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657";
    let expected = serde_json::json!({
        "protocol": 1, "version": env!("CARGO_PKG_VERSION"), "max_count": 1_000_000, "order": "strict",
        "burst_window_ms": BURST_WINDOW_MS, "max_ahead_ms": MAX_AHEAD_MS,
        "sources": [{
            "name": "default", "kind": "snowflake", "layout": layout, "worker_ids": [0, 1, 2],
            "per_second": 3 * 4_096_000,
        }],
    });
    assert_eq!(info, expected);
}

/// Each daemon has a lock directory of its own, as in two containers. The client tells the daemons
/// apart by the `instance` of their INFO.
#[tokio::test]
async fn a_client_refuses_two_daemons_with_the_same_worker_id() {
    let daemons = [(); 2].map(|()| Setup::new().args(["--worker-id", "77"]).start());
    let [first, second] = daemons.each_ref().map(|daemon| daemon.tcp().to_string());
    let options = ClientOptions::new([&first, &second]).expect("addresses");
    let client = Client::new(options.timeout(Duration::from_secs(30))).expect("a runtime is there");
    let began = Instant::now();
    let mut has_failed = false;
    loop {
        match client.batch(1).await {
            Ok(_) => assert!(!has_failed, "IDs in spite of the collision"),
            Err(error) => {
                let text = error.to_string();
                for part in [&first, &second] {
                    assert!(text.contains(part), "expected {part:?} in {text:?}");
                }
                // Calls fail before both daemons have said what they are.
                if text.contains("\"worker_ids\":[77]") {
                    break;
                }
                has_failed = true;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(began.elapsed() < Duration::from_secs(60), "no call names both daemons and their worker IDs");
    }
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_order_by_tag() {
    let daemon = Setup::new().start();
    let mut wire = daemon.connect();
    let request = |tag: u16| match tag % 7 {
        0 => wire::ping(tag, &tag.to_be_bytes()),
        1 => wire::info(tag),
        2 => wire::hello(tag, b"no need"),
        3 => Ask::of(0).tag(tag).bytes(),
        4 => Ask::of(5).tag(tag).flags(EXPLICIT).bytes(),
        size => Ask::of(u32::from(size) * 10).tag(tag).bytes(),
    };
    let requests: Vec<u8> = (0..1_000).flat_map(request).collect();
    wire.send(&requests);
    let mut last = 0;
    for tag in 0..1_000 {
        let reply = wire.reply();
        assert_eq!(reply.tag(), tag);
        match (tag % 7, &reply) {
            (0, Reply::Pong(_, body)) => assert_eq!(*body, tag.to_be_bytes()),
            (1, Reply::Info(..))
            | (2, Reply::Welcome(..))
            | (3, Reply::Error { code: wire::BAD_COUNT, .. }) => {}
            (4, Reply::List(_, ids)) => assert_eq!(ids.len(), 5),
            (size @ 5.., Reply::Runs(..)) => assert_eq!(reply.id_count(), Some(u64::from(size) * 10)),
            _ => panic!("tag {tag} got {reply:?}"),
        }
        if reply.id_count().is_some() {
            let ids = reply.ids();
            assert!(last < ids[0]);
            last = ids[ids.len() - 1];
        }
    }
    wire.assert_open();
}

/// Without keepalive, the connection of a machine that vanished would stay for ever.
#[test]
fn silent_connections_are_probed_by_the_kernel() {
    let daemon = Setup::new().start();
    let _wire = daemon.connect();
    let port = format!(":{:04X}", daemon.tcp().port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    // The columns: number, local address, peer's address, state (01: established), queues, timer.
    let timers: Vec<&str> =
        rows.filter(|row| row[1].ends_with(&port) && row[3] == "01").map(|row| row[5]).collect();
    assert!(!timers.is_empty() && timers.iter().all(|timer| timer.starts_with("02:")), "{timers:?}");
}

/// The daemon's memory has tokens and keys.
#[test]
fn a_daemon_leaves_no_core() {
    let daemon = Setup::new().start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).expect("/proc is there");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["1", "1"], "{core}");
}
