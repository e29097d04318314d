//! Plays a case: starts the case's daemons, prints the line that describes the case, and obeys the
//! test's lines until standard input ends.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getppid, kill_process};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::time::{interval, sleep, timeout};

use crate::Outcome;
use crate::case::Case;
use crate::certificates::{Certificates, FILES};
use crate::daemon::Daemon;
use crate::report::{self, Report};

/// The longest time that a case may take.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause between two looks at the daemons.
const LOOK: Duration = Duration::from_millis(10);

/// Plays a case. If the client made faults, the error is the first of them.
pub(crate) async fn play(case: Case) -> Outcome {
    let certificates = Arc::new(Certificates::new()?);
    certificates.write()?;
    let report = Arc::new(Report::default());
    let Case { name, about, needs, options, daemons: scripts, steps } = case;
    let (mut daemons, mut endpoints) = (Vec::new(), Vec::new());
    for (index, script) in scripts.into_iter().enumerate() {
        let listed = script.listed.unwrap_or(1);
        let daemon = Daemon::start(index, script, Arc::clone(&certificates), Arc::clone(&report)).await?;
        endpoints.extend(vec![daemon.address(); listed]);
        daemons.push(daemon);
    }
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
    for name in FILES.iter().chain(&["token_file"]) {
        line = line.replace(&format!("\"${name}"), &format!("\"{}", certificates.path(name).display()));
    }
    report::print(&line);
    let mut words = BufReader::new(stdin()).lines();
    timeout(LONGEST, listen(&mut words, &mut daemons))
        .await
        .map_err(|_| format!("standard input was not closed within {LONGEST:?}"))??;
    daemons.iter().for_each(Daemon::end);
    report.first().map_or(Ok(()), |fault| Err(fault.into()))
}

/// Obeys the test's lines until standard input ends. Meanwhile ends the lives that are over.
async fn listen(words: &mut Lines<BufReader<Stdin>>, daemons: &mut [Daemon]) -> Outcome {
    let mut looks = interval(LOOK);
    // The daemons whose connections the test expects to end.
    let mut awaited: Vec<usize> = Vec::new();
    loop {
        tokio::select! {
            line = words.next_line() => match line? {
                Some(line) => obey(&line, daemons, &mut awaited).await?,
                None => return Ok(()),
            },
            _ = looks.tick() => {
                for daemon in &mut *daemons {
                    daemon.end_life_in_time().await?;
                }
                for daemon in awaited.extract_if(.., |daemon| daemons[*daemon].is_idle()) {
                    daemons[daemon].report_idle();
                }
            }
        }
    }
}

/// Obeys a line: `life N`, `release N` and `idle N`, where N is the index of a daemon, and `stop MS`.
async fn obey(line: &str, daemons: &mut [Daemon], awaited: &mut Vec<usize>) -> Outcome {
    let parsed =
        line.trim().split_once(' ').and_then(|(word, number)| Some((word, number.parse::<usize>().ok()?)));
    match parsed {
        Some(("life", index)) if index < daemons.len() => daemons[index].life_by_request().await?,
        Some(("release", index)) if index < daemons.len() => daemons[index].release(),
        Some(("idle", index)) if index < daemons.len() => awaited.push(index),
        Some(("stop", ms)) => {
            let parent = getppid().ok_or("the test's process has ended")?;
            kill_process(parent, Signal::STOP)?;
            tokio::spawn(async move {
                sleep(Duration::from_millis(ms as u64)).await;
                let _ = kill_process(parent, Signal::CONT);
                report::print(&json!({ "event": "stopped" }));
            });
        }
        _ => {
            let known = "expected `life N`, `release N`, `idle N` with the index of a daemon, or `stop MS`";
            return Err(format!("{line:?} came on standard input; {known}").into());
        }
    }
    Ok(())
}

/// Adds default options: time limits that are long enough on a busy machine, and no rounds of
/// greetings.
fn with_defaults(mut options: Map<String, Value>) -> Map<String, Value> {
    let mut limits =
        json!({ "connect_ms": 10_000, "answer_ms": 15_000, "first_round_ms": 600_000, "round_ms": 600_000 });
    if let (Some(limits), Some(Value::Object(own))) = (limits.as_object_mut(), options.remove("limits")) {
        limits.extend(own);
    }
    options.entry("timeout_ms").or_insert(json!(20_000));
    options.insert("limits".to_owned(), limits);
    options
}
