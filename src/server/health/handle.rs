//! A handle to the status and the heartbeat of a running daemon.

use std::sync::Arc;

use crate::admin::Status;
use crate::server::shared::common::Common;

/// A handle to the status and the heartbeat of a running daemon, for other threads.
#[derive(Clone)]
pub struct Health {
    common: Arc<Common>,
}

impl Health {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        Health { common }
    }

    /// Returns the status of this moment.
    pub(crate) fn status(&self) -> Status {
        self.common.status()
    }

    /// Completes when every thread has shown that it makes progress. Never completes while one is blocked.
    pub async fn all_beat(&self) {
        self.common.heartbeat.all_beat(&self.common.wake_ups).await;
    }
}
