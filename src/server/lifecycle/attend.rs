//! Messages to the service manager while the daemon runs: readiness, status and heartbeat.
//!
//! To the service manager the daemon is ready once it listens and its configuration stands. What it
//! still waits for is in its status, because a manager may end a unit that is starting for long.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::amounts::counted;
use crate::config::Grouped;
use crate::server::health::figures::Figure::{Open, SourceIds, UptimeS};
use crate::server::health::finding::Effect;
use crate::server::health::status::Status;
use crate::server::reading::handle::Health;
use crate::service::Notifier;

/// The time between two readings of the status. A worse or better finding is sent at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many readings the figures are sent, if they have changed. Readiness and status are sent
/// again if a message was lost.
const LOOKS: u32 = 5;

/// Sends readiness, status and heartbeat to the service manager until the future is dropped. Runs
/// on the acceptor's thread, so the watchdog covers that thread, too.
pub(super) async fn attend(notifier: &Notifier, health: &Health) {
    if notifier.is_wanted() {
        let first = health.status();
        let status = status_line(None, &first);
        notifier.ready(&status);
        tokio::join!(feed(notifier, health), send_status(notifier, health, first, status));
    }
    std::future::pending().await
}

/// Feeds the watchdog: asks the shards and the keeper twice in each period of the watchdog, and
/// feeds it when all have answered. If one of them is blocked, the watchdog acts within its period.
async fn feed(notifier: &Notifier, health: &Health) {
    let Some(period) = notifier.watchdog_period() else { return };
    let mut rounds = interval(period / 2);
    // If the machine was paused, the rounds that were missed are left out.
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        health.all_beat().await;
        notifier.alive();
    }
}

/// Sends the status when it has changed, and readiness again if a message was lost.
async fn send_status(notifier: &Notifier, health: &Health, mut before: Status, mut sent: String) {
    let mut looks = 0;
    loop {
        sleep(LOOK_EVERY).await;
        looks += 1;
        let now = health.status();
        if now.is_ready() && worst(&now) == worst(&before) && looks < LOOKS {
            continue;
        }
        looks = 0;
        let status = status_line(Some(&before), &now);
        before = now;
        if notifier.take_lost() {
            notifier.ready(&status);
        } else if status != sent {
            notifier.status(&status);
        }
        sent = status;
    }
}

/// Returns what the worst finding is about, and its effect.
fn worst(status: &Status) -> Option<(&str, Option<&str>, Effect)> {
    let finding = status.findings.first()?;
    Some((&finding.name, finding.source.as_deref(), finding.effect))
}

/// Returns the line that `systemctl status` shows: what the daemon does, and its worst finding.
fn status_line(before: Option<&Status>, now: &Status) -> String {
    let worst = now.findings.first().map(|finding| match &finding.source {
        Some(source) => format!("source {source:?}: {}", finding.message),
        None => finding.message.clone(),
    });
    if !now.is_ready() {
        return format!("not ready: {}", worst.unwrap_or_default());
    }
    let figures = &now.samples;
    let connections = counted(figures.daemon.count(Open), "connection");
    let since = before.map(|before| figures.since(&before.samples));
    let ids = since.as_ref().map_or(0, |since| since.sum(SourceIds));
    let seconds = since.map_or(0.0, |since| since.daemon.measure(UptimeS)).max(1e-3);
    let per_second = Grouped((ids as f64 / seconds).round() as u64);
    let doing = if ids == 0 { String::from("idle") } else { format!("{per_second} IDs/s") };
    let worst = worst.map(|worst| format!("; {worst}")).unwrap_or_default();
    format!("ready: {doing}, {connections}{worst}")
}
