//! Options that say how a target is come at, whatever the load: what is shown to it, and with which priority.

use std::path::PathBuf;

use crate::target::{NoToken, Token};

/// How a target is come at.
#[derive(Debug, clap::Args)]
pub(super) struct Approach {
    /// A file with the token that the daemon asks for; a newline at its end does not count
    #[arg(long, value_name = "FILE", requires = "address", conflicts_with = "resp")]
    token_file: Option<PathBuf>,
    /// Leave the generator at ordinary priority. Without it an open loop's threads, if there are fewer than cores, take the
    /// lowest real-time priority where that is permitted, so that other programs make them late as seldom as possible
    #[arg(long)]
    ordinary_priority: bool,
}

impl Approach {
    /// The token, if there is one to show.
    pub(super) fn token(&self) -> Result<Option<Token>, NoToken> {
        self.token_file.as_deref().map(Token::read).transpose()
    }

    /// Whether the generator may run before ordinary threads. With as many as there are cores it could keep the target from
    /// running at all.
    pub(super) fn real_time(&self, threads: usize) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        !self.ordinary_priority && threads < cores
    }
}
