//! An invented run for tests of reports and comparisons.

use crate::measure::SecondFigures;
use crate::origin::{Machine, Origin};
use crate::report::json::{FORMAT, LatencyFigures, ObjectiveFigures, RUN, Run, Times};

/// Returns an open loop of 10,000 IDs/s whose seconds have the given medians, the other quantiles following from
/// them.
pub(crate) fn run(p50s_us: &[f64]) -> Run {
    let seconds: Vec<SecondFigures> =
        (0..).zip(p50s_us).map(|(number, p50_us)| second(number, *p50_us)).collect();
    let mut sorted = p50s_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let number = 10_000 * p50s_us.len() as u64;
    Run {
        format: FORMAT,
        kind: RUN.to_owned(),
        origin: origin(),
        verdict: "pass".to_owned(),
        summary: "pass: made up".to_owned(),
        objectives: ObjectiveFigures {
            ids_per_s: None,
            error_share: 0.0,
            latencies: vec![LatencyFigures {
                quantile: "p99.9".to_owned(),
                limit_us: 2_000.0,
                found_us: 8.0 * median,
                certain_us: 4.0 * median,
                met: true,
            }],
        },
        warm_up_s: 1.0,
        for_s: Some(p50s_us.len() as f64),
        elapsed_s: p50s_us.len() as f64,
        ids_per_s: 10_000.0,
        requests: number,
        answered: number,
        checked_ids: number + 10_000,
        response_time: times(median, number),
        target_time: times(median / 2.0, number),
        generator_cpu_share: 0.2,
        target_cpu_share: Some(0.3),
        seconds,
        ..described()
    }
}

/// Describes the load and the target.
fn described() -> Run {
    Run {
        loop_kind: "open loop".to_owned(),
        arrivals: Some("even".to_owned()),
        protocol: "snowbank".to_owned(),
        own_daemon: true,
        address: "127.0.0.1:9".to_owned(),
        version: Some("0.1.0".to_owned()),
        source: "default".to_owned(),
        layout: Some("time:41,worker:10,sequence:12".to_owned()),
        source_per_second: Some(4_096_000),
        wanted_ids_per_s: Some(10_000.0),
        batch: "1".to_owned(),
        mean_batch: 1.0,
        connections: 8,
        threads: 1,
        ..Run::default()
    }
}

fn second(number: u64, p50_us: f64) -> SecondFigures {
    SecondFigures {
        second: number,
        ids: 10_000,
        answered: 10_000,
        refused: 0,
        p50_us,
        p90_us: 1.5 * p50_us,
        p99_us: 3.0 * p50_us,
        p999_us: 8.0 * p50_us,
        max_us: 20.0 * p50_us,
        target_cpu_share: Some(0.3),
        target_memory_bytes: Some(6 << 20),
        clock_offset_us: None,
    }
}

fn times(p50_us: f64, count: u64) -> Times {
    let quantiles =
        [("p50", 1.0), ("p90", 1.5), ("p99", 3.0), ("p99.9", 8.0), ("p99.99", 15.0), ("max", 20.0)];
    let curve = [(0.0, 0.5), (0.5, 1.0), (0.9, 1.5), (0.99, 3.0), (0.999, 8.0), (0.9999, 15.0), (1.0, 20.0)];
    Times {
        count,
        mean_us: 1.1 * p50_us,
        quantiles_us: quantiles.map(|(name, factor)| (name.to_owned(), factor * p50_us)).into(),
        curve: curve.map(|(quantile, factor)| (quantile, factor * p50_us)).into(),
    }
}

fn origin() -> Origin {
    Origin {
        started_at: "2026-01-02T03:04:05Z".to_owned(),
        command_line: "snowbank-loadtest".to_owned(),
        generator_version: "0.1.0".to_owned(),
        machine: Machine {
            host: "host".to_owned(),
            cpu: Some("A Processor".to_owned()),
            cores: 2,
            memory_bytes: Some(8 << 30),
            kernel: "Linux 6.1".to_owned(),
            load_average: Some(0.1),
        },
    }
}
