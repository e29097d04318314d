//! Ticket sources over kills, stops, older copies of the state, and changes of their increment.
//!
//! [`shared`]: ticket sources whose counter is at the coordinator of a fleet.

mod shared;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::failing_disk::ENOSPC;
use crate::support::frontend::FrontEndClient;
use crate::support::http::{get, sample, scrape};
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::program::{Said, program};
use crate::support::resp::{Client, array};
use crate::support::wire::{EXHAUSTED, NO_CEILING, PARTIAL, Run};
use crate::support::witness::{Load, MIXED, SPARSE, Witness};
use crate::support::{Ask, Daemon, Random, Reply, poll};

const ORDERS: &str = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";
const ODD: &str = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\nincrement = 2\noffset = 1\n";
const EVEN: &str = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\nincrement = 2\noffset = 2\n";
/// The smallest reservation: the most numbers that a crash of an unused daemon skips.
const RESERVE: u64 = 32;

/// A load that requests more numbers at once than the smallest reservation has.
const LARGE: Load = Load { counts: &[1, 700, 40_000], pause: Duration::from_millis(1) };

/// Returns how often a test kills its daemon: `SNOWBANK_TICKET_ROUNDS`, which `tests/long` sets, or
/// a default.
fn rounds() -> u64 {
    std::env::var("SNOWBANK_TICKET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(8)
}

fn set(machine: &Machine, value: &str) {
    machine.run(&["ticket", "set", "orders", value]).printed();
}

/// Makes a state whose counter has only the odd or only the even numbers. Returns the directory of
/// the state.
fn set_half(machine: &Machine, offset: &str) -> PathBuf {
    let state = machine.path(&format!("state-{offset}"));
    let place = state.to_str().expect("text");
    let half = ["--increment", "2", "--offset", offset, "--state-dir", place];
    let said = machine.run(&[&["ticket", "set", "orders", "100"], &half[..]].concat()).printed();
    assert!(said.ends_with(&format!("directory {place}\n")), "{said}");
    state
}

/// Checks that `ticket set` refuses this value with this code. Returns its error message.
#[track_caller]
fn refuses(machine: &Machine, value: &str, code: i32) -> String {
    machine.run(&["ticket", "set", "orders", value]).refusal(code)
}

fn counted_from(value: &str) -> Machine {
    let machine = Machine::new();
    set(&machine, value);
    machine
}

fn next(daemon: &Daemon, count: u32) -> Vec<u64> {
    daemon.connect().next(Ask::of(count).wait_ms(9_000)).ids()
}

#[test]
fn a_counter_continues_after_a_clean_stop_without_a_gap() {
    let machine = counted_from("1000");
    let mut expected = 1_001;
    for round in 0..5_u32 {
        // Other machines can reach this daemon. Even so, a daemon that has only counters needs no
        // worker ID.
        let daemon = machine.setup(ORDERS).option("--listen", "0.0.0.0:0").start();
        for count in [1, 3, 2_500 * round + 1] {
            let ids = next(&daemon, count);
            let wanted: Vec<u64> = (expected..expected + u64::from(count)).collect();
            assert_eq!(ids, wanted, "round {round}");
            expected += u64::from(count);
        }
        daemon.stop();
    }
}

/// Each number is durable before it is handed out, and none is reserved beyond it.
#[test]
fn with_a_reserve_of_one_a_kill_skips_no_number() {
    let machine = counted_from("1000");
    let mut expected = 1_001;
    for _ in 0..3 {
        let mut daemon = machine.start(&format!("{ORDERS}reserve = 1\n"));
        for count in [1, 1, 40, 1] {
            let ids = next(&daemon, count);
            let wanted: Vec<u64> = (expected..expected + u64::from(count)).collect();
            assert_eq!(ids, wanted);
            expected += u64::from(count);
        }
        daemon.kill();
    }
    // A few requests that do not wait are refused, and then one is served.
    let daemon = machine.start(&format!("{ORDERS}reserve = 1\n"));
    let mut wire = daemon.connect();
    let reply = poll("numbers", || {
        Some(wire.next(Ask::of(40).wait_ms(0))).filter(|reply| reply.id_count().is_some())
    });
    assert_eq!(reply.ids()[0], expected);
}

/// Returns the last number of the source `orders`, as each place of the daemon tells it. Asserts that
/// each place with words says whether it is exact.
fn last_everywhere(daemon: &Daemon, is_exact: bool) -> [String; 7] {
    let [_, resp, memcached, http, _] = &daemon.addresses[..] else { panic!("{:?}", daemon.addresses) };
    let mut redis = FrontEndClient::connect(resp.tcp());
    redis.send("GET orders\r\nINCRBY orders 0\r\n");
    let [_, by_get, by_0] = [(); 3].map(|()| redis.line());
    let mut memcached = FrontEndClient::connect(memcached.tcp());
    memcached.send("incr orders 0\r\n");
    let sources = FrontEndClient::connect(http.tcp()).get("/v1/sources", "").json();
    let status = get(daemon, "/status").json();
    let text = |json: &serde_json::Value| {
        assert_eq!(json["sources"][0]["last_is_exact"], is_exact, "{json}");
        json["sources"][0]["last"].as_str().expect("text").to_owned()
    };
    let words = status["sources"][0]["facts"][0].as_str().expect("a fact");
    let prefix = if is_exact { "last number " } else { "last number at most " };
    let words = words.strip_prefix(prefix).and_then(|words| words.split_once(';'));
    let metric = sample(&scrape(daemon), "snowbank_ticket_last{source=\"orders\"}");
    [
        by_get,
        by_0.trim_start_matches(':').to_owned(),
        memcached.line(),
        text(&sources),
        text(&status),
        words.map_or("0", |(last, _)| last).to_owned(),
        metric.to_string(),
    ]
}

#[test]
fn every_place_tells_the_same_last_number() {
    let machine = counted_from("0");
    let shown = |expected: &str| {
        let shown = machine.run(&["state", "show"]).out;
        assert!(shown.contains(&format!("  last        {expected}\n")), "{expected}: {shown}");
    };
    let start = || machine.setup(ORDERS).resp().front_end("memcached").front_end("http").admin().start();
    shown("0");
    let mut daemon = start();
    assert_eq!(last_everywhere(&daemon, true), [(); 7].map(|()| "0"));
    next(&daemon, 7);
    assert_eq!(last_everywhere(&daemon, true), [(); 7].map(|()| "7"));
    shown("at most 32");
    daemon.kill();
    shown("at most 32");
    // A stop without a number does not make it known.
    for _ in 0..2 {
        let daemon = start();
        assert_eq!(last_everywhere(&daemon, false), [(); 7].map(|()| "32"), "the highest that is possible");
        daemon.stop();
        shown("at most 32");
    }
    let daemon = start();
    assert_eq!(next(&daemon, 2), [33, 34]);
    assert_eq!(last_everywhere(&daemon, true), [(); 7].map(|()| "34"));
    daemon.stop();
    shown("34");
    let json = machine.run(&["state", "show", "--json"]).out;
    assert!(json.contains(r#""last":"34","last_is_exact":true"#), "{json}");
    assert_eq!(last_everywhere(&start(), true), [(); 7].map(|()| "34"));
}

#[test]
fn a_counter_without_a_stored_value_does_not_start() {
    let machine = Machine::new();
    let directory = machine.path("state");
    let command = format!("snowbank ticket set orders VALUE --state-dir {}", directory.display());
    machine.setup(ORDERS).end().assert_refusal(&["\"orders\"", &command]);
    machine.setup(ORDERS).option("--state-dir", "none").end().assert_refusal(&["--state-dir", "\"orders\""]);
    set(&machine, "0");
    let daemon = machine.start(ORDERS);
    assert_eq!(next(&daemon, 2), [1, 2]);
    let refusal = refuses(&machine, "500", 1);
    assert!(refusal.contains("is in use"), "{refusal}");
    daemon.stop();
    // A source with another name has another counter.
    let other = ORDERS.replace("orders", "users");
    machine.setup(&other).end().assert_refusal(&["\"users\"", "ticket set users"]);
    // If the source has an increment and an offset, the suggested command also has both.
    let other = EVEN.replace("orders", "users");
    let command =
        format!("ticket set users VALUE --increment 2 --offset 2 --state-dir {}", directory.display());
    machine.setup(&other).end().assert_refusal(&["\"users\"", &command]);
}

/// Two names count two tables, so a change of the name that is rolled back finds the old counter.
#[test]
fn a_renamed_counter_is_told_of_the_old_one() {
    let machine = counted_from("1000");
    let renamed = ORDERS.replace("orders", "orders2");
    machine.setup(&renamed).end().assert_refusal(&["set orders2 VALUE", "another name is another counter"]);
    let said = machine.run(&["ticket", "set", "orders2", "1000"]).printed();
    assert!(said.contains("the state's other counters stay where they are"), "{said}");
    let new = Machine::new().setup(ORDERS).end();
    new.assert_refusal(&["no record of its counter"]);
    assert!(!new.stderr.contains("another counter"), "{new:?}");
}

#[test]
fn ticket_set_only_raises_a_counter() {
    let machine = counted_from("41");
    let shown = machine.run(&["state", "show"]).out;
    assert!(shown.contains("no daemon has counted since") && !shown.contains("owner"), "{shown}");
    let daemon = machine.start(ORDERS);
    assert_eq!(next(&daemon, 3), [42, 43, 44]);
    daemon.stop();
    let refusal = refuses(&machine, "43", 1);
    assert!(refusal.contains("found 43, allowed: from 44 on"), "{refusal}");
    set(&machine, "44");
    set(&machine, "100");
    let state = format!("because the state in {} shows that numbers", machine.path("state").display());
    let refusal = refuses(&machine, "99", 1);
    assert!(refusal.contains("allowed: from 100 on") && refusal.contains(&state), "{refusal}");
    // Another state directory may be another table's.
    let other = machine.path("other");
    let elsewhere =
        || machine.run(&["ticket", "set", "orders", "5", "--state-dir", other.to_str().expect("text")]);
    let refusal = elsewhere().refusal(1);
    assert!(refusal.contains("numbers another table, give this source another name"), "{refusal}");
    let daemon = machine.start(ORDERS);
    assert_eq!(next(&daemon, 1), [101]);
    let refusal = elsewhere().refusal(1);
    assert!(
        refusal.contains("if it numbers another table, give one of the sources another name"),
        "{refusal}"
    );
    drop(daemon);
    for (value, part) in [
        // A counter that is set to the largest number could never count again.
        ("9223372036854775807", "up to 9223372036854775806, because the source has no number above"),
        ("-1", "from 0 to"),
        ("9223372036854775808", "from 0 to"),
        ("many", "from 0 to"),
    ] {
        let said = machine.run(&["ticket", "set", "orders", value]);
        assert!(said.code == Some(2) && said.err.contains(part), "{value}: {said:?}");
    }
}

/// Each increment and offset has a lock of its own, with a mark of its own.
#[test]
fn ticket_set_with_a_file_names_the_command_of_an_own_counter() {
    let machine = Machine::new();
    let config = machine.path("own.toml");
    let state = machine.path("state");
    let own = format!("state_dir = {state:?}\n{EVEN}\n[[sources]]\nname = \"ids\"\n");
    fs::write(&config, &own).expect("written");
    let config = config.to_str().expect("text");
    let said = |name: &str| {
        let mut command = program();
        command.args(["ticket", "set", name, "100", "--config", config]);
        Said::by(&mut command).refusal(2)
    };
    let refusal = said("orders");
    assert!(refusal.contains("kind = \"ticket\""), "{refusal}");
    let command = refusal.split('`').nth(1).expect("a command");
    // The command, as it stands there, does it.
    machine.run(&command.split(' ').skip(1).collect::<Vec<_>>()).printed();
    assert_eq!(next(&machine.start(EVEN), 1), [102]);
    assert!(said("ids").contains("has no counter"));
    assert!(said("other").contains("has no source \"other\""));
}

#[test]
fn a_lowered_counter_starts_under_any_increment() {
    let machine = Machine::new();
    for [increment, offset] in [["2", "1"], ["2", "2"], ["1", "1"]] {
        let high = ["ticket", "set", "orders", "1000", "--increment", increment, "--offset", offset];
        machine.run(&high).printed();
        machine.run(&["ticket", "set", "orders", "10", "--lower"]).printed();
        for (toml, first) in [(ORDERS, 11), (ODD, 13), (EVEN, 16)] {
            let daemon = machine.start(toml);
            assert_eq!(next(&daemon, 1), [first], "{toml}");
            daemon.stop();
        }
    }
}

#[test]
fn kills_skip_numbers_and_never_repeat_one() {
    let machine = counted_from("0");
    let mut random = Random::seeded(7);
    let mut runs = Vec::<Run>::new();
    let mut highest = 0;
    for round in 0..rounds() {
        let mut daemon = machine.start(ORDERS);
        let first = next(&daemon, 1)[0];
        assert!(first > highest, "round {round}: the first number {first} is not above {highest}");
        let witness = Witness::of(&daemon, &[MIXED, LARGE, LARGE, SPARSE]);
        witness.await_time(Duration::from_micros(random.below(200_000)));
        daemon.kill();
        let testimony = witness.after_death();
        // On a busy machine a reservation may come too late.
        testimony.assert_refusals(|sample, _, _| sample.is_starved);
        // All connections draw from one cursor, so a request gets larger numbers than every earlier
        // reply.
        for sample in testimony.connections.iter().flatten() {
            assert!(sample.ids().is_none_or(|(first, _)| first > sample.highest_before), "{sample:?}");
        }
        let new = testimony.runs();
        highest = new.iter().map(|run| run.last()).max().unwrap_or(first).max(first);
        runs.extend(new);
        runs.push(Run { first, count: 1, stride: 1 });
    }
    assert_distinct(runs);
}

#[test]
fn an_older_copy_of_the_state_is_refused() {
    let machine = counted_from("0");
    let ceilings = machine.path("state").join("ceilings");
    let older = fs::read(&ceilings).expect("a state");
    let mut daemon = machine.start(ORDERS);
    assert_eq!(next(&daemon, 3), [1, 2, 3]);
    daemon.kill();
    fs::write(&ceilings, older).expect("the older copy is put back");
    machine.setup(ORDERS).end().assert_refusal(&["older", "\"orders\"", "number 33"]);
    // With another increment the older copy would repeat numbers as well.
    machine.setup(ODD).end().assert_refusal(&["older", "\"orders\""]);
    let adopted = machine.setup(ORDERS).args(["--adopt-state"]).start();
    assert_eq!(next(&adopted, 1), [33], "the daemon starts above all reserved numbers");
    adopted.stop();
}

#[test]
fn a_changed_increment_starts_above_the_highest_ever_granted() {
    let machine = counted_from("10");
    let lives = [(ODD, 11, 13), (EVEN, 16, 18), (ORDERS, 20, 21), (EVEN, 22, 24), (ODD, 27, 29)];
    for (toml, first, second) in lives {
        let daemon = machine.start(toml);
        assert_eq!(next(&daemon, 2), [first, second], "{toml}");
        daemon.stop();
    }
    let mut daemon = machine.start(EVEN);
    let last = next(&daemon, 1)[0];
    daemon.kill();
    assert!(next(&machine.start(ODD), 1)[0] > last);
}

#[test]
fn ticket_numbers_end_at_the_maximum_and_never_wrap() {
    let last: u64 = i64::MAX as u64;
    let machine = counted_from(&(last - 5).to_string());
    let daemon = machine.start(ORDERS);
    let mut wire = daemon.connect();
    assert_eq!(wire.next(Ask::of(2)).ids(), [last - 4, last - 3]);
    let refused = |reply: Reply| {
        let (code, retry_after_ms, message) = reply.error();
        assert_eq!((code, retry_after_ms), (EXHAUSTED, 0), "{message}");
        assert!(message.contains("its counter ends at its maximum; "), "{message}");
        assert!(message.contains("raise `maximum`"), "{message}");
    };
    refused(wire.next(Ask::of(4)));
    assert_eq!(wire.next(Ask::of(4).flags(PARTIAL)).ids(), [last - 2, last - 1, last], "the last 3");
    refused(wire.next(Ask::of(1)));
    daemon.stop();
    refused(machine.start(ORDERS).connect().next(Ask::of(1)));
    let before = fs::read(machine.path("state").join("ceilings")).expect("a state");
    let lowered = format!("{ORDERS}maximum = 500\n");
    machine.setup(&lowered).end().assert_refusal(&["found maximum 500, allowed: from ", "handed out"]);
    assert_eq!(fs::read(machine.path("state").join("ceilings")).expect("a state"), before);
    let shown = machine.run(&["state", "show"]).out;
    assert!(shown.contains("every number handed out is below 9223372036854775808"), "{shown}");
}

/// The rest of a reservation is skipped, and here it has the counter's last number.
#[test]
fn a_crash_in_the_last_reservation_ends_the_counter() {
    let machine = counted_from(&(i64::MAX as u64 - 5).to_string());
    let mut daemon = machine.start(ORDERS);
    assert_eq!(next(&daemon, 1).len(), 1);
    daemon.kill();
    assert_eq!(machine.start(ORDERS).connect().next(Ask::of(1)).error().0, EXHAUSTED);
}

#[test]
fn only_the_reserved_numbers_are_served_on_failing_storage() {
    let machine = counted_from("0");
    let disk = machine.disk();
    let daemon = disk.under(machine.setup(ORDERS)).start();
    let mut wire = daemon.connect();
    assert_eq!(wire.next(Ask::of(1)).ids(), [1]);
    disk.order(&format!("any fail {ENOSPC}"));
    let mut last = 1;
    let refusal = loop {
        let reply = wire.next(Ask::of(100).wait_ms(300));
        if reply.id_count().is_none() {
            break reply;
        }
        let ids = reply.ids();
        assert_eq!(ids[0], last + 1, "the daemon skipped a number");
        last = ids[99];
        assert!(last <= 2 * RESERVE, "the daemon handed out numbers above its ceiling");
    };
    let (code, ..) = refusal.error();
    assert_eq!(code, NO_CEILING);
    disk.works();
    let reply = poll("a number", || Some(wire.next(Ask::of(1))).filter(|reply| reply.id_count().is_some()));
    assert!(reply.ids()[0] > last);
    daemon.stop();
}

#[test]
fn a_counter_moves_to_another_machine() {
    let old = counted_from("7");
    let new = Machine::new();
    let file = old.path("export").display().to_string();
    let exported = old.run(&["state", "export", "--output", &file]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    old.setup(ORDERS).end().assert_refusal(&["\"orders\"", "snowbank state import"]);
    let refusal = refuses(&old, "900", 1);
    assert!(refusal.contains("moved its counter away"), "{refusal}");
    let imported = new.run(&["state", "import", &file]).printed();
    assert!(imported.contains("ticket counter: goes on from ID 8"), "{imported}");
    assert_eq!(next(&new.start(ORDERS), 1), [8]);
}

/// A shop may have a counter for each table, on a small machine. The bounds are twice what was
/// measured. The metrics are read by programs that refuse more than 10 MB.
#[test]
fn a_daemon_bears_1024_counters() {
    let names: Vec<String> = (0..1_024).map(|index| format!("table{index}")).collect();
    let one = counted_from("0");
    let file = one.path("export").display().to_string();
    assert_eq!(one.run(&["state", "export", "--output", &file]).code, Some(0));
    let text = fs::read_to_string(&file).expect("an export");
    let mut export: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let record = export["records"][0].clone();
    let named = |name: &String| {
        let mut record = record.clone();
        record["name"] = name.as_str().into();
        record
    };
    export["records"] = names.iter().map(named).collect();
    fs::write(&file, export.to_string()).expect("written");
    let machine = Machine::new();
    machine.run(&["state", "import", &file]).printed();
    let sources: String = names.iter().map(|name| ORDERS.replace("orders", name)).collect();
    let daemon = machine.setup(&sources).resp().admin().start();
    // On a busy machine such a start takes longer than a request waits.
    poll("a ready daemon", || (get(&daemon, "/readyz").code == 200).then_some(()));
    let mut client = Client::of(&daemon);
    for name in &names {
        client.send(array(&["INCR", name]));
        assert_eq!(client.integer(), 1);
    }
    let resident_kib = daemon.resident_kib();
    let metrics = get(&daemon, "/metrics").body.len();
    let state = fs::metadata(machine.path("state").join("ceilings")).expect("a state file").len();
    assert!(resident_kib <= 96 * 1_024, "{resident_kib} KiB resident");
    assert!(metrics <= 1_600_000, "{metrics} bytes of metrics");
    assert!(state <= 4 << 20, "{state} bytes of state");
}

/// `ticket set` for the even numbers succeeds while a daemon serves the odd numbers.
#[test]
fn two_daemons_of_a_machine_share_a_counter_only_by_offsets() {
    let machine = Machine::new();
    let odd = machine.setup(ODD).option("--state-dir", set_half(&machine, "1")).start();
    assert_eq!(next(&odd, 2), [101, 103]);
    let all = ["ticket", "set", "orders", "100", "--state-dir"];
    let refused = machine.run(&[&all[..], &[machine.path("third").to_str().expect("text")]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let even = set_half(&machine, "2");
    for taken in [ODD, ORDERS] {
        let ended = machine.setup(taken).option("--state-dir", &even).end();
        ended.assert_refusal_for_now(&["ticket orders", "held by another daemon"]);
    }
    let even = machine.setup(EVEN).option("--state-dir", &even).start();
    assert_eq!((next(&odd, 2), next(&even, 3)), (vec![105, 107], vec![102, 104, 106]));
}

/// The source with a layout has far larger IDs than the counter. Its bound must not become the
/// counter's.
#[test]
fn an_ended_counter_beside_a_layout_starts_again_after_a_stop() {
    let machine = counted_from("10");
    let toml = format!("[[sources]]\nname = \"ids\"\n\n{ORDERS}maximum = 12\n");
    let daemon = machine.start(&toml);
    assert_eq!(daemon.connect().next(Ask::of(2).source("orders")).ids(), [11, 12]);
    daemon.stop();
    for _ in 0..2 {
        let daemon = machine.start(&toml);
        daemon.draw_one();
        let ended = daemon.connect().next(Ask::of(1).source("orders"));
        assert_eq!(ended.error().0, EXHAUSTED);
        daemon.stop();
    }
    let warning =
        "source \"orders\": all numbers up to its maximum 12 are handed out or reserved; raise `maximum`";
    let file = machine.path("checked.toml");
    std::fs::write(&file, &toml).unwrap();
    let said = machine.run(&["check", file.to_str().unwrap()]);
    assert!(said.out.contains(warning), "{said:?}");
    let raised = toml.replace("maximum = 12", "maximum = 13");
    let ids = machine.start(&raised).connect().next(Ask::of(1).source("orders")).ids();
    assert_eq!(ids, [13], "the counter's bound stayed its own");
}

/// The number after the last one is above the maximum, by up to an increment. No start takes that for
/// a number that was handed out.
#[test]
fn an_ended_counter_with_an_increment_starts_again() {
    let machine = counted_from("0");
    let toml = |maximum: u64| format!("{ORDERS}increment = 5\noffset = 3\nmaximum = {maximum}\n");
    let draw = |daemon: &Daemon, count| daemon.connect().next(Ask::of(count).source("orders"));
    let mut daemon = machine.start(&toml(40));
    assert_eq!(draw(&daemon, 8).ids(), [3, 8, 13, 18, 23, 28, 33, 38]);
    for _ in 0..2 {
        assert_eq!(draw(&daemon, 1).error().0, EXHAUSTED);
        daemon.kill();
        daemon = machine.start(&toml(40));
        assert_eq!(draw(&daemon, 1).error().0, EXHAUSTED);
        daemon.stop();
        daemon = machine.start(&toml(40));
    }
    daemon.stop();
    machine.setup(&toml(30)).end().assert_refusal(&["found maximum 30", "allowed: from"]);
    assert_eq!(draw(&machine.start(&toml(43)), 1).ids(), [43]);
}

/// The kernel reports that the machine was restored from a snapshot, while the disk hangs. The
/// daemon is killed before it can store that.
#[test]
fn a_restore_is_remembered_although_the_disk_hangs() {
    let machine = counted_from("0");
    let disk = machine.disk();
    let start = || disk.under_with_log(machine.setup(ORDERS));
    let set = |value| disk.run_with_log(&machine.path(""), &["ticket", "set", "orders", value]).printed();
    let refused = ["\"orders\"", "restored from a snapshot", "ticket set orders VALUE"];
    let mut daemon = start().start();
    assert_eq!(next(&daemon, 1), [1]);
    disk.order("write stall 600000");
    disk.report_restore(411);
    let mut wire = daemon.connect();
    poll("a refusal", || (wire.next(Ask::of(1)).id_count().is_none()).then_some(()));
    // A moment later, the keeper marks the counter's lock.
    let is_marked = |text: std::io::Result<String>| text.is_ok_and(|text| text.contains("unknown "));
    let locks = || std::fs::read_dir(machine.path("locks")).expect("locks");
    poll("a mark", || {
        locks().any(|lock| is_marked(std::fs::read_to_string(lock.expect("a lock").path()))).then_some(())
    });
    daemon.kill();
    disk.works();
    // The mark alone shows it: other messages have overwritten the report.
    std::fs::write(machine.path("orders.log"), "").expect("an empty log");
    start().end().assert_refusal(&refused);

    // The log alone shows it: nothing had time to write a mark. It is stored before the log ends.
    set("5000");
    start().start().kill();
    std::fs::remove_dir_all(machine.path("locks")).expect("the mark is gone");
    disk.report_restore(500);
    let exported = disk.run_with_log(&machine.path(""), &["state", "export"]);
    assert!(
        exported.code == Some(1) && exported.err.contains("`snowbank ticket set orders VALUE"),
        "{exported:?}"
    );
    start().end().assert_refusal(&refused);
    std::fs::remove_file(machine.path("orders.log")).ok();
    machine.setup(ORDERS).end().assert_refusal(&refused);
    set("9000");
    assert_eq!(next(&start().start(), 1), [9_001]);
}
