//! Looks once a second whether the worker IDs and the state are still this daemon's while the keeper, which does so
//! otherwise, waits for storage. Sleeps without a timer when it does not.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::ceiling::TakenOver;
use crate::keeper::Ownership;
use crate::server::health::heartbeat::Heartbeat;
use crate::server::health::metrics::Metrics;
use crate::server::shared::common::Common;

/// How long after the keeper's last look, and between its own.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts the lookout, on a thread of its own that ends with the keeper. Where nothing is kept the keeper waits for no
/// storage, and there is none.
pub(crate) fn watch(common: &Common, ownership: &Arc<Ownership>) -> io::Result<()> {
    if !ownership.is_of_state() {
        return Ok(());
    }
    let (heartbeat, metrics) = (Arc::clone(&common.heartbeat), Arc::clone(&common.metrics));
    // It is not to hold the locks when the keeper has gone.
    let ownership = Arc::downgrade(ownership);
    let run = move || run(&heartbeat, &metrics, &ownership);
    let thread = thread::Builder::new().name(String::from("lookout")).spawn(run)?;
    common.heartbeat.set_lookout(thread.thread());
    Ok(())
}

fn run(heartbeat: &Heartbeat, metrics: &Metrics, ownership: &Weak<Ownership>) {
    while ownership.strong_count() > 0 {
        // Until the keeper goes to storage, right after a look of its own.
        thread::park();
        thread::park_timeout(PERIOD);
        while heartbeat.keeper_waits_for_storage() {
            let Some(ownership) = ownership.upgrade() else { return };
            if let Err(taken_over) = ownership.look() {
                metrics.keeper().lose(&taken_over);
                tell(&ownership, &taken_over);
            }
            drop(ownership);
            thread::park_timeout(PERIOD);
        }
    }
}

/// Tells the operator of the loss, once, whoever finds it.
pub(crate) fn tell(ownership: &Ownership, reason: &TakenOver) {
    if ownership.is_news() {
        tracing::error!(%reason, "no IDs are handed out any more: stop this daemon, and see who else runs");
    }
}
