//! Plays the cases of the suite.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::program::{Program, names};
use super::steps::Player;

/// The needs that this test cannot meet: a process with several threads cannot fork, and the
/// simulated clock is one thread's. The client's own tests cover both.
const UNMET: [&str; 2] = ["fork", "clock"];

/// The number of cases that are played at the same time. A case mostly waits, so this number need
/// not depend on the number of cores.
const AT_ONCE: usize = 8;

#[test]
fn every_case_passes() {
    let mut names = names();
    if let Ok(only) = std::env::var("SNOWBANK_CONFORMANCE_CASE") {
        names.retain(|name| *name == only);
    }
    assert!(!names.is_empty());
    // A case that stops this process would stop the others too.
    let alone = ["stopped-program", "stopped-while-a-reply-comes", "stopped-beyond-an-answer"];
    let (alone, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| alone.contains(&name.as_str()));
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let play_one = |name: &str| {
        let played = std::panic::catch_unwind(|| play(name));
        if let Err(text) = played.unwrap_or(Err("panicked, as shown above".to_owned())) {
            failures.lock().expect("no panic").push(format!("{name}: {text}"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    play_one(name);
                }
            });
        }
    });
    alone.iter().for_each(|name| play_one(name));
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Plays one case. The error says what went wrong, in the client or at the daemons.
fn play(name: &str) -> Result<(), String> {
    let mut program = Program::start(&[name]);
    // One thread, so that a step that blocks the program blocks the client too.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let played = runtime.block_on(play_steps(&mut program));
    drop(runtime);
    let verdict = program.end();
    match (played, verdict) {
        (Err(one), Err(other)) => Err(format!("{one}; the daemons found: {other}")),
        (Ok(true), verdict) => verdict,
        (Ok(false), _) => Ok(()),
        (Err(one), Ok(())) => Err(one),
    }
}

/// Plays the steps. Returns false if the case needs what this test cannot do.
async fn play_steps(program: &mut Program) -> Result<bool, String> {
    let case = program.line().await;
    let needs = case["needs"].as_array().expect("needs");
    let is_unmet =
        |need: &Value| UNMET.iter().any(|unmet| need == unmet) || need == "tls" && !cfg!(feature = "tls");
    if let Some(need) = needs.iter().find(|need| is_unmet(need)) {
        println!("{} is skipped: it needs {need}", case["name"]);
        return Ok(false);
    }
    let mut player = Player::new(&case);
    for step in case["steps"].as_array().expect("steps") {
        player.play(step, program).await.map_err(|text| format!("{step}: {text}"))?;
    }
    Ok(true)
}
