//! The cost of the daemon, compared with the lowest cost of any server on this machine.
//!
//! `cargo bench --bench server` prints every table. Options come after `--`: `--only cpu` prints
//! one table, `--quick` prints all of them in a minute, with rough figures. The benchmark's child
//! processes listen only on loopback, and end when the benchmark ends. The benchmark judges no
//! figure, because figures depend on the machine and on its other work.
//!
//! - [`echo`]: the server with the lowest cost, which only moves bytes.
//! - [`server`]: servers as child processes, and their figures in /proc.
//! - [`load`]: the load generator: one thread, a closed loop on many connections.
//! - [`cpu`], [`idle`], [`start`], [`fleet`], [`disk`]: the tables.

mod cpu;
mod disk;
mod echo;
mod fleet;
mod idle;
mod load;
mod server;
mod start;

use std::io;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures the daemon and prints the figures as Markdown tables.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo bench --bench server --")]
struct Options {
    /// Print only this table (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Table>,
    #[command(flatten)]
    effort: Effort,
    /// The option that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// The roles that this program has when it starts itself as a child process.
#[derive(Debug, Subcommand)]
enum Part {
    /// The echo server.
    #[command(hide = true)]
    Echo {
        /// Answer INCR, for redis-benchmark.
        #[arg(long)]
        incr: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// CPU time per request of the daemon, the echo server and Redis
    Cpu,
    /// Wake-ups and memory without requests
    Idle,
    /// Time from before the fork to the first ID
    Start,
    /// Single IDs while the disk is slow
    Disk,
    /// The first ID in a fleet
    Fleet,
}

/// The length of each measured period (a stretch), and how often each figure is measured.
#[derive(Clone, Debug, Args)]
struct Effort {
    /// Shorter stretches and fewer rounds
    #[arg(long)]
    quick: bool,
    /// The length of each measured stretch, in seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// How often each figure is measured; the medians are printed
    #[arg(long)]
    rounds: Option<usize>,
}

impl Effort {
    /// Returns the length of a stretch: `seconds` if the user gave a valid number, or else the
    /// table's proposal.
    fn stretch(&self, proposed: Duration, quick: Duration) -> Duration {
        let asked = self.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        asked.unwrap_or(if self.quick { quick } else { proposed })
    }

    /// Returns the number of rounds: `rounds` if the user gave a number, or else the table's
    /// proposal.
    fn rounds(&self, proposed: usize, quick: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { quick } else { proposed }).max(1)
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    if let Some(Part::Echo { incr }) = options.part {
        return echo::serve(incr);
    }
    for table in Table::value_variants() {
        if !options.only.is_empty() && !options.only.contains(table) {
            continue;
        }
        match table {
            Table::Cpu => cpu::run(&options.effort)?,
            Table::Idle => idle::run(&options.effort)?,
            Table::Start => start::run(&options.effort)?,
            Table::Disk => disk::run(&options.effort)?,
            Table::Fleet => fleet::run(&options.effort)?,
        }
    }
    Ok(())
}

/// Returns the median: of an even number of values, the lower of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Returns a duration in microseconds.
fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
