//! Checks that runs may be compared, and lists other differences between them.

use crate::report::json::Run;

/// A property that two runs should share, and its words for one of them.
type Property = (&'static str, fn(&Run) -> String);

const PROPERTIES: [Property; 15] = [
    ("protocol", |run| run.protocol.clone()),
    ("rate offered", |run| {
        run.wanted_ids_per_s.map_or_else(|| "none".to_owned(), |rate| format!("{rate}/s"))
    }),
    ("arrivals", |run| run.arrivals.clone().unwrap_or_else(|| "none".to_owned())),
    ("IDs per request", |run| run.batch.clone()),
    ("connections", |run| run.connections.to_string()),
    ("generator threads", |run| run.threads.to_string()),
    ("depth", |run| run.depth.map_or_else(|| "none".to_owned(), |depth| depth.to_string())),
    ("layout", |run| run.layout.clone().unwrap_or_else(|| "unknown".to_owned())),
    ("announced outage", |run| {
        let words = run.outage.as_ref().map(|outage| format!("{} at {} s", outage.ending, outage.at_s));
        words.unwrap_or_else(|| "none".to_owned())
    }),
    ("announced client stall", |run| {
        let words = run.client_stall.as_ref().map(|stall| format!("{} s at {} s", stall.for_s, stall.at_s));
        words.unwrap_or_else(|| "none".to_owned())
    }),
    ("measured for", |run| {
        run.for_s.map_or_else(|| "a number of IDs".to_owned(), |for_s| format!("{for_s} s"))
    }),
    ("generator's machine", |run| run.origin.machine.host.clone()),
    ("generator's processor", |run| run.origin.machine.cpu.clone().unwrap_or_else(|| "unknown".to_owned())),
    ("generator's cores", |run| run.origin.machine.cores.to_string()),
    ("generator's system", |run| run.origin.machine.kernel.clone()),
];

/// Returns the differences between the runs besides the target, one line each.
///
/// # Errors
/// One line if the runs measured different things.
pub(crate) fn warnings(a: &[Run], b: &[Run]) -> Result<Vec<String>, String> {
    let (a_loops, b_loops) = (words(a, |run| run.loop_kind.clone()), words(b, |run| run.loop_kind.clone()));
    if a_loops != b_loops || a_loops.len() != 1 {
        return Err(format!(
            "A is {}, B is {}: the times of one are not those of the other",
            a_loops.join(" and "),
            b_loops.join(" and ")
        ));
    }
    let mut warnings = Vec::new();
    for (name, value) in PROPERTIES {
        let (a_words, b_words) = (words(a, value), words(b, value));
        if a_words != b_words || a_words.len() != 1 {
            warnings.push(format!("{name}: A {}; B {}", a_words.join(", "), b_words.join(", ")));
        }
    }
    for (side, runs) in [("A", a), ("B", b)] {
        for run in runs.iter().filter(|run| run.verdict == "no verdict") {
            warnings.push(format!("{side} has no verdict: {}", run.reasons.join("; ")));
        }
        if let Some(load) =
            runs.iter().find(|run| was_busy(run)).and_then(|run| run.origin.machine.load_average)
        {
            warnings.push(format!("{side}'s machine was busy before the run: load average {load}"));
        }
    }
    if a.len() + b.len() > 2 && !alternate(a, b) {
        warnings.push(
            "all runs of one side came first: a change of the machine since then counts as a difference"
                .to_owned(),
        );
    }
    Ok(warnings)
}

/// Returns true if each side has a run that started after one of the other. RFC 3339 in UTC sorts as text.
fn alternate(a: &[Run], b: &[Run]) -> bool {
    let after = |one: &[Run], other: &[Run]| {
        let last = one.iter().map(|run| &run.origin.started_at).max();
        let first = other.iter().map(|run| &run.origin.started_at).min();
        last > first
    };
    after(a, b) && after(b, a)
}

/// Returns true if more threads wanted to run than the machine had cores, before the run.
pub(crate) fn was_busy(run: &Run) -> bool {
    run.origin.machine.load_average.is_some_and(|load| load > run.origin.machine.cores as f64)
}

/// Returns the distinct words of the runs.
fn words(runs: &[Run], value: impl Fn(&Run) -> String) -> Vec<String> {
    let mut words: Vec<String> = runs.iter().map(value).collect();
    words.sort();
    words.dedup();
    words
}
