//! The promises of every front end, in the words of its protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::{DEADLINE, Daemon, Setup, TWO_SOURCES, each_case, poll};

/// A front end: a request for one ID, the reply, and the reply to a connection too many.
struct FrontEnd {
    protocol: &'static str,
    request: &'static str,
    /// The start of the reply, which the ID follows.
    served: &'static str,
    full: &'static [&'static str],
}

const FRONT_ENDS: [FrontEnd; 4] = [
    FrontEnd {
        protocol: "resp",
        request: "INCR fast\r\n",
        served: ":",
        full: &["-ERR max number of clients reached\r\n"],
    },
    FrontEnd {
        protocol: "memcached",
        request: "get fast\r\n",
        served: "VALUE fast 0 ",
        full: &["SERVER_ERROR too_busy"],
    },
    FrontEnd {
        protocol: "http",
        request: "GET /id HTTP/1.1\r\nhost: localhost\r\n\r\n",
        served: "HTTP/1.1 200 ",
        full: &["HTTP/1.1 503 ", "retry-after: 1\r\n", "too_busy"],
    },
    FrontEnd { protocol: "noeqd", request: "\x01", served: "", full: &[] },
];

impl FrontEnd {
    /// Connects and requests an ID. Returns the connection if the reply has one.
    fn ask(&self, address: SocketAddr) -> Option<TcpStream> {
        let mut stream = connect(address);
        stream.write_all(self.request.as_bytes()).ok()?;
        let mut start = vec![0; self.served.len() + 8];
        stream.read_exact(&mut start).ok()?;
        start.starts_with(self.served.as_bytes()).then_some(stream)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("closed in order");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn one_connection_too_many_is_refused_in_each_protocols_words() {
    let config = format!("limits.max_connections = 1\n{TWO_SOURCES}");
    each_case(&FRONT_ENDS, |front_end| {
        let daemon = Setup::configured(&config).front_end(front_end.protocol).start();
        let address = daemon.addresses[1].tcp();
        let first = front_end.ask(address).expect("an ID");
        let refusal = read_to_end(connect(address)).to_lowercase();
        assert_eq!(refusal.is_empty(), front_end.full.is_empty(), "{}: {refusal}", front_end.protocol);
        for part in front_end.full {
            assert!(refusal.contains(&part.to_lowercase()), "{}: {refusal}", front_end.protocol);
        }
        drop(first);
        // Its place is free once the daemon has noticed the close.
        poll("a free place", || front_end.ask(address));
        daemon.stop();
    });
}

/// A client of another protocol: what it sends, the start of the reply, and the line in the log.
struct Foreign {
    at: &'static str,
    sends: &'static str,
    reply: &'static str,
    log: &'static str,
}

const FOREIGN: [Foreign; 7] = [
    Foreign {
        at: "http",
        sends: "*1\r\n$4\r\nPING\r\n",
        reply: "HTTP/1.1 400",
        log: "a Redis client on a listener for clients of HTTP; give it an address of [resp]",
    },
    Foreign {
        at: "http",
        sends: "\x16\x03\x01\x02\0\x01\0\r\n\r\n",
        reply: "HTTP/1.1 400",
        log: "a TLS client on a listener without TLS",
    },
    Foreign {
        at: "http",
        sends: "get orders\r\n",
        reply: "HTTP/1.1 400",
        log: "a memcached client on a listener for clients of HTTP",
    },
    Foreign {
        at: "http",
        sends: "\x10\0\0\0\x01\0\r\n\r\n",
        reply: "HTTP/1.1 400",
        log: "a client of Snowbank's own protocol on a listener for clients of HTTP",
    },
    Foreign {
        at: "http",
        sends: "GET / HTTP/1.1\r\nno header\r\n\r\n",
        reply: "HTTP/1.1 400",
        log: "bytes that are no request on a listener for clients of HTTP",
    },
    Foreign {
        at: "memcached",
        sends: "GET / HTTP/1.1\r\n\r\n",
        reply: "CLIENT_ERROR ",
        log: "an HTTP client on a listener for clients of memcached",
    },
    Foreign {
        at: "noeqd",
        sends: "GET / HTTP/1.1\r\n\r\n",
        reply: "",
        log: "an HTTP client on a listener for clients of noeqd",
    },
];

#[test]
fn clients_of_other_protocols_are_answered_closed_and_logged() {
    let daemons: Vec<(&str, Daemon)> = ["http", "memcached", "noeqd"]
        .map(|protocol| (protocol, Setup::configured(TWO_SOURCES).front_end(protocol).start()))
        .into();
    for Foreign { at, sends, reply, log } in &FOREIGN {
        let daemon = &daemons.iter().find(|(protocol, _)| protocol == at).expect("it was started").1;
        let mut stream = connect(daemon.addresses[1].tcp());
        stream.write_all(sends.as_bytes()).expect("it leaves");
        let found = read_to_end(stream);
        assert!(found.starts_with(reply), "{at}, {sends:?}: {found}");
        daemon.assert_logs(log);
    }
}
