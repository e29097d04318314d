//! `snowbank status`: the state of a daemon, in words.

mod fleet;

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use self::fleet::{describe_fleet, describe_fleet_ceiling};
use super::next::parse_duration;
use super::tls::TlsOptions;
use super::{Failure, Outcome, make_reactor};
use crate::admin::{
    Check, ClockState, IdentityStatus, KindStatus, Level, SourceStatus, Status, Target, seconds,
};
use crate::clock;
use crate::config::{self, Address, Grouped, Overrides};
use snowbank_client::protocol::one_line;

/// The default address of a daemon's admin listener.
const DEFAULT_ADDRESS: &str = "9660";

/// Options of `snowbank status`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The daemon's admin address: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH [default: the configuration's, else 9660]
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
    let tls = arguments.tls.files(&address)?.unwrap_or_default();
    let target = Target { address, tls, timeout: arguments.timeout };
    let runtime = make_reactor()?;
    let outcome = runtime.block_on(async {
        match arguments.watch {
            Some(every) => watch(&target, arguments, Duration::from_secs(every), out).await,
            None => once(&target, arguments, out).await,
        }
    });
    // A name that is still being resolved must not delay the end.
    runtime.shutdown_background();
    outcome
}

/// Returns the address of the option or variable, else of the configuration, else the default.
fn address(arguments: &Arguments) -> Result<Address, String> {
    if let Some(given) = arguments.admin.as_deref().filter(|given| !given.is_empty()) {
        // The daemon's variable may list several.
        let first = given.split(',').next().unwrap_or(given);
        return Address::of_admin(first).map_err(|error| format!("--admin: {error}"));
    }
    if let Some(path) = &arguments.config {
        let text = config::read_file(path).map_err(|error| error.to_string())?;
        let now = clock::os::read().wall;
        let settings = config::load(Some((path, &text)), &Overrides::default(), NonZeroUsize::MIN, now)
            .map_err(|mistakes| mistakes.first_line())?;
        return settings.admin.listen.into_iter().next().ok_or_else(|| {
            format!("{} asks for no admin listener; set listen in [admin], or give --admin", path.display())
        });
    }
    Address::of_admin(DEFAULT_ADDRESS).map_err(|error| error.to_string())
}

async fn once(target: &Target, arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let status = target.fetch().await.map_err(Failure::Usage)?;
    match write(&status, None, arguments.json, out).and_then(|()| out.flush()) {
        // A reader that has seen enough, such as `head`, does not change the exit code.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    if status.ready {
        return Ok(());
    }
    let failing = status.checks.iter().filter(|check| check.makes_unready()).map(Check::full_name);
    Err(Failure::No(format!("not ready: {}", failing.collect::<Vec<_>>().join(", "))))
}

/// Shows the status until it is interrupted. If the daemon cannot be asked, it tries again.
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

/// Writes the status in words; with an earlier one, also rates since then.
fn describe(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    let findings: Vec<&Check> = status.findings().collect();
    let worst = findings.first().map_or(Level::Ok, |check| check.level);
    let headline = match (status.ready, status.draining, worst) {
        (false, true, _) => "Stopping",
        (false, false, _) => "NOT READY: requests are refused",
        (true, _, Level::Fail) => "SERVING, BUT CLIENTS ARE REFUSED",
        (true, _, Level::Warn) => "Serving; somebody should look",
        (true, _, Level::Ok) => "Serving, all is as it should be",
    };
    writeln!(out, "{headline}")?;
    for Check { name, source, level, message } in findings {
        let source = source.as_ref().map_or_else(String::new, |source| format!("{source}, "));
        writeln!(out, "  {} {source}{}: {message}", mark(*level), name)?;
    }
    let up = seconds(status.uptime_s);
    let shards = counted(status.shards as u64, "shard");
    writeln!(
        out,
        "{}, version {}, up {up}; {shards}, {} order\n",
        status.instance, status.version, status.order
    )?;
    describe_traffic(status, last, out)?;
    describe_clock(status, out)?;
    describe_fleet(status, out)?;
    for (index, source) in status.sources.iter().enumerate() {
        let last = last.and_then(|last| Some((last.sources.get(index)?, status.uptime_s - last.uptime_s)));
        describe_source(status, source, last, out)?;
    }
    describe_identities(status, last, out)
}

/// Writes a line for each identity that has ever connected.
fn describe_identities(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    let all = |identity: &IdentityStatus| identity.ids.values().sum::<u64>();
    for (index, identity) in status.identities.iter().filter(|identity| identity.connected > 0).enumerate() {
        let earlier = last.and_then(|last| last.identities.iter().find(|other| other.name == identity.name));
        let elapsed_s = last.map(|last| status.uptime_s - last.uptime_s);
        let per_second = rate(all(identity).saturating_sub(earlier.map_or(0, all)), elapsed_s);
        let limit =
            identity.rate.map_or_else(String::new, |rate| format!("; at most {}/s", Grouped(rate.into())));
        let met = [("denied", identity.denied), ("slowed", identity.slowed)];
        let met = met.iter().filter(|(_, count)| *count > 0);
        let met: String = met.map(|(what, count)| format!("; {what} {}", times(*count))).collect();
        writeln!(
            out,
            "{}identity {}: {}{per_second} on {}{met}{limit}",
            if index == 0 { "\n" } else { "" },
            identity.name,
            counted(all(identity), "ID"),
            counted(identity.connections, "connection"),
        )?;
    }
    Ok(())
}

fn describe_traffic(status: &Status, last: Option<&Status>, out: &mut String) -> fmt::Result {
    let connections = &status.connections;
    writeln!(
        out,
        "connections  {} open of {}; {} accepted, {} refused",
        Grouped(connections.open),
        Grouped(connections.max),
        Grouped(connections.accepted),
        Grouped(connections.refused)
    )?;
    for protocol in status.protocols.iter().filter(|_| status.protocols.len() > 1) {
        writeln!(
            out,
            "{:<12} {} open on {}; {}, {}",
            protocol.name,
            Grouped(protocol.connections),
            protocol.addresses.join(", "),
            counted(protocol.requests, "request"),
            counted(protocol.errors, "error")
        )?;
    }
    let latency = last.map_or_else(|| status.latency.clone(), |last| status.latency.since(&last.latency));
    let requests = Grouped(status.latency.count());
    let elapsed_s = last.map(|last| status.uptime_s - last.uptime_s);
    let per_second = rate(latency.count(), elapsed_s);
    let within = |share| latency.quantile_us(share).map_or_else(|| "–".to_owned(), |us| seconds(us / 1e6));
    let (half, most, nearly_all) = (within(0.5), within(0.99), within(0.999));
    writeln!(
        out,
        "requests     {requests}{per_second}; half within {half}, 99 % within {most}, 99.9 % within {nearly_all}"
    )?;
    let p99 = status.last_minute.p99_us.map_or_else(|| "–".to_owned(), |us| seconds(us / 1e6));
    let answers = counted(status.last_minute.answers, "request");
    let errors = Grouped(status.last_minute.errors);
    writeln!(out, "last minute  {errors} of {answers} answered with an error; 99 % within {p99}")?;
    let errors = status.errors.iter().filter(|(_, count)| **count > 0);
    let errors: Vec<String> = errors.map(|(code, count)| format!("{code} {}", Grouped(*count))).collect();
    let errors = if errors.is_empty() { String::from("none") } else { errors.join(", ") };
    writeln!(out, "errors       {errors}")
}

fn describe_clock(status: &Status, out: &mut String) -> fmt::Result {
    let clock = &status.clock;
    let by = seconds(clock.by_s);
    let wall = match clock.state {
        ClockState::Steady => String::from("runs as expected"),
        ClockState::Behind => format!("{by} behind IDs already handed out"),
        ClockState::Held => format!("stepped forward by {by}, not followed yet"),
    };
    let (back, forward) = (clock.steps_back, clock.steps_forward);
    writeln!(out, "wall clock   {wall}; {} back, {forward} forward", counted(back, "step"))?;
    let ceilings = &status.ceilings;
    let last =
        ceilings.last_raise_ago_s.map_or_else(String::new, |ago_s| format!(", last {} ago", seconds(ago_s)));
    let failures = match (&ceilings.failing, ceilings.failures) {
        (Some(reason), count) => format!("failed {}, and now: {reason}", times(count)),
        (None, 0) => String::from("never failed"),
        (None, count) => format!("failed {}, not now", times(count)),
    };
    let raised = match ceilings.raises {
        0 => String::from("not raised yet"),
        raises => format!("raised {}{last}", times(raises)),
    };
    writeln!(out, "ceilings     {raised}; {failures}")
}

fn describe_source(
    status: &Status,
    source: &SourceStatus,
    last: Option<(&SourceStatus, f64)>,
    out: &mut String,
) -> fmt::Result {
    let per_second = last.map_or_else(String::new, |(last, elapsed_s)| {
        rate(source.ids.saturating_sub(last.ids), Some(elapsed_s))
    });
    let (ids, requests) = (counted(source.ids, "ID"), counted(source.requests, "request"));
    write!(out, "\nsource {}: {ids}{per_second} in {requests}", source.name)?;
    match &source.kind {
        KindStatus::Snowflake(snowflake) => {
            writeln!(out, "; at most {}/s", Grouped(snowflake.ids_per_second))?;
            writeln!(out, "       {}; worker {}", snowflake.layout, snowflake.worker_ids)?;
        }
        KindStatus::Ticket(ticket) => {
            let place = if ticket.shared { "; at the fleet's coordinator" } else { "" };
            writeln!(
                out,
                "\n       ticket counter{place}; increment {}, offset {}",
                ticket.increment, ticket.offset
            )?;
        }
    }
    for check in status.checks.iter().filter(|check| check.source.as_ref() == Some(&source.name)) {
        writeln!(out, "  {} {}: {}", mark(check.level), check.name, check.message)?;
    }
    describe_fleet_ceiling(status, source, out)
}

fn rate(count: u64, elapsed_s: Option<f64>) -> String {
    match elapsed_s {
        Some(elapsed_s) if elapsed_s > 0.0 => {
            format!(" ({}/s)", Grouped((count as f64 / elapsed_s).round() as u64))
        }
        _ => String::new(),
    }
}

/// Returns a count and its noun, in the singular for one.
fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", Grouped(count), if count == 1 { "" } else { "s" })
}

/// Returns how often something happened, in words.
fn times(count: u64) -> String {
    match count {
        1 => String::from("once"),
        count => format!("{} times", Grouped(count)),
    }
}

fn mark(level: Level) -> &'static str {
    match level {
        Level::Fail => "FAIL",
        Level::Warn => "warn",
        Level::Ok => "ok  ",
    }
}
