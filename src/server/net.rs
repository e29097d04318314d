//! Sockets: from addresses in the settings to bytes read and written.
//!
//! - `listen`: opens listeners. `inherited`: listeners that a service manager hands over.
//! - `listen_error`: why the daemon cannot listen.
//! - `registered`: a listener on a reactor.
//! - `pending`: limits the number of connections that owe a TLS handshake or a token.
//! - `socket_stream`: one type for TCP, Unix and TLS connections. `tls_stream`: the TLS connection
//!   and its handshake. `counted_socket`: a socket beneath TLS that counts TLS records.
//! - `ends`: the two ends of a connection, for log lines.
//! - `rejections`: rate-limited log lines about connections that were closed and requests that were
//!   refused because of the peer's error.

pub(crate) mod counted_socket;
pub(crate) mod ends;
pub(crate) mod inherited;
pub(crate) mod listen;
pub(crate) mod listen_error;
pub(crate) mod pending;
pub(crate) mod registered;
pub(crate) mod rejections;
pub(crate) mod socket_stream;
pub(crate) mod tls_stream;
