//! Clients with certificates and tokens at each front end, over TLS.

use std::io::{Read, Write};

use super::{BILLING, ORDERS, PLAIN, identity, tokens};
use crate::front_ends::{FRONT_ENDS, FrontEnd};
use crate::secure::{Authority, Secured, tls_section, try_secure, write_secret};
use crate::support::{Daemon, Setup, TWO_SOURCES};

const DENIED: &str = "identity billing may not draw from source slow";

/// Reads until `words` have arrived. If `words` is empty, reads to the end of the stream.
fn read_words(stream: &mut impl Read, words: &str) -> String {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 4_096];
    while words.is_empty() || !String::from_utf8_lossy(&bytes).contains(words) {
        match stream.read(&mut buffer) {
            Ok(size @ 1..) => bytes.extend_from_slice(&buffer[..size]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Starts a daemon that requires a certificate at this front end, and a token if the protocol has
/// tokens. Clients with billing's certificate may draw from one source only.
fn daemon_of(authority: &Authority, front_end: &FrontEnd) -> Daemon {
    let tls = tls_section(&authority.issue_local("daemon"), &authority.client_ca());
    let billing = identity("billing", "certificate_names = [\"billing.internal\"]\nsources = [\"fast\"]");
    let setup = Setup::new().option(&format!("--{}", front_end.protocol), "tls:127.0.0.1:0").listeners(2);
    write_secret(&setup.path("tokens"), &tokens());
    let exemption = if front_end.no_token.is_none() {
        format!("{}.tokens = false\n", front_end.protocol)
    } else {
        String::new()
    };
    let auth = format!("auth.token_file = \"tokens\"\n{exemption}");
    let others = identity("orders", "") + &identity("anonymous", "");
    setup.config(&format!("{auth}{billing}{others}{TWO_SOURCES}{tls}")).start()
}

#[test]
fn each_front_end_identifies_clients_by_certificate_and_token() {
    let authority = Authority::new("authority");
    let own = authority.issue("billing", &["billing.internal"]);
    let unknown = Authority::new("other");
    let foreign = unknown.issue("foreign", &["billing.internal"]);
    for front_end in &FRONT_ENDS {
        let daemon = daemon_of(&authority, front_end);
        let address = daemon.addresses[1].tcp();
        let connect = || try_secure(address, &authority.client(Some(&own))).expect("TLS");
        // Without a certificate of the right authority there is no reply, even with a token.
        for client in [authority.client(None), authority.client(Some(&foreign))] {
            if let Ok(mut stream) = try_secure(address, &client) {
                let _ = stream.write_all(&(front_end.asks)("fast", 1, PLAIN));
                assert_eq!(read_words(&mut stream, ""), "", "{} without a certificate", front_end.protocol);
            }
        }
        if let Some((no_token, wrong_token)) = front_end.no_token {
            for (token, words) in [("", no_token), ("a-wrong-token", wrong_token), (ORDERS, wrong_token)] {
                let mut stream = connect();
                stream.write_all(&(front_end.asks)("fast", 1, token)).expect("sent");
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
            stream.write_all(&(front_end.asks)("slow", 1, BILLING)).expect("sent");
            let found = read_words(&mut stream, DENIED);
            assert!(found.contains(DENIED), "{}: {found}", front_end.protocol);
        }
        daemon.stop();
    }
}

/// Draws IDs by a request that arrives byte by byte, and then by a request whose reply is larger
/// than the socket's buffer.
fn draws(front_end: &FrontEnd, mut stream: Secured, token: &str) {
    for byte in (front_end.asks)("fast", 3, token) {
        stream.write_all(&[byte]).expect("sent");
    }
    let mut ids = front_end.read_ids(&mut stream, 3);
    assert_eq!(ids.len(), 3);
    let count = 5_100;
    // A connection keeps its token, except over HTTP.
    let token = if front_end.protocol == "http" { token } else { "" };
    stream.write_all(&(front_end.asks)("fast", count, token)).expect("sent");
    ids.extend(front_end.read_ids(&mut stream, count));
    assert_eq!(ids.len(), 3 + count);
    assert!(ids.is_sorted_by(|left, right| left < right), "{}", front_end.protocol);
}
