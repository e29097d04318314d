//! Names for clients that speak another protocol.

use std::borrow::Cow;

/// The answer to a TLS client on a plain listener, and its log line.
const TLS: &str = "a TLS client on a listener without TLS; give the client the address without tls:, or the daemon \
                   a listener with it";

const HTTP: &str = "an HTTP client on a listener of Snowbank's own protocol; give it the address of the admin \
                    listener, or of the server that it looks for";

const REDIS: &str = "a Redis client on a listener of Snowbank's own protocol; give it the address of the Redis server \
                     that it looks for";

const PROXY: &str = "a PROXY protocol header, which Snowbank does not read; let the load balancer send none";

const OTHER: &str = "bytes that are no request of Snowbank's protocol; give the client the address of the server that \
                     it looks for";

/// The first bytes of HTTP requests.
const METHODS: [&[u8; 4]; 9] =
    [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "];

/// Returns the log line about a client whose bytes cannot be a request.
pub(super) fn describe(bytes: &[u8]) -> &'static str {
    match bytes {
        // A handshake record of any version.
        [0x16, 0x03, 0x00..=0x04, ..] => TLS,
        [b'P', b'R', b'O', b'X', b'Y', ..] | [b'\r', b'\n', b'\r', b'\n', 0, ..] => PROXY,
        [b'*', b'0'..=b'9', ..] => REDIS,
        _ if METHODS.iter().any(|method| bytes.starts_with(*method)) => HTTP,
        _ => OTHER,
    }
}

/// Returns the answer to a client whose bytes cannot be a request: `length` is no length of one.
pub(super) fn answer(bytes: &[u8], length: u32) -> Cow<'static, str> {
    match describe(bytes) {
        OTHER => format!("found frame length {length}, allowed 4 to 1024; the stream is lost").into(),
        name => name.into(),
    }
}
