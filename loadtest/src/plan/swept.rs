//! The keys of a sweep's file that a plan reads. Others are ignored, so files of other versions can be read.

use serde::Deserialize;

use crate::schedule::Arrivals;
use crate::sweep::file::Objective;
use crate::sweep::machine::{Machine, Versions};
use crate::sweep::search::Limit;

/// The keys of [`crate::sweep::file::File`] that matter here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Swept {
    pub(crate) summary: String,
    pub(crate) objective: Vec<Objective>,
    pub(crate) knee: Option<f64>,
    pub(crate) confirmed: bool,
    pub(crate) at_least: bool,
    pub(crate) limit: Option<Limit>,
    pub(crate) protocol: String,
    pub(crate) own_daemon: bool,
    pub(crate) source: Option<String>,
    pub(crate) layout: Option<String>,
    pub(crate) worker_ids: Option<usize>,
    pub(crate) max_count: Option<u32>,
    pub(crate) batch: String,
    pub(crate) mean_batch: f64,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) arrivals: Arrivals,
    pub(crate) machine: Machine,
    pub(crate) versions: Versions,
    pub(crate) steps: Vec<SweptStep>,
}

/// A step of the sweep.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SweptStep {
    pub(crate) holds: bool,
    pub(crate) answered: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) target_cpu_share: Option<f64>,
}
