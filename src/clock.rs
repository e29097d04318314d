//! The core's clock rule, and the one file that reads the operating system's clocks.

pub mod os;

pub use snowbank_core::clock::*;
