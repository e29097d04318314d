//! The client of Snowbank, a daemon that hands out batches of unique, time-sortable 64-bit IDs over
//! TCP.
//!
//! ```no_run
//! use snowbank_client::{Client, ClientOptions, Error};
//!
//! #[tokio::main(flavor = "current_thread")] // tokio with the features `macros` and `rt`
//! async fn main() -> Result<(), Error> {
//!     let client = Client::new(ClientOptions::new(["127.0.0.1:7660", "ids-2:7660"])?)?;
//!     for id in client.batch(1_000).await? {
//!         println!("{id}"); // 1,000 increasing IDs that no other client has
//!     }
//!     let mut ids = client.ids();
//!     println!("{}", ids.next().await?); // one ID from a buffer that is refilled ahead
//!     Ok(())
//! }
//! ```
//!
//! - A [`Client`] is a handle to one or several daemons, and uses one at a time. Clone it freely:
//!   clones share its connection and pipeline their calls. A `Client` needs a tokio runtime with
//!   time and I/O enabled. [`blocking::Client`] needs no runtime.
//! - [`Client::batch`] fetches IDs in one round trip. No ID exceeds `i64::MAX`, so `id as i64` fits
//!   a column of type BIGINT.
//! - [`Client::ids`] makes an [`Ids`], which hands out IDs one at a time, to one task or thread.
//!   [`Client::shared_ids`] makes a [`SharedIds`], which a web server clones into each request.
//! - [`Error`] says why a call failed. An [`Error`] that `main` returns is printed as one line.
//! - [`layout`] takes IDs apart into instant, worker and sequence, and finds the IDs of a time
//!   span. [`mod@format`] writes IDs as strings, such as UUIDs or short keys, and reads them back.
//!
//! # Deadlines, retries, failover
//! All of Snowbank's clients follow the same rules, which the section "What a client does" of
//! docs/protocol.md lists. In short:
//!
//! - Every call has one deadline ([`ClientOptions::timeout`], [`Client::timeout`]). Before it, the
//!   client reconnects, goes to the next endpoint, and repeats a call as the daemon's refusal says.
//! - A retry is safe: the IDs of a lost reply are skipped, and no client gets them. Dropping the
//!   future of a call cancels it, and its IDs are skipped too.
//! - If two endpoints are daemons with the same worker ID, calls return [`Error::Collision`].
//! - In a forked child every call returns [`Error::Forked`]: create a runtime and a client in the
//!   child. The client notices forks that use the C library's `fork`, but not a bare `clone` system
//!   call.
//!
//! # Closing
//! [`Client::close`] ends all calls at once, [`Client::close_within`] lets those in flight end. A
//! client whose clones and buffers are all dropped closes too.
//!
//! # Features
//! - `tls`: addresses such as `tls:host:port`, and `ClientOptions::tls`.
//! - `tracing`: the client's [events](Event) as events of that crate, besides
//!   [`ClientOptions::on_event`].
//! - `alias`: the format of that name.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), forbid(unsafe_code))]

// The order is that of the page: what an application sees, then the rules from 1 on.
mod client;
mod options;

mod birth;
mod buffer;
mod call;
mod connection;
mod dial;
mod ids;
mod rest;

pub mod blocking;
mod error;
mod stats;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use error::{Collision, Error, Refusal};
pub use ids::{Ids, NextId, SharedIds};
pub use options::ClientOptions;
#[doc(inline)]
pub use snowbank_id::{format, layout};
/// The files for TLS: the trusted authorities, the client's own certificate and key.
#[cfg(feature = "tls")]
pub use snowbank_tls::ClientFiles as TlsFiles;
/// The address of a daemon, and the error for a text that is none.
pub use snowbank_wire::address::{Address, AddressError};
/// What a refusal says: its code, and the action that it asks of the client.
pub use snowbank_wire::{Action, ErrorCode};
pub use stats::{Event, Stats};
