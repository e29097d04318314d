//! The client over a simulated wire, on tokio's paused clock.
//!
//! Daemons stop, are replaced by others whose IDs can be lower, stand behind load balancers, lose
//! replies, refuse, or are no daemons at all. A seed decides everything. A failure names the seed
//! that repeats it.

mod app;
mod daemon;
mod world;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::age::sleep_machine;
use crate::client::{Client, ClientOptions, Error, IdsOptions};
use app::{App, TIMEOUT};
use snowbank_wire::ErrorCode;
pub(in crate::client) use world::dial;
use world::{Mode, PER_MS, Wire, World};

/// The simulated time in which daemons fail.
const STORM: Duration = Duration::from_secs(20);

/// The simulated time after the storm in which calls may still fail. It covers the pause that a
/// daemon asks for, the longest back-off, and a call that began in the storm.
const RECOVERY: Duration = Duration::from_secs(16);

/// The simulated time after the recovery, in which only `WentBack` may fail a call.
const CALM: Duration = Duration::from_secs(5);

/// Runs a test on a clock that jumps to the next timer whenever nothing else is left to do.
fn simulate<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(test)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(addresses: usize) -> ClientOptions {
    let names = (1..=addresses).map(|port| format!("simulated:{port}"));
    ClientOptions::new(names).expect("addresses").timeout(TIMEOUT)
}

fn client(addresses: usize) -> Client {
    Client::new(options(addresses)).expect("a client")
}

/// Changes a random daemon now and then, until the storm is over. Then makes all daemons serve.
async fn rage(wire: &Wire) {
    let began = Instant::now();
    wire.world().loses_one_in = 200;
    while began.elapsed() < STORM {
        let pause = {
            let mut world = wire.world();
            let daemons = world.daemons.len();
            let index = world.rng.usize(..daemons);
            let clock_ms = [0, 0, 5_000, -3_600_000][world.rng.usize(..4)];
            match world.rng.u32(..10) {
                0 | 1 => world.set(index, Mode::Down),
                2 => world.set(index, Mode::Silent),
                3 => world.set(index, Mode::Stalls),
                4 => world.set(index, Mode::Http),
                5 => world.set(index, Mode::Refuses(ErrorCode::Exhausted, Duration::from_secs(3_600))),
                6 => world.set(index, Mode::Refuses(ErrorCode::ClockBehind, ms(300))),
                _ => world.replace(index, clock_ms),
            }
            world.rng.u64(10..2_000)
        };
        sleep(ms(pause)).await;
    }
    let mut world = wire.world();
    world.loses_one_in = 0;
    (0..world.daemons.len()).for_each(|index| world.set(index, Mode::Serves));
}

/// Runs an application through a storm and a calm. Returns a digest of all IDs that the application
/// got.
fn weather(seed: u64) -> u64 {
    simulate(async {
        let addresses = 1 + seed as usize % 3;
        let wire = Wire::lay(seed, &[1, 2, 1][..addresses]);
        let app = App::start(&wire, &client(addresses), seed);
        rage(&wire).await;
        sleep(RECOVERY).await;
        app.expect_calm();
        sleep(CALM).await;
        let (handed_out, digest) = app.finish().await;
        let World { connects, claimed, .. } = *wire.world();
        assert!(connects < 1_500, "seed {seed}: {connects} connections");
        assert!(
            claimed < 3 * handed_out + 100_000,
            "seed {seed}: {claimed} claimed, {handed_out} handed out"
        );
        digest
    })
}

#[test]
fn no_promise_breaks_while_daemons_fail() {
    for seed in 0..24 {
        weather(seed);
    }
}

#[test]
fn a_seed_repeats_its_run() {
    assert_eq!(weather(5), weather(5));
    assert_ne!(weather(5), weather(8));
}

#[test]
fn lower_ids_of_a_new_daemon_come_after_one_error() {
    simulate(async {
        let wire = Wire::lay(1, &[1]);
        let mut ids = client(1).ids(IdsOptions::default()).expect("IDs");
        let high = ids.next().await.expect("an ID");
        wire.world().replace(0, -3_600_000);
        let claimed = wire.world().claimed;
        let began = Instant::now();
        let error = loop {
            match ids.next().await {
                Ok(id) => assert!(id > high),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::WentBack { .. }), "{error}");
        assert!(began.elapsed() < ms(1_100), "{:?}", began.elapsed());
        let skipped = wire.world().claimed - claimed;
        assert!(skipped < PER_MS, "{skipped} IDs are skipped");
        let mut last = 0;
        for _ in 0..10_000 {
            let id = ids.next().await.expect("the lower IDs");
            assert!(last < id && id < high);
            last = id;
        }
    });
}

#[test]
fn each_address_of_a_name_has_an_order_of_its_own() {
    simulate(async {
        let wire = Wire::lay(11, &[2]);
        wire.world().has_ips = true;
        wire.world().replace(1, -3_600_000);
        wire.world().set(1, Mode::Down);
        let client = client(1);
        let mut ids = client.ids(IdsOptions::default()).expect("IDs");
        let high = ids.next().await.expect("an ID");
        wire.world().set(1, Mode::Serves);
        wire.world().set(0, Mode::Down);
        let mut last = high;
        for _ in 0..10_000 {
            last = ids.next().await.expect("the other daemon's IDs have not gone back");
        }
        assert!(last < high);
        assert_eq!(client.batch(1).await.expect("an ID").endpoint(), "simulated:1 (127.0.0.1)");
    });
}

/// A client begins with a random address. With some of these seeds, nobody listens at that address.
#[test]
fn a_failure_leads_to_the_address_after_the_one_that_served() {
    for seed in 0..10 {
        simulate(async {
            let wire = Wire::lay(seed, &[3]);
            wire.world().has_ips = true;
            wire.world().set(0, Mode::Down);
            let client = client(1);
            let batch = client.batch(1).await.expect("an ID");
            let served = if batch.endpoint().ends_with("(127.0.0.1)") { 1 } else { 2 };
            wire.world().set(served, Mode::Silent);
            client.batch(1).await.expect("an ID of the other daemon");
            assert_eq!(wire.world().connects, 2, "seed {seed}: connections");
        });
    }
}

#[test]
fn ids_are_too_old_after_the_machine_has_slept() {
    simulate(async {
        let _wire = Wire::lay(8, &[1]);
        let mut ids = client(1).ids(IdsOptions::default().max_age(ms(60_000))).expect("IDs");
        ids.next().await.expect("an ID");
        assert!(ids.try_next().expect("no error").is_some(), "the buffer has more");
        sleep_machine(ms(61_000));
        // Timers do not run while the machine sleeps. Soon after the machine wakes, the next timer
        // ends, and the boot clock is read.
        sleep(ms(100)).await;
        assert_eq!(ids.try_next(), Ok(None), "the IDs in the buffer are too old");
        ids.next().await.expect("a new ID");
    });
}

#[test]
fn calls_fail_while_two_daemons_share_a_worker_id() {
    simulate(async {
        let wire = Wire::lay(4, &[1, 1]);
        wire.world().has_ips = true;
        wire.world().daemons[1].worker = 0;
        let client = client(2);
        client.batch(1).await.expect("no comparison yet");
        let mut ids = client.ids(IdsOptions::default().max_age(ms(600_000))).expect("IDs");
        ids.next().await.expect("an ID");
        sleep(ms(1_500)).await;
        client.batch(1).await.expect("one comparison does not suffice");
        sleep(ms(1_500)).await;
        assert_eq!(ids.try_next(), Ok(None), "the other daemon may hand out the IDs in the buffer");
        let error = client.batch(1).await.expect_err("two daemons with worker ID 0");
        let Error::SameWorkerIds { one, other, worker_id: 0, .. } = &error else { panic!("{error:?}") };
        assert_eq!((&**one, &**other), ("simulated:1 (127.0.0.0)", "simulated:2 (127.0.0.1)"));
        wire.world().daemons[1].worker = 1;
        sleep(ms(3_000)).await;
        client.batch(1).await.expect("the worker IDs differ");
    });
}

/// Only the first call's connection has compared the daemons.
#[test]
fn all_calls_in_turn_fail_while_two_daemons_share_a_worker_id() {
    simulate(async {
        let wire = Wire::lay(4, &[1, 1]);
        wire.world().daemons[1].worker = 0;
        let client = Client::new(options(2).take_turns(true)).expect("a client");
        client.batch(1).await.expect("no comparison yet");
        sleep(ms(3_000)).await;
        for _ in 0..2 {
            client.batch(1).await.expect_err("two daemons with worker ID 0");
        }
    });
}

/// The second daemon has taken the worker ID of the first while the first was down.
#[test]
fn an_endpoint_that_was_gone_is_compared_once_it_is_back() {
    simulate(async {
        let wire = Wire::lay(6, &[1, 1]);
        wire.world().daemons[1].worker = 0;
        wire.world().set(0, Mode::Down);
        let moved = client(2);
        moved.batch(1).await.expect("IDs");
        sleep(ms(200_000)).await;
        moved.batch(1).await.expect("IDs");
        // Comparisons continue until each endpoint has answered.
        wire.world().set(0, Mode::Serves);
        sleep(ms(200_000)).await;
        moved.batch(1).await.expect_err("two daemons with worker ID 0");
    });
}

#[test]
fn a_call_moves_on_from_a_daemon_exhausted_for_an_hour() {
    simulate(async {
        let wire = Wire::lay(7, &[1, 1]);
        wire.world().set(0, Mode::Refuses(ErrorCode::Exhausted, Duration::from_secs(3_600)));
        let client = client(2);
        for _ in 0..100 {
            let batch = client.batch(10).await.expect("IDs from the other daemon");
            assert_eq!(batch.endpoint(), "simulated:2");
            sleep(ms(100)).await;
        }
        assert!(wire.world().connects < 10);
    });
}

/// An answer resets the count of failures. Otherwise the client would stay away for seconds from a
/// daemon that restarts now and then.
#[test]
fn an_answer_resets_the_back_off() {
    simulate(async {
        let wire = Wire::lay(9, &[1]);
        let client = client(1);
        let mut waited = Duration::ZERO;
        for _ in 0..20 {
            let began = Instant::now();
            client.batch(1).await.expect("an ID");
            waited += began.elapsed();
            // This cuts the connection.
            wire.world().set(0, Mode::Serves);
            sleep(ms(10)).await;
        }
        assert!(waited < ms(20 * 60), "{waited:?}");
    });
}
