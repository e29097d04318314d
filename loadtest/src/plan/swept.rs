//! What a plan reads of a sweep's file. It needs no other keys, so that files of versions with more or fewer can be read.

use std::path::Path;

use serde::Deserialize;

use crate::report::json::FORMAT;
use crate::schedule::Arrivals;
use crate::sweep::file::{KIND, Objective};
use crate::sweep::machine::{Machine, Versions};
use crate::sweep::search::Limit;

/// The keys of [`crate::sweep::file::File`] that matter here.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the same keys as in the file's own description")]
pub struct Swept {
    pub summary: String,
    pub objective: Vec<Objective>,
    pub knee: Option<f64>,
    pub confirmed: bool,
    pub at_least: bool,
    pub limit: Option<Limit>,
    pub resp: bool,
    pub own_daemon: bool,
    pub source: Option<String>,
    pub layout: Option<String>,
    pub worker_ids: Option<usize>,
    pub max_count: Option<u32>,
    pub batch: String,
    pub mean_batch: f64,
    pub connections: usize,
    pub threads: usize,
    pub arrivals: Arrivals,
    pub machine: Machine,
    pub versions: Versions,
    pub steps: Vec<SweptStep>,
}

/// Of a step.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the same keys as in the file's own description")]
pub struct SweptStep {
    pub holds: bool,
    pub answered: u64,
    pub elapsed_s: f64,
    pub daemon_cpu_share: Option<f64>,
}

/// Why a file is none of a sweep.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system's reason.
    #[error("cannot read {0}: {1}")]
    File(String, std::io::Error),
    /// What is wrong with it.
    #[error("{0} is no file of a sweep, as sweep --json writes it: {1}")]
    Content(String, String),
}

impl Swept {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn read(path: &Path) -> Result<Self, Unreadable> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| Unreadable::File(name.clone(), error))?;
        Self::from_json(&text).map_err(|reason| Unreadable::Content(name, reason))
    }

    fn from_json(text: &[u8]) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match (value["kind"].as_str(), value["format"].as_u64()) {
            (Some(KIND), Some(format)) if format == u64::from(FORMAT) => {
                serde_json::from_value(value).map_err(|error| error.to_string())
            }
            (Some(KIND), format) => {
                Err(format!("its format is {}, not {FORMAT}", format.unwrap_or_default()))
            }
            (kind, _) => Err(format!("its kind is {:?}", kind.unwrap_or("none"))),
        }
    }
}
