//! Sabotage: small changes to the shipped sources, each of which breaks a promise, and the test that notices it.
//! Without arguments (as `cargo test` calls it) nothing is built. Each patch must still apply, the test that it
//! names must exist. `tests/sabotage/run` does the rest: it applies each patch to a copy of the sources, builds
//! it, runs the named test and requires red.

mod patch;
mod workshop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use patch::Patch;
use workshop::{Outcome, Workshop};

/// The most patches: each binds lines of the sources, and whoever changes those must change it too.
const PATCHES_MAX: usize = 120;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = read_patches().and_then(|patches| match arguments.split_first() {
        Some((command, names)) if command == "run" => run(&chosen(patches, names)?),
        Some((command, _)) if command == "list" => {
            list(&patches);
            Ok(())
        }
        // Options that cargo passes to every test binary.
        _ => check(&patches),
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

/// All patches, in the order of the promises.
fn read_patches() -> Result<Vec<Patch>, String> {
    let directory = root().join("tests/sabotage/patches");
    let entries =
        std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut patches = paths.iter().map(|path| Patch::read(path)).collect::<Result<Vec<_>, _>>()?;
    patches.sort_by(|left, right| (&left.breaks, &left.name).cmp(&(&right.breaks, &right.name)));
    Ok(patches)
}

fn chosen(mut patches: Vec<Patch>, names: &[String]) -> Result<Vec<Patch>, String> {
    if let Some(unknown) = names.iter().find(|name| !patches.iter().any(|patch| patch.name == **name)) {
        return Err(format!("no patch is named {unknown}; they are in tests/sabotage/patches"));
    }
    patches.retain(|patch| names.is_empty() || names.contains(&patch.name));
    Ok(patches)
}

/// Checks everything that needs no build.
fn check(patches: &[Patch]) -> Result<(), String> {
    for patch in patches {
        patch.apply(root())?;
        if !patch.caught_by.exists(root()) {
            return Err(format!("{}: there is no test {}", patch.name, patch.caught_by));
        }
    }
    if patches.len() > PATCHES_MAX {
        return Err(format!("found {} patches, allowed: {PATCHES_MAX}; remove some", patches.len()));
    }
    println!("{} patches apply", patches.len());
    Ok(())
}

/// Prints what each patch changes, what that breaks, and the test that notices it.
fn list(patches: &[Patch]) {
    for patch in patches {
        println!(
            "{}: {}\n  breaks: {}\n  caught by: {}",
            patch.name, patch.change, patch.breaks, patch.caught_by
        );
    }
}

/// Tries each patch, and requires red.
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
            Outcome::Green => println!("{test}, on the sources as they are: {}", Outcome::Green),
            other => return Err(format!("{test}, on the sources as they are: {other}")),
        }
    }
    let mut failures = Vec::new();
    for patch in patches {
        let begun = Instant::now();
        let outcome = workshop.sabotage(patch)?;
        let seconds = begun.elapsed().as_secs();
        println!("{}, by {}, {seconds} s: {outcome}", patch.name, patch.caught_by);
        if !matches!(outcome, Outcome::Red(_)) {
            failures.push(format!("{}: {outcome}", patch.name));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("not caught:\n{}", failures.join("\n"))),
    }
}
