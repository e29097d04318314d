//! The front end for clients of memcached: the exact bytes of its replies.

use std::net::TcpListener;

use crate::front_ends::with_two_sources;
use crate::support::frontend::FrontEndClient;
use crate::support::{Setup, TWO_SOURCES};

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
    client.send("GETS fast\t slow:1 \x0b slow:a:b nothing :slow \x0b\x0c\n");
    let (keys, ids): (Vec<String>, Vec<u64>) = values(&mut client).into_iter().unzip();
    assert_eq!(keys, ["fast", "slow:1", "slow:a:b", "nothing", ":slow"]);
    // IDs of the slow source have fewer bits.
    assert_eq!(ids.iter().map(|id| *id < 1 << 53).collect::<Vec<_>>(), [false, true, true, false, false]);
}

#[test]
fn errors_are_answered_and_the_connection_stays_open() {
    let config = format!("limits.max_wait = 0\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).front_end("memcached").start();
    let mut client = FrontEndClient::of(&daemon);
    let long_key = "k".repeat(251);
    for (line, answer) in [
        ("", "ERROR"),
        ("get", "ERROR"),
        ("set a 0 0 1", "ERROR"),
        ("incr a 1", "ERROR"),
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
    let mut endless = packet(0x00, "fast");
    endless[8] = 0xff;
    client.send(endless);
    assert_eq!(reply(&mut client).1, 3);
    assert_eq!(client.rest(), b"");
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
    let values: Vec<&str> = found[4..].iter().map(|(_, value)| &**value).collect();
    assert_eq!(values, ["1", "1", "1", "1", "0"]);
    client.send("quit\r\n");
    assert_eq!(client.rest(), b"");
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
