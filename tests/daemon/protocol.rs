//! The sentences of docs/protocol.md that speak of the daemon, byte by byte.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;

use crate::secure::write_secret;
use crate::support::wire::{
    self, EXHAUSTED, MAGIC, MALFORMED, PARTIAL, SHUTTING_DOWN, UNAUTHORIZED, UNKNOWN_SOURCE, UNSUPPORTED,
    bytes_of_hex, frame,
};
use crate::support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, poll};
use rustix::process::Signal;

/// The actions of an error.
const TELL: u8 = 0;
const STAY: u8 = 1;
const LEAVE: u8 = 2;

/// Sends bytes, ends the sending side, and returns all bytes that the daemon sends until it closes.
fn conversation(daemon: &Daemon, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(daemon.tcp()).expect("a listener");
    stream.set_nodelay(true).expect("an option");
    for piece in pieces {
        stream.write_all(piece).expect("sent");
    }
    stream.shutdown(Shutdown::Write).expect("open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the daemon closes");
    answer
}

/// A HELLO with any magic, version and token.
fn hello(magic: &[u8], version: u8, token: &[u8]) -> Vec<u8> {
    frame(0x04, 0, 9, &[magic, &[version, 0], token].concat())
}

fn error(tag: u16, code: u16, action: u8, message: &str) -> Vec<u8> {
    let head = [&code.to_le_bytes()[..], &[action, 0, 0, 0, 0, 0]].concat();
    frame(0xFF, 0, tag, &[&head[..], message.as_bytes()].concat())
}

#[track_caller]
fn action(reply: Reply) -> (u16, u8) {
    match reply {
        Reply::Error { code, action, .. } => (code, action),
        other => panic!("expected an error, found {other:?}"),
    }
}

fn claims(daemon: &Daemon) -> Vec<u64> {
    daemon.connect().call(&wire::hello(1, b"")).welcome().claims
}

#[test]
fn a_hello_of_any_common_version_gets_the_welcome() {
    let daemon = Setup::configured("limits.max_count = 500").args(["--worker-id", "0"]).start();
    let instance = daemon.connect().info()["instance"].as_str().expect("a text").to_owned();
    let (_, instance) = instance.rsplit_once('-').expect("the machine's name and a number");
    let instance = u64::from_str_radix(instance, 16).expect("a number").to_le_bytes();
    // The claim of worker 0 of `twitter`, as in the vector.
    let replies = include_str!("../vectors/replies.txt");
    let vector = replies.lines().find(|line| line.starts_with("welcome |")).expect("a vector");
    let vector = bytes_of_hex(vector.rsplit(" | ").next().expect("bytes"));
    let body = [&[1, 0, 0xe8, 3, 0xf4, 1, 0, 0][..], &instance, &vector[24..]].concat();
    let welcome = frame(0x85, 0, 9, &body);
    for (version, token) in [(1, &b""[..]), (2, b""), (255, b"t"), (1, &[b't'; 512])] {
        assert_eq!(conversation(&daemon, &[&hello(MAGIC, version, token)]), welcome, "{version}");
    }
    // Each byte alone, and a second HELLO.
    let twice = [hello(MAGIC, 1, b"one"), hello(MAGIC, 1, b"")].concat();
    let bytes: Vec<&[u8]> = twice.chunks(1).collect();
    assert_eq!(conversation(&daemon, &bytes), [&welcome[..], &welcome].concat());
}

#[test]
fn a_hello_that_does_not_fit_is_refused() {
    let daemon = Setup::new().start();
    let next = Ask::of(1).tag(10).bytes();
    let after = wire::ping(3, b"x");
    let pong = frame(0x84, 0, 3, b"x");
    for (bytes, code, goes_on) in [
        (hello(MAGIC, 0, b""), UNSUPPORTED, false),
        (hello(b"snow\r\n\r\n", 1, b""), MALFORMED, false),
        (hello(b"SNOW\r\n\r\r", 1, b""), MALFORMED, false),
        (hello(MAGIC, 1, &[b't'; 513]), MALFORMED, true),
        (frame(0x04, 0, 9, &MAGIC[..]), MALFORMED, true),
        (frame(0x04, 0, 9, &[&MAGIC[..], &[1]].concat()), MALFORMED, true),
        (frame(0x04, 1, 9, &[&MAGIC[..], &[1, 0]].concat()), MALFORMED, true),
    ] {
        let mut wire = daemon.connect();
        wire.send(&[&bytes[..], &after, &next].concat());
        assert_eq!(action(wire.reply()), (code, TELL), "{bytes:x?}");
        if goes_on {
            assert_eq!(wire.reply(), Reply::Pong(3, b"x".to_vec()));
            assert_eq!(wire.reply().id_count(), Some(1));
            wire.assert_open();
        } else {
            wire.assert_closed();
        }
    }
    assert_eq!(conversation(&daemon, &[&after]), pong);
}

#[test]
fn a_hello_comes_first_where_a_token_is_asked_for() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, "first-token\nsecond-token\n");
    let toml = format!("auth.token_file = \"{}\"", path.display());
    let daemon = Setup::configured(&toml).start();
    for before in [Ask::of(1).tag(9).bytes(), wire::info(9), wire::hello(9, b""), wire::hello(9, b"wrong")] {
        let mut wire = daemon.connect();
        wire.assert_open();
        wire.send(&[before, wire::hello(1, b"first-token"), Ask::of(1).bytes()].concat());
        assert_eq!(action(wire.reply()), (UNAUTHORIZED, TELL));
        wire.assert_closed();
    }
    // The token may leave in one packet with what follows. A second HELLO replaces it.
    let mut wire = daemon.connect();
    wire.send(&[wire::hello(1, b"first-token"), wire::hello(2, b"second-token"), wire::info(3)].concat());
    wire.reply().welcome();
    wire.reply().welcome();
    assert!(matches!(wire.reply(), Reply::Info(3, _)));
    // A reload takes the first token away, and so only connections that have none but that.
    let mut first = daemon.connect_as("first-token");
    write_secret(&path, "second-token\n");
    daemon.reload();
    match first.reply() {
        Reply::Error { tag: 0, code: UNAUTHORIZED, action: LEAVE, retry_after_ms: 0, .. } => {}
        other => panic!("{other:?}"),
    }
    first.assert_closed();
    wire.assert_open();
    wire.call(&wire::hello(4, b"")).assert_error(4, UNAUTHORIZED);
    wire.assert_closed();
}

#[test]
fn a_source_is_named_by_up_to_64_bytes() {
    let long = "n".repeat(64);
    let sources = ["first", "second", &long];
    let toml: String = (0..)
        .zip(sources)
        .map(|(worker, name)| format!("[[sources]]\nname = \"{name}\"\nworker_ids = {worker}\n"))
        .collect();
    let daemon = Setup::configured(&toml).start();
    let mut wire = daemon.connect();
    let worker_of = |reply: Reply| reply.ids()[0] >> 12 & 0x3ff;
    for (name, worker) in [("", 0), ("second", 1), ("second", 1), (&long, 2), ("first", 0), ("", 0)] {
        assert_eq!(worker_of(wire.next(Ask::of(1).source(name))), worker, "{name}");
    }
    let next = |name: &[u8]| frame(0x01, 0, 7, &[&[1, 0, 0, 0, 0, 0][..], name].concat());
    assert_eq!(action(wire.call(&next(&[b'n'; 65]))), (MALFORMED, TELL));
    for (name, shown) in [
        (&b"firs"[..], "\"firs\""),
        (b"First", "\"First\""),
        (b"\0", "\"\\0\""),
        (b"\xff\n\x1b[2J", "\"\\xff\\n\\x1b[2J\""),
        ("\u{202e}x\n".as_bytes(), "\"\\u{202e}x\\n\""),
    ] {
        let message = format!("found source {shown}, this daemon has first, second, {long}");
        assert_eq!(
            conversation(&daemon, &[&next(name)]),
            error(7, UNKNOWN_SOURCE, TELL, &message),
            "{name:x?}"
        );
    }
}

#[test]
fn every_limit_holds_at_both_of_its_ends() {
    let daemon = Setup::new().start();
    let ping = |size: usize| frame(0x03, 0, 1, &vec![b'p'; size]);
    assert_eq!(conversation(&daemon, &[&ping(64)]), frame(0x84, 0, 1, &[b'p'; 64]));
    for (bytes, tag, code, goes_on) in [
        (ping(65), 1, MALFORMED, true),
        (ping(1_020), 1, MALFORMED, true),
        (ping(1_021), 0, MALFORMED, false),
        (frame(0x55, 255, 5, &[0; 1_020]), 5, UNSUPPORTED, true),
        (vec![4, 0, 0, 0, 0x55, 0, 5, 0], 5, UNSUPPORTED, true),
        (vec![3, 0, 0, 0, 0x55, 0, 5], 0, MALFORMED, false),
        (wire::info(0), 0, 0, true),
        (frame(0x02, 1, 6, &[]), 6, MALFORMED, true),
        (frame(0x01, 8, 6, &[1, 0, 0, 0, 0, 0]), 6, MALFORMED, true),
    ] {
        let mut wire = daemon.connect();
        wire.send(&bytes);
        let reply = wire.reply();
        assert_eq!(reply.tag(), tag);
        if code > 0 {
            assert_eq!(action(reply), (code, TELL), "{:x?}", &bytes[..8.min(bytes.len())]);
        }
        if goes_on { wire.assert_open() } else { wire.assert_closed() }
    }
}

#[test]
fn frames_are_read_alike_however_they_are_cut() {
    let daemon = Setup::configured("limits.max_count = 5").start();
    let requests = [
        wire::ping(1, b""),
        wire::hello(2, b"token"),
        Ask::of(6).tag(3).bytes(),
        Ask::of(1).source("none").tag(4).bytes(),
        frame(0x01, 0, 5, &[1]),
        frame(0x66, 0, 6, &[]),
        wire::ping(7, &[7; 64]),
    ]
    .concat();
    let whole = conversation(&daemon, &[&requests]);
    assert!(whole.len() > 200);
    for cut in 1..requests.len() {
        let (head, rest) = requests.split_at(cut);
        assert_eq!(conversation(&daemon, &[head, rest]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = requests.chunks(1).collect();
    assert_eq!(conversation(&daemon, &bytes), whole);
}

#[test]
fn exhausted_says_whether_to_stay_to_leave_or_to_tell() {
    let identity = "[[identities]]\nname = \"anonymous\"\nrate = 1000\n";
    let of = |daemon: &Daemon, ask: Ask<'_>| {
        let mut wire = daemon.connect();
        (0..50).map(|_| wire.call(&ask.bytes())).find(|reply| reply.id_count().is_none()).map(action)
    };
    let daemon = Setup::configured(TWO_SOURCES).start();
    let slow = Ask::of(16).source("slow").wait_ms(0);
    assert_eq!(of(&daemon, slow), Some((EXHAUSTED, LEAVE)), "the next tick is a second away");
    assert_eq!(of(&daemon, Ask { count: 4_000, ..slow }), Some((EXHAUSTED, TELL)), "never");
    let limited = Setup::configured(identity).start();
    let greedy = Ask::of(1_000).wait_ms(0);
    assert_eq!(of(&limited, greedy), Some((EXHAUSTED, STAY)), "the client's own rate");
    assert_eq!(of(&limited, Ask { count: 3_000, ..greedy }), Some((EXHAUSTED, TELL)), "above a burst");
}

#[test]
fn a_daemon_that_stops_sends_its_clients_away() {
    let mut daemon = Setup::configured(&format!("limits.drain_timeout = \"60s\"\n{TWO_SOURCES}")).start();
    let mut waiting = daemon.connect();
    waiting.send(&[wire::ping(1, b""), Ask::of(64).tag(2).source("slow").bytes()].concat());
    assert_eq!(waiting.reply(), Reply::Pong(1, vec![]));
    let mut idle = daemon.connect();
    idle.assert_open();
    daemon.signal(Signal::TERM);
    let refusal = loop {
        match idle.call(&wire::hello(3, b"")) {
            Reply::Welcome(..) => {}
            other => break other,
        }
    };
    assert_eq!((refusal.tag(), action(refusal)), (3, (SHUTTING_DOWN, LEAVE)));
    idle.assert_closed();
    assert_eq!(waiting.reply().id_count(), Some(64));
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}

#[test]
fn equal_claims_mean_one_worker_id_of_one_space() {
    let start = |toml: &str| Setup::configured(&format!("[[sources]]\nname = \"a\"\n{toml}")).start();
    let twitter = start("worker_ids = \"5-7\"\n");
    let other_names =
        start("layout = \"time:41,machine:10,sequence:12;tick=1ms;epoch=1288834974657\"\nworker_ids = 6\n");
    let other_epoch =
        start("layout = \"time:41,machine:10,sequence:12;tick=1ms;epoch=1388834974657\"\nworker_ids = 6\n");
    let [three, one, other] = [&twitter, &other_names, &other_epoch].map(claims);
    assert_eq!((three.len(), one.len(), other.len()), (3, 1, 1));
    assert!(three.contains(&one[0]) && !three.contains(&other[0]));
    assert_eq!(claims(&twitter), three);
    let instance = |daemon: &Daemon| daemon.connect().call(&wire::hello(1, b"")).welcome().instance;
    assert_ne!(instance(&twitter), instance(&other_names));
    assert_eq!(instance(&twitter), instance(&twitter));
}

#[test]
fn a_welcome_has_the_lowest_8000_claims() {
    let start =
        |sources: Range<usize>| Setup::new().config(&sources.map(wide_source).collect::<String>()).start();
    let claims_of = |daemon: &Daemon| daemon.connect().call(&wire::hello(1, b"")).welcome().claims;
    let of_half = |sources: Range<usize>| {
        let daemon = start(sources);
        poll("every source has its grant", || Some(claims_of(&daemon)).filter(|claims| claims.len() == 4_096))
    };
    let mut claims = [of_half(0..512), of_half(512..1_024)].concat();
    claims.sort_unstable();
    claims.truncate(8_000);
    let daemon = start(0..1_024);
    // A thousand sources with grants have as many claims, and not yet the lowest.
    poll("every source has its grant", || (claims_of(&daemon) == claims).then_some(()));
}

/// Returns a source with eight worker IDs of its own.
fn wide_source(source: usize) -> String {
    let first = source * 8;
    format!(
        "[[sources]]\nname = \"s{source}\"\nlayout = \"time:40,worker:13,sequence:10;tick=1ms;epoch=2025-01-01\"\n\
         worker_ids = \"{first}-{}\"\n",
        first + 7
    )
}

#[test]
fn a_reload_changes_the_welcome() {
    let daemon = Setup::configured("limits.max_count = 100").start();
    let mut wire = daemon.connect();
    assert_eq!(wire.call(&wire::hello(1, b"")).welcome().max_count, 100);
    daemon.replace("snowbank.toml", "limits.max_count = 200");
    daemon.reload();
    assert_eq!(wire.call(&wire::hello(1, b"")).welcome().max_count, 200);
}

#[test]
fn a_partial_reply_has_one_id_at_least() {
    let daemon = Setup::configured(TWO_SOURCES).start();
    let mut wire = daemon.connect();
    let partial = Ask::of(4_000).source("slow").wait_ms(0).flags(PARTIAL);
    let some = wire.next(partial).id_count().expect("an idle source has some IDs");
    assert!((1..4_000).contains(&some));
    let refused = (0..10).map(|_| wire.next(partial)).find(|reply| reply.id_count().is_none());
    let full = wire.next(Ask { flags: 0, ..partial });
    assert_eq!(refused.expect("the source is empty").error().0, full.error().0);
}
