//! Each front end over TLS: clients with certificates and tokens, and the wrong kind of client at each.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{BILLING, ORDERS, PLAIN, identity, tokens};
use crate::secure::{Authority, Secured, shake, tls_section, try_secure, write_secret};
use crate::support::http::{sample, scrape};
use crate::support::relay::ids_of;
use crate::support::{Daemon, Setup, TWO_SOURCES, poll};

/// A front end: its protocol's requests and replies.
struct FrontEnd {
    protocol: &'static str,
    /// Makes one or several requests for this many IDs of a source. The token precedes them, or is in each.
    asks: fn(source: &str, count: usize, token: &str) -> Vec<u8>,
    ids: fn(&[u8]) -> Vec<u64>,
    /// Its reply to a client without a token, and to one with a wrong token; `None` if the front end requires no token.
    no_token: Option<(&'static str, &'static str)>,
    /// True if a request names its source.
    names_sources: bool,
}

const DENIED: &str = "identity billing may not draw from source slow";

const FRONT_ENDS: [FrontEnd; 4] = [
    FrontEnd {
        protocol: "resp",
        asks: |source, count, token| {
            let auth = if token.is_empty() { String::new() } else { format!("AUTH {token}\r\n") };
            format!("{auth}SNOWBANK.NEXT {source} {count} WAIT 9000\r\n").into_bytes()
        },
        ids: ids_of,
        no_token: Some(("-NOAUTH ", "-WRONGPASS ")),
        names_sources: true,
    },
    FrontEnd {
        protocol: "memcached",
        asks: |source, count, _| format!("get {source}\r\n").repeat(count).into_bytes(),
        ids: ids_of,
        no_token: None,
        names_sources: true,
    },
    FrontEnd {
        protocol: "noeqd",
        asks: |_, count, token| {
            let counts = std::iter::repeat_n(255, count / 255).chain([(count % 255) as u8]);
            let token =
                if token.is_empty() { vec![] } else { [&[0, token.len() as u8], token.as_bytes()].concat() };
            token.into_iter().chain(counts.filter(|&count| count > 0)).collect()
        },
        ids: |bytes| {
            bytes.chunks_exact(8).map(|id| u64::from_be_bytes(id.try_into().expect("8 bytes"))).collect()
        },
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
        no_token: Some((" 401 ", " 401 ")),
        names_sources: true,
    },
];

/// Reads until there are as many IDs. Panics if the stream ends before.
fn read_ids(front_end: &FrontEnd, stream: &mut impl Read, count: usize) -> Vec<u64> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(size @ 1..) => bytes.extend_from_slice(&buffer[..size]),
            end => panic!("{} has sent {} bytes of {count} IDs: {end:?}", front_end.protocol, bytes.len()),
        }
        // The last bytes may be a part of an ID.
        let ids = (front_end.ids)(&bytes);
        if ids.len() >= count {
            return ids;
        }
    }
}

/// Reads until the words, or to the end.
fn read_words(stream: &mut impl Read, words: &str) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4_096]);
    while words.is_empty() || !String::from_utf8_lossy(&bytes).contains(words) {
        match stream.read(&mut buffer) {
            Ok(size @ 1..) => bytes.extend_from_slice(&buffer[..size]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A daemon that requires a certificate and a token at every front end. Certificates of billing draw from one source
/// only.
fn daemon_of(authority: &Authority, front_end: &FrontEnd) -> Daemon {
    let client_ca = format!("client_ca = \"{}\"", authority.file.display());
    let tls = tls_section(&authority.issue_local("daemon"), &client_ca);
    let billing = identity("billing", "certificate_names = [\"billing.internal\"]\nsources = [\"fast\"]");
    let setup = Setup::new().option(&format!("--{}", front_end.protocol), "tls:127.0.0.1:0").listeners(2);
    write_secret(&setup.path("tokens"), &tokens());
    let auth = "auth.token_file = \"tokens\"\nmemcached.tokens = false\n";
    let others = identity("orders", "") + &identity("anonymous", "");
    setup.config(&format!("{auth}{billing}{others}{TWO_SOURCES}{tls}")).admin().start()
}

#[test]
fn every_front_end_identifies_its_clients_by_certificate_and_token() {
    let files = crate::support::directory();
    let authority = Authority::new(files.path(), "authority");
    let (own, stranger) =
        (authority.issue("billing", &["billing.internal"]), Authority::new(files.path(), "other"));
    let strangers = stranger.issue("stranger", &["billing.internal"]);
    for front_end in &FRONT_ENDS {
        let daemon = daemon_of(&authority, front_end);
        let address = daemon.addresses[1].tcp();
        let connect = || try_secure(address, &authority.client(Some(&own)), "127.0.0.1").expect("TLS");
        // Without a certificate of the right authority there is no reply, whatever the token.
        for client in [authority.client(None), authority.client(Some(&strangers))] {
            if let Ok(mut stream) = try_secure(address, &client, "127.0.0.1") {
                let _ = stream.write_all(&(front_end.asks)("fast", 1, PLAIN));
                assert_eq!(read_words(&mut stream, ""), "", "{} without a certificate", front_end.protocol);
            }
        }
        if let Some((no_token, wrong_token)) = front_end.no_token {
            for (token, words) in [("", no_token), ("a-wrong-token", wrong_token), (ORDERS, wrong_token)] {
                let mut stream = connect();
                stream.write_all(&(front_end.asks)("fast", 1, token)).expect("it leaves");
                let found = read_words(&mut stream, words);
                assert!(
                    found.contains(words) && (front_end.ids)(found.as_bytes()).is_empty(),
                    "{}: {found}",
                    front_end.protocol
                );
            }
        }
        draws(front_end, connect(), if front_end.no_token.is_some() { PLAIN } else { "" });
        if front_end.names_sources {
            let mut stream = connect();
            stream.write_all(&(front_end.asks)("slow", 1, BILLING)).expect("it leaves");
            let found = read_words(&mut stream, DENIED);
            assert!(found.contains(DENIED), "{}: {found}", front_end.protocol);
        }
        daemon.stop();
    }
}

/// Draws IDs by a request that arrives byte by byte, then by one whose reply does not fit the socket's buffer.
fn draws(front_end: &FrontEnd, mut stream: Secured, token: &str) {
    for byte in (front_end.asks)("fast", 3, token) {
        stream.write_all(&[byte]).expect("it leaves");
    }
    let mut ids = read_ids(front_end, &mut stream, 3);
    assert_eq!(ids.len(), 3);
    let count = 5_100;
    // A connection keeps its token, except over HTTP.
    let token = if front_end.protocol == "http" { token } else { "" };
    stream.write_all(&(front_end.asks)("fast", count, token)).expect("it leaves");
    ids.extend(read_ids(front_end, &mut stream, count));
    assert_eq!(ids.len(), 3 + count);
    assert!(ids.is_sorted_by(|left, right| left < right), "{}", front_end.protocol);
}

#[test]
fn clients_with_or_without_tls_at_the_wrong_front_end_are_logged() {
    let files = crate::support::directory();
    let authority = Authority::new(files.path(), "authority");
    for front_end in &FRONT_ENDS {
        let daemon = daemon_of(&authority, front_end);
        let mut plain = TcpStream::connect(daemon.addresses[1].tcp()).expect("the front end is open");
        plain.set_read_timeout(Some(crate::support::DEADLINE)).expect("a timeout");
        // A single request of noeqd is too short for the start of a TLS record.
        let asked = [(front_end.asks)("fast", 1, PLAIN), vec![b'\n'; 16]].concat();
        plain.write_all(&asked).expect("it leaves");
        let found = read_words(&mut plain, "");
        assert!((front_end.ids)(found.as_bytes()).is_empty(), "{}: {found}", front_end.protocol);
        daemon.assert_logs("no TLS: ");
        let refusals = || sample(&scrape(&daemon), "snowbank_unauthorized_refusals_total");
        poll("the refusal", || (refusals() >= 1.0).then_some(()));
        daemon.stop();

        let daemon = Setup::configured(TWO_SOURCES).front_end(front_end.protocol).start();
        let socket = TcpStream::connect(daemon.addresses[1].tcp()).expect("the front end is open");
        assert!(shake(socket, &authority.client(None), "127.0.0.1").is_err(), "{}", front_end.protocol);
        daemon.assert_logs("a TLS client on a listener without TLS");
        daemon.stop();
    }
}
