//! TLS of the client, and code that the daemon uses: PEM files, the names in certificates, and the
//! messages for faults.

mod client;
#[doc(hidden)]
pub mod fault;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod names;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientFiles, Connector};
pub use fault::explain;
pub use files::{FileFault, PemFile};
pub use rustls::ClientConnection;

/// Returns the cryptography provider that client and daemon use.
#[doc(hidden)]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
