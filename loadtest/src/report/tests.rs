//! Tests of the first line, and an invented run for tests of reports and comparisons.

use std::time::Duration;

use super::json::{Curve, FORMAT, Objective, RUN, Run};
use super::*;
use crate::figure::Unit;
use crate::judge::{Latency, quantile_name};
use crate::measure::SecondFigures;
use crate::value::MAX_TIME;

/// Returns a run of an open loop with 10,000 IDs/s. The seconds of the run have these medians, from
/// which the other quantiles are computed.
pub(crate) fn run(p50s_us: &[f64]) -> Run {
    let mut sorted = p50s_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let mut run = Run {
        format: FORMAT,
        kind: RUN.to_owned(),
        verdict: "pass".to_owned(),
        summary: "PASS  10,000 IDs/s  p99.9 480 µs (limit 2 ms)  machine stood still 0.03 s of 10 s"
            .to_owned(),
        objectives: vec![Objective {
            quantile: "p99.9".to_owned(),
            limit_us: 2_000.0,
            found_us: Some(8.0 * median),
            certain_us: Some(4.0 * median),
            met: true,
        }],
        seconds: (0..).zip(p50s_us).map(|(number, p50_us)| second(number, *p50_us)).collect(),
        ..Run::default()
    };
    let figures = &mut run.figures;
    figures.add(IDS, "rate", Unit::IdsPerS, 10_000.0);
    figures.add(IDS, "refused", Unit::None, 0.0);
    figures.add(PROCESSOR, "target's CPU per request", Unit::Us, 30.0);
    figures.add(MACHINE, "measured for", Unit::S, p50s_us.len());
    figures.add(LOAD, "loop", Unit::None, "open loop");
    figures.add(LOAD, "offered", Unit::IdsPerS, 10_000.0);
    figures.add(ORIGIN, "started", Unit::None, "2026-01-02T03:04:05Z");
    if p50s_us.is_empty() {
        return run;
    }
    for (row, part) in [(LATENCIES[0], 1.0), (LATENCIES[1], 0.5)] {
        let factors = QUANTILES.into_iter().zip([1.0, 1.5, 3.0, 8.0, 15.0, 20.0]);
        let points: Vec<_> = factors.map(|(quantile, factor)| (quantile, factor * part * median)).collect();
        for &(quantile, us) in &points {
            figures.add(row, &quantile_name(quantile), Unit::Us, us);
        }
        run.curves.push(Curve { row: row.to_owned(), points });
    }
    run
}

fn second(second: u64, p50_us: f64) -> SecondFigures {
    SecondFigures {
        second,
        ids: 10_000,
        answered: 10_000,
        p50_us: Some(p50_us),
        p99_us: Some(3.0 * p50_us),
        max_us: Some(20.0 * p50_us),
        target_cpu_share: Some(0.3),
        target_memory_bytes: Some(6 << 20),
        ..SecondFigures::default()
    }
}

#[test]
fn the_first_line_has_at_most_100_characters() {
    let times = [Duration::from_micros(999), Duration::from_secs_f64(99.94), Duration::from_secs_f64(999.4)];
    for time in times.into_iter().chain([MAX_TIME]) {
        let latencies = vec![Latency { quantile: 0.9999, limit: time }];
        let objectives = Objectives { rate: None, latencies, errors: 0.0 };
        for ids in [1, 12_345, 9_999_999_000, 10_u64.pow(13)] {
            for ns in [1, 999_400_000, 999_499_000_000, 3_600_000_000_000] {
                let mut outcome = Outcome { elapsed: time, undisturbed: time, ..Outcome::default() };
                outcome.stalls.total = time.mul_f64(0.999_77);
                outcome.counts.ids = ids;
                outcome.counts.busiest_thread = 1.0;
                outcome.counts.response.saturating_record(ns);
                let line = headline(&Verdict::Unknown(Vec::new()), &objectives, &outcome);
                assert!(line.chars().count() <= 100, "{}: {line}", line.chars().count());
            }
        }
    }
}
