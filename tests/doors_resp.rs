//! The door for clients of Redis: exact bytes against the real daemon.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::{DEADLINE, Daemon, Setup, TWO_SOURCES};

/// A connection of bytes.
struct Client(TcpStream);

impl Client {
    fn of(daemon: &Daemon) -> Client {
        let stream = TcpStream::connect(daemon.addresses[1].tcp()).expect("the door is open");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("sent");
    }

    /// Reads as many bytes as are expected, and compares them.
    fn expect(&mut self, expected: &str) {
        let mut found = vec![0; expected.len()];
        let mut at = 0;
        while at < found.len() {
            match self.0.read(&mut found[at..]) {
                Ok(0) => break,
                Ok(size) => at += size,
                Err(error) => {
                    panic!("{error}, after {:?} of {expected:?}", String::from_utf8_lossy(&found[..at]))
                }
            }
            if found[..at] != expected.as_bytes()[..at] {
                break;
            }
        }
        assert_eq!(String::from_utf8_lossy(&found[..at]), expected);
    }

    /// Sends a request and compares the reply.
    fn asks(&mut self, request: &str, reply: &str) {
        self.send(request);
        self.expect(reply);
    }

    /// Reads a line.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            assert_eq!(
                self.0.read(&mut byte).expect("a byte"),
                1,
                "closed after {:?}",
                String::from_utf8_lossy(&line)
            );
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("text")
    }

    /// Reads an integer reply.
    fn integer(&mut self) -> u64 {
        let line = self.line();
        line.strip_prefix(':')
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{line:?} is no integer"))
    }

    /// Reads an array of texts that are numbers.
    fn list(&mut self) -> Vec<u64> {
        let line = self.line();
        let count = line.strip_prefix('*').unwrap_or_else(|| panic!("{line:?} is no array"));
        let count = count.parse().expect("a count");
        (0..count).map(|_| self.bulk().parse().expect("a number")).collect()
    }

    fn bulk(&mut self) -> String {
        let line = self.line();
        let size: usize = line.strip_prefix('$').expect("a bulk string").parse().expect("a size");
        let text = self.line();
        assert_eq!(text.len(), size);
        text
    }

    /// Reads to the end.
    fn is_closed(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("closed in order");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

fn array(words: &[&str]) -> String {
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
    out
}

fn two_sources() -> Daemon {
    Setup::configured(TWO_SOURCES).resp().start()
}

#[test]
fn incr_draws_an_id_from_the_source_of_its_key() {
    let daemon = two_sources();
    let mut client = Client::of(&daemon);
    let mut last = 0;
    for request in [
        array(&["INCR", "fast"]),
        array(&["incrby", "fast", "1"]),
        "iNcR fast\r\n".into(),
        "incr fast\n".into(),
    ] {
        client.send(request);
        let id = client.integer();
        assert!(id > last);
        last = id;
    }
    client.send(array(&["INCR", "slow"]));
    assert!(client.integer() > 0);
    client.asks("PING\r\n", "+PONG\r\n");
    daemon.stop();
}

#[test]
fn pipelined_requests_are_answered_in_their_order_however_they_are_cut() {
    let daemon = two_sources();
    let requests =
        array(&["INCR", "fast"]) + &array(&["ECHO", "here"]) + &array(&["SNOWBANK.NEXT", "fast", "3"]);
    for cut in 0..requests.len() {
        let mut client = Client::of(&daemon);
        let (first, rest) = requests.split_at(cut);
        client.send(first);
        client.send(rest);
        let id = client.integer();
        client.expect("$4\r\nhere\r\n");
        let ids = client.list();
        assert!(
            ids.len() == 3 && id < ids[0] && ids.is_sorted_by(|left, right| left < right),
            "{id} {ids:?}"
        );
    }
    daemon.stop();
}

#[test]
fn a_key_that_is_no_source_is_refused_with_the_names_there_are() {
    let daemon = two_sources();
    let mut client = Client::of(&daemon);
    let refusal = "-UNKNOWN_SOURCE found key 'counter', allowed: a source's name (fast, slow); or let the daemon set any_key in \
                   [resp]\r\n";
    client.asks(&array(&["INCR", "counter"]), refusal);
    client.asks("PING\r\n", "+PONG\r\n");
    daemon.stop();
}

#[test]
fn any_key_draws_from_the_source_that_is_configured() {
    let config = format!("resp.any_key = \"fast\"\nresp.source = \"slow\"\n{TWO_SOURCES}");
    let daemon = Setup::configured(&config).resp().start();
    let mut client = Client::of(&daemon);
    client.send(
        array(&["INCR", "counter:__rand_int__"]) + &array(&["SNOWBANK.NEXT"]) + &array(&["INCR", "slow"]),
    );
    let (fast, slow, named) = (client.integer(), client.list(), client.integer());
    assert!(fast > 1 << 53 && slow.len() == 1 && slow[0] < named, "{fast} {slow:?} {named}");
    daemon.stop();
}

#[test]
fn bytes_that_are_no_request_get_the_protocols_error_and_the_connection_is_closed() {
    let daemon = two_sources();
    let nested = "*1\r\n".repeat(8_000);
    let long = "x".repeat(70_000);
    for (bytes, error) in [
        (&nested[..], "ERR Protocol error: expected '$', got '*'"),
        ("*1025\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*x\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\n$99999999999\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\n$4\r\nPINGxx", "ERR Protocol error: expected a line end after the bulk string"),
        ("ECHO \"x\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (&long, "ERR Protocol error: too big request"),
        (
            "\x16\x03\x01\x02\0\x01",
            "ERR a TLS client on a listener without TLS; give the client the address without tls:, or the daemon a listener \
             with it",
        ),
        (
            "\x0c\0\0\0\x01\0\x07\0",
            "ERR a client of Snowbank's own protocol on a listener for clients of Redis; give it an address of the setting \
             listen",
        ),
    ] {
        let mut client = Client::of(&daemon);
        client.send(bytes);
        client.expect(&format!("-{error}\r\n"));
        client.is_closed();
    }
    daemon.stop();
}
