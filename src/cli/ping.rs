//! `snowbank ping`.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::next::{Daemon, converse, describe, explain};
use super::{Outcome, whole, write_json};
use snowbank_client::{Address, Client};

const INTERVAL: Duration = Duration::from_secs(1);

/// Options of `snowbank ping`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    daemon: Daemon,

    /// The number of pings to each address, a second apart.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1, allow_hyphen_values = true, value_parser = |text: &str| whole(text, 1..=u64::MAX))]
    count: u64,

    /// Write one JSON object per ping: address, instance, version, protocol and round_trip_us.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    protocol: u8,
    round_trip_us: u128,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    converse(async {
        for address in &arguments.daemon.address {
            let client = arguments.daemon.client(std::slice::from_ref(address))?;
            ping(&client, address, arguments, out).await?;
        }
        Ok(())
    })
}

async fn ping(client: &Client, address: &Address, arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let info = describe(client).await?;
    for number in 0..arguments.count {
        if number > 0 {
            tokio::time::sleep(INTERVAL).await;
        }
        let round_trip = client.ping().await.map_err(explain)?;
        let report = Report {
            address: address.to_string(),
            instance: info.instance.as_deref(),
            version: info.version.as_deref(),
            protocol: info.protocol,
            round_trip_us: round_trip.as_micros(),
        };
        write(&report, arguments.json, out)?;
    }
    Ok(out.flush()?)
}

fn write(report: &Report<'_>, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        return write_json(report, out);
    }
    let Report { address, version, protocol, round_trip_us, .. } = report;
    let version = version.unwrap_or("of unknown version");
    let round_trip_ms = *round_trip_us as f64 / 1_000.0;
    writeln!(out, "{address}: snowbank {version}, protocol {protocol}, {round_trip_ms:.3} ms")
}
