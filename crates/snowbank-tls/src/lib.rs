//! What Snowbank's daemon and client share of TLS: the client's handshake, PEM files, the names in
//! certificates, and the messages for faults.

#![forbid(unsafe_code)]

mod client;
pub mod fault;
pub mod files;
pub mod names;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientFiles, Connector};
pub use fault::explain;
pub use files::{FileFault, PemFile};
pub use rustls::ClientConnection;

/// Returns the cryptography provider that client and daemon use.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
