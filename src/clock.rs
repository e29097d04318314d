//! The core's clock rule, and readings of the operating system's clocks.

pub mod os;

pub use snowbank_core::clock::*;
