//! The front end for clients of memcached: the exact bytes of its replies.

use std::io::Write;
use std::net::TcpListener;

use crate::front_ends::with_two_sources;
use crate::support::frontend::FrontEndClient;
use crate::support::http::{sample, scrape};
use crate::support::{Setup, TWO_SOURCES, poll};

/// Reads the reply to a `get`: keys with their IDs.
fn values(client: &mut FrontEndClient) -> Vec<(String, u64)> {
    let mut values = Vec::new();
    loop {
        let line = client.line();
        if line == "END" {
            return values;
        }
        let [value, key, flags, size] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        assert_eq!((value, flags), ("VALUE", "0"), "{line}");
        let digits = client.line();
        assert_eq!(digits.len().to_string(), size);
        values.push((key.to_owned(), digits.parse().expect("an ID")));
    }
}

#[test]
fn keys_are_answered_in_order_each_from_its_source() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    client.send("GET fast\t slow:1 \x0b slow:a:b nothing :slow \x0b\x0c\n");
    let (keys, ids): (Vec<String>, Vec<u64>) = values(&mut client).into_iter().unzip();
    assert_eq!(keys, ["fast", "slow:1", "slow:a:b", "nothing", ":slow"]);
    // IDs of the slow source have fewer bits.
    assert_eq!(ids.iter().map(|id| *id < 1 << 53).collect::<Vec<_>>(), [false, true, true, false, false]);
}

#[test]
fn errors_are_answered_and_the_connection_stays_open() {
    let config = format!("limits.max_wait = 0\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("memcached").start();
    daemon.await_begin(&["fast", "slow"]);
    let mut client = FrontEndClient::of(&daemon);
    let long_key = "k".repeat(251);
    for (line, answer) in [
        ("", "ERROR"),
        ("get", "ERROR"),
        ("touch a 1", "ERROR"),
        ("delete a", "ERROR"),
        ("decr a 1", "ERROR"),
        ("me a", "ERROR"),
        ("md a q", "ERROR"),
        ("gat 0", "ERROR"),
        ("gat fast slow", "CLIENT_ERROR invalid exptime argument"),
        ("incr a", "ERROR"),
        ("incr a one", "CLIENT_ERROR invalid numeric delta argument"),
        (
            "incr fast 2",
            "CLIENT_ERROR incr of source fast can only add 1, because its IDs are not consecutive",
        ),
        ("mg a x", "CLIENT_ERROR invalid flag, allowed: bcfhklqstvELNOPRT"),
        ("mg a v v", "CLIENT_ERROR duplicate flag"),
        ("mg a b k", "CLIENT_ERROR error decoding key"),
        ("mg", "CLIENT_ERROR bad command line format: allowed is one key of 1 to 250 bytes"),
        ("ma a D2", "CLIENT_ERROR ma of source fast can only add 1, because its IDs are not consecutive"),
        ("ma a Dx", "CLIENT_ERROR invalid numeric delta argument"),
        ("ma a MD", "CLIENT_ERROR ma can only add"),
        ("get a\x01b", "CLIENT_ERROR found a key with a control character, allowed: none"),
        (&format!("get {long_key}"), "CLIENT_ERROR found a key of 251 bytes, allowed 1 to 250"),
    ] {
        client.send(format!("{line}\r\nversion\r\n"));
        assert_eq!([(); 2].map(|()| client.line()), [answer, "VERSION 1.6.0"], "{line:?}");
    }
    // The keys request more IDs than the slow source has in a tick. The reply ends at the first key
    // that is refused.
    client.send(format!("get fast{} fast\r\nget fast\r\n", " slow".repeat(40)));
    assert_eq!(client.line(), "VALUE fast 0 19");
    let _id = client.line();
    let refusal = client.line();
    assert!(refusal.starts_with("SERVER_ERROR exhausted "), "{refusal}");
    assert_eq!(values(&mut client).len(), 1);
}

/// Returns a binary request with the opaque bytes "wxyz".
fn packet(opcode: u8, key: &str) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(&(key.len() as u32).to_be_bytes());
    packet.extend_from_slice(b"wxyz");
    packet.extend_from_slice(&[0; 8]);
    packet.extend_from_slice(key.as_bytes());
    packet
}

/// Reads a binary reply, and returns its opcode, status, key and value.
fn reply(client: &mut FrontEndClient) -> (u8, u8, String, String) {
    let header = client.read(24);
    assert_eq!((header[0], &header[12..16]), (0x81, &b"wxyz"[..]), "{header:?}");
    let mut body = client.read(usize::from(header[11]));
    let mut key = body.split_off(header[4].into());
    let value = key.split_off(header[3].into());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (header[1], header[7], text(key), text(value))
}

#[test]
fn binary_replies_repeat_the_opaque_bytes() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    for (opcode, key, status, key_back) in [
        (0x0d, "slow", 0, "slow"),
        (0x00, "a", 0, ""),
        (0x0a, "", 0, ""),
        (0x20, "", 0x81, ""),
        (0x00, "", 4, ""),
    ] {
        client.send(packet(opcode, key));
        let (of, found, key, value) = reply(&mut client);
        assert_eq!((of, found, &*key), (opcode, status, key_back), "{value}");
        assert_eq!(value.parse::<u64>().is_ok(), status == 0 && opcode != 0x0a, "{value}");
    }
    let mut short_body = packet(0x00, "fast");
    short_body[11] = 3;
    short_body.truncate(24 + 3);
    client.send(short_body);
    assert_eq!(reply(&mut client).1, 4);
    client.send(packet(0x07, ""));
    assert_eq!(reply(&mut client).1, 0);
    assert_eq!(client.rest(), b"", "the connection ends after a quit");
    let mut client = FrontEndClient::of(&daemon);
    let mut large = packet(0x01, "");
    large[8..12].copy_from_slice(&(1_u32 << 20).to_be_bytes());
    large.extend(b"get fast\r\n".repeat(1 << 20).into_iter().take(1 << 20));
    client.send(large);
    assert_eq!(reply(&mut client).1, 3);
    client.send(packet(0x0a, ""));
    assert_eq!(reply(&mut client).0, 0x0a, "no byte of the large body is a command");
}

#[test]
fn a_binary_increment_draws_an_id() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    let increment = |opcode: u8, delta: u64| {
        let mut packet = packet(opcode, "slow:1");
        packet[4] = 20;
        packet[11] += 20;
        let extras = [&delta.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
        packet.splice(24..24, extras);
        packet
    };
    // The quiet form has no reply, so it draws nothing.
    client.send([increment(0x15, 1), increment(0x05, 1), increment(0x05, 2), packet(0x05, "slow")].concat());
    let header = client.read(24);
    assert_eq!((header[1], header[7], header[11]), (0x05, 0, 8), "{header:?}");
    let number = client.read(8);
    assert_eq!(number, header[16..24], "an ID is its own cas number");
    assert!((1..1 << 53).contains(&u64::from_be_bytes(number.try_into().expect("8 bytes"))));
    assert_eq!([(); 2].map(|()| reply(&mut client).1), [4, 4]);
}

/// As in memcached, a quiet command is silent about success, and answers a failure. What Snowbank
/// does not have fails as for a key that is not there: libmemcached takes other errors for a server
/// that is down.
#[test]
fn quiet_binary_commands_answer_their_failure() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    for (opcode, status) in [
        (0x11, 0x05),
        (0x12, 0x05),
        (0x13, 0x05),
        (0x14, 0x01),
        (0x15, 0x00),
        (0x16, 0x01),
        (0x18, 0x81),
        (0x19, 0x05),
        (0x1a, 0x05),
        (0x1c, 0x01),
    ] {
        // Some of them have extras or a value, which changes nothing.
        let mut large = packet(opcode, "");
        large[8..12].copy_from_slice(&100_000_u32.to_be_bytes());
        large.extend([0x80; 100_000]);
        client.send([packet(opcode, "fast"), large, packet(0x00, "slow")].concat());
        if opcode != 0x15 {
            assert_eq!(reply(&mut client).1, status, "{opcode:#x}");
        }
        assert_eq!(reply(&mut client).1, 0x03, "{opcode:#x}");
        let (of, status, _, id) = reply(&mut client);
        assert_eq!((of, status), (0x00, 0), "{opcode:#x}");
        assert!(id.parse::<u64>().is_ok_and(|id| id < 1 << 53), "{opcode:#x}: {id}");
    }
    client.send(packet(0x17, ""));
    assert_eq!(client.rest(), b"");
}

/// A get with an expiration time is a hit like every get, also the quiet ones.
#[test]
fn a_binary_get_and_touch_draws_an_id() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    for (opcode, key) in [(0x1d, ""), (0x1e, ""), (0x23, "fast"), (0x24, "fast")] {
        let mut touch = packet(opcode, "fast");
        touch.splice(24..24, [0, 0, 0, 60]);
        touch[4] = 4;
        touch[11] += 4;
        client.send(touch);
        let (of, status, found, id) = reply(&mut client);
        assert_eq!((of, status, &*found), (opcode, 0, key), "{opcode:#x}");
        assert!(id.parse::<u64>().is_ok(), "{opcode:#x}: {id}");
    }
}

/// Only some commands know the word, and it must follow their operands.
#[test]
fn noreply_silences_only_commands_that_know_it() {
    let daemon = with_two_sources("memcached");
    for (command, answer) in [
        ("version noreply", "VERSION 1.6.0\r\n"),
        ("mn noreply", "MN\r\n"),
        ("me noreply", "ERROR\r\n"),
        ("xyz noreply", "ERROR\r\n"),
        ("stats reset noreply", "RESET\r\n"),
        ("stats items noreply", "END\r\n"),
        ("delete noreply", "ERROR\r\n"),
        ("touch noreply", "ERROR\r\n"),
        ("incr noreply", "ERROR\r\n"),
        ("verbosity 1 noreply", ""),
        ("flush_all noreply", ""),
        ("delete a noreply", ""),
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{command}\r\nquit\r\n"));
        assert_eq!(String::from_utf8(client.rest()).expect("text"), answer, "{command}");
    }
}

/// Clients send `set … noreply` by default. They must not be closed for commands without an answer.
#[test]
fn refused_commands_without_a_reply_close_nothing() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    client.send("set k 0 0 1 noreply\r\nv\r\n".repeat(1_500) + "get fast\r\n");
    assert!(client.line().starts_with("VALUE fast 0 "));
}

/// No byte of such a value is kept, but the rest must arrive in time as that of any request.
#[test]
fn a_refused_value_that_stalls_closes_its_connection() {
    let config = format!("limits.stall_timeout = \"1s\"\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("memcached").admin().start();
    let mut large = packet(0x01, "");
    large[8..12].copy_from_slice(&100_000_u32.to_be_bytes());
    for (start, count) in [(&b"set a 0 0 100000\r\nabc"[..], 1.0), (&large, 2.0)] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(start);
        let mut sender = client.0.get_ref().try_clone().expect("a socket");
        // A byte now and then is not the rest.
        let sends = std::thread::spawn(move || {
            while sender.write_all(b"x").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        });
        poll("the connection is closed", || {
            let name = "snowbank_connections_closed_total{reason=\"half_request\"}";
            (sample(&scrape(&daemon), name) == count).then_some(())
        });
        sends.join().expect("the thread ends");
    }
    // Many values in a row are no stall.
    let mut client = FrontEndClient::of(&daemon);
    for _ in 0..20 {
        client.send("c\r\nset a 0 0 3\r\nab".trim_start_matches("c\r\n"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        client.send("c\r\n");
        assert_eq!(client.line(), "ERROR");
    }
}

/// JavaScript reads large numbers inexactly, and no client of memcached says what it is.
#[test]
fn increments_above_2_to_53_are_counted_and_logged() {
    let daemon = Setup::configured(TWO_SOURCES).front_end("memcached").admin().start();
    let name = "snowbank_incr_connections_total{form=\"integer\"}";
    let mut count = 0.0;
    for (commands, is_counted) in
        [("incr slow 1\r\n", false), ("incr fast 1\r\nincr fast 1\r\n", true), ("ma fast v\r\n", true)]
    {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{commands}version\r\n"));
        while !client.line().starts_with("VERSION") {}
        count += f64::from(u8::from(is_counted));
        assert_eq!(sample(&scrape(&daemon), name), count, "{commands}");
    }
    daemon.assert_logs("use get or mg instead of memcached's incr and ma");
}

#[test]
fn increments_of_a_ticket_source_add_any_number() {
    let setup = Setup::configured("[[sources]]\nname = \"orders\"\nkind = \"ticket\"").front_end("memcached");
    setup.run(&["ticket", "set", "orders", "1000"]).printed();
    let daemon = setup.start();
    let mut client = FrontEndClient::of(&daemon);
    for (command, replies) in [
        ("incr orders 0", &["1000"][..]),
        ("incr orders:1 5", &["1005"]),
        ("ma orders D0 v", &["VA 4", "1005"]),
        ("ma orders D3 v k", &["VA 4 korders", "1008"]),
        ("ma orders", &["HD"]),
        ("get orders", &["VALUE orders 0 4", "1010", "END"]),
    ] {
        client.send(format!("{command}\r\n"));
        for reply in replies {
            assert_eq!(client.line(), *reply, "{command}");
        }
    }
}

/// Clients ask by `mg` whether a key exists and how long it lives.
#[test]
fn a_meta_get_without_a_value_draws_nothing() {
    let setup = Setup::configured("[[sources]]\nname = \"orders\"\nkind = \"ticket\"").front_end("memcached");
    setup.run(&["ticket", "set", "orders", "1000"]).printed();
    let daemon = setup.start();
    let mut client = FrontEndClient::of(&daemon);
    for (command, replies) in [
        ("get orders", &["VALUE orders 0 4", "1001", "END"][..]),
        ("mg orders", &["HD"]),
        ("mg orders t f", &["HD t-1 f0"]),
        ("mg orders:1 k q s Oa", &["HD korders:1 s19 Oa"]),
        ("mg orders c", &["HD c1002"]),
        ("mg orders v", &["VA 4", "1003"]),
    ] {
        client.send(format!("{command}\r\n"));
        for reply in replies {
            assert_eq!(client.line(), *reply, "{command}");
        }
    }
}

/// Values of other servers' data must never run as commands.
#[test]
fn the_value_of_a_refused_command_is_swallowed() {
    let daemon = with_two_sources("memcached");
    let long = "get fast\r\n".repeat(20_000);
    let set = |command: &str, value: &str| format!("{command} {}\r\n{value}\r\n", value.len());
    let mut cases: Vec<(String, &str)> = ["set", "ADD", "replace", "append", "prepend"]
        .map(|command| (set(&format!("{command} fast 0 0"), "get fast"), "ERROR\r\n"))
        .into();
    cases.extend([
        ("cas fast 0 0 8 17\r\nget fast\r\n".to_owned(), "ERROR\r\n"),
        ("set fast 0 0 8 noreply\r\nget fast\r\n".to_owned(), ""),
        ("cas fast 0 0 8 17 noreply\r\nget fast\r\n".to_owned(), ""),
        ("ms fast 8 T0\r\nget fast\r\n".to_owned(), "ERROR\r\n"),
        ("ms fast 8 q\r\nget fast\r\n".to_owned(), "ERROR\r\n"),
        ("set fast 0 0 0\r\n\r\n".to_owned(), "ERROR\r\n"),
        // A client that counts in characters sends more bytes than it announces.
        ("set fast 0 0 3\r\nab; get fast\r\n".to_owned(), "ERROR\r\n"),
        (set("set fast 0 0", &long), "ERROR\r\n"),
        (set("set fast 0 0", "\x01 \u{80} binary"), "ERROR\r\n"),
        ("delete fast noreply\r\n".to_owned(), ""),
        ("incr fast 1 noreply\r\n".to_owned(), ""),
        ("touch fast 0 noreply\r\n".to_owned(), ""),
        ("flush_all noreply\r\n".to_owned(), ""),
        ("ma fast q\r\n".to_owned(), ""),
    ]);
    for (command, answer) in cases {
        for piece in [1, 7, command.len()] {
            let mut client = FrontEndClient::of(&daemon);
            // Small pieces of a long command only take long.
            for part in command.as_bytes().chunks(piece.max(command.len() / 64)) {
                client.send(part);
            }
            client.send("version\r\nquit\r\n");
            let rest = String::from_utf8(client.rest()).expect("text");
            assert_eq!(rest, format!("{answer}VERSION 1.6.0\r\n"), "{:?}", &command[..command.len().min(80)]);
        }
    }
    // A key that is empty or has blanks moves the word for the size.
    for command in [
        "set fast 0 0 x",
        "set fast 0 0 -1",
        "set fast 0 0 4294967296",
        "set  0 0 8",
        "set a b 16 0 8",
        "set a b c 16 0 8",
        "set fast 0 8",
        "set",
        "cas fast 0 0 8",
        "cas  0 0 8 17",
        "ms fast S8",
        "ms  8",
        "ms fast",
    ] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(format!("{command}\r\nget fast\r\n"));
        assert!(client.line().starts_with("CLIENT_ERROR bad command line format: "), "{command}");
        assert_eq!(client.rest(), b"", "what follows may be a value: {command}");
    }
}

#[test]
fn gets_has_a_cas_number_and_get_has_none() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    client.send("gats -1 fast\r\ngat 0 fast\r\n");
    for fields in [5, 4] {
        let head = client.line();
        assert!(head.starts_with("VALUE fast 0 ") && head.split(' ').count() == fields, "{head}");
        assert_eq!([client.line().len() > 15, client.line() == "END"], [true; 2]);
    }
    client.send("gets fast slow\r\nincr slow:1 1\r\nINCR fast 1\r\n");
    for key in ["fast", "slow"] {
        let head = client.line();
        let id = client.line();
        assert_eq!(head, format!("VALUE {key} 0 {} {id}", id.len()));
    }
    assert_eq!(client.line(), "END");
    let slow: u64 = client.line().parse().expect("an ID");
    let fast: u64 = client.line().parse().expect("an ID");
    assert!(slow < 1 << 53 && fast > 1 << 53);
}

#[test]
fn meta_commands_repeat_what_their_flags_ask_for() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    for (command, head) in [
        ("mg fast v", "VA 19"),
        ("mg fast k v", "VA 19 kfast"),
        ("mg fast v f s t q Oabc k", "VA 19 f0 s19 t-1 Oabc kfast"),
        ("mg fast v T30 N60 R9 E5 h l", "VA 19 h0 l0"),
        ("mg ZmFzdA== b k v", "VA 19 kZmFzdA== b"),
        ("ma fast v", "VA 19"),
        ("ma fast D1 MI T0 N0 J1 v Ox", "VA 19 Ox"),
        // Flags for routers, which servers ignore.
        ("mg fast v Lone Ptwo Ox", "VA 19 Ox"),
        ("ma fast D01 L P v", "VA 19"),
    ] {
        client.send(format!("{command}\r\n"));
        assert_eq!(client.line(), head, "{command}");
        client.line().parse::<u64>().expect("an ID");
    }
    client.send("mg slow:7 c s v\r\n");
    let (head, id) = (client.line(), client.line());
    assert_eq!(head, format!("VA {} c{id} s{}", id.len(), id.len()));
    client.send("mg fast\r\nmg fast k Oq\r\nmn\r\n");
    assert_eq!([(); 3].map(|()| client.line()), ["HD", "HD kfast Oq", "MN"]);
}

#[test]
fn stats_are_the_nine_that_katsubushi_has() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    // A request without IDs does not count as a `get`.
    client.send("version\r\n");
    assert!(client.line().starts_with("VERSION "));
    client.send("get fast\r\n");
    let _ = values(&mut client);
    client.send("stats\r\n");
    let names = "pid uptime time version curr_connections total_connections cmd_get get_hits get_misses";
    let mut found = Vec::new();
    loop {
        let line = client.line();
        let Some(stat) = line.strip_prefix("STAT ") else { break assert_eq!(line, "END") };
        let (name, value) = stat.split_once(' ').expect("a value");
        found.push((name.to_owned(), value.to_owned()));
    }
    assert_eq!(found.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(" "), names);
    let values: Vec<&str> = found[3..].iter().map(|(_, value)| &**value).collect();
    assert_eq!(values, ["1.6.0", "1", "1", "1", "1", "0"]);
    client.send("quit\r\n");
    assert_eq!(client.rest(), b"");
}

#[test]
fn stats_count_as_katsubushi_does() {
    let config = format!("limits.max_wait = 0\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("memcached").start();
    daemon.await_begin(&["fast", "slow"]);
    let mut client = FrontEndClient::of(&daemon);
    // Ten IDs are ten hits, a `get` counts even if it is none, and only gets count.
    let ten = format!("gets{}\r\n", " fast".repeat(10));
    for (commands, counts) in [
        ("set a 0 0 1\r\n1\r\nnothing\r\nversion\r\nincr fast 1\r\n", [0, 0, 0]),
        (&*ten, [1, 10, 0]),
        ("get fast\r\nget fast\r\n", [3, 12, 0]),
        ("get\r\nmg fast v\r\n", [5, 13, 0]),
        (&*format!("get{}\r\n", " slow".repeat(100)), [6, 13, 1]),
    ] {
        // The statistics are exact even in the same write.
        client.send(format!("{commands}stats\r\n"));
        let names = ["cmd_get", "get_hits", "get_misses"];
        let mut found = Vec::new();
        while found.len() < names.len() {
            let line = client.line();
            if let Some((name, value)) = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' '))
                && names.contains(&name)
            {
                found.push(value.parse::<u64>().expect("a number"));
            }
        }
        assert_eq!(found, counts, "{commands}");
        assert_eq!(client.line(), "END");
        // So they are on another connection, once the replies were read.
        let mut other = FrontEndClient::of(&daemon);
        other.send("stats\r\nquit\r\n");
        let stats = String::from_utf8(other.rest()).expect("text");
        assert!(stats.contains(&format!("STAT get_hits {}\r\n", counts[1])), "{stats}");
    }
    client.send("stats items\r\nstats SETTINGS x\r\nstats reset\r\nstats slabs\r\n");
    assert_eq!([(); 4].map(|()| client.line()), ["END", "END", "RESET", "END"]);
}

/// katsubushi counts each request for IDs, even one with a mistake, and only memcached's connections.
#[test]
fn stats_over_http_count_as_katsubushi_does() {
    let config = format!("limits.max_wait = 0\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("memcached").front_end("http").start();
    daemon.await_begin(&["fast", "slow"]);
    let at_http = || FrontEndClient::connect(daemon.addresses[2].tcp());
    let mut memcached = FrontEndClient::of(&daemon);
    memcached.send("version\r\n");
    memcached.line();
    let mut http = at_http();
    for (target, counts) in [
        ("/id", [1, 1, 0]),
        ("/ids?n=10", [2, 11, 0]),
        ("/ids", [3, 12, 0]),
        ("/ids?n=", [4, 13, 0]),
        ("/ids?n=abc", [5, 13, 0]),
        ("/api/snowflake/get/slow", [6, 14, 0]),
        ("/v1/ids?source=slow&count=100", [7, 14, 1]),
        ("/stats", [7, 14, 1]),
        ("/healthz", [7, 14, 1]),
    ] {
        // A connection ends after a mistake.
        if http.get(target, "").has("connection: close") {
            http = at_http();
        }
        let stats = http.get("/stats", "").json();
        let found = ["cmd_get", "get_hits", "get_misses"].map(|name| stats[name].as_u64().expect("a count"));
        assert_eq!(found, counts, "{target}");
        assert_eq!(stats["curr_connections"], 1, "{target}: {stats}");
    }
    memcached.send("get fast\r\n");
    let _ = values(&mut memcached);
    assert_eq!(http.get("/stats", "").json()["get_hits"], 15);
}

#[test]
fn a_get_of_thirty_thousand_keys_is_answered_whole() {
    let daemon = with_two_sources("memcached");
    let mut client = FrontEndClient::of(&daemon);
    client.send(format!("get{}\r\nversion\r\n", " k".repeat(30_000)));
    let ids: Vec<u64> = values(&mut client).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 30_000);
    assert!(ids.is_sorted_by(|left, right| left < right));
    assert!(client.line().starts_with("VERSION "));
    daemon.stop();
}

#[test]
fn a_memcached_listener_beside_tokens_needs_an_exemption() {
    let with_tokens = |more: &str| {
        let setup = Setup::configured(&format!("auth.token_file = \"tokens\"\n{more}{TWO_SOURCES}"));
        std::fs::write(setup.path("tokens"), "a-long-token-of-a-client\n").expect("written");
        setup
    };
    // A socket from a service manager is refused as well.
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let inherited = with_tokens("").inheriting(socket.try_clone().expect("a copy"), "memcached");
    for refused in [with_tokens("memcached.listen = \"127.0.0.1:0\"\n"), inherited] {
        let parts = ["memcached.listen", "no place for a token", "memcached.tokens = false"];
        refused.end().assert_refusal(&parts);
    }
    let exempt = with_tokens("memcached.tokens = false\n").listeners(2).inheriting(socket, "memcached");
    let daemon = exempt.start();
    daemon.assert_logs("asks for no token (memcached.tokens = false)");
    let mut client = FrontEndClient::of(&daemon);
    client.send("get fast\r\n");
    assert_eq!(values(&mut client).len(), 1);
}
