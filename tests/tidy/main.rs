//! Tidy: checks that links lead somewhere, and that paths in comments and pages and names in pages
//! exist.
//!
//! `cargo test --test tidy` fails with a line for each offence: the file, the line, what was found,
//! and what to write.

mod markdown;
mod readme;
mod sabotages;

use std::collections::HashSet;
use std::path::Path;

use markdown::{anchors, resolve, rows, unfenced};

/// The folders at the root. A text in prose that begins with one of them is taken for a path.
const TOP_FOLDERS: &[&str] = &[
    "benches",
    "clients",
    "crates",
    "deploy",
    "docs",
    "fuzz",
    "loadtest",
    "packaging",
    "src",
    "systemd",
    "tests",
];

/// Names of folders that are built or installed, at any depth.
const BUILT: &[&str] = &["dist", "node_modules", "target"];

/// Folders with build output, random files, or files that are not text.
const SKIPPED: &[&str] = &[".git", "dist", "target", "fuzz/artifacts", "fuzz/corpus", "fuzz/coverage"];

/// Endings of the files that are read. A file without an ending is read if it begins with `#!`.
const ENDINGS: &[&str] = &[
    ".c",
    ".conf",
    ".default",
    ".go",
    ".java",
    ".js",
    ".md",
    ".php",
    ".py",
    ".rb",
    ".rs",
    ".service",
    ".sh",
    ".socket",
    ".sysusers",
    ".tmpfiles",
    ".toml",
    ".ts",
    ".yml",
];

/// A text file of the repository, with its path from the root.
struct File {
    path: String,
    text: String,
}

/// All paths, and the names that a document may mention.
#[derive(Default)]
struct Repository {
    paths: Vec<String>,
    files: Vec<File>,
    /// Names of functions, modules, files and folders.
    names: HashSet<String>,
}

#[test]
fn all_places_have_the_same_version() {
    let command = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/raise-version");
    let check = std::process::Command::new(command).arg("--check").output().expect("it runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn links_paths_and_names_lead_somewhere() {
    let repository = Repository::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let offences: Vec<String> = repository.files.iter().flat_map(|file| repository.check(file)).collect();
    assert!(offences.is_empty(), "{} offences:\n{}", offences.len(), offences.join("\n"));
}

/// Everything that a reader of this project's pages has before them, without the clients' packages
/// and the benchmarks.
#[test]
fn the_pages_stay_short() {
    let repository = Repository::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let elsewhere = ["benches/", "clients/", "crates/", "fuzz/", "tests/sabotage/"];
    let pages = repository.files.iter().filter(|file| file.path.ends_with(".md"));
    let words = |file: &File| file.text.replace('|', " ").split_whitespace().count();
    let all: usize =
        pages.filter(|file| !elsewhere.iter().any(|folder| file.path.starts_with(folder))).map(words).sum();
    assert!(
        all <= 36_000,
        "found {all} words, allowed: 36,000; say it once, and leave out what nobody misses"
    );
    let fleet = repository.files.iter().find(|file| file.path == "docs/fleet.md").map(words);
    assert!(
        fleet.is_some_and(|fleet| fleet <= 3_000),
        "docs/fleet.md: found {fleet:?} words, allowed: 3,000"
    );
}

#[test]
fn every_dependency_is_explained() {
    let repository = Repository::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let page = include_str!("../../docs/architecture.md");
    // These crates are workspaces of their own and are not shipped.
    let outside = ["clients/rust/bench/Cargo.toml", "fuzz/Cargo.toml", "tests/clients/redis_rs/Cargo.toml"];
    let manifests = repository.files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    for File { path, text } in manifests.filter(|file| !outside.contains(&&*file.path)) {
        let mut within = false;
        for line in text.lines() {
            if line.starts_with('[') {
                within = line.ends_with("dependencies]");
                continue;
            }
            let Some((name, _)) = line.split_once(" = ").filter(|_| within) else { continue };
            let explained = name.starts_with("snowbank") || page.contains(&format!("`{name}`"));
            assert!(explained, "{path}: docs/architecture.md must say what `{name}` is for");
        }
    }
}

impl Repository {
    fn read(root: &Path) -> Repository {
        let mut repository = Repository::default();
        repository.walk(root, "");
        assert!(repository.files.len() > 100, "found only {} files", repository.files.len());
        for file in repository.files.iter().filter(|file| file.path.ends_with(".rs")) {
            for part in file.text.split("fn ").skip(1).chain(file.text.split("mod ").skip(1)) {
                let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
                repository.names.insert(part[..end].to_owned());
            }
        }
        for path in &repository.paths {
            let name = path.rsplit('/').next().unwrap_or(path);
            repository.names.insert(name.split('.').next().unwrap_or(name).to_owned());
        }
        repository
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        let entries = std::fs::read_dir(folder).expect("the folder can be read");
        for entry in entries.map(|entry| entry.expect("the entry can be read")) {
            let name = entry.file_name().into_string().expect("names are UTF-8");
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            self.paths.push(path.clone());
            if SKIPPED.contains(&path.as_str()) || BUILT.contains(&name.as_str()) {
                continue;
            }
            if entry.file_type().expect("the type can be read").is_dir() {
                self.walk(&entry.path(), &path);
                continue;
            }
            let wanted = ENDINGS.iter().any(|end| name.ends_with(end));
            if wanted || !name.contains('.') {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                if wanted || text.starts_with("#!") {
                    self.files.push(File { path, text });
                }
            }
        }
    }

    fn check(&self, file: &File) -> Vec<String> {
        let mut offences = Vec::new();
        let mut report = |line: usize, found: String, mend: String| {
            offences.push(format!("{}:{line}: {found}; {mend}", file.path));
        };
        conflicts(&file.text, &mut report);
        let markdown = file.path.ends_with(".md");
        if markdown {
            rows(&file.text, &mut report);
            self.links(file, &mut report);
        }
        for (line, prose) in prose(file) {
            for path in paths(prose).filter(|path| !self.has(path)) {
                report(line, format!("{path} does not exist"), "name a file that exists".into());
            }
            for name in names(prose).filter(|_| markdown).filter(|name| !self.names.contains(*name)) {
                report(line, format!("{name} does not exist"), "name a function that exists".into());
            }
        }
        offences
    }

    /// Returns whether a file or folder has a path that ends with `path`.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.paths.iter().any(|known| {
            known.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    }

    /// Checks that links within the repository lead to a file and a heading.
    fn links(&self, file: &File, report: &mut impl FnMut(usize, String, String)) {
        for (line, text) in unfenced(&file.text) {
            for target in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
                if target.contains("://") {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = resolve(&file.path, path);
                let page = self.files.iter().find(|known| known.path == path);
                let found = match (heading.is_empty(), page) {
                    (true, _) => self.paths.contains(&path),
                    (false, page) => page.is_some_and(|page| anchors(&page.text).any(|is| is == heading)),
                };
                if !found {
                    report(line, format!("the link {target} leads nowhere"), "mend the link".into());
                }
            }
        }
    }
}

/// Reports lines that a merge left behind.
fn conflicts(text: &str, report: &mut impl FnMut(usize, String, String)) {
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
            report(index + 1, line.to_owned(), "resolve the conflict".into());
        }
    }
}

/// Returns the characters with which a comment begins, or each line of a comment.
fn comment_markers(path: &str) -> &'static [&'static str] {
    match path.rsplit('.').next() {
        Some("go" | "rs") => &["//"],
        Some("c" | "java" | "js" | "php" | "ts") => &["//", "/*", "* "],
        _ => &["#"],
    }
}

/// Returns comments, and Markdown outside of code blocks.
fn prose(file: &File) -> Vec<(usize, &str)> {
    if file.path.ends_with(".md") {
        return unfenced(&file.text).collect();
    }
    let lines = file.text.lines().enumerate();
    let comments = lines.filter_map(|(line, text)| {
        let at = comment_markers(&file.path).iter().filter_map(|marker| text.find(marker)).min()?;
        let free = text[..at].trim_end().len() < at || at == 0;
        free.then_some((line + 1, &text[at..]))
    });
    comments.collect()
}

/// Returns words that look like a path of this repository: `lifecycle/start.rs`, `tests/long`,
/// `src/source`.
fn paths(prose: &str) -> impl Iterator<Item = &str> {
    let words = prose.split(|c: char| !c.is_ascii_alphanumeric() && !"_./-*".contains(c));
    words.map(|word| word.trim_end_matches('.')).filter(|word| {
        let built = SKIPPED.iter().chain(&["fuzz/target"]).any(|folder| word.starts_with(folder));
        let foreign = built || word.starts_with(['/', '.', '-']) || word.contains('*');
        let top =
            word.split_once('/').is_some_and(|(top, rest)| TOP_FOLDERS.contains(&top) && !rest.is_empty());
        let source = word.strip_suffix(".rs").or_else(|| word.strip_suffix(".md"));
        !foreign && (top || source.is_some_and(|name| !name.is_empty()))
    })
}

/// Returns words in backticks that look like a function: `Source::claim_some`.
fn names(prose: &str) -> impl Iterator<Item = &str> {
    prose.split('`').skip(1).step_by(2).filter_map(|word| {
        let name = word.rsplit("::").next().unwrap_or(word);
        let metric = name.starts_with("snowbank_") || name.starts_with("process_");
        let long = name.matches('_').count() >= 3;
        let foreign = word.starts_with("std::") || word.starts_with("tokio::");
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        (plain && !metric && !foreign && (long || word.contains("::"))).then_some(name)
    })
}
