//! `snowbank status`: the state of a daemon, in words.

mod fetch;

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::next::{converse, parse_duration};
use super::tls_options::TlsOptions;
use super::{Failure, Outcome, whole};
use crate::amounts::{counted, seconds, times};
use crate::config::{self, Address, Grouped, Overrides};
use crate::os_clock;
use crate::server::health::finding::Finding;
use crate::server::health::latency::Latency;
use fetch::Target;
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
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = |text: &str| whole(text, 1..=3_600))]
    watch: Option<u64>,

    /// The longest wait for an answer, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true, value_parser = parse_duration)]
    timeout: Duration,
}

/// Runs the command. Exit code 0: ready. 1: not ready. 2: the daemon cannot be asked.
pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let address = address(arguments)?;
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
fn address(arguments: &Arguments) -> Result<Address, Failure> {
    if let Some(given) = arguments.admin.as_deref().filter(|given| !given.is_empty()) {
        // The daemon's variable may list several addresses.
        let first = given.split(',').next().unwrap_or(given);
        return Address::from_admin(first).map_err(|error| Failure::usage(format_args!("--admin: {error}")));
    }
    if let Some(path) = &arguments.config {
        let or = "; or give the daemon's admin address with --admin";
        let text = config::read_file(path).map_err(|error| Failure::usage(format_args!("{error}{or}")))?;
        let now = os_clock::read().wall;
        // Without the daemon's variables its configuration may be refused.
        let overrides = Overrides::from_variables().map_err(Failure::usage)?;
        let settings = config::load(Some((path, &text)), &overrides, NonZeroUsize::MIN, now)
            .map_err(|mistakes| Failure::Usage(format!("{}{or}", mistakes.first_line())))?;
        return settings.admin.listen.into_iter().next().ok_or_else(|| {
            let path = path.display();
            Failure::usage(format_args!(
                "{path} has no admin listener; set listen in [admin], or give --admin"
            ))
        });
    }
    Address::from_admin(DEFAULT_ADDRESS).map_err(Failure::usage)
}

async fn once(target: &Target, arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let status = target.fetch().await.map_err(Failure::Usage)?;
    match write(&status, None, arguments.json, out).and_then(|()| out.flush()) {
        // A reader that closes the pipe early, such as `head`, does not change the exit code.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    if status["ready"] == true {
        return Ok(());
    }
    let findings = findings(&status);
    let failing = findings.iter().filter(|finding| finding.effect.makes_unready());
    let failing = failing.map(Finding::full_name);
    Err(Failure::no(format_args!("not ready: {}", failing.collect::<Vec<_>>().join(", "))))
}

/// Shows the status repeatedly, until the command is interrupted. An unreachable daemon is asked
/// again at the next tick.
async fn watch(target: &Target, arguments: &Arguments, every: Duration, out: &mut impl Write) -> Outcome {
    let in_place = !arguments.json && io::stdout().is_terminal();
    let mut last: Option<Value> = None;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fetched = target.fetch().await;
        let mut page = Vec::new();
        match &fetched {
            Ok(status) => {
                let last = last.as_ref().filter(|last| last["instance"] == status["instance"]);
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

fn write(status: &Value, last: Option<&Value>, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        return writeln!(out, "{status}");
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
fn describe(status: &Value, last: Option<&Value>, out: &mut String) -> fmt::Result {
    writeln!(out, "{}", text(status, "headline"))?;
    for finding in findings(status) {
        let mark = if finding.effect.is_urgent() { "FAIL" } else { "look" };
        writeln!(out, "  {mark} {}: {}", finding.full_name(), finding.message)?;
    }
    writeln!(
        out,
        "{}, version {}, up {}; {}, {} order\n",
        text(status, "instance"),
        text(status, "version"),
        seconds(uptime_s(status)),
        counted(count(status, "shards"), "shard"),
        text(status, "order")
    )?;
    describe_traffic(status, last, out)?;
    for fact in all(status, "facts") {
        writeln!(out, "{:<12} {}", text(fact, "name"), text(fact, "text"))?;
    }
    for source in all(status, "sources") {
        let before = last.and_then(|last| named(last, "sources", source)).map(|before| count(before, "ids"));
        let per_second = rate(count(source, "ids"), before, elapsed_s(status, last));
        let ids = counted(count(source, "ids"), "ID");
        let requests = counted(count(source, "requests"), "request");
        writeln!(out, "\nsource {}: {ids}{per_second} in {requests}", text(source, "name"))?;
        let facts = all(source, "facts").iter().filter_map(Value::as_str);
        facts.into_iter().try_for_each(|fact| writeln!(out, "       {fact}"))?;
    }
    describe_identities(status, last, out)
}

/// Writes a line for each identity that has connected.
fn describe_identities(status: &Value, last: Option<&Value>, out: &mut String) -> fmt::Result {
    let drawn = |identity: &Value| {
        identity["ids"].as_object().map_or(0, |ids| ids.values().filter_map(Value::as_u64).sum::<u64>())
    };
    let known = all(status, "identities").iter().filter(|identity| count(identity, "connected") > 0);
    for (index, identity) in known.enumerate() {
        let ids = drawn(identity);
        let before = last.and_then(|last| named(last, "identities", identity)).map(drawn);
        let per_second = rate(ids, before, elapsed_s(status, last));
        let limit = identity["rate"].as_u64();
        let limit = limit.map_or_else(String::new, |rate| format!("; at most {}/s", Grouped(rate)));
        let met = ["denied", "slowed"].map(|what| (what, count(identity, what)));
        let met = met.iter().filter(|(_, count)| *count > 0);
        let met: String = met.map(|(what, count)| format!("; {what} {}", times(*count))).collect();
        writeln!(
            out,
            "{}identity {}: {}{per_second} on {}{met}{limit}",
            if index == 0 { "\n" } else { "" },
            text(identity, "name"),
            counted(ids, "ID"),
            counted(count(identity, "connections"), "connection"),
        )?;
    }
    Ok(())
}

fn describe_traffic(status: &Value, last: Option<&Value>, out: &mut String) -> fmt::Result {
    let all = Latency::read(&status["latency"]);
    let before = last.map(|last| Latency::read(&last["latency"]));
    let requests = all.count();
    let per_second = rate(requests, before.as_ref().map(Latency::count), elapsed_s(status, last));
    let latency = before.map_or_else(|| all.clone(), |before| all.since(&before));
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

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

fn count(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

fn all<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the source or identity that has the name of another status's.
fn named<'a>(status: &'a Value, key: &str, like: &Value) -> Option<&'a Value> {
    all(status, key).iter().find(|one| one["name"] == like["name"])
}

fn findings(status: &Value) -> Vec<Finding> {
    Vec::deserialize(&status["findings"]).unwrap_or_default()
}

fn uptime_s(status: &Value) -> f64 {
    status["uptime_s"].as_f64().unwrap_or(0.0)
}

/// Returns the time since the earlier status, or 0 if there is none.
fn elapsed_s(status: &Value, last: Option<&Value>) -> f64 {
    last.map_or(0.0, |last| uptime_s(status) - uptime_s(last))
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
