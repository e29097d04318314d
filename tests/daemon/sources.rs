//! Several sources in one daemon, layouts of every kind, several worker IDs, and the distribution
//! of IDs over sharded tables.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::ids::{chi_square, chi_square_limit, twitter_unix_ms, twitter_worker, unix_ms};
use crate::support::{Ask, Reply, Setup};

/// Splits an ID into decimal fields of this many digits, least significant first.
fn digits<const N: usize>(id: u64, widths: [u32; N]) -> [u64; N] {
    let mut rest = id;
    widths.map(|width| {
        let field = rest % 10_u64.pow(width);
        rest /= 10_u64.pow(width);
        field
    })
}

/// Trade IDs and batch IDs of a clearing house from one process, and a third source.
const CLEARING_HOUSE: &str = r#"
burst_window = "50ms"

[[sources]]
name = "trades"
layout = "clearing"
worker_ids = 81

[[sources]]
name = "batches"
layout = "clearing-batch"
worker_ids = 81

[[sources]]
name = "rows"
worker_ids = [3, 33]
"#;

#[test]
fn several_sources_have_layouts_and_workers_of_their_own() {
    let daemon = Setup::configured(CLEARING_HOUSE).start();
    let mut wire = daemon.connect();
    let info = wire.info();
    let rows = [
        (
            "trades",
            "time:13d,sequence:1d,machine:2d,table:3d:random;tick=1ms;epoch=-134540000000",
            vec![81],
            10_000,
        ),
        ("batches", "time:13d,sequence:1d,machine:2d;tick=1ms;epoch=0", vec![81], 10_000),
        (
            "rows",
            "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657",
            vec![3, 33],
            8_192_000,
        ),
    ];
    let rows = rows.into_iter().enumerate().map(|(index, (name, layout, worker_ids, per_second))| {
        serde_json::json!({
            "index": index, "name": name, "kind": "snowflake", "layout": layout, "worker_ids": worker_ids,
            "per_second": per_second,
        })
    });
    assert_eq!(info["sources"], rows.collect::<serde_json::Value>());

    let before = unix_ms();
    let trades = wire.next(Ask::of(200).source(0));
    let batches = wire.next(Ask::of(200).source(1));
    let rows = wire.next(Ask::of(200).source(2)).runs();
    let after = unix_ms();
    let in_time = |ms: u64| (before - 51..=after + 10_000).contains(&ms);

    // A run cannot express random digits.
    assert!(matches!(trades, Reply::List(..)));
    for id in trades.ids() {
        let [_table, machine, _sequence, time] = digits(id, [3, 2, 1, 13]);
        assert_eq!(machine, 81);
        assert!(in_time(time - 134_540_000_000), "{id}");
    }
    let Reply::Runs(_, runs) = batches else {
        panic!("expected runs, found {batches:?}");
    };
    for run in runs {
        // The machine number is below the sequence.
        assert_eq!(run.stride, if run.count == 1 { run.stride } else { 100 });
        for id in run.ids() {
            let [machine, _sequence, time] = digits(id, [2, 1, 13]);
            assert_eq!(machine, 81);
            assert!(in_time(time), "{id}");
        }
    }
    for run in rows {
        assert!(in_time(twitter_unix_ms(run.first)));
        assert!([3, 33].contains(&twitter_worker(run.first)), "{run:?}");
    }
}

/// Requests about one ID per ms until there are `total`.
fn one_per_ms(sequence_start: &str, total: usize) -> Vec<u64> {
    let daemon = Setup::configured(&format!("sequence_start = \"{sequence_start}\"")).start();
    let mut wire = daemon.connect();
    let mut ids = Vec::with_capacity(total);
    let mut next = Instant::now();
    while ids.len() < total {
        // The test needs the pace, so lost time is not made up for.
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next = Instant::now() + Duration::from_millis(1);
        ids.extend(wire.next(Ask::of(1)).ids());
    }
    ids
}

#[test]
fn at_one_request_per_ms_residues_are_uniform() {
    let ids = one_per_ms("spread", 4_000);
    for modulus in 2..=64 {
        let statistic = chi_square(&ids, modulus);
        let limit = chi_square_limit(modulus);
        assert!(statistic < limit, "id mod {modulus}: chi-square {statistic:.1}, allowed {limit:.1}");
    }
}

/// The first generators had this fault. The test above must be able to see it.
#[test]
fn with_sequences_from_zero_residues_are_not_uniform() {
    let ids = one_per_ms("zero", 1_000);
    for modulus in [2, 4, 8, 16, 32, 64] {
        let statistic = chi_square(&ids, modulus);
        let limit = chi_square_limit(modulus);
        assert!(statistic > limit, "id mod {modulus}: chi-square {statistic:.1}, and {limit:.1} is uniform");
    }
}
