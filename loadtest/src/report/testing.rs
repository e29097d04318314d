//! An invented run for tests of reports and comparisons.

use crate::measure::SecondFigures;
use crate::report::figure::Unit;
use crate::report::json::{Curve, FORMAT, Objective, RUN, Run};
use crate::report::{IDS, LATENCIES, LOAD, MACHINE, ORIGIN, PROCESSOR};

/// Returns an open loop of 10,000 IDs/s whose seconds have the given medians, the other quantiles
/// following from them.
pub(crate) fn run(p50s_us: &[f64]) -> Run {
    let mut sorted = p50s_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let mut run = Run {
        format: FORMAT,
        kind: RUN.to_owned(),
        verdict: "pass".to_owned(),
        summary: "PASS  10,000 IDs/s  p99.9 0.48 ms (limit 2 ms)  machine stood still 0.03 s of 10 s"
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
        let quantiles =
            [("p50", 1.0), ("p90", 1.5), ("p99", 3.0), ("p99.9", 8.0), ("p99.99", 15.0), ("max", 20.0)];
        for (name, factor) in quantiles {
            run.figures.add(row, name, Unit::Us, factor * part * median);
        }
        let curve = [(0.0, 0.5), (0.5, 1.0), (0.9, 1.5), (0.99, 3.0), (0.999, 8.0), (1.0, 20.0)];
        let points = curve.map(|(quantile, factor)| (quantile, factor * part * median)).into();
        run.curves.push(Curve { row: row.to_owned(), points });
    }
    run
}

fn second(number: u64, p50_us: f64) -> SecondFigures {
    SecondFigures {
        second: number,
        ids: 10_000,
        answered: 10_000,
        refused: 0,
        p50_us: Some(p50_us),
        p90_us: Some(1.5 * p50_us),
        p99_us: Some(3.0 * p50_us),
        p999_us: Some(8.0 * p50_us),
        max_us: Some(20.0 * p50_us),
        target_cpu_share: Some(0.3),
        target_memory_bytes: Some(6 << 20),
    }
}
