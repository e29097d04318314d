//! The client of Snowbank, a daemon that hands out batches of unique, time-sortable 64-bit IDs over TCP.
//!
//! ```no_run
//! use snowbank_client::{Client, ClientOptions, IdsOptions};
//!
//! #[tokio::main(flavor = "current_thread")] // tokio with the features `macros` and `rt`
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::new(ClientOptions::new(["127.0.0.1:7660", "ids-2:7660"])?)?;
//!     for id in &client.batch(1_000).await? {
//!         println!("{id}"); // 1,000 IDs in one round trip, increasing, that no other client has
//!     }
//!     let mut ids = client.ids(IdsOptions::default())?;
//!     println!("{}", ids.next().await?); // one ID from a buffer that is refilled in the background
//!     Ok(())
//! }
//! ```
//!
//! - [`Client`] is a handle to one daemon, or to several of which one is used at a time. Clone it freely: the
//!   clones share one connection and pipeline their calls on it. It needs a tokio runtime with time and I/O
//!   enabled.
//! - [`Client::batch`] fetches a [`Batch`] in one round trip.
//! - [`Client::ids`] makes an [`Ids`], which numbers rows one at a time. Use one for each task or thread.
//! - [`Error`] says why a call failed, who is at fault, and whether another try may help.
//! - [`layout`] takes IDs apart into instant, worker and sequence, and finds the IDs of a time span.
//! - [`mod@format`] writes IDs as strings, such as UUIDs or short keys, and reads them back.
//! - [`protocol`] is the wire format, for programs that speak it themselves.
//!
//! # Deadlines, retries and failover
//! Every call has one deadline. It covers the queue, name resolution, connecting, the daemon's own wait, and
//! every retry. Within it the client retries a call if
//!
//! - it cannot connect, or loses the connection, or
//! - the daemon refuses with `shutting_down`, `too_busy`, `clock_behind` or `no_ceiling`, which are states of
//!   that daemon alone.
//!
//! With several endpoints the retry goes to the next one. A daemon that is `exhausted` for longer than the
//! call may last is left for the next one, too. The client does not retry other refusals, because every
//! daemon would repeat them. It does not retry a breach of the protocol, because that is a defect that must
//! become visible. [`Error::is_retried`] is false for both.
//!
//! A server of another protocol at an endpoint is passed over while another endpoint serves.
//! [`Client::endpoint_errors`] names it. If no endpoint serves, the error names what went wrong at each.
//!
//! A retry is safe: the IDs of a lost reply are skipped, and no client gets them. Dropping the future of a
//! call cancels the call in the same way.
//!
//! The client connects when a call needs it. After a failure it leaves that endpoint alone for a random time
//! that grows, so that a daemon that comes back does not meet all of its clients at once.
//!
//! # Endpoints with the same worker IDs
//! Two daemons with the same worker IDs of one ID space hand out the same IDs. When a client with several
//! endpoints connects, it asks each in the background which worker IDs its daemon has. If two have the same,
//! every call returns [`Error::SameWorkerIds`], which names both, until one of them has others.
//!
//! # Errors
//! An [`Error`] reaches the application only after these retries. [`Error::retry_after`] is the time after
//! which the same call may succeed. Without it, the error's text says what to change.
//!
//! # Closing
//! There is no call to close a client. Drop all of its clones and [`Ids`]: the connection then closes. IDs
//! left in a buffer are skipped.
//!
//! # TLS
//! An address `tls:host:port` is one of a TLS listener, and needs the cargo feature `tls`.
//! `ClientOptions::tls` sets the authorities that the client trusts, and the client's own certificate if the
//! daemon asks for one.
//!
//! # Order
//! The IDs of one batch increase. So do those of successive batches on one connection. After a reconnect, or
//! from another daemon, IDs are sorted by time only as closely as the daemons' clocks agree.
//!
//! # Fork
//! A client and its [`Ids`] work only in the process that created them. In a forked child every call returns
//! [`Error::Forked`], so parent and child never hand out the same ID. Create a runtime and a client in the
//! child. The client detects forks through the C library's `fork`, which languages and servers use. It does
//! not detect a bare `clone` system call.

#![forbid(unsafe_code)]

pub mod address;
mod client;
pub mod format;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod layout;
pub mod protocol;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub mod tls;

#[cfg(feature = "tls")]
pub use client::TlsFiles;
pub use client::{
    BadEndpoint, Batch, BatchCall, BatchIntoIter, BatchIter, Client, ClientOptions, Endpoint, Error, Ids,
    IdsOptions, NextId, Refusal, Runs, SharedIds, SourceChoice, blocking,
};
