//! The length of files and functions, and the width of comments.

use super::{File, comment_markers};

/// The most lines of a file. A longer file must be divided by subject.
const FILE_LINES_MAX: usize = 600;

/// The most lines of a function outside of tests.
const FUNCTION_LINES_MAX: usize = 60;

/// Names of files of tests outside of folders of tests.
const TEST_FILES: [&str; 3] = ["fuzzing.rs", "models.rs", "vectors.rs"];

/// The most columns of a comment. rustfmt does not wrap comments.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Returns a line for each comment that is too wide. Tables and drawings may be wider.
pub(super) fn too_wide(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".md")) {
        let mut is_drawing = false;
        for (at, line) in file.text.lines().enumerate() {
            if !comment_markers(&file.path).iter().any(|marker| line.trim_start().starts_with(marker)) {
                continue;
            }
            let comment = line.trim_start_matches(['/', '!', '#', '*', ' ']);
            if comment.starts_with("```") {
                is_drawing = !is_drawing;
            }
            let is_wide = line.chars().count() > COMMENT_COLUMNS_MAX;
            if is_wide && !is_drawing && !comment.starts_with('|') {
                found.push(format!(
                    "{}:{}: a comment has more than {COMMENT_COLUMNS_MAX} columns; wrap it",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    found
}

/// Returns a line for each file and function that is too long.
pub(super) fn too_long(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines, more than {FILE_LINES_MAX}; divide it", file.path));
        }
    }
    for (file, text) in without_tests(files) {
        for (lines, name) in functions(file, text) {
            if lines > FUNCTION_LINES_MAX {
                found.push(format!("{name}: {lines} lines, more than {FUNCTION_LINES_MAX}; divide it"));
            }
        }
    }
    found
}

/// Returns the files of Rust outside of tests, each with its text before its tests.
pub(super) fn without_tests(files: &[File]) -> impl Iterator<Item = (&File, &str)> {
    let shipped = files.iter().filter(|File { path, .. }| {
        let is_test = path.contains("tests") || TEST_FILES.iter().any(|name| path.ends_with(name));
        path.ends_with(".rs") && path.contains("src/") && !is_test
    });
    shipped.map(|file| {
        let mut modules = file.text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
        let tests = modules.find(|&at| {
            let module = file.text[at..].lines().nth(1).unwrap_or_default();
            module.contains("mod ") && module.ends_with('{')
        });
        (file, &file.text[..tests.unwrap_or(file.text.len())])
    })
}

/// Returns the functions in a file's text, each with its number of lines. A function ends at the
/// first brace in the column of its start.
fn functions(file: &File, text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let is_one_line = line.ends_with(['}', ';']);
        let length = lines[at..].iter().position(|line| is_one_line || *line == end);
        found.push((length.unwrap_or(0) + 1, format!("{}:{}: {name}", file.path, at + 1)));
    }
    found
}

/// Returns the name of the function that a line begins.
fn name_of(line: &str) -> Option<&str> {
    const BEFORE: [&str; 5] = ["pub", "const", "async", "unsafe", "fn"];
    let words = line.trim_start().split(' ');
    let before = words.take_while(|word| BEFORE.contains(word) || word.starts_with("pub("));
    if before.last() != Some("fn") {
        return None;
    }
    let after = line.split_once("fn ")?.1;
    Some(&after[..after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len())])
}
