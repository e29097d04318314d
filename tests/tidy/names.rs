//! The length of tests' names.

use super::File;

/// The most characters of a test's name. A longer one tells the set-up, and not the outcome.
const NAME_LENGTH_MAX: usize = 60;

/// Returns a line for each test of Rust or of the Node client whose name is too long.
pub(super) fn too_long(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for name in names(file) {
            let length = name.chars().count();
            if length > NAME_LENGTH_MAX {
                found.push(format!(
                    "{}: {name}: {length} characters, more than {NAME_LENGTH_MAX}; shorten it",
                    file.path
                ));
            }
        }
    }
    found
}

/// Returns the names of a file's tests.
fn names(file: &File) -> Vec<&str> {
    if file.path.ends_with(".js") {
        return file.text.split("\ntest(\"").skip(1).filter_map(|test| test.split('"').next()).collect();
    }
    let marked = file.text.split("#[test]\n").skip(1).chain(file.text.split("#[tokio::test").skip(1));
    marked.filter_map(|test| test.split_once("fn ")?.1.split('(').next()).collect()
}
