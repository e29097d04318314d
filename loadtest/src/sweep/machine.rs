//! The machine and the programs of a sweep; a figure without its machine means nothing.

use serde::{Deserialize, Serialize};

pub(crate) use crate::origin::Machine;

/// The version of this program, and whether it is a build that figures should not be taken from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Versions {
    pub(crate) loadtest: String,
    pub(crate) daemon: Option<String>,
    /// True if this program was built without optimisation, and with it a daemon that it starts.
    pub(crate) debug_build: bool,
}

impl Versions {
    /// Returns them with the version in the target's INFO.
    pub(crate) fn with(daemon: Option<String>) -> Self {
        let loadtest = env!("CARGO_PKG_VERSION").to_owned();
        Self { loadtest, daemon, debug_build: cfg!(debug_assertions) }
    }
}
