//! A handle on the daemon's health, for the service manager's notifier and the admin listener.

use std::sync::Arc;

use crate::admin::Status;
use crate::server::shared::common::Common;

/// The daemon's health, read from outside its threads.
#[derive(Clone)]
pub struct Health {
    common: Arc<Common>,
}

impl Health {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        Health { common }
    }

    /// Returns the daemon's current status.
    pub(crate) fn status(&self) -> Status {
        self.common.status()
    }

    /// Completes when every thread has shown that it makes progress. Never completes if one is blocked.
    pub async fn all_beat(&self) {
        self.common.heartbeat.all_beat(&self.common.wake_ups).await;
    }
}
