//! What the service manager hears while the daemon runs: when it is ready, how it is, and that all its threads live.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::notify::{EXTEND_EVERY, Notifier};
use crate::admin::Status;
use crate::config::Grouped;
use crate::server::Health;

/// How often the status may change.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// How often a daemon that is not ready looks whether it is: a clock that is set right is noticed soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tells the service manager how the daemon is, until dropped. Runs on the acceptor's thread, so that this one is known to
/// live as well.
pub async fn attend(notifier: &Notifier, health: &Health) {
    if notifier.is_wanted() {
        let first = await_ready(notifier, health).await;
        let status = status_line(None, &first);
        notifier.ready(&status);
        tokio::join!(feed(notifier, health), tell(notifier, health, first, status));
    }
    std::future::pending().await
}

/// Waits until IDs can be had, and gives the status of that moment.
async fn await_ready(notifier: &Notifier, health: &Health) -> Status {
    let mut told_at: Option<Instant> = None;
    loop {
        let status = health.status();
        if status.ready {
            return status;
        }
        if told_at.is_none_or(|told_at| told_at.elapsed() >= EXTEND_EVERY) {
            notifier.not_ready(&status_line(None, &status));
            told_at = Some(Instant::now());
        }
        let stands_s = status.sources.iter().map(|source| source.stands_s).fold(0.0, f64::max);
        let soon = if stands_s > 0.0 { Duration::try_from_secs_f64(stands_s).ok() } else { None };
        sleep(soon.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)).await;
    }
}

/// Feeds the watchdog: at half its period all threads are asked, and when all have answered, it is told. So it is not fed
/// from the moment on when one is blocked, and acts within its period of that.
async fn feed(notifier: &Notifier, health: &Health) {
    let Some(period) = notifier.watchdog_period() else { return };
    let mut rounds = interval(period / 2);
    // After a pause of the whole machine one round is enough.
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        health.all_beat().await;
        notifier.alive();
    }
}

/// Tells the status where it has changed.
async fn tell(notifier: &Notifier, health: &Health, mut before: Status, mut told: String) {
    loop {
        sleep(STATUS_EVERY).await;
        let now = health.status();
        let status = status_line(Some(&before), &now);
        before = now;
        if status != told {
            notifier.status(&status);
            told = status;
        }
    }
}

/// What `systemctl status` shows: the worst that there is to say, and what the daemon does. Without head-room where nobody
/// asks, for ceilings are raised when somebody does; so an idle daemon has one line to say.
fn status_line(before: Option<&Status>, now: &Status) -> String {
    let worst = now.findings().next().map(|check| match &check.source {
        Some(source) => format!("source {source:?}: {}", check.message),
        None => check.message.clone(),
    });
    if !now.ready {
        return format!("not ready: {}", worst.unwrap_or_default());
    }
    let connections = match now.connections.open {
        1 => String::from("1 connection"),
        open => format!("{} connections", Grouped(open)),
    };
    let issued: Vec<(u64, f64)> =
        (0..now.sources.len()).filter_map(|index| issued(before, now, index)).collect();
    let seconds = before.map_or(0.0, |before| now.uptime_s - before.uptime_s).max(1e-3);
    let doing = match issued.iter().map(|(_, headroom_s)| *headroom_s).reduce(f64::min) {
        None => String::from("idle"),
        Some(headroom_s) => {
            let ids: u64 = issued.iter().map(|(ids, _)| ids).sum();
            let per_second = (ids as f64 / seconds).round() as u64;
            format!("{} IDs/s, ceiling {headroom_s:.1} s ahead", Grouped(per_second))
        }
    };
    let worst = worst.map(|worst| format!("; {worst}")).unwrap_or_default();
    format!("ready: {doing}, {connections}{worst}")
}

/// The IDs that a source has handed out meanwhile, and its head-room; `None` if there were none.
fn issued(before: Option<&Status>, now: &Status, index: usize) -> Option<(u64, f64)> {
    let source = &now.sources[index];
    // One that has joined meanwhile starts from nothing.
    let ids_before = before?.sources.get(index).map_or(0, |source| source.ids);
    let ids = source.ids.saturating_sub(ids_before);
    (ids > 0).then_some((ids, source.headroom_s))
}
