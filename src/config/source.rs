//! The settings of one source of IDs. The comments of the fields are the reference that operators
//! read.
//!
//! Settings that depend on a layout, or on how a supply of IDs is used, are set per source.
//! Settings that depend on the machine (its clock, its directories, its connections) are set once,
//! in [`daemon`](super::daemon). So is `order`, which clients see as one fact of the daemon.

use std::time::Duration;

use super::Settings;
use super::fields::WorkerIds;
use super::setting::{Change::Reload, Change::Restart, Section::Source, Section::SourceAlone};
use super::worker_id_from::WorkerIdFrom;
use snowbank_core::keeper::{RESERVE, RESERVE_MAX};
use snowbank_core::source::{Kind, OnStepBack, SequenceStart};
use snowbank_id::layout::{Doubt, Layout, LayoutError, Life, UnixMicros, WorkerSet};
use snowbank_id::numbering::{LAST_ID, Numbering, TicketCounter};

/// The most sources of a daemon: a counter for each table of a large shop. Each adds to every INFO
/// reply, to the state file, to the metrics, and a lane to each shard.
pub const SOURCES_MAX: usize = 1_024;

/// The size of the largest pool that is counted. A larger pool never runs out of worker IDs.
const POOL_MAX: u64 = 65_536;

/// The distance of the durable ceiling ahead of the wall clock. The ceiling is raised at least once
/// a second while the source is in use, so requests wait for it only if raises take longer than
/// about half of this time. A crash skips at most this time, plus the rest of a tick.
const HORIZON: Duration = Duration::from_secs(3);

// The default of `reserve`.
const _: () = assert!(RESERVE == 32);

/// The reason why a reload cannot change the layout and the worker IDs of a running source.
const MADE_OF: &str = "a running source keeps its layout, its worker IDs and its counter";
/// The reason why a reload cannot change the rules by which a running source claims.
const CLAIMS: &str = "a running source claims by this rule on every core";

const MS: Duration = Duration::from_millis(1);
/// The longest duration that a source's settings allow: four of the longest ticks, a day each.
const DURATION_MAX: Duration = Duration::from_secs(4 * 86_400);

settings! {
    /// One source after its checks: its worker IDs fit its layout, its layout has begun and not
    /// ended, and its durations fit each other and its tick.
    pub struct SourceSettings in Source, at |settings, index| (settings.sources[index]) {
        /// The name by which clients find this source: 1 to 64 of the characters a-z 0-9 . _ -, not
        /// all digits, and different for each source. A file with `[[sources]]` must name each of
        /// them.
        name: String = r#""default""# in SourceAlone, Reload, |value| value.name();

        /// The kind of its IDs: "snowflake" makes them of the time and a worker ID, by a layout.
        /// "ticket" counts, as a sequence of a database does; it has no layout, no worker_ids and
        /// none of the settings of the clock. A ticket source needs a state (state_dir), and does
        /// not start before `snowbank ticket set` has set the number from which it continues.
        ///
        /// "fleet-ticket" has its counter at the fleet's coordinator. All daemons of the fleet with
        /// a source of this name share it: each takes ranges of numbers that no other has. A range
        /// lasts for fleet.horizon at the present rate, and has at most 10 million numbers. A crash
        /// skips the rest of it, and so does a stop once another daemon has taken numbers above.
        /// `snowbank ticket set NAME VALUE --config FILE` prepares the counter.
        kind: Kind = r#""snowflake""# in SourceAlone, Restart(MADE_OF),
            |value| value.choice(&Kind::ALL.map(|kind| (kind.name(), kind)));

        /// The distance between two IDs of a ticket source. With increment 2 and the offsets 1 and
        /// 2, two daemons hand out odd and even numbers.
        increment: u64 = "1" in SourceAlone, Restart(MADE_OF), |value| value.count(1..=LAST_ID);

        /// The first ID of a ticket source, from 1 to increment. Daemons that number the same table
        /// have the same increment and different offsets.
        offset: u64 = "1" in SourceAlone, Restart(MADE_OF), |value| value.count(1..=LAST_ID);

        /// The largest number of a ticket source: the largest that a column of the table takes,
        /// such as 2147483647. When it is reached, requests are refused. A later start may raise
        /// it.
        maximum: u64 = "9223372036854775807" in SourceAlone, Restart(MADE_OF), |value| value.count(1..=LAST_ID);

        /// The least numbers of a ticket source that are reserved ahead of requests, 1 to 1,000,000:
        /// those that a crash skips when few are drawn. Under load, numbers for four seconds are
        /// reserved, or a range.
        ///
        /// 1: nothing is reserved ahead, for numbers that customers see, such as those of invoices.
        /// Each request then waits until its own numbers are stored: for two syncs of the disk, or
        /// for the coordinator. Requests that wait at the same time share them.
        reserve: u64 = "32" in SourceAlone, Restart(MADE_OF), |value| value.count(1..=RESERVE_MAX);

        /// The fields of an ID: the name of a preset (`snowbank layout` lists them), a text such as
        /// "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657", or the same as
        /// a table. Most libraries and tools can read twitter.
        layout: Layout = r#""twitter""#, Restart(MADE_OF), |value| value.layout();

        /// The worker IDs that only this daemon uses: one (3), a range ("0-3"), a list ("0-3,8" or
        /// `[0, 8]`), or the layout's node fields with their numbers ("datacenter=1,worker=0-3",
        /// which is "32-35" of twitter). No other daemon, on any machine, may use one of them with
        /// the same layout, and no two sources may either.
        ///
        /// Empty: worker 0, and the daemon listens only on loopback addresses and Unix sockets.
        worker_ids: WorkerIds = r#""""#, Restart(MADE_OF), |value| value.worker_ids();

        /// The origin of the worker IDs: "given" is worker_ids. "coordinator" picks one that no
        /// other daemon of the fleet has, at the start, and needs `[fleet]`. The daemon prefers the
        /// one that it had before. worker_ids then names those that it may pick from; empty: all of
        /// the layout. "coordinator:4" picks four, up to 100: each one adds its rate to the
        /// source's.
        ///
        /// The other origins take one from the machine at the start. "hostname" is the number
        /// behind the last hyphen of its name, as of a StatefulSet's pod, or behind a name of one
        /// word: 12 of web-12, 7 of db7. Names of which a part may be random or an address are
        /// refused. "file:PATH" is the number in a file that another
        /// program writes. "ipv4" is as many low bits of the machine's address as the layout has
        /// for workers. "ipv4:eth0" or "ipv4:10.1.4.0/22" names the interface or the subnet. A
        /// subnet with more addresses than the layout has worker IDs is refused without a fleet.
        /// The variable SNOWBANK_IPV4 gives the address instead, for example a pod's; its subnet
        /// is known only if it is named.
        ///
        /// worker_ids may give some of the layout's node fields, such as "datacenter=1". The origin
        /// then gives the others.
        worker_id_from: WorkerIdFrom = r#""given""#, Restart(MADE_OF), |value| value.worker_id_from();

        /// The greatest age of an ID when it is handed out, at most max_ahead. Bursts are answered
        /// at once from the unused ticks of this window. IDs of different connections are out of
        /// order by at most this time. "0": only the current tick.
        ///
        /// Ten milliseconds hold 40,000 IDs of the twitter layout, and clocks of different machines
        /// are further apart anyway. With ticks of 1ms, a window below 3ms loses IDs at full load,
        /// because a thread can wake up too late for a tick: about half of them at "0". With such a
        /// window the daemon promises only half of the rate to requests that wait.
        burst_window: Duration = r#""10ms""#, Restart(CLAIMS),
            |value| value.duration(Duration::ZERO..=DURATION_MAX);

        /// The longest time by which IDs may be ahead of the wall clock, after it stepped back or
        /// after a crash. Beyond it the daemon refuses requests and names the time to wait. At
        /// least four ticks of the layout (the default grows with them).
        ///
        /// Time servers step a synchronised clock by less than ten seconds.
        max_ahead: Duration = r#""10s""#, Restart(CLAIMS), |value| value.duration(MS..=DURATION_MAX);

        /// The reaction to a wall clock that steps back: "ride" continues at half speed until the
        /// wall clock has caught up, "wait" refuses requests until then. Ride by default, because a
        /// corrected clock should not stop an application. With wait, IDs are ahead of the clock
        /// only after a crash, by some seconds.
        on_step_back: OnStepBack = r#""ride""#, Restart(CLAIMS),
            |value| value.choice(&[OnStepBack::Ride, OnStepBack::Wait].map(|choice| (choice.name(), choice)));

        /// The first sequence number after an idle tick: "spread" is a random one, "zero" is 0.
        /// Spread by default: with "zero", IDs at low load are all even, and tables sharded by them
        /// fill unevenly. Zero is for programs that expect Snowflake's numbers.
        sequence_start: SequenceStart = r#""spread""#, Restart(CLAIMS),
            |value| value.choice(&[SequenceStart::Spread, SequenceStart::Zero].map(|choice| (choice.name(), choice)));
    }
}

impl SourceSettings {
    /// Returns the source's numbering: by its layout and worker IDs, or by its counter.
    ///
    /// # Errors
    /// The increment, the offset, the maximum or a worker ID does not fit.
    pub fn numbering(&self) -> Result<Numbering, LayoutError> {
        match self.kind {
            Kind::Snowflake => self.numbering_with(&self.worker_ids.set),
            Kind::Ticket | Kind::SharedTicket => TicketCounter::new(&self.name, self.increment, self.offset)
                .and_then(|counter| counter.up_to(self.maximum))
                .map(Numbering::Ticket),
        }
    }

    /// Returns the numbering of the source's layout with these worker IDs.
    ///
    /// # Errors
    /// The layout does not have one of the worker IDs.
    pub fn numbering_with(&self, worker_ids: &WorkerSet) -> Result<Numbering, LayoutError> {
        Numbering::new(self.layout.clone(), worker_ids.clone())
    }

    /// Returns true if the coordinator picks the worker IDs. `worker_ids`, if given, has those that
    /// it may pick.
    pub fn is_assigned(&self) -> bool {
        matches!(self.worker_id_from, WorkerIdFrom::Coordinator(_)) && self.kind.follows_the_clock()
    }

    /// Returns the source's worker IDs, unless the coordinator picks them.
    pub(crate) fn own_workers(&self) -> Option<&WorkerSet> {
        (!self.is_assigned()).then_some(&self.worker_ids.set)
    }

    /// Returns the numbers of the worker IDs that the coordinator may assign to this source, in the
    /// ID space of its layout. `None`: the coordinator assigns none, or the pool is so large that it
    /// never runs out of worker IDs.
    pub fn pool(&self) -> Option<Vec<u64>> {
        let SourceSettings { layout, worker_ids, .. } = self;
        let count = if worker_ids.are_given { worker_ids.set.len() as u64 } else { layout.workers() };
        if !self.is_assigned() || count > POOL_MAX {
            return None;
        }
        Some(if worker_ids.are_given {
            layout.numbers_in_space(&worker_ids.set)
        } else {
            (0..layout.workers()).map(|id| layout.number_in_space(id)).collect()
        })
    }

    /// Returns how many worker IDs the coordinator picks.
    pub fn picks(&self) -> usize {
        match self.worker_id_from {
            WorkerIdFrom::Coordinator(count) => count,
            _ => 0,
        }
    }

    /// Returns how many worker IDs add their rates to the source's: those that it has, or those that
    /// the coordinator picks.
    pub(crate) fn rates(&self) -> u64 {
        if self.is_assigned() { self.picks() as u64 } else { self.worker_ids.set.len() as u64 }
    }

    /// Returns the layout of the source's IDs. A ticket source has no layout.
    pub fn own_layout(&self) -> Option<&Layout> {
        self.kind.follows_the_clock().then_some(&self.layout)
    }

    /// Returns true for a ticket source with increment 1: the numbers of one request are
    /// consecutive.
    pub fn is_consecutive(&self) -> bool {
        !self.kind.follows_the_clock() && self.increment == 1
    }

    /// Returns true if the worker IDs come from the machine.
    pub(super) fn is_of_machine(&self) -> bool {
        let is_of_machine = matches!(
            self.worker_id_from,
            WorkerIdFrom::HostName | WorkerIdFrom::Ipv4(_) | WorkerIdFrom::File(_)
        );
        is_of_machine && self.kind.follows_the_clock()
    }

    /// Returns the doubts about the source's layout. Each start warns of a layout's last year, so that
    /// is no doubt.
    pub(crate) fn doubts(&self, now: UnixMicros) -> Vec<String> {
        let mut doubts = self.own_layout().map_or_else(Vec::new, |layout| layout.doubts(now));
        let is_last_year = matches!(self.layout.life(now), Life::LastYear { .. });
        doubts.retain(|doubt| !(is_last_year && matches!(doubt, Doubt::ShortLife { .. })));
        doubts.iter().map(|doubt| format!("source {:?}: {doubt}", self.name)).collect()
    }

    /// Takes over the worker IDs that the running source picked from the same origin.
    pub fn keep_picked(&mut self, running: &SourceSettings) {
        let is_of_machine = self.is_unpicked()
            && self.worker_id_from == running.worker_id_from
            && self.worker_ids.by_field == running.worker_ids.by_field;
        if is_of_machine {
            self.worker_ids.clone_from(&running.worker_ids);
        }
    }

    /// Returns true if the source's worker IDs are known, and do not come from the coordinator.
    pub(crate) fn has_worker_ids(&self) -> bool {
        self.kind.follows_the_clock() && !self.is_assigned() && !self.is_unpicked()
    }

    /// Returns true if the worker IDs come from the machine, and were not picked yet.
    pub fn is_unpicked(&self) -> bool {
        self.is_of_machine() && !self.worker_ids.are_picked
    }

    /// Returns true if any worker ID of the source's layout counts as one that other machines with
    /// this configuration may get.
    pub(super) fn may_get_any_number(&self) -> bool {
        self.is_assigned() || self.is_of_machine() && self.worker_ids.by_field.is_none()
    }

    /// Returns the length of this many ticks.
    pub(super) fn ticks(&self, count: u64) -> Duration {
        Duration::from_millis(self.layout.tick_ms().saturating_mul(count))
    }

    /// Returns how far ahead of the wall clock the durable ceiling is kept: 3 s, at least two
    /// ticks, and at most two ticks less than `max_ahead`.
    ///
    /// After a crash, the ceiling is up to a tick above the horizon. A second crash in that tick
    /// adds another tick. Two ticks are kept free below `max_ahead`, so that the next start still
    /// hands out IDs at once.
    pub fn horizon(&self) -> Duration {
        let two_ticks = self.ticks(2);
        HORIZON.max(two_ticks).min(self.max_ahead.saturating_sub(two_ticks))
    }
}

impl Settings {
    /// Returns the sources whose worker IDs the coordinator picks, with their indices.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = (usize, &SourceSettings)> {
        self.sources.iter().enumerate().filter(|(_, source)| source.is_assigned())
    }

    /// Returns the sources whose counters are at the coordinator, with their indices.
    pub(crate) fn shared_counters(&self) -> impl Iterator<Item = (usize, &SourceSettings)> {
        self.sources.iter().enumerate().filter(|(_, source)| source.kind.takes_ranges())
    }
}
