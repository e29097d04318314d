//! Tells an operator how many IDs a machine running Snowbank can hand out, and whether a daemon
//! keeps its promises under load.
//!
//! ```text
//!              ┌────── mostly pure: time comes in as an argument ───────┐
//!  cli ─▶ run ─┤ schedule   promise ─▶ check     measure ─▶ judge ─▶ report
//!          │   └─────▲──────────▲────────▲──────────▲──────────────────┘
//!          └─▶ load ─┴──────────┴────────┴──────────┘   threads that do all the I/O of the load
//! ```
//!
//! - [`cli`]: reads the options, and returns the exit code. [`value`]: parses rates, durations and
//!   shares.
//! - [`scenario`]: the options of a run. [`run`]: one run: it starts the threads and collects their
//!   messages.
//! - [`schedule`]: when each request is due. [`load`]: the threads that send requests and read
//!   replies.
//! - [`target`]: connections to a target. [`daemon`]: the daemon that the load test starts if the
//!   user names no target. [`frontend`]: the protocols of Redis, memcached, HTTP and noeqd.
//! - [`promise`]: the guarantees in a target's INFO. [`check`]: checks every ID against them, and
//!   finds duplicates in bounded memory.
//! - [`machine`]: stalls of this machine, which are not the target's fault. [`measure`]: histograms
//!   and counters.
//! - [`judge`]: decides the verdict: pass, fail or no verdict.
//! - [`outcome`]: what a run found. [`report`]: writes it to the terminal, as JSON and as a page, all
//!   from one list of figures ([`figure`]). [`origin`]: adds the machine and the command line to these figures. [`units`]:
//!   formats numbers for people.
//! - [`sweep`]: many runs that find the highest rate at which the objective holds. [`plan`]:
//!   computes from a sweep how many daemons a rate needs. [`compare`]: compares the runs of two
//!   targets.
//!
//! The instant at which a request is due and the instant at which it leaves have different names
//! everywhere. `intended` is the first; `sent` is the second. *Response time* counts from
//! `intended`. So a target that stalls cannot hide the requests that it delayed (coordinated
//! omission). The *target's part* counts from `sent`. *Slip* is `sent` minus `intended`.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod compare;
mod daemon;
mod failure;
mod figure;
mod frontend;
mod judge;
mod load;
mod machine;
mod measure;
mod origin;
mod outcome;
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
