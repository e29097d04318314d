//! The final table. Its lines fit into 80 columns, but for the last, which is one line of any length.

use std::io::{self, Write};
use std::time::Duration;

use super::QUANTILES;
use super::json::{ChurnFigures, ClientStallFigures, LostTarget, MachineFigures, OutageFigures, Run};
use crate::check::distinct::Gaps;
use crate::measure::SecondFigures;
use crate::units::{count, counted, fixed, rate, time};
use crate::value::Time;
use crate::verdict::quantile_name;

/// Writes the table and, as its last line, the verdict.
///
/// # Errors
/// The writer's.
pub(crate) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    target(run, out)?;
    load(run, out)?;
    writeln!(out)?;
    if run.requests > 0 {
        latencies(run, out)?;
        requests(run, out)?;
    } else {
        writeln!(out, "requests    none: the run ended before one was due in the measurement")?;
    }
    writeln!(out, "IDs         {} checked, the warm-up's included", count(run.checked_ids))?;
    if let Some(Gaps { count: gaps, numbers }) = run.gaps {
        let (gaps, numbers) = (counted(gaps, "gap"), counted(numbers, "number"));
        writeln!(out, "gaps        {gaps}, {numbers} between the first and the last did not come")?;
    }
    for LostTarget { address, at_s } in &run.lost_targets {
        writeln!(out, "lost        {address} went away after {at_s:.3} s; the others went on")?;
    }
    run.outage.iter().try_for_each(|figures| outage(figures, out))?;
    run.churn.iter().try_for_each(|figures| churn(figures, out))?;
    run.client_stall.iter().try_for_each(|figures| stall(figures, out))?;
    if run.requests > 0 {
        generator(run, out)?;
        run.machine.iter().try_for_each(|figures| machine(figures, out))?;
    }
    writeln!(out, "\n{}", run.summary)
}

fn target(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let version = run.version.as_deref().unwrap_or("version unknown");
    let own = if run.own_daemon { ", started for this run" } else { "" };
    let by = if run.protocol == "snowbank" { String::new() } else { format!(", protocol {}", run.protocol) };
    writeln!(out, "target      {} ({version}{by}{own})", run.address)?;
    let unchecked = if run.layout.is_none() && run.increment.is_none() {
        ": times and workers are not checked"
    } else {
        ""
    };
    let layout = run.form() + unchecked;
    writeln!(out, "source      {}", run.source)?;
    // The fields, and below them tick and epoch.
    writeln!(out, "layout      {}", layout.replacen(';', ";\n            ", 1))?;
    let Some((before_us, after_us)) = run.window_before_us.zip(run.window_after_us) else {
        return Ok(());
    };
    let of = |us: i64| time(us as f64);
    writeln!(out, "window      an ID is dated at most {} before its request", of(before_us))?;
    writeln!(out, "            and {} after its reply", of(after_us))
}

fn load(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let pace = match (run.wanted_ids_per_s, run.depth) {
        (_, Some(depth)) => format!("{} in flight on each connection", counted(depth as u64, "request")),
        (wanted, None) => {
            let arrivals = run.arrivals.as_deref().unwrap_or("even");
            format!("{} IDs/s, {arrivals} arrivals", rate(wanted.unwrap_or_default()))
        }
    };
    let length = run
        .for_s
        .map_or_else(|| "until its count of IDs".to_owned(), |for_s| format!("for {}", seconds(for_s)));
    writeln!(out, "load        {}: {pace},", run.loop_kind)?;
    writeln!(out, "            {length} after a warm-up of {}", seconds(run.warm_up_s))?;
    if let Some(rounds) = run.machine.as_ref().map(|machine| machine.rounds).filter(|&rounds| rounds > 1) {
        writeln!(out, "            {rounds} times, because the machine stalled")?;
    }
    let connections = counted(run.connections as u64, "connection");
    let threads = counted(run.threads as u64, "thread");
    writeln!(out, "            IDs per request {},\n            {connections}, {threads}", run.batch)
}

fn seconds(seconds: f64) -> Time {
    Time(Duration::from_secs_f64(seconds))
}

fn ms(us: f64) -> String {
    format!("{} ms", fixed(us / 1e3, 3))
}

fn latencies(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:<18}", "ms")?;
    let names = QUANTILES.map(quantile_name);
    names.iter().try_for_each(|name| write!(out, "{name:>10}"))?;
    writeln!(out)?;
    let rows = [
        ("response time", Some(&run.response_time)),
        ("without stalls", run.undisturbed_time.as_ref()),
        ("service time", Some(&run.service_time)),
        ("target's at least", run.target_time.as_ref()),
        ("schedule slip", run.schedule_slip.as_ref()),
        ("a bare echo", run.machine.as_ref().and_then(|machine| machine.echo_time.as_ref())),
    ];
    for (name, times) in rows.into_iter().filter_map(|(name, times)| Some((name, times?))) {
        write!(out, "{name:<18}")?;
        let values = names.iter().map(|name| times.at(name).unwrap_or_default() / 1e3);
        values.into_iter().try_for_each(|ms| write!(out, "{ms:>10.3}"))?;
        writeln!(out)?;
    }
    let by_chance = run.response_time.decided_by_chance().join(", ");
    if !by_chance.is_empty() {
        writeln!(out, "note        too few requests for {by_chance}: chance decides them")?;
    }
    writeln!(out)
}

fn requests(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let outside = if run.outage.is_some() { " outside the outage" } else { "" };
    writeln!(out, "rate        {} IDs/s over {} s{outside}", rate(run.ids_per_s), fixed(run.judged_s(), 3))?;
    let refused = count(run.refused.values().sum());
    let (sent, answered, unanswered) = (count(run.requests), count(run.answered), count(run.unanswered));
    writeln!(out, "requests    {sent} sent, {answered} answered,")?;
    writeln!(out, "            {refused} refused, {unanswered} without an answer")?;
    run.refused
        .iter()
        .try_for_each(|(code, number)| writeln!(out, "            {code}: {}", count(*number)))?;
    let in_warm_up = run.warm_up_refused.iter();
    in_warm_up.into_iter().try_for_each(|(code, number)| {
        writeln!(out, "            refused in the warm-up, {code}: {}", count(*number))
    })
}

fn outage(outage: &OutageFigures, out: &mut dyn Write) -> io::Result<()> {
    let (at, gap) = (seconds(outage.at_s), ms(outage.longest_gap_us));
    let how = match (outage.ending.as_str(), outage.window_us) {
        (_, Some(window_us)) => format!("announced for {} at {at}", seconds(window_us / 1e6)),
        ("kill", None) => format!("killed and started at {at}"),
        (_, None) => format!("restarted at {at}"),
    };
    writeln!(out, "outage      {how}: {} until all was back,", ms(outage.length_us))?;
    writeln!(out, "            longest gap between answers {gap},")?;
    writeln!(out, "            {} lost", counted(outage.lost, "request"))
}

fn churn(churn: &ChurnFigures, out: &mut dyn Write) -> io::Result<()> {
    let at = |name: &str| ms(churn.open_time.at(name).unwrap_or_default());
    let (opened, due) = (count(churn.open_time.count), counted(churn.due, "new connection"));
    writeln!(out, "churn       {opened} of {due} opened;")?;
    writeln!(out, "            each took p50 {}, p99 {}, max {}", at("p50"), at("p99"), at("max"))
}

fn stall(stall: &ClientStallFigures, out: &mut dyn Write) -> io::Result<()> {
    let (at, length) = (seconds(stall.at_s), seconds(stall.for_s));
    writeln!(out, "stall       one connection not read for {length} at {at}:")?;
    match (stall.closed_after_us, stall.caught_up_after_us) {
        (_, None) => writeln!(out, "            the run ended before it was over")?,
        (None, Some(after)) => writeln!(out, "            it recovered, all answered {} after", ms(after))?,
        (Some(closed), Some(after)) => {
            writeln!(out, "            the target closed it, seen after {};", ms(closed))?;
            writeln!(out, "            opened again {} after the stall", ms(after))?;
        }
    }
    writeln!(out, "            longest gap between answers on the others {};", ms(stall.longest_gap_us))?;
    writeln!(out, "            {} requests on it excused, {} lost", count(stall.excused), count(stall.lost))
}

fn generator(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    if let Some((share, each_us)) = run.daemon_cpu_share.zip(run.daemon_us_per_request()) {
        writeln!(out, "daemon      {} of a core, {each_us:.2} us for each request", percent(share))?;
    }
    memory(run, out)?;
    let (all, busiest) = (percent(run.generator_cpu_share), percent(run.busiest_thread_share));
    writeln!(out, "generator   {all} of a core (busiest thread {busiest}),")?;
    writeln!(out, "            longest pause {},", ms(run.longest_pause_us))?;
    let waited_ms = fixed(run.generator_waited_us / 1e3, 1);
    writeln!(out, "            waited {waited_ms} ms in all for a core that something else used")?;
    if run.generator_throttled_share > 0.0 {
        let share = percent(run.generator_throttled_share);
        writeln!(out, "            a processor quota held it back for {share} of the time")?;
    }
    if let Some(offset_us) = run.clock_offset_us {
        let offset_ms = offset_us as f64 / 1e3;
        writeln!(out, "clocks      {offset_ms:+.3} ms apart at most, measured again and again;")?;
        writeln!(out, "            the allowed time of an ID is widened by that")?;
    }
    Ok(())
}

/// Writes the target's memory in the first second and in the last: a soak shows whether it grows.
fn memory(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let of = |second: &SecondFigures| second.target_memory_bytes;
    let Some((first, last)) = run.seconds.iter().find_map(of).zip(run.seconds.iter().rev().find_map(of))
    else {
        return Ok(());
    };
    let most = run.seconds.iter().filter_map(of).max().unwrap_or(last);
    writeln!(out, "memory      {} MiB at first, {} at the end, {} at most", mib(first), mib(last), mib(most))
}

fn machine(machine: &MachineFigures, out: &mut dyn Write) -> io::Result<()> {
    if machine.stalls > 0 {
        let (stalls, all) = (counted(machine.stalls, "stall"), ms(machine.stalled_us));
        writeln!(out, "machine     {stalls}, {all} in all,")?;
        let touched = machine.disturbed_share * 100.0;
        let longest = ms(machine.longest_stall_us);
        writeln!(out, "            longest {longest}; they touched {touched:.2} % of the requests")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::Times;
    use crate::report::testing;

    /// Returns a run in which every line of the table is as long as it can be.
    fn longest(closed_after_us: Option<f64>, is_closed_loop: bool) -> Run {
        const HOUR_US: f64 = 3_600e6;
        let mut run = testing::run(&[60.0]);
        let longest = |times: &mut Times| times.quantiles_us.values_mut().for_each(|us| *us = 99_999_000.0);
        longest(&mut run.response_time);
        run.version = Some("0.1.0".to_owned());
        run.address = "127.0.0.1:65535".to_owned();
        run.response_time.count = 30;
        (run.requests, run.answered, run.unanswered) = (1_000_000_000, 999_999_999, 1_000_000_000);
        run.checked_ids = u64::MAX;
        run.refused.insert("shutting_down".to_owned(), 1_000_000_000);
        run.wanted_ids_per_s = Some(1e12);
        run.arrivals = Some("poisson".to_owned());
        if is_closed_loop {
            (run.depth, run.loop_kind) = (Some(65_536), "closed loop".to_owned());
        }
        (run.batch, run.connections, run.threads) = ("1:90,100:9,10000:1".to_owned(), 100_000, 1_024);
        (run.for_s, run.elapsed_s, run.warm_up_s, run.ids_per_s) =
            (Some(3_600.0), 3_600.0, 3_600.0, 277_778.0);
        run.outage = Some(OutageFigures {
            ending: "kill".to_owned(),
            at_s: 3.5,
            length_us: 10e6,
            longest_gap_us: HOUR_US,
            window_us: (!is_closed_loop).then_some(HOUR_US),
            lost: 1_000_000_000,
        });
        let mut open_time = run.response_time.clone();
        longest(&mut open_time);
        run.churn = Some(ChurnFigures { per_s: 1e6, due: 1_000_000_000, open_time });
        run.client_stall = Some(ClientStallFigures {
            at_s: 3_600.0,
            for_s: 3_600.0,
            ended: "recovered".to_owned(),
            closed_after_us,
            caught_up_after_us: Some(10e6),
            longest_gap_us: HOUR_US,
            excused: 1_000_000_000,
            lost: 1_000_000_000,
        });
        run.seconds[0].target_memory_bytes = Some(1 << 44);
        (run.generator_cpu_share, run.busiest_thread_share) = (1_024.0, 1.0);
        (run.generator_waited_us, run.longest_pause_us) = (HOUR_US, HOUR_US);
        (run.generator_throttled_share, run.clock_offset_us) = (1.0, Some(-i64::from(i32::MAX)));
        run
    }

    fn table(run: &Run) -> String {
        let mut out = Vec::new();
        write(run, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_rate_is_that_of_the_time_outside_the_announced_outage() {
        let table = table(&longest(None, true));
        // An hour less the 10 s of the outage.
        assert!(table.contains("277,778 IDs/s over 3,590.000 s outside the outage"), "{table}");
    }

    #[test]
    fn lines_fit_into_80_columns_but_for_the_last() {
        for is_closed_loop in [false, true] {
            for closed_after_us in [None, Some(3_600e6)] {
                let table = table(&longest(closed_after_us, is_closed_loop));
                let (lines, _) = table.trim_end().rsplit_once('\n').expect("lines");
                for line in lines.lines() {
                    assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
                }
            }
        }
    }

    #[test]
    fn a_run_without_a_request_has_no_table_of_zeros() {
        let mut run = testing::run(&[]);
        (run.requests, run.answered) = (0, 0);
        let table = table(&run);
        assert!(table.contains("requests    none") && !table.contains("0.000"), "{table}");
    }

    #[test]
    fn quantiles_that_a_few_requests_decide_are_named() {
        let mut run = testing::run(&[60.0]);
        run.response_time.count = 30;
        assert!(table(&run).contains("too few requests for p90, p99, p99.9, p99.99: chance decides them"));
        run.response_time.count = 100_000;
        assert!(!table(&run).contains("chance"));
    }
}
