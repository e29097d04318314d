//! The command line, the machine, the versions and the time of a run.

use std::fs;

use serde::{Deserialize, Serialize};

/// The circumstances of a run, as far as the generator's machine knows them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// When the program was started: RFC 3339, in UTC.
    pub(crate) started_at: String,
    /// The command line, quoted so that it can be pasted into a shell. No option contains a secret.
    pub(crate) command_line: String,
    /// The version of the load test.
    pub(crate) generator_version: String,
    /// The machine that made the load; with a daemon of its own, the daemon's too.
    pub(crate) machine: Machine,
}

/// The facts about a machine that change a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Its host name.
    pub(crate) host: String,
    /// The processor's model.
    pub(crate) cpu: Option<String>,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Its memory in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// The operating system's name and release.
    pub(crate) kernel: String,
    /// Processes that ran or waited for a core in the minute before the run, on average.
    pub(crate) load_average: Option<f64>,
}

impl Origin {
    /// Describes this process, on this machine, now. Call it before the load, which shows in the load average.
    pub(crate) fn of_this_process() -> Self {
        let words: Vec<String> = std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect();
        Self {
            started_at: jiff::Timestamp::now()
                .round(jiff::Unit::Second)
                .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
                .to_string(),
            command_line: words.join(" "),
            generator_version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::this(),
        }
    }
}

impl Machine {
    /// Describes the machine that this process runs on.
    pub(crate) fn this() -> Self {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            host: text(name.nodename()),
            cpu: value_of(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: value_of(&read("/proc/meminfo"), "MemTotal").and_then(|value| kibibytes(&value)),
            kernel: format!("{} {}", text(name.sysname()), text(name.release())),
            load_average: read("/proc/loadavg").split(' ').next().and_then(|first| first.parse().ok()),
        }
    }
}

/// Returns the first line `key : value` of a file of /proc.
fn value_of(file: &str, key: &str) -> Option<String> {
    let mut pairs = file.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
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
    fn this_machine_is_told() {
        let origin = Origin::of_this_process();
        assert!(origin.machine.cores > 0 && origin.machine.kernel.contains(' '), "{origin:?}");
        assert!(origin.started_at.parse::<jiff::Timestamp>().is_ok(), "{origin:?}");
    }

    #[test]
    fn files_of_proc_are_read() {
        let file = "processor\t: 0\nmodel name\t: A Processor: 3 GHz\nMemTotal:  24 kB\n";
        assert_eq!(value_of(file, "model name").as_deref(), Some("A Processor: 3 GHz"));
        assert_eq!(value_of(file, "MemTotal").and_then(|value| kibibytes(&value)), Some(24_576));
        assert_eq!(value_of("", "model name"), None);
    }
}
