//! The configuration that a reload reads.

use tracing::level_filters::LevelFilter;

use crate::config::{Secrets, Settings, Unread};

/// The configuration as a reload has read it.
pub struct Reloaded {
    /// The settings, without numbers that a start picks.
    pub settings: Settings,
    /// The contents of the files that the settings name.
    pub secrets: Secrets,
    /// A line for each probable mistake.
    pub warnings: Vec<String>,
    /// The level of the log.
    pub level: LevelFilter,
    /// False if the daemon has no configuration file.
    pub has_file: bool,
}

/// Reads the configuration again, for a reload. An error has one reason on each line.
pub type Reread = Box<dyn FnMut() -> Result<Reloaded, Unread> + Send>;
