//! Paths of the clients that tests/clients/install installs for other protocols, and of the scripts
//! that drive these clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::skip;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the directory in which the newest clients are installed.
pub fn place() -> PathBuf {
    Path::new(ROOT).join("target/clients")
}

/// Returns the path of a script in tests/clients.
pub fn script(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/clients").join(name)
}

/// Returns the path of a part of the newest clients. Calls [`skip`] if that part is missing.
pub fn newest(part: &str) -> Option<PathBuf> {
    let path = place().join(part);
    if path.exists() {
        return Some(path);
    }
    skip("the newest clients are missing: tests/clients/install installs them");
    None
}

/// Returns whether a command succeeds. Calls [`skip`] if it fails, for example because the library
/// that it loads is not installed.
pub fn can_run(command: &mut Command, what: &str) -> bool {
    let can = command.output().is_ok_and(|output| output.status.success());
    if !can {
        skip(&format!("{what} is missing (tests/run installs it)"));
    }
    can
}
