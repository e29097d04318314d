//! The arithmetic of Snowbank's IDs: no I/O, no clock, no randomness.
//!
//! - [`layout`]: how an ID is divided into fields, and which position an ID has for a layout and
//!   worker IDs.
//! - [`numbering`]: the ID at each position of a source, by a layout or by a counter.
//! - [`mod@format`]: an ID as a string, and back.
//!
//! Applications get [`layout`] and [`mod@format`] from the crate `snowbank-client`.

#![forbid(unsafe_code)]

pub mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod layout;
pub mod numbering;
