//! What the documents name is there.

use std::path::Path;

/// Words in backticks that look like a path: `server/start.rs`, `tests/long`, `source/line/`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let path_like = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let has_ending =
            [".rs", ".md", ".toml", ".sh", ".py", ".json", "/"].iter().any(|end| word.ends_with(end));
        word.chars().all(path_like) && has_ending && !word.starts_with(['/', '.'])
    })
}

#[test]
fn every_file_that_the_documents_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents =
        ["README.md", "docs/architecture.md", "docs/guarantees.md", "docs/layouts.md", "docs/protocol.md"];
    let mut seen = 0;
    for document in documents {
        let text = std::fs::read_to_string(root.join(document)).expect("the document is there");
        for path in paths(&text) {
            seen += 1;
            let rooms = ["", "src", "clients/rust", "clients/rust/src", "loadtest", "loadtest/src", "docs"];
            assert!(
                rooms.iter().any(|room| root.join(room).join(path).exists()),
                "{document} names `{path}`, which is not there"
            );
        }
    }
    assert!(seen > 20, "only {seen} paths found: the search finds nothing");
}
