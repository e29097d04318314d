//! Rules that hold for every front end. Each test goes through a table of protocols.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::process::Signal;
use snowbank::config::PROTOCOLS;

use crate::support::drawn::ids_of;
use crate::support::resp::array;
use crate::support::wire::{self, EXPLICIT};
use crate::support::{Ask, DEADLINE, Daemon, Setup, TWO_SOURCES, each_case, poll};

/// A front end, with the requests and replies of its protocol.
pub(crate) struct FrontEnd {
    /// The name of the option that opens a listener of this front end.
    pub(crate) protocol: &'static str,
    /// Returns one or several requests for this many IDs of a source. A token that is not empty is
    /// sent before the requests, or in each request.
    pub(crate) asks: fn(source: &str, count: usize, token: &str) -> Vec<u8>,
    /// Returns the IDs in the bytes of replies.
    pub(crate) ids: fn(&[u8]) -> Vec<u64>,
    /// Parts of the reply to a connection above the limit. Empty if the front end closes such a
    /// connection without a reply.
    full: &'static [&'static str],
    /// A part of the reply to a client without a token, and a part of the reply to a client with a
    /// wrong token. `None` if the protocol has no tokens.
    pub(crate) no_token: Option<(&'static str, &'static str)>,
    /// True if each request has several bytes and names its source.
    pub(crate) names_sources: bool,
}

pub(crate) const FRONT_ENDS: [FrontEnd; PROTOCOLS] = [
    FrontEnd {
        protocol: "listen",
        asks: |source, count, token| {
            let hello = if token.is_empty() { vec![] } else { wire::hello(1, token.as_bytes()) };
            let ask = Ask::of(count as u32).source(source);
            [hello, ask.wait_ms(9_000).flags(EXPLICIT).bytes()].concat()
        },
        ids: ids_of_frames,
        full: &["the daemon has all its 1 connections"],
        no_token: Some(("asks for a token", "the token ")),
        names_sources: true,
    },
    FrontEnd {
        protocol: "resp",
        asks: |source, count, token| {
            let auth = if token.is_empty() { String::new() } else { array(&["AUTH", token]) };
            let count = count.to_string();
            (auth + &array(&["SNOWBANK.NEXT", source, &count, "WAIT", "9000"])).into_bytes()
        },
        ids: ids_of,
        full: &["-ERR max number of clients reached\r\n"],
        no_token: Some(("-NOAUTH ", "-WRONGPASS ")),
        names_sources: true,
    },
    FrontEnd {
        protocol: "memcached",
        asks: |source, count, _| format!("get {source}\r\n").repeat(count).into_bytes(),
        ids: ids_of,
        full: &["SERVER_ERROR too_busy"],
        no_token: None,
        names_sources: true,
    },
    FrontEnd {
        protocol: "noeqd",
        asks: |_, count, token| {
            let counts = std::iter::repeat_n(255, count / 255).chain([(count % 255) as u8]);
            let auth =
                if token.is_empty() { vec![] } else { [&[0, token.len() as u8], token.as_bytes()].concat() };
            auth.into_iter().chain(counts.filter(|&count| count > 0)).collect()
        },
        ids: |bytes| {
            bytes.chunks_exact(8).map(|id| u64::from_be_bytes(id.try_into().expect("8 bytes"))).collect()
        },
        full: &[],
        no_token: Some(("", "")),
        names_sources: false,
    },
    FrontEnd {
        protocol: "http",
        asks: |source, count, token| {
            let token =
                if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
            let target = format!("/v1/ids?source={source}&count={count}&wait=9s");
            format!("GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n{token}\r\n").into_bytes()
        },
        ids: ids_of,
        full: &["HTTP/1.1 503 ", "retry-after: 1\r\n", "too_busy"],
        no_token: Some((" 401 ", " 401 ")),
        names_sources: true,
    },
];

/// Starts a daemon with two sources and a listener of this protocol.
pub(crate) fn with_two_sources(protocol: &str) -> Daemon {
    Setup::configured(TWO_SOURCES).front_end(protocol).start()
}

impl FrontEnd {
    /// Starts a daemon with two sources and these settings.
    fn start(&self, settings: &str) -> Daemon {
        Setup::configured(&format!("{settings}\n{TWO_SOURCES}")).front_end(self.protocol).start()
    }

    /// Returns a request for one ID of the source `fast`, which always has IDs.
    fn request(&self) -> Vec<u8> {
        (self.asks)("fast", 1, "")
    }

    /// Reads until this many IDs have arrived. Panics if the stream ends earlier.
    pub(crate) fn read_ids(&self, stream: &mut impl Read, count: usize) -> Vec<u64> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match stream.read(&mut buffer) {
                Ok(size @ 1..) => bytes.extend_from_slice(&buffer[..size]),
                end => panic!(
                    "{} sent {} bytes, which have fewer than {count} IDs: {end:?}",
                    self.protocol,
                    bytes.len()
                ),
            }
            // The last bytes may be only a part of an ID.
            let ids = (self.ids)(&bytes);
            if ids.len() >= count {
                assert!(ids.is_sorted_by(|left, right| left < right), "{}: {ids:?}", self.protocol);
                return ids;
            }
        }
    }

    /// Connects and requests an ID. Returns the connection if the reply has an ID.
    fn ask(&self, address: SocketAddr) -> Option<TcpStream> {
        let mut stream = connect(address);
        stream.write_all(&self.request()).ok()?;
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 1 << 10];
        while let Ok(size @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..size]);
            if !(self.ids)(&bytes).is_empty() {
                return Some(stream);
            }
        }
        None
    }

    /// Sends one and a half requests in one write, and reads the reply. Returns the other half of
    /// the second request.
    fn ask_and_a_half(&self, stream: &mut TcpStream) -> Vec<u8> {
        let mut request = self.request();
        let rest = request.split_off(request.len() / 2);
        stream.write_all(&[self.request(), request].concat()).expect("sent");
        self.read_ids(stream, 1);
        rest
    }
}

/// Returns the IDs of all whole LIST frames.
fn ids_of_frames(mut bytes: &[u8]) -> Vec<u64> {
    const LIST: u8 = 0x82;
    let mut ids = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>()
        && let Some((frame, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
    {
        if let [LIST, _flags, _tag_low, _tag_high, list @ ..] = frame {
            ids.extend(list.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)));
        }
        bytes = rest;
    }
    ids
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Reads up to the end of the connection, and checks that no further ID arrives.
fn assert_ends(front_end: &FrontEnd, stream: TcpStream) {
    let rest = read_to_end(stream);
    assert!((front_end.ids)(&rest).is_empty(), "{}: {rest:?}", front_end.protocol);
}

fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("a clean close");
    bytes
}

#[test]
fn one_connection_too_many_is_refused_in_each_protocol() {
    each_case(&FRONT_ENDS, |front_end| {
        let daemon = front_end.start("limits.max_connections = 1");
        let address = daemon.addresses[1].tcp();
        let first = front_end.ask(address).expect("an ID");
        let refusal = String::from_utf8_lossy(&read_to_end(connect(address))).to_lowercase();
        assert_eq!(refusal.is_empty(), front_end.full.is_empty(), "{}: {refusal}", front_end.protocol);
        for part in front_end.full {
            assert!(refusal.contains(&part.to_lowercase()), "{}: {refusal}", front_end.protocol);
        }
        drop(first);
        // The next connection is accepted once the daemon has noticed that the first one closed.
        poll("an accepted connection", || front_end.ask(address));
    });
}

#[test]
fn pipelined_requests_are_answered_wherever_they_are_split() {
    each_case(&FRONT_ENDS, |front_end| {
        let daemon = front_end.start("");
        let requests = front_end.request().repeat(3);
        for cut in 0..requests.len() {
            let mut stream = connect(daemon.addresses[1].tcp());
            let (first, rest) = requests.split_at(cut);
            stream.write_all(first).expect("sent");
            stream.write_all(rest).expect("sent");
            assert_eq!(front_end.read_ids(&mut stream, 3).len(), 3, "{}", front_end.protocol);
        }
    });
}

/// The client behaves like `printf … | nc -N`. It requests more IDs than are available at once, and
/// then one ID.
#[test]
fn a_client_that_closes_its_sending_half_gets_its_answers() {
    each_case(&FRONT_ENDS, |front_end| {
        let daemon = front_end.start("");
        let mut stream = connect(daemon.addresses[1].tcp());
        let many = (front_end.asks)("fast", 60_000, "");
        stream.write_all(&[many, front_end.request()].concat()).expect("sent");
        stream.shutdown(Shutdown::Write).expect("the connection is open");
        assert_eq!((front_end.ids)(&read_to_end(stream)).len(), 60_001, "{}", front_end.protocol);
    });
}

/// All front ends and shards draw from one counter, without gaps.
#[test]
fn ticket_numbers_continue_across_all_front_ends() {
    // The numbers must be as long as other IDs, so that `ids_of` finds them.
    let mut last: u64 = 1_000_000_000_000_000_000;
    let setup = Setup::configured("shards = 2\n[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n");
    setup.run(&["ticket", "set", "orders", &last.to_string()]).printed();
    let setup = FRONT_ENDS.iter().fold(setup, |setup, front_end| setup.front_end(front_end.protocol));
    let daemon = setup.start();
    for count in [1, 40, 3] {
        for (front_end, address) in FRONT_ENDS.iter().zip(&daemon.addresses[1..]) {
            let mut stream = connect(address.tcp());
            stream.write_all(&(front_end.asks)("orders", count, "")).expect("sent");
            let numbers: Vec<u64> = (last + 1..).take(count).collect();
            assert_eq!(front_end.read_ids(&mut stream, count), numbers, "{}", front_end.protocol);
            last += count as u64;
        }
    }
}

/// Returns the front ends whose requests can be sent in two halves.
fn with_whole_requests() -> Vec<&'static FrontEnd> {
    FRONT_ENDS.iter().filter(|front_end| front_end.names_sources).collect()
}

#[test]
fn half_a_request_closes_its_connection_after_stall_timeout() {
    each_case(&with_whole_requests(), |front_end| {
        let daemon = front_end.start("limits.stall_timeout = \"200ms\"");
        let mut idle = daemon.connect();
        idle.assert_open();
        let mut stream = connect(daemon.addresses[1].tcp());
        front_end.ask_and_a_half(&mut stream);
        assert_ends(front_end, stream);
        idle.assert_open();
    });
}

#[test]
fn a_request_that_half_arrived_at_a_stop_is_answered() {
    each_case(&with_whole_requests(), |front_end| {
        let mut daemon = front_end.start("limits.drain_timeout = \"60s\"");
        let mut stream = connect(daemon.addresses[1].tcp());
        let rest = front_end.ask_and_a_half(&mut stream);
        daemon.signal(Signal::TERM);
        daemon.assert_logs("stopping");
        stream.write_all(&rest).expect("sent");
        front_end.read_ids(&mut stream, 1);
        assert_ends(front_end, stream);
        assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    });
}

const HTTP: &[u8] = b"GET / HTTP/1.1\r\nHost: ids\r\n\r\n";
const REDIS: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const TLS: &[u8] = b"\x16\x03\x01\x02\0\x01\0\r\n\r\n";
const PROXY_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\0\x01\0\x02";
const NATIVE: &[u8] = b"\x10\0\0\0\x01\0\r\n\r\n";

/// Clients of other protocols. Each row: the listener, the bytes sent to it, a part of the reply,
/// and a part of the log line.
const FOREIGN: [(&str, &[u8], &str, &str); 26] = [
    ("native", TLS, "", "a TLS client on a listener without TLS"),
    ("native", HTTP, "an HTTP client", "an HTTP client on a listener of Snowbank's own"),
    ("native", REDIS, "give it an address of [resp]", "a Redis client on a listener of Snowbank's own"),
    ("native", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "a PROXY protocol", "a PROXY protocol header"),
    (
        "native",
        b"\xff\xfe\xfd\xfc\xfb",
        "found frame length",
        "a client that sent no valid request on a listener of Snowbank's own",
    ),
    ("resp", HTTP, "an HTTP client", "an HTTP client on a listener for clients of Redis"),
    (
        "resp",
        b"TRACE / HTTP/1.1\r\n\r\n",
        "an HTTP client",
        "an HTTP client on a listener for clients of Redis",
    ),
    // A page of a browser could send commands in a body.
    (
        "resp",
        b"PROPFIND / HTTP/1.1\r\n\r\nINCR fast\r\n",
        "an HTTP client",
        "an HTTP client on a listener for clients of Redis",
    ),
    (
        "resp",
        b"host: ids\r\n\r\nINCR fast\r\n",
        "an HTTP client",
        "an HTTP client on a listener for clients of Redis",
    ),
    ("resp", b"gets fast\r\n", "a memcached client", "a memcached client on a listener for clients of Redis"),
    (
        "resp",
        b"\xc2\x80\0\0\0",
        "no valid request",
        "a client that sent no valid request on a listener for clients of Redis",
    ),
    ("resp", TLS, "remove tls: from the client's address", "a TLS client on a listener without TLS"),
    ("resp", PROXY_2, "a PROXY protocol header", "a PROXY protocol header"),
    ("resp", NATIVE, "of the setting listen", "a client of Snowbank's own protocol"),
    ("http", REDIS, "HTTP/1.1 400", "a Redis client on a listener for clients of HTTP"),
    ("http", TLS, "HTTP/1.1 400", "a TLS client on a listener without TLS"),
    ("http", b"get orders\r\n", "HTTP/1.1 400", "a memcached client on a listener for clients of HTTP"),
    ("http", NATIVE, "HTTP/1.1 400", "a client of Snowbank's own protocol"),
    ("http", b"GET / HTTP/1.1\r\nno header\r\n\r\n", "HTTP/1.1 400", "a client that sent no valid request"),
    ("memcached", HTTP, "CLIENT_ERROR ", "an HTTP client on a listener for clients of memc"),
    ("memcached", REDIS, "CLIENT_ERROR ", "a Redis client on a listener for clients of memc"),
    ("memcached", TLS, "CLIENT_ERROR ", "a TLS client on a listener without TLS"),
    ("memcached", PROXY_2, "CLIENT_ERROR a PROXY protocol header", "a PROXY protocol header"),
    ("noeqd", TLS, "", "a TLS client on a listener without TLS"),
    ("noeqd", HTTP, "", "an HTTP client on a listener for clients of noeqd"),
    ("noeqd", PROXY_2, "", "a PROXY protocol header"),
];

/// The daemon logs each kind of foreign client at most once a minute.
#[test]
fn clients_of_other_protocols_get_an_error_and_one_log_line() {
    let daemons = FRONT_ENDS.each_ref().map(|front_end| with_two_sources(front_end.protocol));
    // The first listener of each daemon is native.
    let listener = |at: &str| match FRONT_ENDS.iter().position(|front_end| front_end.protocol == at) {
        Some(index) => (&daemons[index], 1),
        None => (&daemons[0], 0),
    };
    for (at, sends, reply, log) in FOREIGN {
        let (daemon, index) = listener(at);
        for _ in 0..2 {
            let mut stream = connect(daemon.addresses[index].tcp());
            stream.write_all(sends).expect("sent");
            let found = String::from_utf8_lossy(&read_to_end(stream)).into_owned();
            assert!(found.contains(reply), "{at}, {sends:?}: {found}");
        }
        daemon.assert_logs(log);
    }
    for (at, _, _, log) in FOREIGN {
        let logged = listener(at).0.log();
        assert_eq!(logged.matches(log).count(), 1, "{log}: {logged}");
    }
}
