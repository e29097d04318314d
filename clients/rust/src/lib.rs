//! The client of Snowbank, which hands out batches of unique, time-sortable 64-bit IDs over TCP.
#![forbid(unsafe_code)]

pub mod address;
mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod layout;
pub mod protocol;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "tls")]
pub use client::TlsFiles;
pub use client::{
    BadEndpoint, Batch, BatchCall, BatchIter, Client, ClientOptions, Endpoint, Error, Ids, IdsOptions,
    NextId, Refusal, Runs, SourceChoice,
};
