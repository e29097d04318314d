//! The worker IDs of a source: their numbering, and the locks that keep them to this daemon.

use crate::ceiling::{WorkerLocks, lock_workers};
use crate::config::{Settings, SourceSettings};
use crate::numbering::Numbering;
use crate::server::shared::start_error::StartError;

/// Returns the numbering of a source.
pub(super) fn number(source: &SourceSettings) -> Result<Numbering, StartError> {
    source.numbering().map_err(|error| StartError::WrongSetting(format!("source {}: {error}", source.name)))
}

/// Locks the worker IDs of a numbering on this machine.
pub(super) fn lock(settings: &Settings, numbering: &Numbering) -> Result<WorkerLocks, StartError> {
    Ok(lock_workers(&settings.lock_dir, numbering)?)
}
