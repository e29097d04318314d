//! Plays a case: starts the case's daemons, prints the line that describes the case, and obeys the
//! test's lines until standard input ends.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::time::timeout;

use crate::Outcome;
use crate::case::Case;
use crate::certificates::Certificates;
use crate::daemon::Daemon;
use crate::report::{self, Report};

/// The longest time that a case may take.
const LONGEST: Duration = Duration::from_secs(30);

/// Plays a case. If the client made faults, the error is the first of them.
pub(crate) async fn play(case: Case) -> Outcome {
    let certificates = Certificates::new()?;
    let files = certificates.write()?;
    let report = Arc::new(Report::default());
    let Case { name, about, needs, options, daemons: scripts, steps } = case;
    let mut daemons = Vec::new();
    for (index, script) in scripts.into_iter().enumerate() {
        daemons.push(Daemon::start(index, script, &certificates, Arc::clone(&report)).await?);
    }
    let endpoints: Vec<String> = daemons.iter().map(Daemon::address).collect();
    let case = json!({
        "name": name,
        "about": about,
        "needs": needs,
        "endpoints": endpoints,
        "options": with_defaults(options),
        "steps": steps,
    });
    // If a text begins with a file's name, such as `$ca_file`, the file's path replaces the name.
    let mut line = case.to_string();
    for (name, path) in files {
        line = line.replace(&format!("\"${name}"), &format!("\"{}", path.display()));
    }
    report::print(&line);
    let mut words = BufReader::new(stdin()).lines();
    timeout(LONGEST, listen(&mut words, &mut daemons))
        .await
        .map_err(|_| format!("standard input was not closed within {LONGEST:?}"))??;
    daemons.iter().for_each(Daemon::end);
    report.first().map_or(Ok(()), |fault| Err(fault.into()))
}

/// Obeys the test's lines: `life N` and `release N`, where N is the index of a daemon.
async fn listen(words: &mut Lines<BufReader<Stdin>>, daemons: &mut [Daemon]) -> Outcome {
    while let Some(line) = words.next_line().await? {
        let words = line.trim().split_once(' ');
        let named =
            words.and_then(|(word, index)| Some((word, daemons.get_mut(index.parse::<usize>().ok()?)?)));
        match named {
            Some(("life", daemon)) => daemon.next_life().await?,
            Some(("release", daemon)) => daemon.release(),
            _ => {
                let known = "expected `life N` or `release N`, with the index of a daemon";
                return Err(format!("{line:?} came on standard input; {known}").into());
            }
        }
    }
    Ok(())
}

/// Adds default options: time limits that are long enough on a busy machine.
fn with_defaults(options: Map<String, Value>) -> Map<String, Value> {
    let patient = [
        ("timeout_ms", 20_000),
        ("connect_timeout_ms", 10_000),
        ("answer_timeout_ms", 15_000),
        ("max_age_ms", 60_000),
    ];
    let mut all: Map<_, _> = patient.into_iter().map(|(name, ms)| (name.to_owned(), json!(ms))).collect();
    all.extend(options);
    all
}
