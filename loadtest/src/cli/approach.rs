//! Options that say how a target is come at, whatever the load: what is shown to it, and with which priority.

use std::path::PathBuf;

use crate::load;
use crate::target::{NoToken, Token};

/// How a target is come at.
#[derive(Debug, clap::Args)]
pub(super) struct Approach {
    /// A file with the token that the daemon asks for; a newline at its end does not count
    #[arg(long, value_name = "FILE", requires = "address", conflicts_with = "resp")]
    token_file: Option<PathBuf>,
    /// Stay awake between an open loop's requests, on a core for each thread: for machines with idle cores that wake a
    /// sleeper late, and fewer --threads than cores. On two cores it takes one of them from the target
    #[arg(long, conflicts_with = "real_time")]
    stay_awake: bool,
    /// Run an open loop's threads before ordinary programs, with the lowest real-time priority: for a target on another
    /// machine, because on this one it would keep the target from running. Needs root or ulimit -r, and fewer --threads
    /// than cores
    #[arg(long)]
    real_time: bool,
}

impl Approach {
    /// The token, if there is one to show.
    pub(super) fn token(&self) -> Result<Option<Token>, NoToken> {
        self.token_file.as_deref().map(Token::read).transpose()
    }

    /// How many threads leave a core to others where they would take whole ones.
    pub(super) fn most_threads(&self) -> u32 {
        let takes_cores = self.stay_awake || self.real_time;
        if takes_cores { u32::try_from(cores() - 1).unwrap_or(u32::MAX) } else { u32::MAX }
    }

    /// Whether the generator's threads stay awake between requests.
    ///
    /// # Errors
    /// One line where that would leave no core to others.
    pub(super) fn stays_awake(&self, threads: usize) -> Result<bool, String> {
        if self.stay_awake {
            leave_a_core("--stay-awake", threads)?;
        }
        Ok(self.stay_awake)
    }

    /// Whether the generator runs before ordinary threads.
    ///
    /// # Errors
    /// One line where it cannot.
    pub(super) fn real_time(&self, threads: usize) -> Result<bool, String> {
        if !self.real_time {
            return Ok(false);
        }
        leave_a_core("--real-time", threads)?;
        if !load::may_run_real_time() {
            return Err("--real-time is not permitted here: it needs root, or a limit above 0 in ulimit -r"
                .to_owned());
        }
        Ok(true)
    }
}

/// Those that this process may use, quotas taken into account.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Refuses what would take all of them.
fn leave_a_core(option: &str, threads: usize) -> Result<(), String> {
    let cores = cores();
    if threads < cores {
        return Ok(());
    }
    Err(format!(
        "{option} with --threads {threads} leaves nothing of {} to others; use fewer threads",
        if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
    ))
}
