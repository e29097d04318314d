//! Comparisons of invented runs.

use serde_json::Value;

use super::*;
use crate::figure::Figures;
use crate::report::tests as invented;

/// Puts a figure before the other figures of a run. If several figures have the same name, the
/// first of them counts.
fn put(run: &mut Run, row: &str, name: &str, unit: Unit, value: impl Into<Value>) {
    let mut figures = Figures::default();
    figures.add(row, name, unit, value);
    figures.extend(&run.figures);
    run.figures = figures;
}

/// Returns runs with these values of a figure, and the invented run's other figures.
fn runs(row: &str, name: &str, unit: Unit, values: &[f64]) -> Vec<Run> {
    let mut runs = vec![invented::run(&[60.0; 5]); values.len()];
    for (number, run) in runs.iter_mut().enumerate() {
        put(run, row, name, unit, values[number]);
        put(run, ORIGIN, "started", Unit::None, format!("2026-01-02T03:04:0{number}Z"));
    }
    runs
}

fn p50s(values: &[f64]) -> Vec<Run> {
    runs(LATENCIES[0], "p50", Unit::Us, values)
}

fn compared(a: &[Run], b: &[Run]) -> Comparison {
    compare(a, b).expect("they may be compared")
}

#[test]
fn a_difference_beyond_the_spread_is_found() {
    let [a, b] = [p50s(&[60.0, 61.0, 59.0]), p50s(&[90.0, 91.0, 89.0])];
    let slower = compared(&a, &b);
    let faster = compared(&b, &a);
    assert_eq!((slower.verdict, slower.verdict.exit_code()), (Call::Worse, 1));
    assert!(slower.summary.starts_with("slower: response time p50 x 1.50"), "{}", slower.summary);
    assert_eq!((faster.verdict, faster.verdict.exit_code()), (Call::Better, 0));
    let [a, b] = [[5.0, 5.1, 4.9, 5.0, 5.05], [5.75, 5.8, 5.7, 5.75, 5.8]]
        .map(|costs| runs(PROCESSOR, "target's CPU per request", Unit::Us, &costs));
    let more = compared(&a, &b);
    assert_eq!(more.verdict, Call::Worse);
    assert!(more.summary.starts_with("more CPU: CPU, memory target's CPU per request x 1.15"), "{more:?}");
}

#[test]
fn equal_runs_show_no_difference() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut spread = || -> Vec<f64> { (0..5).map(|_| 60.0 * (1.0 + random.f64() / 10.0)).collect() };
    let different = (0..500).filter(|_| compared(&p50s(&spread()), &p50s(&spread())).verdict != Call::Same);
    let different = different.count();
    assert!(different <= 2, "{different} of 500");
    let near = compared(&p50s(&[100.0, 100.0, 100.1]), &p50s(&[104.0, 104.0, 104.1]));
    assert_eq!(near.verdict, Call::Same, "4 % is too little to act on");
}

#[test]
fn too_few_or_too_scattered_runs_give_no_answer() {
    let single = [&[60.0][..], &[120.0]];
    for [a, b] in [single, [&[0.0, 0.0], &[60.0, 60.0]], [&[10.0, 90.0], &[9.0, 100.0]]] {
        let comparison = compared(&p50s(a), &p50s(b));
        let p50 = comparison.rows.iter().find(|row| row.name.ends_with("p50")).expect("a row");
        assert_eq!(p50.call, Call::CannotTell, "{comparison:?}");
        assert!(p50.words.starts_with("? "), "{comparison:?}");
    }
    let single = compared(&p50s(&[60.0]), &p50s(&[60.0]));
    assert_eq!((single.verdict, single.verdict.exit_code()), (Call::CannotTell, 2));
}

#[test]
fn errors_on_only_one_side_are_a_difference() {
    let [none, some] = [[0.0; 2], [0.0, 3.0]].map(|values| runs(IDS, "refused", Unit::None, &values));
    assert_eq!(compared(&none, &some).verdict, Call::Worse);
    assert!(compared(&none, &some).summary.starts_with("more errors: IDs refused"));
    assert_eq!(compared(&some, &none).verdict, Call::Better);
}

#[test]
fn other_differences_between_the_runs_are_named() {
    let a = p50s(&[60.0, 61.0]);
    let with = |row, name, unit, value: Value| {
        let mut runs = p50s(&[60.0, 61.0]);
        runs.iter_mut().for_each(|run| put(run, row, name, unit, value.clone()));
        runs
    };
    let warnings = compared(&a, &with(LOAD, "offered", Unit::IdsPerS, 500.0.into())).warnings;
    assert!(warnings[0].starts_with("load, offered: A 10,000 IDs/s; B 500 IDs/s"), "{warnings:?}");
    assert!(compare(&a, &with(LOAD, "loop", Unit::None, "closed loop".into())).is_err());
    let later = with(ORIGIN, "started", Unit::None, "2027-01-02T03:04:05Z".into());
    assert!(compared(&a, &later).warnings.iter().any(|warning| warning.contains("came first")));
}
