//! How a running daemon is, asked by whoever watches over it.

use std::sync::Arc;

use crate::admin::Status;
use crate::server::shared::common::Common;

/// A daemon's life signs, asked for from outside its threads.
#[derive(Clone)]
pub struct Vitals {
    common: Arc<Common>,
}

impl Vitals {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        Vitals { common }
    }

    /// What the daemon is doing now.
    pub(crate) fn status(&self) -> Status {
        self.common.status()
    }

    /// Completes when every thread has shown that it makes progress; never, if one is blocked.
    pub async fn all_beat(&self) {
        self.common.heartbeat.all_beat(&self.common.wake_ups).await;
    }
}
