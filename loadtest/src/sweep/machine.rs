//! Where figures were measured; a figure without its machine says nothing.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine that this process runs on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Its host name.
    pub host: String,
    /// Its processor's, as the kernel calls it.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Self {
            host: text(system.nodename()),
            cpu: fs::read_to_string("/proc/cpuinfo").ok().as_deref().and_then(model),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("{} {}", text(system.sysname()), text(system.release())),
        }
    }
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The version of this program, and whether it is a build that figures should not be taken from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versions {
    /// Of this program.
    pub loadtest: String,
    /// Of the daemon.
    pub daemon: Option<String>,
    /// Whether this program was built without optimisation, and a daemon that it starts with it.
    pub debug_build: bool,
}

impl Versions {
    /// With the version that the target told.
    #[must_use]
    pub fn with(daemon: Option<String>) -> Self {
        let loadtest = env!("CARGO_PKG_VERSION").to_owned();
        Self { loadtest, daemon, debug_build: cfg!(debug_assertions) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_its_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: fpu\n";
        assert_eq!(model(cpuinfo).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor : 0\n"), None);
    }
}
