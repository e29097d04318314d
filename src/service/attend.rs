//! What the service manager hears while the daemon runs: when it is ready, how it is, and that all its threads live.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::notify::{EXTEND_EVERY, Notifier};
use crate::server::{VitalSigns, Vitals};

/// How often the status may change.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// How often a daemon that is not ready looks whether it is: a clock that is set right is noticed soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tells the service manager how the daemon is, until dropped. Runs on the acceptor's thread, so that this one is known to
/// live as well.
pub async fn attend(notifier: &Notifier, vitals: &Vitals) {
    if notifier.is_wanted() {
        await_ready(notifier, vitals).await;
        let mut before = vitals.signs();
        let status = status_line(&before, &before, STATUS_EVERY);
        notifier.ready(&status);
        tokio::join!(feed(notifier, vitals), tell(notifier, vitals, &mut before, status));
    }
    std::future::pending().await
}

async fn await_ready(notifier: &Notifier, vitals: &Vitals) {
    let mut looks = 0;
    loop {
        let ready_in = vitals.ready_in();
        if ready_in.is_zero() {
            return;
        }
        if looks % (EXTEND_EVERY.as_secs() / LOOK_EVERY.as_secs()) == 0 {
            notifier.not_ready(&format!(
                "not ready: the wall clock is behind IDs already handed out; IDs in {} s",
                ready_in.as_secs_f64().ceil()
            ));
        }
        looks += 1;
        sleep(ready_in.min(LOOK_EVERY)).await;
    }
}

/// Feeds the watchdog: at half its period all threads are asked, and when all have answered, it is told. So it is not fed
/// from the moment on when one is blocked, and acts within its period of that.
async fn feed(notifier: &Notifier, vitals: &Vitals) {
    let Some(period) = notifier.watchdog_period() else { return };
    let mut rounds = interval(period / 2);
    // After a pause of the whole machine one round is enough.
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        vitals.all_beat().await;
        notifier.alive();
    }
}

async fn tell(notifier: &Notifier, vitals: &Vitals, before: &mut VitalSigns, mut told: String) {
    loop {
        sleep(STATUS_EVERY).await;
        let signs = vitals.signs();
        let status = status_line(before, &signs, STATUS_EVERY);
        *before = signs;
        if status != told {
            notifier.status(&status);
            told = status;
        }
    }
}

/// What `systemctl status` shows. Without head-room where nobody asks: ceilings are raised when somebody does.
fn status_line(before: &VitalSigns, now: &VitalSigns, apart: Duration) -> String {
    if !now.ready_in.is_zero() {
        let seconds = now.ready_in.as_secs_f64().ceil();
        return format!("not ready: the wall clock is behind IDs already handed out; IDs in {seconds} s");
    }
    let headroom = now.headroom.as_secs_f64();
    let _ = (before, apart);
    format!("ready: ceiling {headroom:.0} s ahead")
}
