//! The length of files and functions, and the width of comments.

use super::File;

/// The most lines of a file. A longer file must be divided by subject.
const FILE_LINES_MAX: usize = 600;

/// The most lines of a function outside of tests.
const FUNCTION_LINES_MAX: usize = 60;

/// The most columns of a comment. rustfmt does not wrap comments.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Returns a line for each comment that is too wide. Tables and drawings may be wider.
pub(super) fn too_wide(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut is_drawing = false;
        for (at, line) in file.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!', ' ']);
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
    let rust = || files.iter().filter(|file| file.path.ends_with(".rs"));
    let mut found = Vec::new();
    for file in rust() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines, more than {FILE_LINES_MAX}; divide it", file.path));
        }
    }
    let is_test = |path: &str| path.contains("tests") || path.ends_with("vectors.rs");
    let shipped = rust().filter(|file| file.path.contains("src/") && !is_test(&file.path));
    for (lines, name) in shipped.flat_map(functions) {
        if lines > FUNCTION_LINES_MAX {
            found.push(format!("{name}: {lines} lines, more than {FUNCTION_LINES_MAX}; divide it"));
        }
    }
    found
}

/// Returns the functions of a file outside of its tests, each with its number of lines. A function
/// ends at the first brace in the column of its start.
fn functions(file: &File) -> Vec<(usize, String)> {
    let shipped = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = shipped.lines().collect();
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
    let mut words = line.trim_start().split(' ');
    let is_before = |word: &&str| BEFORE.contains(word) || word.starts_with("pub(");
    if words.by_ref().take_while(is_before).last() != Some("fn") {
        return None;
    }
    let after = line.split_once("fn ")?.1;
    Some(&after[..after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len())])
}
