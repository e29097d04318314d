//! Tells an operator how many IDs a machine running Snowbank can hand out, and whether a daemon
//! keeps its promises under load.
//!
//! ```text
//!              ┌────────── pure, time comes in as an argument ──────────┐
//!  cli ─▶ run ─┤ schedule   promise ─▶ check     measure ─▶ judge ─▶ report
//!          │   └─────▲──────────▲────────▲──────────▲──────────────────┘
//!          └─▶ load ─┴──────────┴────────┴──────────┘   one thread each, all the I/O of the load
//! ```
//!
//! - [`cli`]: options in, exit code out. [`value`]: rates, durations and shares as text.
//! - [`scenario`]: the options of a run. [`run`]: one run: it starts the threads and collects their
//!   messages.
//! - [`schedule`]: when each request is due. [`load`]: the threads that send requests and read
//!   replies.
//! - [`target`], [`daemon`]: connections to a target, and a daemon that the load test starts
//!   itself. [`frontend`]: the protocols of Redis, memcached, HTTP and noeqd.
//! - [`promise`]: the guarantees in a target's INFO. [`check`]: checks every ID against them, and
//!   finds duplicates in bounded memory.
//! - [`machine`]: stalls of this machine, which are not the target's fault. [`measure`]: histograms
//!   and counters.
//! - [`judge`]: decides the verdict: pass, fail or no verdict.
//! - [`report`]: terminal, JSON, page and HdrHistogram's files, all from the same figures.
//!   [`origin`]: the machine and the command line as figures. [`units`]: numbers as text.
//! - [`sweep`]: many runs that find the highest rate that holds. [`plan`]: from a sweep, how many
//!   daemons a rate needs. [`compare`]: runs side by side.
//!
//! Two instants have different names everywhere. `intended` is when the schedule wants a request to
//! leave; `sent` is when it left. *Response time* counts from `intended`, so a target that stalls
//! cannot hide the requests that it delayed (coordinated omission). The *target's part* counts from
//! `sent`. *Slip* is `sent` less `intended`.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod compare;
mod daemon;
mod failure;
mod frontend;
mod judge;
mod load;
mod machine;
mod measure;
mod origin;
mod plan;
mod promise;
mod report;
mod run;
mod scenario;
mod schedule;
mod sweep;
mod target;
mod units;
mod value;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
