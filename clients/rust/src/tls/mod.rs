//! TLS of the client: certificates and keys from files, and handshakes.

mod client;
#[doc(hidden)]
pub mod fault;
#[doc(hidden)]
pub mod files;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientFiles, Connector};
pub use fault::explain;
pub use files::{FileFault, What};

/// Returns the cryptography of both sides.
#[doc(hidden)]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
