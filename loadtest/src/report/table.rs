//! The final table. Its lines fit into 80 columns, but for the last, which is one line whatever it says.

use std::io::{self, Write};
use std::time::Duration;

use super::{QUANTILES, Report};
use crate::daemon::Ending;
use crate::measure::{StallFigures, micros};
use crate::run::{Drive, Length};
use crate::target::code_name;
use crate::value::Time;
use crate::verdict::{last_line, quantile_name};

/// Writes the table and, as its last line, the verdict.
///
/// # Errors
/// The writer's.
pub fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    target(report, out)?;
    load(report, out)?;
    writeln!(out)?;
    latencies(report, out)?;
    writeln!(out)?;
    rates(report, out)?;
    outage(report, out)?;
    stall(report, out)?;
    generator(report, out)?;
    writeln!(out)?;
    writeln!(out, "{}", last_line(&report.verdict, &report.evidence(), report.objectives))
}

fn target(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outcome = report.outcome;
    let version = outcome.version.as_deref().unwrap_or("version unknown");
    let own = if outcome.own_daemon { ", started for this run" } else { "" };
    writeln!(out, "target      {} ({version}{own})", outcome.address)?;
    let layout = outcome.promise.layout();
    let layout = layout.as_deref().unwrap_or("unknown: times and workers are not checked");
    writeln!(out, "source      {}", outcome.promise.source_name)?;
    // The fields, and below them tick and epoch.
    writeln!(out, "layout      {}", layout.replacen(';', ";\n            ", 1))
}

fn load(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let scenario = report.scenario;
    let drive = match scenario.drive {
        Drive::Open { rate, arrivals, .. } => {
            format!("{} IDs/s, {} arrivals", rate.per_s(), format!("{arrivals:?}").to_lowercase())
        }
        Drive::Closed { depth } => format!("{depth} requests in flight on each connection"),
    };
    let length = match scenario.length {
        Length::For(length) => format!("for {}", Time(length)),
        Length::Ids(ids) => format!("{ids} IDs"),
    };
    writeln!(
        out,
        "load        {}: {drive},\n            {length} after a warm-up of {}",
        report.loop_words(),
        Time(scenario.warm_up)
    )?;
    writeln!(
        out,
        "            IDs per request {}, {}, {}",
        scenario.batch,
        counted(scenario.connections, "connection"),
        counted(scenario.threads, "thread")
    )
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn latencies(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let counts = &report.outcome.counts;
    write!(out, "{:<18}", "ms")?;
    for quantile in QUANTILES {
        write!(out, "{:>10}", quantile_name(quantile))?;
    }
    writeln!(out)?;
    let intended = matches!(report.scenario.drive, Drive::Open { .. });
    let rows = [
        ("response time", &counts.response, true),
        ("service time", &counts.service, true),
        ("target's at least", &counts.target, intended),
        ("schedule slip", &counts.slip, intended),
    ];
    for (name, histogram, _) in rows.into_iter().filter(|(.., shown)| *shown) {
        write!(out, "{name:<18}")?;
        for quantile in QUANTILES {
            write!(out, "{:>10.3}", micros(histogram.value_at_quantile(quantile)) / 1e3)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn rates(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let counts = &report.outcome.counts;
    let outside = if report.scenario.outage.is_some() { " outside the outage" } else { "" };
    writeln!(out, "rate        {:.0} IDs/s over {:.3} s{outside}", report.ids_per_s(), report.judged_s())?;
    writeln!(
        out,
        "requests    {} sent, {} answered, {} refused, {} without an answer",
        counts.requests,
        counts.answered,
        counts.refused_count(),
        counts.unanswered
    )?;
    for (&code, refusals) in &counts.refused {
        writeln!(out, "            {} x {}: {}", code_name(code), refusals.count, refusals.first_message)?;
    }
    writeln!(out, "IDs         {} checked, the warm-up's included", counts.checked_ids)
}

fn outage(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(outage) = report.scenario.outage else {
        return Ok(());
    };
    let counts = &report.outcome.counts;
    let how = match outage.ending {
        Ending::Stop => "restarted",
        Ending::Kill => "killed and started",
    };
    writeln!(
        out,
        "outage      {how} at {}: {:.3} ms until all was back,\n            \
         longest gap between answers {:.3} ms, {} requests lost",
        Time(outage.at),
        counts.outage.as_secs_f64() * 1e3,
        counts.longest_gap.as_secs_f64() * 1e3,
        counts.lost
    )
}

fn stall(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(stall) = report.scenario.client_stall else {
        return Ok(());
    };
    let counts = &report.outcome.counts;
    let (at, length) = (Time(stall.at), Time(stall.length));
    write!(out, "stall       one connection not read for {length} at {at}:")?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    match counts.stall {
        None => write!(out, "\n            the run ended before it was over")?,
        Some(StallFigures { closed_after: None, caught_up_after }) => {
            write!(out, "\n            it recovered, all answered {:.3} ms after", ms(caught_up_after))?;
        }
        Some(StallFigures { closed_after: Some(after), caught_up_after }) => write!(
            out,
            "\n            the target closed it, seen after {:.3} ms;\n            \
             opened anew {:.3} ms after the stall",
            ms(after),
            ms(caught_up_after)
        )?,
    }
    writeln!(
        out,
        "\n            longest gap between answers on the others {:.3} ms;\n            \
         {} requests on it excused, {} lost",
        ms(counts.longest_gap),
        counts.excused,
        counts.lost
    )
}

fn generator(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let counts = &report.outcome.counts;
    if let Some(share) = report.target_cpu_share() {
        let each_us =
            report.outcome.target_cpu.unwrap_or_default().as_secs_f64() * 1e6 / counts.answered.max(1) as f64;
        writeln!(out, "daemon      {:.1} % of a core, {each_us:.2} us for each request", share * 100.0)?;
    }
    writeln!(
        out,
        "generator   {:.1} % of a core (busiest thread {:.1} %),\n            longest pause {:.3} ms",
        report.own_cpu_share() * 100.0,
        counts.busiest_thread * 100.0,
        counts.longest_pause.as_secs_f64() * 1e3
    )?;
    let priority = if counts.real_time_threads > 0 { "real-time" } else { "ordinary" };
    let awake = if counts.awake_threads > 0 { ", awake between requests" } else { "" };
    writeln!(
        out,
        "            {priority} priority{awake};\n            waited {:.1} ms in all for a core that something else had",
        counts.waited.as_secs_f64() * 1e3
    )?;
    if counts.throttled_share > 0.0 {
        writeln!(
            out,
            "            a processor quota held it back for {:.1} % of the time",
            counts.throttled_share * 100.0
        )?;
    }
    if !report.outcome.same_clock {
        let offset_ms = counts.clock_offset_us as f64 / 1e3;
        writeln!(
            out,
            "clocks      {offset_ms:+.3} ms apart in the warm-up;\n            the IDs' window is widened by that"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Counts;
    use crate::promise::Promise;
    use crate::run::{ClientStall, Outage, Outcome, Scenario};
    use crate::schedule::Arrivals;
    use crate::verdict::Objectives;

    /// A run in which everything there is a line for took as long as it can.
    fn table(drive: Drive, stall: StallFigures) -> String {
        let hour = Duration::from_secs(3_600);
        let mut counts = Counts::empty();
        (counts.requests, counts.answered, counts.checked_ids) = (1_000_000_000, 999_999_999, u64::MAX);
        counts.ids = 997_222_223;
        for histogram in [&mut counts.response, &mut counts.service, &mut counts.target, &mut counts.slip] {
            histogram.saturating_record(99_999_000_000);
        }
        (counts.busiest_thread, counts.throttled_share, counts.waited) = (1.0, 1.0, hour);
        (counts.longest_pause, counts.longest_gap, counts.outage) = (hour, hour, Duration::from_secs(10));
        (counts.stall, counts.excused, counts.lost) = (Some(stall), 1_000_000_000, 1_000_000_000);
        counts.clock_offset_us = -i64::from(i32::MAX);
        let scenario = Scenario {
            address: None,
            token: None,
            source: None,
            resp: false,
            drive,
            batch: "1:90,100:9,10000:1".parse().expect("a mix"),
            connections: 100_000,
            threads: 1_024,
            warm_up: hour,
            length: Length::For(hour),
            outage: Some(Outage { at: Duration::from_millis(3_500), ending: Ending::Kill }),
            client_stall: Some(ClientStall { at: hour, length: hour }),
            stays_awake: false,
            real_time: true,
            keeps_interval_log: false,
            seed: 1,
        };
        let outcome = Outcome {
            address: "127.0.0.1:65535".to_owned(),
            version: Some("0.1.0".to_owned()),
            own_daemon: true,
            same_clock: false,
            promise: Promise::of_counter(),
            counts,
            faults: Vec::new(),
            seconds: Vec::new(),
            interval_log: Vec::new(),
            elapsed: hour,
            target_cpu: Some(hour),
            interrupted: false,
            too_scattered: false,
        };
        let objectives = Objectives { rate: None, latencies: Vec::new() };
        let mut out = Vec::new();
        write(&Report::new(&scenario, &objectives, &outcome), &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_rate_is_that_of_the_time_outside_the_announced_outage() {
        let still = StallFigures { closed_after: None, caught_up_after: Duration::ZERO };
        let table = table(Drive::Closed { depth: 1 }, still);
        // So many IDs in an hour less the 10 s of the outage.
        assert!(table.contains("277778 IDs/s over 3590.000 s outside the outage"), "{table}");
    }

    #[test]
    fn lines_fit_into_80_columns_but_for_the_last() {
        let caught_up_after = Duration::from_secs(10);
        let rate = "1000000M/s".parse().expect("a rate");
        let open = Drive::Open { rate, ramp: Duration::ZERO, arrivals: Arrivals::Poisson };
        for drive in [open, Drive::Closed { depth: 65_536 }] {
            for closed_after in [None, Some(Duration::from_secs(3_600))] {
                let table = table(drive, StallFigures { closed_after, caught_up_after });
                let (lines, _) = table.trim_end().rsplit_once('\n').expect("lines");
                for line in lines.lines() {
                    assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
                }
            }
        }
    }
}
