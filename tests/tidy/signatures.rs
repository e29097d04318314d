//! The parameters of functions. A parameter that takes a tuple apart stands for several parameters.

use super::File;

/// Returns a line for each function of the daemon and its crates whose signature takes a tuple
/// apart.
pub(super) fn tuple_parameters(files: &[File]) -> Vec<String> {
    let is_ours =
        |path: &str| path.ends_with(".rs") && (path.starts_with("src/") || path.starts_with("crates/"));
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_ours(&file.path)) {
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
