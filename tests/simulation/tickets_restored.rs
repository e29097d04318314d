//! A ticket source on a machine that was restored from a snapshot. Requests are refused, even after
//! a restart of the daemon, until an operator sets the counter. The shipped start, keeper and state
//! file run, without the daemon's threads.

use crate::alone_with_locks;
use crate::lives::{STEP_RULE, load};
use crate::support::machine::Machine;
use snowbank::config::Settings;
use snowbank::server::simulated::{Ceilings, Place};
use snowbank_core::clock::{BootMicros, Reading};
use snowbank_id::layout::{Position, UnixMicros};

const SOURCES: &str = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n\n[[sources]]\nname = \"ids\"\n";
const START: Reading = Reading { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(500_000_000) };

fn settings() -> Settings {
    load(SOURCES, START.wall).expect("the configuration is right")
}

fn start(machine: &Machine, settings: &Settings) -> Result<Ceilings, String> {
    let state = machine.path("state");
    let locks = machine.path("locks");
    let on = Place { directory: Some(&state), adopt: false, lock_dir: &locks, boot: "one" };
    Ceilings::start(on, &settings.sources, STEP_RULE, START).map_err(|error| error.to_string())
}

/// Polls the keeper, and makes the writes that it starts.
fn settle(ceilings: &mut Ceilings) {
    for _ in 0..4 {
        for write in ceilings.poll(START).writes {
            let outcome = ceilings.write(&write);
            ceilings.written(outcome, START);
        }
    }
}

/// Returns for each source whether it can claim.
fn claims(ceilings: &Ceilings) -> Vec<bool> {
    let now = ceilings.keeper.believe(START);
    let claim = |source: &std::sync::Arc<snowbank_core::source::Source>| {
        source.claim(&source.window(now), 1, &mut fastrand::Rng::with_seed(1)).is_some()
    };
    ceilings.keeper.sources().map(claim).collect()
}

fn set(machine: &Machine, value: &str) {
    machine.run(&["ticket", "set", "orders", value]).printed();
}

#[test]
fn a_counter_of_a_restored_machine_is_refused_until_it_is_set() {
    let _alone = alone_with_locks();
    let machine = Machine::new();
    let settings = settings();
    set(&machine, "100");
    let mut ceilings = start(&machine, &settings).expect("it starts");
    assert_eq!(claims(&ceilings), [true, true]);

    ceilings.keeper.sources().for_each(|source| source.record_restored());
    assert_eq!(claims(&ceilings), [false, false]);
    settle(&mut ceilings);
    assert_eq!(claims(&ceilings), [false, true], "no clock shows what another copy has handed out");
    let orders = ceilings.keeper.sources().next().expect("orders");
    assert!(orders.grant().is_lost() && orders.grant().ceiling() == Position(0));

    // The process ends as by a kill.
    drop(ceilings);
    let command = format!("snowbank ticket set orders VALUE --state-dir {}", machine.path("state").display());
    for _ in 0..2 {
        machine.setup(SOURCES).end().assert_refusal(&["\"orders\"", "restored from a snapshot", &command]);
    }
    let shown = machine.run(&["state", "show"]);
    assert!(shown.out.contains("restored from a snapshot"), "{shown:?}");

    set(&machine, "5000");
    let daemon = machine.start(SOURCES);
    assert_eq!(daemon.draw_one(), 5_001);
    daemon.stop();
    assert_eq!(machine.start(SOURCES).draw_one(), 5_002, "a later start continues");
}

/// The disk hangs, so the writes of the keeper never end, until the process is killed.
#[test]
fn a_kill_when_restored_with_a_hanging_disk_leaves_the_counter_refused() {
    let _alone = alone_with_locks();
    let machine = Machine::new();
    let settings = settings();
    set(&machine, "0");
    let mut ceilings = start(&machine, &settings).expect("it starts");
    assert_eq!(claims(&ceilings), [true, true]);
    ceilings.keeper.sources().for_each(|source| source.record_restored());
    ceilings.poll(START);
    drop(ceilings);
    let refused = start(&machine, &settings).map(drop).expect_err("no operator has set the counter");
    assert!(refused.contains("restored from a snapshot"), "{refused}");
    set(&machine, "5000");
    assert_eq!(claims(&start(&machine, &settings).expect("it is set")), [true, true]);
}

#[test]
fn a_clean_stop_when_restored_leaves_the_counter_refused() {
    let _alone = alone_with_locks();
    let machine = Machine::new();
    let settings = settings();
    set(&machine, "0");
    let ceilings = start(&machine, &settings).expect("it starts");
    assert_eq!(claims(&ceilings), [true, true]);
    ceilings.keeper.sources().for_each(|source| source.record_restored());
    // Stops before the keeper is polled.
    ceilings.stop().expect("storage works");
    let refused = start(&machine, &settings).map(drop).expect_err("no operator has set the counter");
    assert!(refused.contains("restored from a snapshot"), "{refused}");
}
