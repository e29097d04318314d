//! Names for clients that speak another protocol than the listener.

use super::Protocol;

/// A protocol that a client's first bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreign {
    Tls,
    Http2,
    Thrift,
    Proxy,
    /// That of another listener.
    FrontEnd(Protocol),
    Unknown,
}

impl Foreign {
    fn from_bytes(bytes: &[u8], listener: Protocol) -> Foreign {
        match bytes {
            // A handshake record of any version.
            [0x16, 0x03, 0x00..=0x04, ..] => Foreign::Tls,
            // PROXY's version 2 begins with two empty lines. Redis and memcached accept those, so
            // the fifth byte decides. The native protocol decides by four bytes.
            [b'P', b'R', b'O', b'X', ..] | [b'\r', b'\n', b'\r', b'\n', 0, ..] => Foreign::Proxy,
            [b'\r', b'\n', b'\r', b'\n', ..] if listener == Protocol::Native => Foreign::Proxy,
            [b'P', b'R', b'I', b' ', ..] => Foreign::Http2,
            // A call of its binary protocol. memcached has a request that begins so.
            [0x80, 1, 0, 1, ..] if listener != Protocol::Memcached => Foreign::Thrift,
            _ => {
                // Snowbank's own comes last, because its first bytes show least.
                let others = Protocol::ALL.into_iter().rev().filter(|protocol| *protocol != listener);
                let mut found = others.filter(|protocol| (protocol.about().recognises)(bytes, listener));
                found.next().map_or(Foreign::Unknown, Foreign::FrontEnd)
            }
        }
    }
}

/// Returns true if these bytes are of another known protocol. They are no request of the
/// listener's.
pub(super) fn is_known(bytes: &[u8], listener: Protocol) -> bool {
    Foreign::from_bytes(bytes, listener) != Foreign::Unknown
}

/// Describes a client whose bytes are no request of the listener's protocol: for its answer, and
/// for the log.
pub(super) fn describe(bytes: &[u8], listener: Protocol) -> String {
    const OTHER_SERVER: &str = "the address of the server that it looks for";
    let (client, address) = match Foreign::from_bytes(bytes, listener) {
        Foreign::Tls => {
            return String::from(
                "a TLS client on a listener without TLS; give the client the address without tls:, or the daemon a listener \
                 with it",
            );
        }
        Foreign::Proxy => {
            return String::from(
                "a PROXY protocol header, which Snowbank does not read; let the load balancer send none",
            );
        }
        Foreign::Unknown if listener == Protocol::Native => {
            return String::from(
                "bytes that are no request of Snowbank's protocol; give the client the address of the server that it looks \
                 for",
            );
        }
        Foreign::Unknown => ("bytes that are no request", OTHER_SERVER),
        Foreign::Thrift => ("a Thrift client", OTHER_SERVER),
        Foreign::Http2 => (
            "a client of HTTP/2, as gRPC's are,",
            "the address of the server that it looks for; [http] is of version 1.1",
        ),
        Foreign::FrontEnd(protocol) => (protocol.about().client, protocol.about().address),
    };
    format!("{client} on {}; give it {address}", listener.about().listener)
}
