//! `snowbank status`: the state of a daemon, in words.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::next::{converse, parse_duration};
use super::tls::TlsOptions;
use super::{Failure, Outcome};
use crate::admin::{Finding, Status, Target, counted, seconds, times};
use crate::config::{self, Address, Grouped, Overrides};
use crate::os_clock;
use snowbank_wire::one_line;

/// The address if neither an option nor a configuration names one.
const DEFAULT_ADDRESS: &str = "9660";

/// Options of `snowbank status`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The daemon's admin address: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH
    /// [default: the configuration's, else 9660]
    #[arg(long, env = "SNOWBANK_ADMIN_LISTEN", value_name = "ADDR")]
    admin: Option<String>,

    /// The daemon's configuration, whose [admin] has the address
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsOptions,

    /// Write the status as JSON, as /status does
    #[arg(long)]
    json: bool,

    /// Repeat every SECONDS, 2 by default, and show rates
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,

    /// The longest wait for an answer, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true, value_parser = parse_duration)]
    timeout: Duration,
}

/// Runs the command. Exit code 0: ready. 1: not ready. 2: the daemon cannot be asked.
pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let address = address(arguments).map_err(Failure::Usage)?;
    let tls = arguments.tls.files(std::slice::from_ref(&address))?.unwrap_or_default();
    let target = Target { address, tls, timeout: arguments.timeout };
    converse(async {
        match arguments.watch {
            Some(every) => watch(&target, arguments, Duration::from_secs(every), out).await,
            None => once(&target, arguments, out).await,
        }
    })
}

/// Returns the address from the option or variable, else from the configuration, else the default.
fn address(arguments: &Arguments) -> Result<Address, String> {
    if let Some(given) = arguments.admin.as_deref().filter(|given| !given.is_empty()) {
        // The daemon's variable may list several addresses.
        let first = given.split(',').next().unwrap_or(given);
        return Address::from_admin(first).map_err(|error| format!("--admin: {error}"));
    }
    if let Some(path) = &arguments.config {
        let text = config::read_file(path).map_err(|error| error.to_string())?;
        let now = os_clock::read().wall;
        // Without the daemon's variables its configuration may be refused.
        let overrides = Overrides::from_variables().map_err(|error| error.to_string())?;
        let settings = config::load(Some((path, &text)), &overrides, NonZeroUsize::MIN, now)
            .map_err(|mistakes| mistakes.first_line())?;
        return settings.admin.listen.into_iter().next().ok_or_else(|| {
            format!("{} has no admin listener; set listen in [admin], or give --admin", path.display())
        });
    }
    Address::from_admin(DEFAULT_ADDRESS).map_err(|error| error.to_string())
}

async fn once(target: &Target, arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let status = target.fetch().await.map_err(Failure::Usage)?;
    match write(&status, None, arguments.json, out).and_then(|()| out.flush()) {
        // A reader that closes the pipe early, such as `head`, does not change the exit code.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    if status.ready {
        return Ok(());
    }
    let failing = status.findings.iter().filter(|finding| finding.effect.makes_unready());
    let failing = failing.map(Finding::full_name);
    Err(Failure::No(format!("not ready: {}", failing.collect::<Vec<_>>().join(", "))))
}

/// Shows the status repeatedly, until the command is interrupted. An unreachable daemon is asked
/// again at the next tick.
async fn watch(target: &Target, arguments: &Arguments, every: Duration, out: &mut impl Write) -> Outcome {
    let in_place = !arguments.json && io::stdout().is_terminal();
    let mut last: Option<Status> = None;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fetched = target.fetch().await;
        let mut page = Vec::new();
        match &fetched {
            Ok(status) => {
                let last = last.as_ref().filter(|last| last.instance == status.instance);
                write(status, last, arguments.json, &mut page)?;
            }
            Err(reason) if arguments.json => {
                writeln!(page, "{}", serde_json::json!({ "ready": false, "unreachable": reason }))?;
            }
            Err(reason) => writeln!(page, "{reason}")?,
        }
        if in_place {
            // Clears the screen and goes to its top.
            write!(out, "\x1b[H\x1b[2J")?;
        }
        out.write_all(&page)?;
        if !in_place && !arguments.json {
            writeln!(out)?;
        }
        out.flush()?;
        last = fetched.ok();
    }
}

fn write(status: &Status, last: Option<&Status>, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", serde_json::to_string(status)?);
    }
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = describe(status, last, &mut page);
    for line in page.lines() {
        writeln!(out, "{}", one_line(line))?;
    }
    Ok(())
}

/// Writes the status in words. If there is an earlier status, also writes the rates since then.
fn describe(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    writeln!(out, "{}", status.headline)?;
    for finding in &status.findings {
        let mark = if finding.effect.is_urgent() { "FAIL" } else { "look" };
        writeln!(out, "  {mark} {}: {}", finding.full_name(), finding.message)?;
    }
    let up = seconds(status.uptime_s);
    let shards = counted(status.shards as u64, "shard");
    writeln!(
        out,
        "{}, version {}, up {up}; {shards}, {} order\n",
        status.instance, status.version, status.order
    )?;
    describe_traffic(status, last, out)?;
    for fact in &status.facts {
        writeln!(out, "{:<12} {}", fact.name, fact.text)?;
    }
    for source in &status.sources {
        let earlier = last.and_then(|last| last.sources.iter().find(|other| other.name == source.name));
        let before = earlier.map(|earlier| earlier.counts.ids);
        let per_second = rate(source.counts.ids, before, elapsed_s(status, last));
        let ids = counted(source.counts.ids, "ID");
        let requests = counted(source.counts.requests, "request");
        writeln!(out, "\nsource {}: {ids}{per_second} in {requests}", source.name)?;
        source.facts.iter().try_for_each(|fact| writeln!(out, "       {fact}"))?;
    }
    describe_identities(status, last, out)
}

/// Writes a line for each identity that has connected.
fn describe_identities(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    let known = status.identities.iter().filter(|identity| identity.counts.connected > 0);
    for (index, identity) in known.enumerate() {
        let earlier = last.and_then(|last| last.identities.iter().find(|other| other.name == identity.name));
        let ids: u64 = identity.ids.values().sum();
        let before = earlier.map(|earlier| earlier.ids.values().sum());
        let per_second = rate(ids, before, elapsed_s(status, last));
        let limit =
            identity.rate.map_or_else(String::new, |rate| format!("; at most {}/s", Grouped(rate.into())));
        let met = [("denied", identity.counts.denied), ("slowed", identity.counts.slowed)];
        let met = met.iter().filter(|(_, count)| *count > 0);
        let met: String = met.map(|(what, count)| format!("; {what} {}", times(*count))).collect();
        writeln!(
            out,
            "{}identity {}: {}{per_second} on {}{met}{limit}",
            if index == 0 { "\n" } else { "" },
            identity.name,
            counted(ids, "ID"),
            counted(identity.connections, "connection"),
        )?;
    }
    Ok(())
}

fn describe_traffic(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    let latency = last.map_or_else(|| status.latency.clone(), |last| status.latency.since(&last.latency));
    let requests = status.latency.count();
    let before = last.map(|last| last.latency.count());
    let per_second = rate(requests, before, elapsed_s(status, last));
    let requests = Grouped(requests);
    let [half, most, nearly_all] = [0.5, 0.99, 0.999].map(|share| match latency.quantile_us(share) {
        Some(us) => seconds(us / 1e6),
        None => "–".to_owned(),
    });
    writeln!(
        out,
        "requests     {requests}{per_second}; half within {half}, 99 % within {most}, 99.9 % within {nearly_all}"
    )
}

/// Returns the time since the earlier status, or 0 if there is none.
fn elapsed_s(status: &Status, last: Option<&Status>) -> f64 {
    last.map_or(0.0, |last| status.uptime_s - last.uptime_s)
}

/// Returns how much a count grew each second; an empty text without an earlier count.
fn rate(now: u64, before: Option<u64>, elapsed_s: f64) -> String {
    match before {
        Some(before) if elapsed_s > 0.0 => {
            format!(" ({}/s)", Grouped((now.saturating_sub(before) as f64 / elapsed_s).round() as u64))
        }
        _ => String::new(),
    }
}
