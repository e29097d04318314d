//! Sabotages: small patches to the shipped sources. Each patch breaks a promise, and names the test
//! that must then fail. `tests/sabotage/run` applies each patch to a copy of the sources, builds
//! the copy, and requires that the named test fails. `cargo test` does not do that: it only checks,
//! in `tests/tidy/sabotages.rs`, that each patch applies and that the named test exists.

mod patch;
mod workshop;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use patch::Patch;
use workshop::{Outcome, Workshop};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = patch::read_all(root()).and_then(|patches| match arguments.split_first() {
        Some((command, names)) if command == "run" => run(&chosen(patches, names)?),
        _ => Err("usage: tests/sabotage/run [NAME…]".into()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("sabotage: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn chosen(mut patches: Vec<Patch>, names: &[String]) -> Result<Vec<Patch>, String> {
    if let Some(unknown) = names.iter().find(|name| !patches.iter().any(|patch| patch.name == **name)) {
        return Err(format!("there is no patch {unknown}; tests/sabotage/patches has all of them"));
    }
    patches.retain(|patch| names.is_empty() || names.contains(&patch.name));
    Ok(patches)
}

/// Tries each patch, and requires that its test fails.
fn run(patches: &[Patch]) -> Result<(), String> {
    for patch in patches {
        patch.apply(root())?;
    }
    let workshop = Workshop::open(root())?;
    let mut tests: Vec<_> = patches.iter().map(|patch| &patch.caught_by).collect();
    tests.sort();
    tests.dedup();
    for test in tests {
        // A test that fails without the patch proves nothing.
        match workshop.run(test)? {
            Outcome::Green => println!("{test}, on the unpatched sources: {}", Outcome::Green),
            other => return Err(format!("{test}, on the unpatched sources: {other}")),
        }
    }
    let mut failures = Vec::new();
    for patch in patches {
        let begun = Instant::now();
        let outcome = workshop.sabotage(patch)?;
        let seconds = begun.elapsed().as_secs();
        println!("{}, by {}, {seconds} s: {outcome}", patch.name, patch.caught_by);
        if !matches!(outcome, Outcome::Red(_)) {
            failures.push(format!("{}: {}: {outcome}", patch.name, patch.change));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("these sabotages were not caught:\n{}", failures.join("\n")))
}
