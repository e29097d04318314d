//! TLS for both sides of the wire: certificates and keys from files, and handshakes. The bytes inside are `protocol`'s as on
//! any other connection.
//!
//! - `files`: PEM files to certificates and keys; what is wrong with one is a line that says what to do.
//! - [`Acceptor`]: what a listener is given. One serves all TLS listeners of a daemon, and its certificate can be replaced
//!   while they listen.
//! - [`ClientFiles`]: whom a client trusts, and who it says it is.
//!
//! Sessions are never resumed. Connections live long, so that a handshake saved is worth little, and a session that is
//! resumed would outlive the certificate that it was made with.

mod client;
mod fault;
mod files;
mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientFiles, Connector};
pub use fault::explain;
pub use files::{FileFault, What};
pub use server::{Acceptor, Closed, Identity, ServerFiles, ServerStream};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
