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
