//! The Rust client plays the cases of the suite.

mod outcome;
mod program;
mod real_daemons;
mod steps;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use program::Program;
use steps::Player;

/// The needs that this test cannot meet. It skips cases that have one of these needs. The client's
/// own tests cover forks and jumps of the clock. A Rust client cannot be closed during a call: the
/// client closes when its last handle is dropped, and the call holds a handle.
const UNMET: [&str; 3] = ["fork", "clock", "close"];

/// The number of cases that are played at the same time. A case mostly waits, so this number need
/// not depend on the number of cores.
const AT_ONCE: usize = 8;

#[test]
fn every_case_passes() {
    let mut names = program::names();
    if let Ok(only) = std::env::var("SNOWBANK_CONFORMANCE_CASE") {
        names.retain(|name| *name == only);
    }
    assert!(!names.is_empty());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = std::panic::catch_unwind(|| play(name));
                    if let Err(text) = played.unwrap_or(Err("panicked, as shown above".to_owned())) {
                        failures.lock().expect("no panic").push(format!("{name}: {text}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Plays one case. The error says what went wrong, in the client or at the daemons.
fn play(name: &str) -> Result<(), String> {
    let mut program = Program::start(&[name]);
    let case = program.line();
    let needs = case["needs"].as_array().expect("needs");
    if let Some(need) = needs.iter().find(|need| UNMET.iter().any(|unmet| **need == *unmet)) {
        println!("{name} is skipped: it needs {need}");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let played = runtime.block_on(async {
        let mut player = Player::new(&case);
        for step in case["steps"].as_array().expect("steps") {
            player.play(step, &mut program).await.map_err(|text| format!("{step}: {text}"))?;
        }
        Ok(())
    });
    let verdict = program.end();
    match (played, verdict) {
        (Err(one), Err(other)) => Err(format!("{one}; the daemons found: {other}")),
        (played, verdict) => played.and(verdict),
    }
}
