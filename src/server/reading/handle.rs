//! A handle on the daemon's health, for the service manager's notifier and the admin listener.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::server::common::Common;
use crate::server::health::samples::Samples;
use crate::server::health::status::Status;
use crate::server::shared::start_error::StartError;

/// The longest time from the end of the drain to the end of the shards' threads. A turn takes far
/// less.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The time after the drain within which the control thread gives back what a start has just taken of
/// the fleet. Later, that is as after a kill.
pub(crate) const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for which a stop then waits for storage and the coordinator. A container is killed after
/// 10 s. With the default settings and without an admin listener, a stop takes less, even if
/// nothing reads the log. If storage does not answer within this time, the next start begins as
/// after a kill.
pub(crate) const TRIM_TIMEOUT: Duration = Duration::from_secs(3);

/// A handle with which other parts of the process read the daemon's health.
#[derive(Clone)]
pub struct Health(pub(crate) Arc<Common>);

impl Health {
    /// Makes `/readyz` report the stop. Returns the time for which the daemon continues to serve, so
    /// that load balancers notice the stop. `None`: the daemon stops at once.
    pub(crate) fn announce_stop(&self) -> Option<Duration> {
        // Load balancers send no requests to a daemon that is not ready, so the stop of such a
        // daemon need not wait for them.
        let was_ready = self.0.status().is_ready();
        self.0.metrics.draining.store(true, Ordering::Relaxed);
        let drain_delay = self.0.live_config.borrow().limits.drain_delay;
        Some(drain_delay).filter(|delay| was_ready && !delay.is_zero())
    }

    /// Returns the longest time that a stop takes after its delay. This does not include the wait
    /// for the last lines of the log.
    pub(crate) fn longest_stop(&self) -> Duration {
        let drain_timeout = self.0.live_config.borrow().limits.drain_timeout;
        drain_timeout.saturating_add(GIVE_BACK_TIMEOUT.max(END_TIMEOUT) + TRIM_TIMEOUT)
    }

    /// Returns whether the daemon stops, or has announced that it will.
    pub(crate) fn is_draining(&self) -> bool {
        self.0.metrics.draining.load(Ordering::Relaxed)
    }

    /// Completes once another process may have taken over a worker ID, a shared counter or the
    /// state, or once the start is refused.
    pub(crate) async fn await_loss(&self) {
        tokio::select! {
            _ = self.0.lost.wait() => {}
            _ = self.0.refused.wait() => {}
        }
    }

    /// Returns the reason why the start was refused, if it was.
    pub(crate) fn refused(&self) -> Option<&StartError> {
        self.0.refused.get()
    }

    /// Returns the reason why another process may have taken over a worker ID, a shared counter or
    /// the state. `None`: there is no such reason.
    pub fn lost(&self) -> Option<&str> {
        self.0.lost.get().map(String::as_str)
    }

    pub(crate) fn status(&self) -> Status {
        self.0.status()
    }

    /// Returns the samples of the metrics.
    pub(crate) fn exposed(&self) -> Samples {
        self.0.exposed()
    }

    /// Returns the live configuration as text, with a line for each setting.
    pub(crate) fn config(&self) -> String {
        self.0.live_config.borrow().text.clone()
    }

    /// Returns the history of the last hour, as JSON.
    pub(crate) fn history_json(&self) -> String {
        // Plain structs always serialize.
        serde_json::to_string(&*self.0.metrics.history()).unwrap_or_default()
    }

    /// Completes when the shards and the keeper have answered the heartbeat. Never completes if one
    /// of them is blocked.
    pub(crate) async fn all_beat(&self) {
        self.0.heartbeat.all_beat(&self.0.wake_ups).await;
    }
}
