//! The command line, the machine, the versions and the time of a run, as figures.

use std::fs;

use crate::figure::{Figures, Unit};
use crate::report::ORIGIN;

/// Describes this process, its machine and the time of day. If the run started a daemon, the daemon
/// runs on this machine, too. The command line contains no secret, because tokens are in files.
pub(crate) fn this_process() -> Figures {
    let mut figures = Figures::default();
    let words: Vec<String> = std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect();
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let name = rustix::system::uname();
    let cpu = value_of(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), "model name");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    figures.add(ORIGIN, "command", Unit::None, words.join(" "));
    figures.add(ORIGIN, "started", Unit::None, now.to_string());
    figures.add(ORIGIN, "load test", Unit::None, env!("CARGO_PKG_VERSION"));
    figures.add(ORIGIN, "build", Unit::None, build);
    figures.add(ORIGIN, "machine", Unit::None, name.nodename().to_string_lossy().into_owned());
    figures.add(ORIGIN, "processor", Unit::None, cpu);
    figures.add(ORIGIN, "cores", Unit::None, cores);
    let system = name.sysname().to_string_lossy();
    let release = name.release().to_string_lossy();
    figures.add(ORIGIN, "system", Unit::None, format!("{system} {release}"));
    figures
}

/// Returns the value of `key` in a file of /proc with lines `key : value`.
fn value_of(file: &str, key: &str) -> Option<String> {
    let mut pairs = file.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let quoted: Vec<String> = ["--rate", "a b", "", "it's", "$(x)"].map(quoted).into();
        assert_eq!(quoted, ["--rate", "'a b'", "''", r"'it'\''s'", "'$(x)'"]);
    }

    #[test]
    fn files_of_proc_are_read() {
        let file = "processor\t: 0\nmodel name\t: A Processor: 3 GHz\n";
        assert_eq!(value_of(file, "model name").as_deref(), Some("A Processor: 3 GHz"));
        assert_eq!(value_of("", "model name"), None);
    }
}
