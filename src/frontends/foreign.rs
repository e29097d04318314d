//! Describes clients that speak another protocol than the listener.

use crate::config::Protocol;

const OTHER_SERVER: &str = "the address of the server that it looks for";

/// Describes, for the reply and for the log, a client whose first bytes belong to another known
/// protocol, not to the listener's.
pub(super) fn known(bytes: &[u8], listener: Protocol) -> Option<String> {
    const PROXY: &str =
        "a PROXY protocol header, which Snowbank does not read; let the load balancer send none";
    let (client, address) = match bytes {
        // A TLS handshake record of any version.
        [0x16, 0x03, 0x00..=0x04, ..] => {
            return Some(String::from(
                "a TLS client on a listener without TLS; remove tls: from the client's address, or give the daemon a listener \
                 with tls:",
            ));
        }
        // PROXY's version 2 begins with two empty lines. Clients of Redis and memcached may send
        // empty lines too, so what follows decides. On a native listener four bytes decide.
        [b'P', b'R', b'O', b'X', ..] | [b'\r', b'\n', b'\r', b'\n', 0, ..] | [0, b'\r', b'\n', b'Q', ..] => {
            return Some(PROXY.to_owned());
        }
        [b'\r', b'\n', b'\r', b'\n', ..] if listener == Protocol::Native => return Some(PROXY.to_owned()),
        [b'P', b'R', b'I', b' ', ..] => (
            "an HTTP/2 client, such as gRPC,",
            "the address of the server that it looks for; [http] speaks HTTP/1.1 only",
        ),
        // A call in Thrift's binary protocol. A request of memcached can begin with the same bytes.
        [0x80, 1, 0, 1, ..] if listener != Protocol::Memcached => ("a Thrift client", OTHER_SERVER),
        _ => {
            // Snowbank's own protocol comes last, because its first bytes are the least
            // distinctive.
            let mut others = Protocol::ALL.into_iter().rev().filter(|protocol| *protocol != listener);
            let about = others.find(|protocol| (protocol.about().recognises)(bytes, listener))?.about();
            (about.client, about.address)
        }
    };
    Some(describe_on(listener, client, address))
}

/// Describes a client whose bytes are not a request of the listener's protocol.
pub(super) fn describe(bytes: &[u8], listener: Protocol) -> String {
    known(bytes, listener)
        .unwrap_or_else(|| describe_on(listener, "a client that sent no valid request", OTHER_SERVER))
}

fn describe_on(listener: Protocol, client: &str, address: &str) -> String {
    format!("{client} on {}; give it {address}", listener.about().listener)
}
