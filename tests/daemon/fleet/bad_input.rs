//! Mistakes of operators, unreadable keys, and coordinators that misbehave. In each case the daemon
//! logs one clear line, hands out nothing above its ceiling, and does not flood the coordinator.

use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// The most connections, and the most requests, that a daemon may make in a second. A daemon reads
/// its keys once a second. It tries each read and each raise on the open connection, and then on a
/// new connection.
const TRIES_A_SECOND_MAX: u64 = 20;

/// The ways in which a proxy keeps back the coordinator's answers.
const SILENCES: [fn(&Proxy); 3] = [Proxy::cut, Proxy::halve_answers, Proxy::swallow_answers];

/// Checks for some seconds that a daemon asks its coordinator rarely, although a client requests
/// IDs all the time.
fn assert_asks_rarely(daemon: &Daemon, proxy: &Proxy) {
    const LASTS: Duration = Duration::from_secs(3);
    let began = Instant::now();
    let before = [proxy.connections(), proxy.passed()];
    let mut wire = daemon.connect();
    while began.elapsed() < LASTS {
        wire.next(Ask::of(1).wait_ms(0));
        thread::sleep(Duration::from_millis(1));
    }
    let made = [proxy.connections() - before[0], proxy.passed() - before[1]];
    let lasted = began.elapsed();
    let most = TRIES_A_SECOND_MAX * (lasted.as_secs() + 1);
    assert!(
        made.iter().all(|made| *made <= most),
        "the daemon made {made:?} connections and requests in {lasted:?}"
    );
}

/// Each daemon has its own proxy, which becomes silent in one of three ways.
#[test]
fn a_silent_coordinator_is_asked_rarely_and_ids_run_out() {
    each(|at| {
        init(&toml(at, Some(5), SHORT));
        let at = &*at;
        let proxies = SILENCES.map(|_| at.proxy());
        thread::scope(|scope| {
            for (worker, (begin, proxy)) in (5..).zip(SILENCES.iter().zip(&proxies)) {
                let toml = toml_at(at, &[&proxy.url()], Some(worker), SHORT);
                scope.spawn(move || {
                    let machine = Machine::new();
                    let daemon = machine.setup(&toml).admin().start();
                    let mut runs = draw(&daemon);
                    begin(proxy);
                    runs.extend(daemon.draw_until(Ask::of(10), NO_CEILING));
                    poll("a daemon that is not ready", || {
                        (get(&daemon, "/readyz").code == 503).then_some(())
                    });
                    assert_asks_rarely(&daemon, proxy);
                    proxy.pass();
                    runs.extend(draw(&daemon));
                    poll("a daemon that is ready again", || {
                        (get(&daemon, "/readyz").code == 200).then_some(())
                    });
                    assert_distinct(runs);
                });
            }
        });
    });
}

/// Answers that are not from etcd: a proxy's page, in the three ways in which HTTP says its length.
const PAGES: [&str; 3] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
];
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

type Answering = fn(&Proxy);

/// A proxy answers in place of etcd, while the daemon runs and while it stops.
#[test]
fn answers_that_are_not_from_etcd_cost_nothing_and_pass() {
    const MARKER: &str = "/snowbank/default/marker";
    let Some(etcd) = Etcd::start() else { return };
    let (proxy, toml) = prepared_behind_proxy(&etcd, Some(5), LONG);
    // A start writes the marker again as it is, which only its version shows.
    let value = || etcd.get(MARKER).split_once("\"value\"").map(|(_, value)| value.to_owned());
    let marker = value().expect("a marker");
    let machine = Machine::new();
    let mut runs = Vec::new();
    let answers: [(Answering, &str); 4] = [
        (|proxy| proxy.answer(PAGES[0]), "without the ID of a cluster"),
        (|proxy| proxy.answer(PAGES[1]), "without the ID of a cluster"),
        (|proxy| proxy.answer(PAGES[2]), "without the ID of a cluster"),
        (|proxy| proxy.answer_endlessly(INTERIM), "interim answers"),
    ];
    for (answer, reason) in answers {
        let daemon = machine.setup(&toml).admin().start();
        runs.extend(draw(&daemon));
        let is_shown = || get(&daemon, "/status").body.contains(reason);
        answer(&proxy);
        poll("a poll without an answer of etcd", || is_shown().then_some(()));
        assert_asks_rarely(&daemon, &proxy);
        runs.extend(draw(&daemon));
        proxy.pass();
        poll("an answer of etcd", || (!is_shown()).then_some(()));
        answer(&proxy);
        daemon.stop();
        proxy.pass();
    }
    runs.extend(draw(&machine.start(&toml)));
    assert_eq!(value(), Some(marker), "no daemon raised the floor");
    assert_distinct(runs);
}

/// The locks are lost, as at a boot. So nothing proves that the state is the newest.
#[test]
fn a_restart_without_locks_waits_and_asks_rarely() {
    on_one(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), SHORT);
        let (machine, mut daemon, mut runs) = serving(&toml);
        daemon.kill();
        std::fs::remove_dir_all(machine.path("locks")).expect("the locks are removed");
        proxy.cut();
        // `assert_waits` also kills the daemon, which is still waiting.
        machine.setup(&toml).assert_waits(&["the coordinator does not answer", &proxy.url()]);
        let daemon = machine.setup(&toml).admin().start();
        assert_eq!(get(&daemon, "/readyz").code, 503);
        daemon.assert_logs("waits, and hands out nothing");
        assert!(daemon.draw_until(Ask::of(10), NO_CEILING).is_empty());
        assert_asks_rarely(&daemon, &proxy);
        proxy.pass();
        runs.extend(draw(&daemon));
        poll("a ready daemon", || (get(&daemon, "/readyz").code == 200).then_some(()));
        assert_distinct(runs);
    });
}

#[test]
fn a_wrong_password_is_refused_and_the_right_one_accepted() {
    each(|at| {
        let user = at.require_password("right");
        let bare = toml(at, Some(5), LONG);
        let directory = crate::support::directory();
        let with = |password: &str| {
            let path = directory.path().join(password);
            std::fs::write(&path, format!("{password}\n")).expect("written");
            format!("{bare}user = \"{user}\"\npassword_file = {path:?}\n")
        };
        init(&with("right"));
        Machine::new().setup(&bare).end().assert_refusal(&["the coordinator does not answer"]);
        Machine::new().setup(&with("wrong")).end().assert_refusal(&[at.wrong_password()]);
        assert_eq!(worker_of(&draw(&Machine::new().start(&with("right")))), 5);
    });
}

#[test]
fn a_marker_that_cannot_be_read_is_refused() {
    const MARKER: &str = "/snowbank/default/marker";
    on_one(|at| {
        let toml = prepared(at, Some(5), LONG);
        for (text, part) in
            [("garbage", "did not write"), ("{\"format\":3}", "the newer release that wrote it")]
        {
            at.put(MARKER, text);
            Machine::new().setup(&toml).end().assert_refusal_for_now(&[MARKER, part]);
            for command in ["init", "list", "check"] {
                let (code, line) = fleet(&toml, &[command]);
                assert_eq!(code, Some(1), "{line}");
                assert!(line.contains(MARKER) && line.contains(part) && line.lines().count() == 1, "{line}");
            }
        }
    });
}

#[test]
fn a_file_of_notes_that_cannot_be_used_is_reported() {
    on_one(|at| {
        let toml = prepared(at, Some(5), SHORT);
        let (machine, mut daemon, mut runs) = serving(&toml);
        daemon.kill();
        std::fs::write(machine.path("state/fleet"), "?").expect("written");
        daemon = machine.start(&toml);
        daemon.assert_logs(&format!("{}: is damaged", machine.path("state/fleet").display()));
        runs.extend(draw(&daemon));
        assert_distinct(runs);
    });
}

#[test]
fn a_garbage_key_ends_its_daemon_and_is_assigned_to_nobody() {
    on_one(|at| {
        let given = toml(at, Some(0), LONG);
        let assigned = toml(at, None, LONG);
        init(&given);
        let machine = Machine::new();
        let mut daemon = machine.start(&given);
        let mut runs = draw(&daemon);
        at.put("/snowbank/default/space-0/0", "garbage");
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        const KEY: &str = "(key /snowbank/default/space-0/0): found a value that Snowbank did not write";
        daemon.assert_logs(&format!("worker ID 0 of source \"default\" {KEY}"));
        machine.setup(&given).end().assert_refusal_for_now(&[&format!("worker ID 0 {KEY}")]);
        let other = draw(&Machine::new().start(&assigned));
        assert_eq!(worker_of(&other), 1, "worker ID 0 was assigned, although another daemon may have it");
        runs.extend(other);
        assert_distinct(runs);
        let full = format!("worker_ids = 0\n{assigned}");
        Machine::new().setup(&full).assert_waits(&["no free worker ID", "did not write"]);
        fleet_says(&assigned, &["check"], 1, &["1 key cannot be read"]);
        let found = "0: key /snowbank/default/space-0/0: found a value that Snowbank did not write";
        fleet_says(&assigned, &["list"], 0, &[found]);
        fleet_says(&assigned, &["release", "0"], 1, &[KEY, "with --force"]);
        let nobody = "; its key could not be read, so nothing shows which daemon had it; another daemon can take it from ";
        fleet_says(&assigned, &["release", "0", "--force"], 0, &[nobody]);
        fleet_says(&assigned, &["list"], 0, &["0: released by a daemon whose key could not be read; can be"]);
    });
}

/// While the daemon runs, the password changes first at etcd and later in the file.
#[test]
fn a_changed_password_file_is_read_at_the_next_login() {
    let Some(etcd) = Etcd::start() else { return };
    let user = etcd.require_password("before");
    let directory = crate::support::directory();
    let file = directory.path().join("password");
    std::fs::write(&file, "before\n").expect("written");
    let proxy = etcd.proxy();
    let toml = toml_at(&etcd, &[&proxy.url()], Some(5), LONG);
    let toml = format!("{toml}user = \"{user}\"\npassword_file = {file:?}\n");
    init(&toml);
    let machine = Machine::new();
    let daemon = machine.setup(&toml).admin().start();
    let mut runs = draw(&daemon);
    let is_shown = |text: &str| get(&daemon, "/status").body.contains(text);
    etcd.change_password("after");
    proxy.cut();
    proxy.pass();
    poll("a refused login", || is_shown("authentication failed").then_some(()));
    std::fs::write(&file, "after\n").expect("written");
    poll("a login", || (!is_shown("authentication failed")).then_some(()));
    daemon.signal(rustix::process::Signal::HUP);
    daemon.assert_logs("fleet.password_file has other contents");
    runs.extend(draw(&daemon));
    daemon.stop();
    assert_distinct(runs);
}
