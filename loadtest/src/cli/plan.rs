//! `snowbank-loadtest plan`.

use std::path::PathBuf;
use std::time::SystemTime;

use super::{Failure, json_text, print, write_file};
use crate::plan::swept::Swept;
use crate::plan::{Wanted, page, plan};
use crate::report::read::read;
use crate::sweep::file::KIND;
use crate::value::{Bandwidth, Mix, Rate, Share};

/// From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds
///
/// Writes a page of Markdown to paste into a ticket. Nothing is measured: the page shows its formulas with the figures put in,
/// what it takes for granted, and the command that checks it.
///
/// Exit codes: 0 a plan; 1 what is wanted cannot be had; 2 wrong use, or a sweep that cannot support a plan.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What `sweep --json FILE` wrote
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// IDs per second of all clients together, at their peak
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Rate,
    /// IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1 [default: the sweep's]
    #[arg(long, value_name = "N|MIX", allow_hyphen_values = true)]
    batch: Option<Mix>,
    /// How much of a daemon's limit stays unused. Half: peaks may double, and a daemon whose ID clock rides ahead after a
    /// crash has half its ceiling
    #[arg(long, value_name = "SHARE", default_value = "50%", allow_hyphen_values = true)]
    headroom: Share,
    /// Daemons beyond those that carry the rate, so that as many may be down
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    spare: u32,
    /// Worker IDs of each daemon [default: as many as in the sweep]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    worker_ids: Option<u32>,
    /// Connections that one daemon may have to carry [default: as many as in the sweep]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    connections: Option<u32>,
    /// What a daemon's network carries each way, as in 1Gbit; without it, the network is no limit
    #[arg(long, value_name = "BANDWIDTH", allow_hyphen_values = true)]
    network: Option<Bandwidth>,
    /// Another layout than the sweep's: a preset's name or a text form
    #[arg(long, value_name = "NAME|SPEC")]
    layout: Option<String>,
    /// Write the plan to a file, for programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let sweep = read::<Swept>(&arguments.from, KIND).map_err(Failure::usage)?;
    let plan = plan(&sweep, &arguments.wanted(), SystemTime::now())
        .map_err(|error| Failure { code: error.exit_code(), reason: error.to_string() })?;
    write_file(arguments.json.as_ref(), || json_text(&plan))?;
    print(|out| out.write_all(page::markdown(&plan).as_bytes()));
    Ok(0)
}

impl Arguments {
    fn wanted(&self) -> Wanted {
        Wanted {
            rate: self.rate,
            batch: self.batch.clone(),
            headroom: self.headroom,
            spare: self.spare,
            worker_ids: self.worker_ids,
            connections: self.connections,
            network: self.network,
            layout: self.layout.clone(),
        }
    }
}
