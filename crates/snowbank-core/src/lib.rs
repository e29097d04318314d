//! The core of Snowbank: which positions a source hands out, and when its ceiling rises. The core
//! is pure: it does no I/O and reads no clock. It takes readings of the clocks, randomness and the
//! outcomes of writes as arguments.
//!
//! ```text
//!  clock ─▶ grant ─▶ source (cursor) ─▶ shard: ring, current run     one per core
//!  "when"   "how far"   "which positions"
//!             ▲
//!  keeper ────┘  raises grants: takes readings and outcomes, returns writes
//! ```
//!
//! - [`clock`]: the ID clock, which never goes back, as a pure function of readings of the system's
//!   clocks.
//! - [`grant`]: how far a source may claim, and the rule for how far ahead of the clock its ceiling
//!   is kept.
//! - [`source`]: the cursor, the only place where uniqueness is decided, and the queue of requests
//!   that wait for IDs.
//! - [`shard`]: one core's blocks and rings of claimed IDs.
//! - [`keeper`]: decides when ceilings are raised, and checks the wall clock.
//!
//! Each imports only those above it, and `sync`.

#![forbid(unsafe_code)]

pub mod clock;
pub mod grant;
pub mod keeper;
pub mod shard;
pub mod source;
mod sync;
