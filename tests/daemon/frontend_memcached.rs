//! The front end for clients of memcached: exact bytes against the real daemon.

use std::net::TcpListener;

use crate::support::frontend::FrontEndClient;
use crate::support::{Daemon, Setup, TWO_SOURCES};

fn two_sources() -> Daemon {
    Setup::configured(TWO_SOURCES).front_end("memcached").start()
}

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
fn each_key_gets_an_id_in_its_order() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    // A key draws from the source before its colon, and any other from the first source.
    client.send("GETS a\t slow:1 \x0b fast slow:a:b nothing:1 :slow \x0b\x0c\n");
    let values = values(&mut client);
    let keys: Vec<&str> = values.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["a", "slow:1", "fast", "slow:a:b", "nothing:1", ":slow"]);
    let is_slow: Vec<bool> = values.iter().map(|(_, id)| *id < 1 << 53).collect();
    assert_eq!(is_slow, [false, true, false, true, false, false]);
    daemon.stop();
}

#[test]
fn a_refusal_ends_its_get_and_the_next_is_answered() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    client.send(format!("get fast{} fast\r\nget b\r\n", " slow".repeat(1_000)));
    assert_eq!(client.line(), "VALUE fast 0 19");
    let before = client.lines_until(|line| line.starts_with("SERVER_ERROR exhausted "));
    assert!(before.iter().all(|line| !line.contains("fast") && line != "END"), "{before:?}");
    assert_eq!(values(&mut client)[0].0, "b");
    daemon.stop();
}

#[test]
fn faults_are_answered_and_the_connection_goes_on() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    let long_key = "k".repeat(251);
    for (line, answer) in [
        ("", "ERROR\r\n"),
        ("get", "ERROR\r\n"),
        ("set a 0 0 1", "ERROR\r\n"),
        ("incr a 1", "ERROR\r\n"),
        ("get a\x01b", "CLIENT_ERROR found a key with a control character, allowed are none\r\n"),
        (&format!("get {long_key}"), "CLIENT_ERROR found a key of 251 bytes, allowed 1 to 250\r\n"),
    ] {
        client.asks(&format!("{line}\r\nVERSION\r\n"), &format!("{answer}VERSION 1.6.0\r\n"));
    }
    daemon.stop();
}

/// Returns a request packet with the opaque bytes "wxyz". Its body has this size.
fn packet(opcode: u8, key: &str, body_size: u32) -> Vec<u8> {
    let mut packet = vec![0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0];
    packet.extend_from_slice(&body_size.to_be_bytes());
    packet.extend_from_slice(b"wxyz\0\0\0\0\0\0\0\0");
    packet.extend_from_slice(key.as_bytes());
    packet
}

/// Reads a reply packet. Returns its opcode, its status and what follows its extras.
fn reply(client: &mut FrontEndClient) -> (u8, u16, String) {
    let header = client.read(24);
    assert_eq!((header[0], &header[12..16]), (0x81, &b"wxyz"[..]), "{header:?}");
    let body = client.read(u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize);
    let text = String::from_utf8_lossy(&body[usize::from(header[4])..]).into_owned();
    (header[1], u16::from_be_bytes([header[6], header[7]]), text)
}

#[test]
fn packets_are_answered_with_their_opaque_bytes() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    client.send([packet(0x0d, "fast:7", 6), packet(0x00, "a", 1)].concat());
    for (opcode, key) in [(0x0d, "fast:7"), (0x00, "")] {
        let (found, status, text) = reply(&mut client);
        assert_eq!((found, status), (opcode, 0), "{text}");
        assert!(text.strip_prefix(key).is_some_and(|id| id.parse::<u64>().is_ok()), "{text}");
    }
    // A packet without a key, and one whose body has more than the key.
    let wrong = [packet(0x00, "", 0), packet(0x00, "orders", 6 + 2), b"no".to_vec()];
    client.send(wrong.concat());
    for _ in 0..2 {
        assert_eq!(reply(&mut client).1, 4);
    }
    client.send([packet(0x0a, "", 0), packet(0x20, "", 0), packet(0x07, "", 0)].concat());
    assert_eq!(reply(&mut client), (0x0a, 0, String::new()));
    assert_eq!(reply(&mut client), (0x20, 0x81, String::from("Unknown command")));
    assert_eq!(reply(&mut client), (0x07, 0, String::new()));
    assert_eq!(client.rest(), b"", "it quits");
    let mut client = FrontEndClient::of(&daemon);
    client.send(packet(0x00, "orders", u32::MAX));
    assert_eq!(reply(&mut client).1, 3);
    assert_eq!(client.rest(), b"");
    daemon.stop();
}

#[test]
fn statistics_begin_with_the_nine_of_katsubushi() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    // Requests that need no ID are no `get`.
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
    let values: Vec<&str> = found[4..].iter().map(|(_, value)| &**value).collect();
    assert_eq!(values, ["1", "1", "1", "1", "0"]);
    client.send("quit\r\n");
    assert_eq!(client.rest(), b"");
    daemon.stop();
}

#[test]
fn a_get_of_thirty_thousand_keys_is_answered_whole() {
    let daemon = two_sources();
    let mut client = FrontEndClient::of(&daemon);
    client.send(format!("get{}\r\nversion\r\n", " k".repeat(30_000)));
    let ids: Vec<u64> = values(&mut client).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 30_000);
    assert!(ids.is_sorted_by(|left, right| left < right));
    assert!(client.line().starts_with("VERSION "));
    daemon.stop();
}

#[test]
fn with_tokens_this_front_end_is_refused_unless_it_is_exempt() {
    let with_tokens = |more: &str| {
        let setup = Setup::configured(&format!("auth.token_file = \"tokens\"\n{more}{TWO_SOURCES}"));
        std::fs::write(setup.path("tokens"), "a-long-token-of-a-client\n").expect("written");
        setup
    };
    // Also if a service manager opened the socket.
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
    daemon.stop();
}
