//! Parameters that take a tuple apart, and so stand for several parameters. Local closures that are
//! used once, and so are read away from their place.

use super::File;
use super::size::without_tests;

/// Returns a line for each function of the daemon and its crates whose signature takes a tuple
/// apart.
pub(super) fn tuple_parameters(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let ours =
        files.iter().filter(|File { path, .. }| path.starts_with("src/") || path.starts_with("crates/"));
    for file in ours.filter(|file| file.path.ends_with(".rs")) {
        for function in file.text.split("fn ").skip(1) {
            let signature = function.split(['{', ';']).next().unwrap_or_default();
            if takes_apart(signature) {
                let name = signature.split(['(', '<']).next().unwrap_or_default();
                found.push(format!(
                    "{}: a parameter of {name} takes a tuple apart; use a type or several parameters",
                    file.path
                ));
            }
        }
    }
    found
}

/// Returns whether a parameter is a pattern like `(one, other): (A, B)`.
fn takes_apart(signature: &str) -> bool {
    signature.match_indices("): ").any(|(end, _)| {
        let (before, names) = signature[..end].rsplit_once('(').unwrap_or_default();
        names.contains(',') && before.ends_with(['(', ' ', '&'])
    })
}

/// Returns a line for each local closure that has a name and is used once, outside of tests and
/// their kit.
pub(super) fn closures_used_once(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in without_tests(files).filter(|(file, _)| !file.path.contains("testkit")) {
        for (at, _) in text.match_indices("let ") {
            let Some(name) = closure(&text[at..]) else { continue };
            let words = block(text, at).split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.filter(|word| *word == name).count() == 2 {
                let line = text[..at].lines().count();
                found.push(format!("{}:{line}: the closure {name} is used once; inline it", file.path));
            }
        }
    }
    found
}

/// Returns the name of the closure that a `let` introduces.
fn closure(text: &str) -> Option<&str> {
    let (pattern, value) = text.split_once(" =")?;
    let value = value.trim_start().trim_start_matches("async ").trim_start_matches("move ");
    let name = pattern.trim_start_matches("let ").trim_start_matches("mut ").split(':').next()?;
    (value.starts_with('|') && !name.contains(' ')).then_some(name)
}

/// Returns the text from `at` to the first line that is less indented.
fn block(text: &str, at: usize) -> &str {
    let indent = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    let inside = text[at..]
        .split_inclusive('\n')
        .enumerate()
        .take_while(|(number, line)| *number == 0 || line.starts_with(indent) || line.trim().is_empty());
    let length: usize = inside.map(|(_, line)| line.len()).sum();
    &text[at..at + length]
}
