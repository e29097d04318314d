//! Tells an operator what a machine running snowbank can carry, and whether a daemon keeps its promises under load.
//!
//! ```text
//!              ┌────────── pure, time comes in as an argument ──────────┐
//!  cli ─▶ run ─┤ schedule   promise ─▶ check     measure ─▶ verdict ─▶ report
//!          │   └─────▲──────────▲────────▲──────────▲───────────────────┘
//!          └─▶ load ─┴──────────┴────────┴──────────┘   one thread each, all the I/O of the load
//! ```
//!
//! - [`value`]: rates, durations and mixes as they are written on the command line.
//! - [`schedule`]: when each request is meant to leave, and how many IDs it asks for.
//! - [`promise`]: what the target's INFO promises, and where an ID has its place in it.
//! - [`check`]: every ID held to that promise; distinct over the run in bounded memory.
//! - [`measure`]: histograms, seconds, and what a run came to.
//! - [`verdict`]: objectives, and pass, fail or no verdict with its exit code.
//! - [`report`]: the table, JSON, the HTML page, and HdrHistogram's files. [`origin`]: machine and command line for them.
//! - [`compare`]: two runs' JSON side by side, and whether they differ by more than runs do anyway.
//! - [`target`], [`daemon`]: connections to a target, and a daemon of our own.
//! - [`load`], [`run`]: the threads that send and receive, and the one that collects.
//! - [`sweep`]: many runs, to find the highest rate that holds. [`plan`]: from a sweep, how many daemons a rate needs.
//! - [`cli`]: options in, exit code out.
//!
//! Two instants are named apart everywhere: `intended`, when the schedule says that a request leaves, and `sent`, when it
//! left. *Response time* counts from the first, so a target that stalls cannot hide the requests that it delayed
//! (coordinated omission); *service time* counts from the second; *slip* is what lies between.
#![forbid(unsafe_code)]

pub mod check;
pub mod cli;
pub mod compare;
pub mod daemon;
pub mod load;
pub mod measure;
pub mod origin;
pub mod plan;
pub mod promise;
pub mod report;
pub mod run;
pub mod schedule;
pub mod sweep;
pub mod target;
pub mod value;
pub mod verdict;
