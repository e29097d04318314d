//! The keeper's thread: looks when the keeper wants to, or at once when a request meets a ceiling, and tells the operator what
//! changed. It may block on storage; no request does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::lookout;
use super::start_sources::{self, Joined, Joining};
use crate::clock::{self, Observed};
use crate::keeper::{Keeper, Looked};
use crate::server::health::rate_limited_log;
use crate::server::shared::common::Common;

/// What a reload has the keeper do, all of it or nothing.
pub(crate) struct JoinRequest {
    pub(crate) joining: Vec<Joining>,
    /// Whether ceilings outlast the process.
    pub(crate) is_kept: bool,
    /// How far ahead ceilings are kept from now on, by source, the joining ones last.
    pub(crate) horizons: Vec<Duration>,
    pub(crate) reply: mpsc::Sender<Result<Joined, String>>,
}

impl JoinRequest {
    fn run(self, keeper: &mut Keeper) {
        let JoinRequest { joining, is_kept, horizons, reply } = self;
        let joined = start_sources::join(keeper, joining, is_kept);
        if joined.is_ok() {
            keeper.set_horizons(horizons);
        }
        // Fails when the daemon stops: what joined is sealed and trimmed with the others.
        let _ = reply.send(joined);
    }
}

/// Runs until told to stop, then gives back what the end of the daemon needs.
pub(crate) fn run(
    mut keeper: Keeper,
    common: &Common,
    stopping: &AtomicBool,
    join_requests: &mpsc::Receiver<JoinRequest>,
) -> Keeper {
    let Common { wake_ups, heartbeat, metrics, .. } = common;
    let mut said = Said::default();
    while !stopping.load(Ordering::Acquire) {
        let round = heartbeat.round();
        let reading = clock::os::read();
        metrics.keeper().begin(reading);
        let looked = keeper.look(reading);
        metrics.keeper().end(&looked, clock::os::boot());
        heartbeat.keeper_looked(round);
        said.tell(&looked);
        if let Some(reason) = &looked.taken_over {
            lookout::tell(keeper.ownership(), reason);
        }
        if looked.some_wait {
            wake_ups.wake_all_shards();
        }
        if let Ok(request) = join_requests.try_recv() {
            request.run(&mut keeper);
            continue;
        }
        // From one look to the next, whatever a slow disk took of it: what is raised less often than each period has to
        // reach further.
        thread::park_timeout(looked.next_in.saturating_sub(clock::os::boot().since(reading.boot)));
    }
    keeper
}

/// What was last said of the clock and of storage: said again only when it changes.
#[derive(Debug, Default)]
struct Said {
    clock_is_odd: rate_limited_log::LoggedState<bool>,
    storage_fails: rate_limited_log::LoggedState<bool>,
    marks_fail: rate_limited_log::LoggedState<bool>,
}

impl Said {
    fn tell(&mut self, looked: &Looked) {
        self.tell_of_clock(looked.clock);
        if looked.is_renewed {
            tracing::info!(
                "the ceilings were made durable anew after a jump of the clocks or a restored snapshot"
            );
        }
        if self.marks_fail.should_log(looked.unmarked.is_some(), Instant::now()) {
            match &looked.unmarked {
                Some(error) => tracing::warn!(
                    %error,
                    "cannot mark in lock_dir how far IDs were granted; an older copy of the state might not be refused"
                ),
                None => tracing::info!("lock_dir says again how far IDs were granted"),
            }
        }
        if self.storage_fails.should_log(looked.failure.is_some(), Instant::now()) {
            match &looked.failure {
                Some(error) => {
                    tracing::error!(%error, "cannot raise the ceilings; IDs run out when they are reached");
                }
                None => tracing::info!("ceilings are raised again"),
            }
        }
    }

    fn tell_of_clock(&mut self, observed: Observed) {
        if let Observed::Believed(by) = observed {
            // A step lasts for step_hold before that, so this cannot repeat quickly unless it was set to.
            tracing::warn!(?by, "the step of the wall clock has lasted and is followed");
            return;
        }
        let is_odd = !matches!(observed, Observed::Steady);
        if !self.clock_is_odd.should_log(is_odd, Instant::now()) {
            return;
        }
        match observed {
            Observed::Believed(_) => {}
            Observed::Behind(by) => tracing::warn!(?by, "the wall clock is behind IDs already handed out"),
            Observed::Held(by) => {
                tracing::warn!(?by, "the wall clock stepped forward; not followed until it has lasted");
            }
            Observed::Steady => tracing::info!("the wall clock runs as expected again"),
        }
    }
}
