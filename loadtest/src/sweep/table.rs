//! The table of a sweep: a row for each step as soon as it is over, and at the end what they say.
//!
//! All but the last line fits into 80 columns.

use std::io::{self, Write};

use super::machine::{Machine, Versions};
use super::search::{Answer, Limit, Phase};
use super::step::{Said, Step};
use super::{Begun, Ended, Sweep};
use crate::report::json::Run;
use crate::value::{MAX_RATE_PER_S, Time};
use crate::verdict::Latency;

/// What every terminal has.
const WIDTH: usize = 80;

/// A quantile of fewer requests than this beyond it is decided by chance.
const MIN_BEYOND_QUANTILE: f64 = 10.0;

/// Writes what comes before the steps.
///
/// # Errors
/// The writer's.
pub(crate) fn begin(begun: &Begun<'_>, machine: &Machine, out: &mut dyn Write) -> io::Result<()> {
    let Begun { settings, target, own_daemon, bounds } = begun;
    let scenario = &settings.scenario;
    let address = scenario.address.as_ref().map(ToString::to_string).unwrap_or_default();
    let version = if scenario.resp { Some("a Redis, by INCRBY") } else { target.version.as_deref() };
    let version = version.unwrap_or("version unknown");
    let own = if *own_daemon { ", started for this sweep" } else { "" };
    let cpu = machine.cpu.as_deref().unwrap_or("processor unknown");
    writeln!(out, "target      {address} ({version}{own})")?;
    writeln!(out, "machine     {cpu}, {} cores, {}", machine.cores, machine.kernel)?;
    let objective: Vec<String> = settings.objectives.latencies.iter().map(within).collect();
    writeln!(out, "objective   response time {}, open loop", objective.join(", "))?;
    writeln!(
        out,
        "load        {} IDs per request, {} connections, {} threads",
        scenario.batch, scenario.connections, scenario.threads
    )?;
    writeln!(
        out,
        "steps       from {}/s {}, {} each after a warm-up of {}",
        short(bounds.start),
        if bounds.limit < MAX_RATE_PER_S { format!("to {}/s", short(bounds.limit)) } else { "up".to_owned() },
        Time(settings.step_length),
        Time(scenario.warm_up)
    )?;
    writeln!(out)?;
    writeln!(out, "    IDs/s       response time in ms                daemon  gen   slip")?;
    writeln!(out, " asked    got    p50    p99  p99.9    max errors    CPU  CPU  p99.9 verdict")
}

/// Writes a step's row.
///
/// # Errors
/// The writer's.
pub(crate) fn row(step: &Step, out: &mut dyn Write) -> io::Result<()> {
    let run = &step.figures;
    let at = |name: &str| ms(quantile_us(run, name));
    let slip_us = run.schedule_slip.as_ref().and_then(|slip| slip.quantiles_us.get("p99.9"));
    writeln!(
        out,
        "{:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>6} {}",
        short(step.rate),
        short(run.ids_per_s),
        at("p50"),
        at("p99"),
        at("p99.9"),
        at("max"),
        short((run.refused.values().sum::<u64>() + run.unanswered) as f64),
        run.daemon_cpu_share.map_or("-".to_owned(), percent),
        percent(run.generator_cpu_share),
        ms(slip_us.copied().unwrap_or(0.0)),
        verdict(step)
    )
}

fn verdict(step: &Step) -> &'static str {
    match (&step.said, step.phase) {
        (Said::Answer(Answer::Holds), Phase::Confirm) => "again",
        (Said::Answer(Answer::Holds), _) => "holds",
        (Said::Answer(Answer::Misses(limit)), _) => limit_name(*limit),
        (Said::Interrupted, _) => "cut short",
        (Said::Broken(_), _) => "broken",
    }
}

/// Writes what comes after the steps.
///
/// # Errors
/// The writer's.
pub(crate) fn end(sweep: &Sweep, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if let Some(step) = sweep.at_knee() {
        knee(sweep, step, out)?;
    }
    // Without a knee the last line says it.
    if let Some((rate, _)) = sweep.finding.missed.filter(|_| sweep.finding.knee.is_some()) {
        let reasons = sweep.at_miss().map(|step| step.figures.reasons.join("; ")).unwrap_or_default();
        labelled("missed", &format!("{rate:.0} IDs/s: {reasons}"), out)?;
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
    let run = &step.figures;
    let requests_per_s = step.rate / run.mean_batch;
    let again = if sweep.finding.confirmed { "held by a second run" } else { "not confirmed" };
    let rate = format!("{:.0} IDs/s, {requests_per_s:.0} requests/s, {again}", step.rate);
    labelled("knee", &rate, out)?;
    let at = |name| quantile_us(run, name) / 1e3;
    let times = format!("p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms", at("p50"), at("p99"), at("p99.9"));
    labelled("", &times, out)?;
    let Some(share) = run.daemon_cpu_share else {
        return Ok(());
    };
    let each_us = share * 1e6 / requests_per_s;
    let cpu = format!("{:.1} % of a core, {each_us:.2} us for each request", share * 100.0);
    labelled("daemon", &cpu, out)
}

/// A label and its text, in lines of at most [`WIDTH`] columns where its words allow.
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
    match (limit, sweep.target.per_second) {
        (Limit::Layout, Some(ceiling)) => {
            format!("the layout: {ceiling} IDs/s for the source's worker IDs; more IDs need more worker IDs")
        }
        (Limit::Layout, None) => "the layout: the source has no more IDs for this time".to_owned(),
        (Limit::Latency, Some(ceiling)) => {
            let share = sweep.finding.missed.map_or(0.0, |(rate, _)| rate / ceiling as f64 * 100.0);
            format!("latency, at {share:.0} % of what the layout allows")
        }
        (Limit::Latency, None) => "latency".to_owned(),
        (Limit::Target, _) => "the target: it failed under the load, see above".to_owned(),
        (Limit::Generator, _) => {
            "the generator: the target may do more; --threads, or a second machine, shows it".to_owned()
        }
    }
}

fn notes(sweep: &Sweep) -> Vec<String> {
    let mut notes = Vec::new();
    let held = sweep.at_knee().map(|step| &step.figures);
    for latency in &sweep.settings.objectives.latencies {
        let beyond = held.map_or(f64::MAX, |run| run.requests as f64 * (1.0 - latency.quantile));
        if latency.quantile < 1.0 && beyond < MIN_BEYOND_QUANTILE {
            notes.push(format!(
                "{beyond:.0} requests decide the {} at the knee: a longer --for tells more",
                latency.name()
            ));
        }
    }
    if Versions::with(None).debug_build {
        notes.push("this is a debug build: its figures are not a release's".to_owned());
    }
    if sweep.limit().is_none() && sweep.finding.confirmed {
        notes.push("every rate held up to --limit: the knee lies above it".to_owned());
    }
    notes
}

/// The last line: the knee, or why there is none.
pub(crate) fn summary(sweep: &Sweep) -> String {
    let objective: Vec<String> = sweep.settings.objectives.latencies.iter().map(within).collect();
    let objective = objective.join(", ");
    let so_far = match sweep.finding.knee {
        Some(knee) => format!("held up to {knee:.0} IDs/s, not confirmed"),
        None => "no rate held".to_owned(),
    };
    match (&sweep.ended, sweep.finding.knee) {
        (Ended::Broken(reason), _) => format!("fail: {reason}"),
        (Ended::Gone(reason), _) => format!("fail: the target took no further run: {reason}; {so_far}"),
        (Ended::Interrupted, _) => format!("no knee: interrupted; {objective} {so_far}"),
        (Ended::Searched, Some(knee)) if sweep.finding.confirmed => {
            let bound = if sweep.is_lower_bound() { "at least " } else { "" };
            let limit = sweep.limit().map_or("none found", limit_name);
            let at = sweep.finding.missed.map(|(rate, _)| format!(" at {rate:.0} IDs/s")).unwrap_or_default();
            format!("knee: {bound}{knee:.0} IDs/s with {objective}, confirmed; limit: {limit}{at}")
        }
        (Ended::Searched, _) => format!("no knee: {}", why_none(sweep, &objective)),
    }
}

fn why_none(sweep: &Sweep, objective: &str) -> String {
    let reasons = sweep.at_miss().map(|step| step.figures.reasons.join("; ")).unwrap_or_default();
    let start = sweep.bounds.start;
    let held_once = sweep.steps.iter().any(|step| step.said == Said::Answer(Answer::Holds));
    match (sweep.finding.missed, held_once) {
        (_, true) => format!(
            "{objective} held at some rates, and at none of them when it was confirmed, down to {start:.0} IDs/s: {reasons}"
        ),
        (Some((_, Limit::Generator)), _) => format!("at the first step, {start:.0} IDs/s: {reasons}"),
        _ => format!("{objective} does not hold at the first step, {start:.0} IDs/s: {reasons}"),
    }
}

fn within(latency: &Latency) -> String {
    format!("{} within {}", latency.name(), Time(latency.limit))
}

/// One word for a row.
pub(crate) fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::Layout => "layout",
        Limit::Latency => "latency",
        Limit::Target => "target",
        Limit::Generator => "generator",
    }
}

/// A quantile of the response time.
pub(crate) fn quantile_us(run: &Run, name: &str) -> f64 {
    run.response_time.quantiles_us.get(name).copied().unwrap_or(0.0)
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

/// A rate in four digits, at most 6 characters.
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
