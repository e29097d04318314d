//! A sabotage: the change, the promise that it breaks, and the test that must fail. A patch is a
//! unified diff that names functions and not lines, so that it still applies when code around it
//! moves. `@@` names a function. The lines of a hunk that begin with a space or a minus must be in
//! it exactly once, as one block. Spaces do not count.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One change to the shipped sources.
pub(crate) struct Patch {
    /// The file's name without `.patch`.
    pub(crate) name: String,
    /// The change, in words.
    pub(crate) change: String,
    /// The promise that breaks, with its number, and the effect.
    pub(crate) breaks: String,
    /// The test that must fail.
    pub(crate) caught_by: TestName,
    edits: Vec<Edit>,
}

/// One hunk: in this function of this file, the lines `old` become the lines `new`.
struct Edit {
    file: String,
    function: String,
    old: Vec<String>,
    new: Vec<String>,
}

/// A test by its full name: `config::tests::…` of the daemon's library,
/// `snowbank_id::layout::tests::…` of another library, or `tests/simulation::lives::…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestName(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) package: &'static str,
    /// The prefix of the names of this library's unit tests.
    prefix: &'static str,
    pub(crate) sources: &'static str,
}

/// The shipped libraries. The daemon's is the last, because its tests have no prefix.
const LIBRARIES: [Library; 7] = [
    Library { package: "snowbank-client", prefix: "snowbank_client::", sources: "clients/rust/src" },
    Library { package: "snowbank-wire", prefix: "snowbank_wire::", sources: "crates/snowbank-wire/src" },
    Library { package: "snowbank-id", prefix: "snowbank_id::", sources: "crates/snowbank-id/src" },
    Library { package: "snowbank-core", prefix: "snowbank_core::", sources: "crates/snowbank-core/src" },
    Library { package: "snowbank-state", prefix: "snowbank_state::", sources: "crates/snowbank-state/src" },
    Library { package: "snowbank-fleet", prefix: "snowbank_fleet::", sources: "crates/snowbank-fleet/src" },
    Library { package: "snowbank", prefix: "", sources: "src" },
];

/// The kind of a test, which decides how it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite<'a> {
    /// A unit test of this library.
    Unit(Library),
    /// A loom model of this library.
    Loom(Library),
    /// A folder in tests/.
    Integration(&'a str),
}

/// Reads all patches, in the order of the promises.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Patch>, String> {
    let directory = root.join("tests/sabotage/patches");
    let entries =
        std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut patches = paths.iter().map(|path| Patch::read(path)).collect::<Result<Vec<_>, _>>()?;
    patches.sort_by(|left, right| (&left.breaks, &left.name).cmp(&(&right.breaks, &right.name)));
    Ok(patches)
}

impl Patch {
    pub(crate) fn read(path: &Path) -> Result<Patch, String> {
        let fault = |what: &str| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| fault(&error.to_string()))?;
        let (head, diff) = text.split_once("\n\n").ok_or_else(|| fault("no empty line before the diff"))?;
        let field = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.map(str::to_owned).ok_or_else(|| fault(&format!("no line \"{name}: …\"")))
        };
        Ok(Patch {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            change: field("Change")?,
            breaks: field("Breaks")?,
            caught_by: TestName(field("Caught by")?),
            edits: read_diff(diff).map_err(|what| fault(&what))?,
        })
    }

    /// Returns the patched files by their paths below `root`. Writes nothing.
    pub(crate) fn apply(&self, root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        for edit in &self.edits {
            let path = PathBuf::from(&edit.file);
            let text = match files.iter().position(|(file, _)| *file == path) {
                Some(index) => files.remove(index).1,
                None => std::fs::read_to_string(root.join(&path))
                    .map_err(|error| format!("{}: {error}", edit.file))?,
            };
            let changed =
                edit.apply(&text).map_err(|what| format!("{}: {}: {what}", self.name, edit.file))?;
            files.push((path, changed));
        }
        Ok(files)
    }
}

impl Edit {
    /// Returns the text of the file with this edit.
    fn apply(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.lines().collect();
        let functions = functions(&lines, &self.function);
        if functions.is_empty() {
            return Err(format!("there is no function {}", self.function));
        }
        let old: Vec<String> = self.old.iter().map(|line| without_spaces(line)).collect();
        let mut found = Vec::new();
        for function in functions {
            for at in function.start..=function.end.saturating_sub(old.len()) {
                if lines[at..].iter().zip(&old).all(|(line, old)| without_spaces(line) == *old) {
                    found.push(at);
                }
            }
        }
        let [at] = found[..] else {
            let function = &self.function;
            let times = found.len();
            let old = self.old.join("\n");
            return Err(format!("{function} has these lines {times} times, and must have them once:\n{old}"));
        };
        let mut changed = lines[..at].to_vec();
        changed.extend(self.new.iter().map(String::as_str));
        changed.extend(&lines[at + old.len()..]);
        Ok(changed.join("\n") + "\n")
    }
}

/// Returns the lines of each function of this name. In the layout of rustfmt, a function ends at
/// the first line that has its indentation and closes it.
fn functions(lines: &[&str], name: &str) -> Vec<Range<usize>> {
    let mut functions = Vec::new();
    for (start, first) in lines.iter().enumerate() {
        if first.contains(&format!("fn {name}(")) || first.contains(&format!("fn {name}<")) {
            let mut rest = lines[start..].iter();
            let length =
                rest.position(|line| indentation(line) == indentation(first) && line.ends_with(['}', ';']));
            functions.push(start..start + length.map_or(1, |last| last + 1));
        }
    }
    functions
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn without_spaces(line: &str) -> String {
    line.split_whitespace().collect()
}

fn read_diff(diff: &str) -> Result<Vec<Edit>, String> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut file = None;
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("--- ") {
            file = Some(name.to_owned());
        } else if let Some(function) = line.strip_prefix("@@ ") {
            let file = file.clone().ok_or("a hunk comes before its file")?;
            edits.push(Edit { file, function: function.to_owned(), old: Vec::new(), new: Vec::new() });
        } else {
            let edit = edits.last_mut().ok_or("a line comes before its hunk")?;
            let (mark, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
            let texts: &mut [&mut Vec<String>] = match mark {
                " " => &mut [&mut edit.old, &mut edit.new],
                "-" => &mut [&mut edit.old],
                "+" => &mut [&mut edit.new],
                _ => return Err(format!("a line must begin with a space, a minus or a plus: {line}")),
            };
            for text in texts {
                text.push(rest.to_owned());
            }
        }
    }
    if edits.is_empty() || edits.iter().any(|edit| edit.old == edit.new) {
        return Err(String::from("the diff changes nothing"));
    }
    Ok(edits)
}

impl TestName {
    /// Returns the kind of the test.
    pub(crate) fn suite(&self) -> Suite<'_> {
        match self.integration() {
            Some((binary, _)) => Suite::Integration(binary),
            None if self.0.contains("::models::") => Suite::Loom(self.library()),
            None => Suite::Unit(self.library()),
        }
    }

    pub(crate) fn library(&self) -> Library {
        let library = LIBRARIES.iter().find(|library| self.0.starts_with(library.prefix));
        *library.expect("every name starts with the empty prefix")
    }

    /// Returns the test's name without the name of its crate.
    pub(crate) fn in_crate(&self) -> &str {
        &self.0[self.library().prefix.len()..]
    }

    /// Returns the test's name within its executable.
    pub(crate) fn in_executable(&self) -> &str {
        self.integration().map_or(self.in_crate(), |(_, name)| name)
    }

    /// Returns the binary of an integration test, and the test's name within it.
    fn integration(&self) -> Option<(&str, &str)> {
        self.0.strip_prefix("tests/")?.split_once("::")
    }
}

impl fmt::Display for TestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
