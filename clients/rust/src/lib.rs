//! The client of Snowbank, a daemon that hands out batches of unique, time-sortable 64-bit IDs over
//! TCP.
//!
//! ```no_run
//! use snowbank_client::{Client, ClientOptions, Error, IdsOptions};
//!
//! #[tokio::main(flavor = "current_thread")] // tokio with the features `macros` and `rt`
//! async fn main() -> Result<(), Error> {
//!     let client = Client::new(ClientOptions::new(["127.0.0.1:7660", "ids-2:7660"])?)?;
//!     for id in client.batch(1_000).await? {
//!         println!("{id}"); // 1,000 increasing IDs that no other client has
//!     }
//!     let mut ids = client.ids(IdsOptions::default())?;
//!     println!("{}", ids.next().await?); // one ID from a buffer that is refilled ahead
//!     Ok(())
//! }
//! ```
//!
//! - A [`Client`] is a handle to one or several daemons, and by default uses one at a time. Clone
//!   it freely: the clones share its connections and pipeline their calls. A `Client` needs a tokio
//!   runtime with time and I/O enabled. [`blocking::Client`] needs no runtime.
//! - [`Client::batch`] fetches a [`Batch`] in one round trip. [`Batch::iter_i64`] returns its IDs
//!   as signed integers, for columns of type BIGINT.
//! - [`Client::ids`] makes an [`Ids`], which hands out IDs one at a time, to one task or thread.
//!   [`Client::shared_ids`] makes a [`SharedIds`], which a web server clones into each request.
//! - [`Error`] says why a call failed, who is at fault, and whether another attempt may help. An
//!   [`Error`] that `main` returns is printed as one line.
//! - [`layout`] takes IDs apart into instant, worker and sequence, and finds the IDs of a time
//!   span.
//! - [`mod@format`] writes IDs as strings, such as UUIDs or short keys, and reads them back.
//! - The crate `snowbank-wire` is the wire format, for programs that speak it themselves.
//!
//! # Deadlines, retries, failover
//! All of Snowbank's clients follow the same rules, which the section "What a client does" of
//! docs/protocol.md lists. In short:
//!
//! - Every call has one deadline ([`ClientOptions::timeout`]). Before the deadline the client
//!   reconnects, goes to the next endpoint, and repeats a call that may succeed there or a moment
//!   later ([`Error::is_retried`]).
//! - A retry is safe: the IDs of a lost reply are skipped, and no client gets them. Dropping the
//!   future of a [`BatchCall`] cancels the call, and its IDs are skipped too.
//! - If the client finds that two endpoints are daemons with the same worker IDs, calls return
//!   [`Error::SameWorkerIds`].
//! - The client skips an endpoint that speaks another protocol, as long as another endpoint serves.
//!   [`Client::endpoint_errors`] names such an endpoint.
//! - In a forked child every call returns [`Error::Forked`]: create a runtime and a client in the
//!   child. The client notices forks that use the C library's `fork`, but not a bare `clone` system
//!   call.
//!
//! # Closing
//! There is no call to close a client. The connection closes once all clones and buffers of the
//! client are dropped. IDs that are left in a buffer are skipped.
//!
//! # TLS
//! An address `tls:host:port` names a TLS listener, and needs the cargo feature `tls`.
//! `ClientOptions::tls` sets the authorities that the client trusts, and the client's own
//! certificate if the daemon asks for one.

#![forbid(unsafe_code)]

mod client;

#[cfg(feature = "tls")]
pub use client::TlsFiles;
pub use client::{
    BadEndpoint, Batch, BatchCall, Client, ClientOptions, Endpoint, Error, Ids, IdsOptions, NextId, Refusal,
    SharedIds, SourceChoice, blocking,
};
#[doc(inline)]
pub use snowbank_id::{format, layout};
#[doc(inline)]
pub use snowbank_wire::{ErrorCode, Info};
