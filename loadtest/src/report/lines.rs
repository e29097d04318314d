//! A run in words: the same lines on the terminal and on the page. An unknown figure is a dash.

use std::time::Duration;

use super::QUANTILES;
use super::json::{ChurnFigures, ClientStallFigures, LatencyFigures, LostTarget, OutageFigures, Run, Times};
use crate::check::distinct::Gaps;
use crate::judge::quantile_name;
use crate::measure::SecondFigures;
use crate::units::{count, counted, fixed, limit, percent, rate, short_ms, stood_still, time};
use crate::value::Time;

/// The text of a figure that is not known.
pub(crate) const UNKNOWN: &str = "–";

/// A line: its name, and what is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// Returns the first line of a report: verdict, rate, the objective that was missed or else the first, and for how
/// long the machine stood still.
pub(crate) fn headline(run: &Run) -> String {
    let verdict = run.verdict.to_uppercase();
    if run.response_time.count == 0 {
        return format!("{verdict}  nothing was measured");
    }
    let at_least = if run.at_least { "≥ " } else { "" };
    let latencies = &run.objectives.latencies;
    let missed = |latency: &&LatencyFigures| !latency.met;
    let latency = latencies.iter().find(missed).or(latencies.first());
    let found = match latency {
        Some(LatencyFigures { quantile, limit_us, found_us, .. }) => {
            format!("{quantile} {} (limit {})", short_ms(*found_us), limit(us(*limit_us)))
        }
        None => format!("p99.9 {}", run.response_time.at("p99.9").map_or(UNKNOWN.to_owned(), short_ms)),
    };
    let stood = run
        .machine
        .as_ref()
        .map_or(UNKNOWN.to_owned(), |machine| stood_still(us(machine.stalled_us), us(run.elapsed_s * 1e6)));
    format!("{verdict}  {at_least}{} IDs/s  {found}  machine stood still {stood}", rate(run.ids_per_s))
}

fn us(us: f64) -> Duration {
    Duration::from_secs_f64(us.max(0.0) / 1e6)
}

/// Returns the rows of quantiles, each with its name and its times in ms.
pub(crate) fn quantiles(run: &Run) -> Vec<(&'static str, [String; QUANTILES.len()])> {
    let echo = run.machine.as_ref().and_then(|machine| machine.echo_time.as_ref());
    let rows = [
        ("response time", Some(&run.response_time)),
        ("target's part", Some(&run.target_time)),
        ("a bare echo", echo),
    ];
    let at = |times: &Times, quantile| {
        let found = times.at(&quantile_name(quantile)).filter(|_| times.count > 0);
        found.map_or(UNKNOWN.to_owned(), |us| fixed(us / 1e3, 3))
    };
    let row = |(name, times): (&'static str, Option<&Times>)| {
        times.map(|times| (name, QUANTILES.map(|quantile| at(times, quantile))))
    };
    rows.into_iter().filter_map(row).collect()
}

/// Returns all other figures.
pub(crate) fn lines(run: &Run) -> Vec<Line> {
    let mut lines = vec![line("IDs", ids(run)), line("CPU, memory", processor(run))];
    let by_chance = run.response_time.decided_by_chance().join(", ");
    if !by_chance.is_empty() && run.response_time.count > 0 {
        lines.push(line("note", format!("too few requests for {by_chance}: chance decides them")));
    }
    lines.extend(run.lost_targets.iter().map(|LostTarget { address, at_s }| {
        line("lost", format!("{address} went away after {at_s:.3} s; the others went on"))
    }));
    lines.extend(run.outage.iter().map(|it| line("outage", outage(it))));
    lines.extend(run.churn.iter().map(|it| line("churn", churn(it))));
    lines.extend(run.client_stall.iter().map(|it| line("client stall", client_stall(it))));
    lines.extend(run.clock_offset_us.map(|us| {
        let apart =
            format!("{:+.3} ms apart at most; an ID may be dated that much further off", us as f64 / 1e3);
        line("clocks", apart)
    }));
    lines.extend([line("target", target(run)), line("load", load(run))]);
    lines
}

fn line(name: &'static str, text: String) -> Line {
    Line { name, text }
}

fn ids(run: &Run) -> String {
    let (answered, sent) = (count(run.answered), counted(run.requests, "request"));
    let refused = run.refused.values().sum();
    let mut text = format!(
        "{answered} of {sent} answered, {} refused, {} without an answer; {} IDs checked with the warm-up",
        count(refused),
        count(run.unanswered),
        count(run.checked_ids)
    );
    let codes = run.refused.iter().map(|(code, number)| format!("; {code}: {}", count(*number)));
    text.extend(codes);
    let in_warm_up = run.warm_up_refused.iter();
    text.extend(in_warm_up.map(|(code, number)| format!("; {code} in the warm-up: {}", count(*number))));
    if let Some(Gaps { count: gaps, numbers }) = run.gaps {
        text += &format!("; {}, {} left out", counted(gaps, "gap"), counted(numbers, "number"));
    }
    text
}

fn processor(run: &Run) -> String {
    let dash = || UNKNOWN.to_owned();
    let of_core = run.target_cpu_share.map_or_else(dash, percent);
    let each = run.target_us_per_request().map_or_else(dash, |us| format!("{us:.2} µs"));
    let of = |second: &SecondFigures| second.target_memory_bytes;
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let first = run.seconds.iter().find_map(of);
    let most = run.seconds.iter().filter_map(of).max();
    let memory = match first.zip(most).map(|(first, most)| (mib(first), mib(most))) {
        None => dash(),
        Some((first, most)) if first == most => format!("{first} MiB"),
        Some((first, most)) => format!("{first} to {most} MiB"),
    };
    let generator = percent(run.generator_cpu_share);
    format!("target {of_core} of a core, {each} a request, {memory}; generator {generator} of a core")
}

fn outage(outage: &OutageFigures) -> String {
    let at = Time(us(outage.at_s * 1e6));
    let how = match (outage.ending.as_str(), outage.window_us) {
        (_, Some(window_us)) => format!("announced for {} at {at}", Time(us(window_us))),
        ("kill", None) => format!("killed and started at {at}"),
        (_, None) => format!("restarted at {at}"),
    };
    format!(
        "{how}: {} until all was back, longest gap between answers {}, {} lost",
        time(outage.length_us),
        time(outage.longest_gap_us),
        counted(outage.lost, "request")
    )
}

fn churn(churn: &ChurnFigures) -> String {
    let at = |name: &str| churn.open_time.at(name).map_or(UNKNOWN.to_owned(), time);
    let (opened, due) = (count(churn.open_time.count), counted(churn.due, "new connection"));
    format!("{opened} of {due} opened; each took p50 {}, p99 {}, max {}", at("p50"), at("p99"), at("max"))
}

fn client_stall(stall: &ClientStallFigures) -> String {
    let how = match (stall.closed_after_us, stall.caught_up_after_us) {
        (_, None) => "the run ended before it was over".to_owned(),
        (None, Some(after_us)) => format!("it recovered, all answered {} after", time(after_us)),
        (Some(closed_us), Some(after_us)) => format!(
            "the target closed it, seen after {}; opened again {} after the stall",
            time(closed_us),
            time(after_us)
        ),
    };
    format!(
        "one connection not read for {} at {}: {how}; longest gap on the others {}; {} on it excused, {} lost",
        Time(us(stall.for_s * 1e6)),
        Time(us(stall.at_s * 1e6)),
        time(stall.longest_gap_us),
        counted(stall.excused, "request"),
        count(stall.lost)
    )
}

fn target(run: &Run) -> String {
    let version = run.version.as_deref().unwrap_or("version unknown");
    let own = if run.own_daemon { ", started for this run" } else { "" };
    let unchecked = if run.layout.is_none() && run.increment.is_none() {
        " (times and workers are not checked)"
    } else {
        ""
    };
    let window = run.window_before_us.zip(run.window_after_us).map(|(before_us, after_us)| {
        let [before, after] = [before_us, after_us].map(|us| time(us as f64));
        format!("; an ID is dated at most {before} before its request and {after} after its reply")
    });
    format!(
        "{} ({}, {version}{own}), source {}, layout {}{unchecked}{}",
        run.address,
        run.protocol,
        run.source,
        run.form(),
        window.unwrap_or_default()
    )
}

fn load(run: &Run) -> String {
    let pace = match (run.wanted_ids_per_s, run.depth) {
        (_, Some(depth)) => format!("{} in flight on each connection", counted(depth as u64, "request")),
        (wanted, None) => {
            let arrivals = run.arrivals.as_deref().unwrap_or("even");
            format!("{} IDs/s, {arrivals} arrivals", rate(wanted.unwrap_or_default()))
        }
    };
    let length =
        run.for_s.map_or("until its count of IDs".to_owned(), |for_s| format!("{}", Time(us(for_s * 1e6))));
    let runs = run.machine.as_ref().map(|machine| machine.rounds).filter(|&rounds| rounds > 1);
    let times = runs.map(|rounds| format!("{rounds} times ")).unwrap_or_default();
    format!(
        "{}, {pace}, IDs per request {}, {}, {}, {times}{length} after a warm-up of {}",
        run.loop_kind,
        run.batch,
        counted(run.connections as u64, "connection"),
        counted(run.threads as u64, "thread"),
        Time(us(run.warm_up_s * 1e6))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn the_first_line_says_it_all_in_100_characters() {
        let mut run = testing::run(&[60.0; 10]);
        run.machine = Some(crate::report::json::MachineFigures {
            rounds: 1,
            stalls: 9,
            stalled_us: 30_000.0,
            longest_stall_us: 9_000.0,
            echo_time: None,
        });
        let expected = "PASS  10,000 IDs/s  p99.9 0.48 ms (limit 2 ms)  machine stood still 0.03 s of 10 s";
        assert_eq!(headline(&run), expected);
        (run.verdict, run.at_least, run.elapsed_s) = ("no verdict".to_owned(), true, 3_600.0);
        run.machine.as_mut().expect("set").stalled_us = 3_600e6;
        run.ids_per_s = 4_096_000.0;
        let missed = &mut run.objectives.latencies[0];
        (missed.quantile, missed.found_us, missed.met) = ("p99.99".to_owned(), 3_600e6, false);
        let longest = headline(&run);
        assert!(
            longest.starts_with("NO VERDICT  ≥ 4,096,000 IDs/s  p99.99 3,600 s (limit 2 ms)"),
            "{longest}"
        );
        assert!(longest.chars().count() <= 100, "{longest}");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut run = testing::run(&[]);
        (run.target_cpu_share, run.response_time.count, run.target_time.count) = (None, 0, 0);
        assert!(processor(&run).starts_with("target – of a core, – a request, –; "), "{}", processor(&run));
        assert!(quantiles(&run).iter().all(|(_, row)| row.iter().all(|text| text == UNKNOWN)));
        assert_eq!(headline(&run), "PASS  nothing was measured");
    }

    #[test]
    fn quantiles_that_a_few_requests_decide_are_named() {
        let mut run = testing::run(&[60.0]);
        run.response_time.count = 30;
        let note = |run: &Run| lines(run).into_iter().find(|line| line.name == "note");
        assert!(note(&run).is_some_and(|note| note.text.contains("p90, p99, p99.9, p99.99: chance")));
        run.response_time.count = 100_000;
        assert_eq!(note(&run), None);
    }
}
