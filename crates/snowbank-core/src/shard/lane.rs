//! A lane: one shard's supply of one source's IDs.

use std::sync::Arc;
use std::time::Duration;

use super::Order;
use super::ring::{Block, CurrentRun, RING_BLOCKS, Ring};
use crate::clock::{BootMicros, Now, micros};
use crate::source::wait_queue::{Finished, Refusal};
use crate::source::{Source, Span, Window};
use snowbank_id::layout::{Position, Run, append_run};

/// The rings of one source, one for each shard.
pub type Rings = Arc<[Ring]>;

/// A claim ahead lasts for the burst window divided by this number. The reserve for bursts loses at
/// most a sixteenth of its IDs in each of two ways. A claim ahead skips ticks that would be too old
/// before their IDs are used up. And a shard cannot take siblings' blocks that lie below its own
/// IDs. `docs/guarantees.md` allows an eighth of the reserve for both together. A higher divisor
/// needs more claims: at a sixteenth of 10 ms, a busy shard already claims about 3,200 times a
/// second.
const AHEAD_SHARE: u64 = 16;

/// The most blocks into which a claim ahead is cut, so that siblings can take parts of it. A ring
/// has room for several claims.
const BLOCKS_PER_CLAIM: usize = RING_BLOCKS / 4;

/// A shard that wants fewer IDs than this claims none ahead: a direct claim then costs no more than
/// the ring.
const LEAST_AHEAD: u64 = 16;

const NOTHING: Span = Span { from: Position(0), count: 0 };

/// The IDs that a request got before it had to wait for more.
#[derive(Debug)]
pub struct Taken {
    runs: Vec<Run>,
    /// The grant's generation under which the runs were claimed.
    generation: u64,
}

impl Taken {
    /// Returns the number of these IDs.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }
}

/// The error of a wait whose IDs were lost with the grant. The lost IDs are never handed out, and
/// the request must begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdsLost;

/// One shard's supply of one source's IDs.
#[derive(Debug)]
pub struct Lane {
    source: Arc<Source>,
    rings: Rings,
    shard: usize,
    order: Order,
    /// The run that IDs are taken from. Its position follows that of the last ID handed out, even
    /// when the run is used up.
    current: CurrentRun,
    /// IDs of the current run that must not be taken until this wake-up has checked them. They are
    /// kept apart, so that [`take`](Lane::take) has a single condition to check.
    unchecked_ids: u32,
    /// The rest of this shard's last direct claim or block. It lies above the current run and below
    /// the ring.
    rest: Span,
    /// The position after the last block in this shard's ring.
    ring_end: Position,
    /// True from the lane's first use in a wake-up to the wake-up's end.
    is_awake: bool,
    /// The window of this wake-up, computed when it is first used.
    window: Option<Window>,
    now: Now,
    generation: u64,
    /// The number of IDs in the runs that became current since `demand_since`: those handed out,
    /// and those left in the current run.
    cut_ids: u64,
    demand_since: BootMicros,
}

impl Lane {
    /// Creates the lane of shard number `shard` to `source`.
    pub fn new(source: Arc<Source>, rings: Rings, shard: usize, order: Order, now: Now) -> Self {
        let generation = source.grant().generation();
        let demand_since = now.boot;
        Lane {
            source,
            rings,
            shard,
            order,
            current: CurrentRun::EMPTY,
            unchecked_ids: 0,
            rest: NOTHING,
            ring_end: Position(0),
            is_awake: false,
            window: None,
            now,
            generation,
            cut_ids: 0,
            demand_since,
        }
    }

    /// Returns the source.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.is_awake
    }

    /// Starts a wake-up.
    pub(super) fn wake(&mut self, now: Now) {
        self.now = now;
        self.is_awake = true;
        self.window = None;
        if self.current.count > 0 {
            self.unchecked_ids = self.current.count;
            self.current.count = 0;
        }
    }

    /// Returns the window of this wake-up. Drops the current run if it is too old. Drops all blocks
    /// if the grant was taken away, or if no IDs may be handed out.
    #[inline]
    pub fn window(&mut self) -> Window {
        match self.window {
            Some(window) => window,
            None => self.read_window(),
        }
    }

    fn read_window(&mut self) -> Window {
        let (window, generation) = self.source.window_and_generation(self.now);
        self.window = Some(window);
        self.current.count = std::mem::take(&mut self.unchecked_ids);
        if generation != self.generation || window.is_shut() {
            self.generation = generation;
            self.drop_blocks();
        } else if self.current.position() < window.floor {
            self.drop_current();
        }
        window
    }

    /// Drops all blocks claimed ahead. Their IDs are skipped.
    fn drop_blocks(&mut self) {
        self.drop_current();
        self.rest = NOTHING;
        self.ring().clear();
    }

    fn drop_current(&mut self) {
        self.cut_ids = self.cut_ids.saturating_sub(u64::from(self.current.count));
        self.current.count = 0;
    }

    /// Returns about how many IDs this shard has. Siblings may take some of them at any moment.
    fn here(&self) -> u64 {
        u64::from(self.current.count) + self.rest.count + self.ring().ids()
    }

    fn ring(&self) -> &Ring {
        &self.rings[self.shard]
    }

    /// Takes exactly `count` IDs and appends them to `runs`.
    ///
    /// `ahead` returns how many more IDs this wake-up will take, so that one claim can cover all of
    /// them. `take` calls `ahead` only if a claim is needed.
    ///
    /// # Errors
    /// Returns the number of IDs missing. `runs` then has the IDs that were found, and the missing
    /// ones must come from the wait queue.
    #[inline]
    pub fn take(
        &mut self,
        count: u64,
        ahead: impl FnOnce() -> u64,
        rng: &mut fastrand::Rng,
        runs: &mut Vec<Run>,
    ) -> Result<(), u64> {
        if count <= u64::from(self.current.count)
            && let Some(run) = self.current.take(count)
        {
            append_run(runs, run);
            return Ok(());
        }
        self.take_beyond_current(count, ahead, rng, runs)
    }

    /// Returns how many IDs are left in the current run. Taking them needs neither a look at the
    /// clock nor a claim.
    #[inline]
    pub fn at_hand(&self) -> u32 {
        self.current.count
    }

    /// Takes up to `most` IDs that are [`at_hand`](Lane::at_hand).
    #[inline]
    pub fn take_at_hand(&mut self, most: u64) -> Option<Run> {
        self.current.take(most)
    }

    fn take_beyond_current(
        &mut self,
        count: u64,
        ahead: impl FnOnce() -> u64,
        rng: &mut fastrand::Rng,
        runs: &mut Vec<Run>,
    ) -> Result<(), u64> {
        let window = &self.window();
        if !self.source.kind().follows_the_clock() {
            return self.take_tickets(window, count, rng, runs);
        }
        let short = count.saturating_sub(self.here());
        let left = self.source.left(window);
        if short > left {
            // If the siblings' blocks cannot complete the request, the request takes nothing at
            // all.
            self.steal(window, short - left);
            if self.here() + left < count {
                return Err(count);
            }
        }
        let missing = self.take_here(window, count, runs);
        if missing == 0 {
            return Ok(());
        }
        let wanted = missing.saturating_add(ahead());
        let end = self.end();
        if let Some(from) = self.source.claim(window, wanted, rng) {
            debug_assert!(from >= end, "a claim lies above all IDs that this shard has handed out");
            self.hand_out_span(Span { from, count: wanted }, missing, runs);
            return Ok(());
        }
        let from = self.source.claim(window, missing, rng).ok_or(missing)?;
        debug_assert!(from >= end, "a claim lies above all IDs that this shard has handed out");
        self.hand_out_span(Span { from, count: missing }, missing, runs);
        Ok(())
    }

    /// Takes consecutive numbers of a ticket counter, with one claim for each request. The shard
    /// keeps no numbers for later, so no numbers are skipped.
    fn take_tickets(
        &mut self,
        window: &Window,
        count: u64,
        rng: &mut fastrand::Rng,
        runs: &mut Vec<Run>,
    ) -> Result<(), u64> {
        let from = self.source.claim(window, count, rng).ok_or(count)?;
        self.hand_out_span(Span { from, count }, count, runs);
        Ok(())
    }

    /// Takes IDs from this shard's current run, rest and ring, but no IDs that are older than the
    /// window. Returns how many IDs are missing.
    fn take_here(&mut self, window: &Window, count: u64, runs: &mut Vec<Run>) -> u64 {
        let mut missing = count;
        while missing > 0 {
            match self.current.take(missing) {
                Some(run) => {
                    missing -= u64::from(run.count);
                    append_run(runs, run);
                }
                None => match self.next_run(window) {
                    Some(run) => self.make_current(run),
                    None => break,
                },
            }
        }
        missing
    }

    fn make_current(&mut self, run: CurrentRun) {
        self.current = run;
        self.cut_ids += u64::from(run.count);
    }

    /// Returns the next run that may be handed out, from `rest` or from this shard's ring.
    fn next_run(&mut self, window: &Window) -> Option<CurrentRun> {
        let oldest = window.floor.max(self.current.position());
        loop {
            self.rest = self.rest.above(oldest);
            if let Some(run) = CurrentRun::cut(self.source.numbering(), &mut self.rest) {
                return Some(run);
            }
            let block = self.ring().pop()?;
            if block.generation == self.generation {
                self.rest = block.span;
            }
        }
    }

    /// Tries to move blocks with `wanted` IDs from siblings' rings to this shard's ring.
    ///
    /// A block that does not lie above all of this shard's IDs is dropped. It must not be pushed
    /// back, because its owner may have handed out higher IDs already.
    fn steal(&mut self, window: &Window, wanted: u64) {
        if self.order == Order::Strict || window.is_shut() || self.source.wait_queue().admitted_ids() != 0 {
            return;
        }
        let shard = self.shard;
        let shards = self.rings.len();
        let siblings = (1..shards).map(|step| (shard + step) % shards);
        let held: u64 = siblings.clone().map(|sibling| self.rings[sibling].ids()).sum();
        if held < wanted {
            return;
        }
        let mut missing = wanted;
        for sibling in siblings {
            while missing > 0 && self.ring().room() > 0 {
                let Some(Block { span, generation }) = self.rings[sibling].pop() else {
                    break;
                };
                let span = span.above(window.floor);
                if span.from >= self.end() && span.count > 0 && generation == self.generation {
                    missing = missing.saturating_sub(span.count);
                    self.push(span);
                }
            }
        }
    }

    /// Returns the position after all IDs that this shard has or has handed out.
    fn end(&self) -> Position {
        self.current.end.max(Position(self.rest.from.0 + self.rest.count)).max(self.ring_end)
    }

    /// Pushes positions into this shard's ring, which must have room. The positions must lie above
    /// all IDs of this shard.
    fn push(&mut self, span: Span) {
        debug_assert!(span.from >= self.ring_end, "the blocks of a ring rise");
        if self.ring().push(Block { span, generation: self.generation }) {
            self.ring_end = span.end();
        }
    }

    /// Hands out the first `count` positions of a claim and keeps the rest.
    fn hand_out_span(&mut self, mut span: Span, count: u64, runs: &mut Vec<Run>) {
        self.drop_current();
        let mut missing = count;
        while missing > 0 {
            let Some(run) = CurrentRun::cut(self.source.numbering(), &mut span) else {
                break;
            };
            self.make_current(run);
            if let Some(run) = self.current.take(missing) {
                missing -= u64::from(run.count);
                append_run(runs, run);
            }
        }
        self.rest = span;
    }

    /// Keeps the IDs that a request has got, while the request waits for more.
    pub fn keep(&self, runs: Vec<Run>) -> Taken {
        Taken { runs, generation: self.generation }
    }

    /// Ends a request's wait. Sets `runs` to the IDs that the request got before the wait, and
    /// those that were claimed for it during the wait. Returns the refusal if the request was
    /// refused.
    ///
    /// # Errors
    /// Returns an error if the grant was lost after any of these IDs was claimed, unless the
    /// request is refused. After such a loss `runs` is empty. IDs claimed since the loss are
    /// skipped too, because a request gets all these IDs or none of them.
    pub fn end_wait(
        &mut self,
        taken: Taken,
        finished: &Finished,
        runs: &mut Vec<Run>,
    ) -> Result<Option<Refusal>, IdsLost> {
        let Taken { runs: before, generation } = taken;
        runs.clear();
        // The generation is read from the grant, because the lane's own generation may be older
        // than the loss.
        let held = self.source.grant().generation();
        let is_lost = !before.is_empty() && generation != held
            || !finished.spans.is_empty() && finished.generation != held;
        if !is_lost {
            *runs = before;
            self.hand_out_waited(&finished.spans, runs);
        } else if finished.refusal.is_none() {
            return Err(IdsLost);
        }
        Ok(finished.refusal)
    }

    /// Hands out the spans claimed for a request that waited. This shard's blocks below the spans
    /// are dropped, because the connection's next request must get higher IDs.
    pub(super) fn hand_out_waited(&mut self, spans: &[Span], runs: &mut Vec<Run>) {
        self.window();
        let current = self.current;
        let rest = self.rest;
        for &span in spans {
            self.hand_out_span(span, span.count, runs);
        }
        // If another connection of this shard got higher IDs meanwhile, the shard continues above
        // those IDs.
        if current.position() >= self.current.end {
            (self.current, self.rest) = (current, rest);
        }
    }
}

/// Claims ahead of demand: a busy shard claims blocks for its ring before requests ask for them.
impl Lane {
    /// Ends a wake-up. In strict order, or for a ticket source, the lane drops all blocks.
    /// Otherwise the lane claims as many IDs ahead as recent demand suggests.
    ///
    /// A claim ahead has at most this shard's share of the IDs in a sixteenth of the burst window.
    /// The lane claims nothing ahead after a single small request, while requests wait, or while
    /// the window's limit is near.
    pub(super) fn top_up(&mut self, rng: &mut fastrand::Rng) {
        self.is_awake = false;
        let Some(window) = self.window else {
            return;
        };
        if self.order == Order::Strict || !self.source.kind().follows_the_clock() {
            if self.here() > 0 {
                self.drop_blocks();
            }
            return;
        }
        let span_us = micros(self.source.rules().burst_window) as u64 / AHEAD_SHARE;
        let elapsed_us = self.now.boot.micros_since(self.demand_since);
        let handed_out = self.cut_ids.saturating_sub(u64::from(self.current.count));
        if elapsed_us < span_us / 2 && handed_out < LEAST_AHEAD {
            return;
        }
        let wanted = self.ahead_of_demand(handed_out, span_us, elapsed_us);
        if elapsed_us >= span_us {
            self.cut_ids = u64::from(self.current.count);
            self.demand_since = self.now.boot;
        }
        let here = self.here();
        if wanted < LEAST_AHEAD || here >= wanted / 2 || self.source.wait_queue().admitted_ids() != 0 {
            return;
        }
        let count = wanted - here;
        // A claim ahead leaves at least as many IDs to others as it takes, and takes nothing that
        // the ring cannot hold.
        if self.source.left(&window) < count.saturating_mul(2) || self.ring().room() < BLOCKS_PER_CLAIM {
            return;
        }
        if let Some(from) = self.source.claim_ahead(&window, count, Duration::from_micros(span_us), rng) {
            self.fill_ring(Span { from, count });
        }
    }

    /// Cuts a claim, which lies above all IDs of this shard, into blocks small enough for siblings
    /// to share.
    fn fill_ring(&mut self, mut span: Span) {
        let most = span.count.div_ceil(BLOCKS_PER_CLAIM as u64).max(LEAST_AHEAD);
        while span.count > 0 {
            let block = Span { count: span.count.min(most), ..span };
            span = span.above(block.end());
            self.push(block);
        }
    }

    /// Returns how many IDs this shard would hand out in `span_us` at the rate of the last
    /// `elapsed_us`. The result is at most its share of the IDs in that time.
    fn ahead_of_demand(&self, handed_out: u64, span_us: u64, elapsed_us: u64) -> u64 {
        let elapsed_us = elapsed_us.max(span_us / 8).max(1);
        let wanted = handed_out.saturating_mul(span_us) / elapsed_us;
        let tick_us = micros(self.source.tick()) as u64;
        let ids_in_span = self.source.numbering().ids_per_tick().saturating_mul(span_us) / tick_us;
        wanted.min(ids_in_span / self.rings.len() as u64)
    }
}
