//! Names for clients that speak another protocol than the listener.

use crate::config::Protocol;

/// A protocol that a client's first bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    Tls,
    Http,
    Http2,
    Redis,
    Memcached,
    Native,
    Thrift,
    Proxy,
    Other,
}

/// The first bytes of HTTP requests.
const METHODS: [&[u8; 4]; 8] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN"];

fn stranger_of(bytes: &[u8], listener: Protocol) -> Stranger {
    match bytes {
        // A handshake record of any version.
        [0x16, 0x03, 0x00..=0x04, ..] => Stranger::Tls,
        // The native protocol decides by four bytes. Redis and memcached accept two empty lines.
        [b'P', b'R', b'O', b'X', ..] | [b'\r', b'\n', b'\r', b'\n', 0, ..] => Stranger::Proxy,
        [b'\r', b'\n', b'\r', b'\n', ..] if listener == Protocol::Native => Stranger::Proxy,
        [b'P', b'R', b'I', b' ', ..] => Stranger::Http2,
        [b'*', b'0'..=b'9', ..] => Stranger::Redis,
        // A call of its binary protocol. memcached has a request that begins so.
        [0x80, 1, 0, 1, ..] if listener != Protocol::Memcached => Stranger::Thrift,
        _ if METHODS.iter().any(|method| bytes.starts_with(*method)) && is_http(bytes, listener) => {
            Stranger::Http
        }
        [b'g', b'e', b't', b' ' | b's', ..] | [0x80, ..] => Stranger::Memcached,
        // A frame's length, of which three bytes are 0 or, for the longest requests, two.
        [_, 0..=4, 0, 0, ..] if listener != Protocol::Native => Stranger::Native,
        _ => Stranger::Other,
    }
}

/// Returns true if bytes that begin with a method of HTTP are HTTP. A line for Redis can begin so as well.
fn is_http(bytes: &[u8], listener: Protocol) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    listener != Protocol::Resp || line.windows(6).any(|word| word == b" HTTP/")
}

/// Returns true if these bytes, which are no request of the listener's protocol, are of another one that is known.
pub(super) fn is_known(bytes: &[u8], listener: Protocol) -> bool {
    let own = match listener {
        Protocol::Native => Stranger::Native,
        Protocol::Resp => Stranger::Redis,
        Protocol::Memcached => Stranger::Memcached,
        Protocol::Noeqd => Stranger::Other,
        Protocol::Http => Stranger::Http,
    };
    let stranger = stranger_of(bytes, listener);
    stranger != Stranger::Other && stranger != own
}

/// Describes a client whose bytes are no request of the listener's protocol: for its answer, and for the log.
pub(super) fn describe(bytes: &[u8], listener: Protocol) -> String {
    let stranger = stranger_of(bytes, listener);
    let client = match stranger {
        Stranger::Tls => {
            return String::from(
                "a TLS client on a listener without TLS; give the client the address without tls:, or the daemon a listener \
                 with it",
            );
        }
        Stranger::Proxy => {
            return String::from(
                "a PROXY protocol header, which Snowbank does not read; let the load balancer send none",
            );
        }
        Stranger::Http => "an HTTP client",
        Stranger::Http2 => "a client of HTTP/2, as gRPC's are,",
        Stranger::Redis => "a Redis client",
        Stranger::Memcached => "a memcached client",
        Stranger::Native => "a client of Snowbank's own protocol",
        Stranger::Thrift => "a Thrift client",
        Stranger::Other if listener == Protocol::Native => {
            return String::from(
                "bytes that are no request of Snowbank's protocol; give the client the address of the server that it looks \
                 for",
            );
        }
        Stranger::Other => "bytes that are no request",
    };
    let place = match listener {
        Protocol::Native => "a listener of Snowbank's own protocol",
        Protocol::Resp => "a listener for clients of Redis",
        Protocol::Memcached => "a listener for clients of memcached",
        Protocol::Noeqd => "a listener for clients of noeqd",
        Protocol::Http => "a listener for clients of HTTP",
    };
    let right = match stranger {
        Stranger::Http => "an address of [http] or [admin], or of the server that it looks for",
        Stranger::Http2 => "the address of the server that it looks for; [http] is of version 1.1",
        Stranger::Redis => "an address of [resp], or of the Redis server that it looks for",
        Stranger::Memcached => "an address of [memcached], or of the server that it looks for",
        Stranger::Native => "an address of the setting listen",
        _ => "the address of the server that it looks for",
    };
    format!("{client} on {place}; give it {right}")
}
