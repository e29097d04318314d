//! Sockets: from addresses in the settings to bytes read and written.
//!
//! - `listen`: opens listeners. `inherited`: listeners that a service manager hands over.
//! - `accept`: accepts connections, and hands each connection to the shard that has the fewest.
//!   `admin_accept`: accepts on the admin listener.
//! - `pending`: limits the number of connections whose clients have not authorized themselves.
//! - `socket_stream`: one type for TCP, Unix and TLS connections. `tls_stream`: the TLS connection
//!   and its handshake. `counted_socket`: the socket beneath TLS, which counts TLS records.
//! - `rejections`: rate-limited log lines about connections that were closed and requests that were
//!   refused because of the peer's error.

pub(crate) mod accept;
pub(crate) mod admin_accept;
pub(crate) mod counted_socket;
pub(crate) mod inherited;
pub(crate) mod listen;
pub(crate) mod pending;
pub(crate) mod rejections;
pub(crate) mod socket_stream;
pub(crate) mod tls_stream;
