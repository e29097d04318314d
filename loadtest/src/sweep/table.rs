//! The table of a sweep: a row for each step as soon as it is over, and at the end the result.
//!
//! All but the last line fits into 80 columns.

use std::io::{self, Write};

use super::machine::Versions;
use super::search::{Limit, Phase};
use super::step::Step;
use super::{Ended, Sweep};
use crate::units::{counted, rate};
use crate::value::{MAX_RATE_PER_S, Time};
use crate::verdict::Latency;

/// The width of every terminal.
const WIDTH: usize = 80;

/// Writes the lines before the steps.
///
/// # Errors
/// The writer's.
pub(crate) fn begin(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    let Sweep { settings, target, own_daemon, bounds, .. } = sweep;
    let scenario = &settings.scenario;
    let version = target.version.as_deref().unwrap_or("version unknown");
    let own = if *own_daemon { ", started for this sweep" } else { "" };
    let machine = &settings.origin.machine;
    let (cpu, cores) = (machine.cpu.as_deref().unwrap_or("processor unknown"), machine.cores);
    let by = scenario.protocol.by();
    writeln!(out, "target      {} ({version}{by}{own})", target.address)?;
    writeln!(out, "machine     {cpu}, {}, {}", counted(cores as u64, "core"), machine.kernel)?;
    writeln!(out, "objective   response time {}, open loop", objective(sweep))?;
    let connections = counted(scenario.connections as u64, "connection");
    let threads = counted(scenario.threads as u64, "thread");
    writeln!(out, "load        IDs per request {}, {connections}, {threads}", scenario.batch)?;
    let to =
        if bounds.limit < MAX_RATE_PER_S { format!("to {}/s", short(bounds.limit)) } else { "up".to_owned() };
    let (each, warm_up) = (settings.search.length, Time(scenario.warm_up));
    writeln!(
        out,
        "steps       from {}/s {to}, {each} each after a warm-up of {warm_up}",
        short(bounds.start)
    )?;
    writeln!(out, "\n    IDs/s       response time in ms                daemon  gen   slip")?;
    writeln!(out, " asked    got    p50    p99  p99.9    max errors    CPU  CPU  p99.9 verdict")
}

fn objective(sweep: &Sweep) -> String {
    let within = |latency: &Latency| format!("{} within {}", latency.name(), Time(latency.limit));
    sweep.settings.objectives.latencies.iter().map(within).collect::<Vec<_>>().join(", ")
}

/// Writes a step's row.
///
/// # Errors
/// The writer's.
pub(crate) fn row(step: &Step, out: &mut dyn Write) -> io::Result<()> {
    let run = &step.run;
    let at = |name: &str| ms(run.response_time.at(name).unwrap_or_default());
    let slip_us = run.schedule_slip.as_ref().and_then(|slip| slip.at("p99.9"));
    writeln!(
        out,
        "{:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>6} {}",
        short(step.rate()),
        short(run.ids_per_s),
        at("p50"),
        at("p99"),
        at("p99.9"),
        at("max"),
        short(run.errors() as f64),
        run.daemon_cpu_share.map_or("-".to_owned(), percent),
        percent(run.generator_cpu_share),
        ms(slip_us.unwrap_or_default()),
        verdict(step)
    )
}

fn verdict(step: &Step) -> &'static str {
    match (step.limit, step.phase) {
        (Some(limit), _) => limit.name(),
        (None, Phase::Confirm) if step.holds => "again",
        (None, _) if step.holds => "holds",
        (None, _) if step.run.verdict == "fail" => "broken",
        (None, _) => "cut short",
    }
}

/// Writes the lines after the steps.
///
/// # Errors
/// The writer's.
pub(crate) fn end(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if let Some(step) = sweep.at_knee() {
        knee(sweep, step, out)?;
    }
    // Without a knee the last line has the reason.
    if let Some((missed, _)) = sweep.finding.missed.filter(|_| sweep.finding.knee.is_some()) {
        let reasons = sweep.at_miss().map(|step| step.run.reasons.join("; ")).unwrap_or_default();
        labelled("missed", &format!("{} IDs/s: {reasons}", rate(missed)), out)?;
    }
    if let Some(limit) = sweep.limit().filter(|_| sweep.finding.knee.is_some()) {
        labelled("limit", &limit_words(limit, sweep), out)?;
    }
    for note in notes(sweep) {
        labelled("note", &note, out)?;
    }
    writeln!(out)?;
    writeln!(out, "{}", summary(sweep))
}

fn knee(sweep: &Sweep, step: &Step, out: &mut dyn Write) -> io::Result<()> {
    let run = &step.run;
    let requests_per_s = step.rate() / run.mean_batch;
    let again = if sweep.finding.confirmed { "held by a second run" } else { "not confirmed" };
    let (ids_per_s, requests) = (rate(step.rate()), rate(requests_per_s));
    labelled("knee", &format!("{ids_per_s} IDs/s, {requests} requests/s, {again}"), out)?;
    let at = |name| run.response_time.at(name).unwrap_or_default() / 1e3;
    let times = format!("p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms", at("p50"), at("p99"), at("p99.9"));
    labelled("", &times, out)?;
    let Some(share) = run.daemon_cpu_share else {
        return Ok(());
    };
    let each_us = share * 1e6 / requests_per_s;
    let cpu = format!("{:.1} % of a core, {each_us:.2} us for each request", share * 100.0);
    labelled("daemon", &cpu, out)
}

/// Writes a label and its text, in lines of at most [`WIDTH`] columns where its words allow.
fn labelled(label: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut line = format!("{label:<12}");
    let mut columns = line.len();
    for (index, word) in text.split(' ').enumerate() {
        let word_columns = word.chars().count() + usize::from(index > 0);
        if index > 0 && columns + word_columns > WIDTH {
            writeln!(out, "{line}")?;
            line = format!("{:<12}{word}", "");
            columns = line.chars().count();
        } else {
            line += if index > 0 { " " } else { "" };
            line += word;
            columns += word_columns;
        }
    }
    writeln!(out, "{line}")
}

fn limit_words(limit: Limit, sweep: &Sweep) -> String {
    match (limit, sweep.target.source_per_second) {
        (Limit::Layout, Some(full_rate)) => {
            format!(
                "the layout: {} IDs/s for the source's worker IDs; more IDs need more worker IDs",
                rate(full_rate as f64)
            )
        }
        (Limit::Layout, None) => "the layout: the source has no more IDs for this time".to_owned(),
        (Limit::Latency, Some(full_rate)) => {
            let share = sweep.finding.missed.map_or(0.0, |(rate, _)| rate / full_rate as f64 * 100.0);
            format!("latency, at {share:.0} % of the layout's limit")
        }
        (Limit::Latency, None) => "latency".to_owned(),
        (Limit::Target, _) => "the target: it failed under the load, see above".to_owned(),
        (Limit::Generator, _) => {
            "the generator: the target may do more; --threads, or a second machine, shows it".to_owned()
        }
    }
}

fn notes(sweep: &Sweep) -> Vec<String> {
    let by_chance =
        sweep.at_knee().map(|step| step.run.response_time.decided_by_chance()).unwrap_or_default();
    let objectives = sweep.settings.objectives.latencies.iter().map(Latency::name);
    let mut notes: Vec<String> = objectives
        .filter(|name| by_chance.contains(name))
        .map(|name| {
            format!("too few requests for the {name} at the knee, chance decides it: use a longer --for")
        })
        .collect();
    if Versions::with(None).debug_build {
        notes.push("this is a debug build: its figures are not a release's".to_owned());
    }
    if sweep.limit().is_none() && sweep.finding.confirmed {
        notes.push("every rate held up to --limit: the knee lies above it".to_owned());
    }
    notes
}

/// Returns the last line: the knee, or why there is none.
pub(crate) fn summary(sweep: &Sweep) -> String {
    let objective = objective(sweep);
    let so_far = match sweep.finding.knee {
        Some(knee) => format!("held up to {} IDs/s, not confirmed", rate(knee)),
        None => "held at no rate".to_owned(),
    };
    match (&sweep.ended, sweep.finding.knee) {
        (Ended::Broken(reason), _) => format!("fail: {reason}"),
        (Ended::Gone(reason), _) => {
            format!("fail: the target took no further run: {reason}; {objective} {so_far}")
        }
        (Ended::Hindered(reason), _) => format!("no knee: {reason}; {objective} {so_far}"),
        (Ended::Interrupted, _) => format!("no knee: interrupted; {objective} {so_far}"),
        (Ended::Searched, Some(knee)) if sweep.finding.confirmed => {
            let bound = if sweep.is_lower_bound() { "at least " } else { "" };
            let limit = sweep.limit().map_or("none found", Limit::name);
            let at = sweep
                .finding
                .missed
                .map(|(missed, _)| format!(" at {} IDs/s", rate(missed)))
                .unwrap_or_default();
            format!("knee: {bound}{} IDs/s with {objective}, confirmed; limit: {limit}{at}", rate(knee))
        }
        (Ended::Searched, _) => format!("no knee: {}", why_none(sweep, &objective)),
    }
}

fn why_none(sweep: &Sweep, objective: &str) -> String {
    let reasons = sweep.at_miss().map(|step| step.run.reasons.join("; ")).unwrap_or_default();
    let start = rate(sweep.bounds.start);
    let held_once = sweep.steps.iter().any(|step| step.holds);
    match (sweep.finding.missed, held_once) {
        (_, true) => format!(
            "{objective} held once at some rates, and at none of them a second time, down to {start} IDs/s: {reasons}"
        ),
        (Some((_, Limit::Generator)), _) => format!("at the first step, {start} IDs/s: {reasons}"),
        _ => format!("{objective} does not hold at the first step, {start} IDs/s: {reasons}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Microseconds as ms, in at most 6 characters.
fn ms(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        ..100.0 => format!("{ms:.3}"),
        ..1_000.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

/// Returns a rate in four digits, at most 6 characters.
pub(crate) fn short(rate: f64) -> String {
    let (unit, name) = match rate {
        ..9_999.5 => return format!("{rate:.0}"),
        ..999_950.0 => (1e3, "k"),
        ..999_950_000.0 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    let number = rate / unit;
    let decimals = if number < 9.9995 {
        3
    } else if number < 99.995 {
        2
    } else {
        1
    };
    format!("{number:.decimals$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_four_digits() {
        let cases = [
            (2_000.0, "2000"),
            (9_999.0, "9999"),
            (10_000.0, "10.00k"),
            (99_996.0, "100.0k"),
            (113_000.0, "113.0k"),
            (999_999.0, "1.000M"),
            (4_096_000.0, "4.096M"),
            (1e12, "1000.0G"),
        ];
        for (rate, expected) in cases {
            assert_eq!(short(rate), expected, "{rate}");
        }
    }

    #[test]
    fn long_texts_go_on_below() {
        let mut out = Vec::new();
        let text = "at most eighty columns ".repeat(8);
        labelled("label", text.trim_end(), &mut out).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert!(out.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{out}");
        let words: Vec<&str> = out.split_whitespace().skip(1).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
        assert!(out.lines().skip(1).all(|line| line.starts_with(&" ".repeat(12))), "{out}");
    }

    #[test]
    fn times_fit_their_columns() {
        assert_eq!([61.0, 99_999.0, 123_456.0, 5_000_123.0].map(ms), ["0.061", "99.999", "123.5", "5000"]);
    }
}
