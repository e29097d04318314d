//! One shard's way to one source.

use std::sync::Arc;
use std::time::Duration;

use super::Order;
use super::ring::{Block, RING_BLOCKS, Ring};
use crate::clock::{BootMicros, Now, micros};
use crate::source::wait_queue::{Finished, Refusal};
use crate::source::{Source, Span, Window};
use snowbank_client::layout::{Position, Run, append_run};

/// The rings of one source, one for each shard.
pub type Rings = Arc<[Ring]>;

/// How far ahead a shard claims: what it hands out in this part of the burst window. Blocks claimed ahead have to be young
/// enough to last so long, and that much of the reserve for bursts is given up while the shard is busy; a smaller part
/// would claim more often. At an eighth of the default 10 ms a busy shard claims about 1,600 times a second.
const AHEAD_SHARE: u32 = 8;
/// Fewer IDs than this are not worth claiming ahead: a direct claim costs no more than the ring's.
const LEAST_AHEAD: u64 = 16;

const NOTHING: Span = Span { from: Position(0), count: 0 };

/// What a request has got when it lines up for more.
#[derive(Debug)]
pub struct Taken {
    runs: Vec<Run>,
    /// The grant's generation under which they were claimed.
    generation: u64,
}

/// One shard's way to one source.
#[derive(Debug)]
pub struct Lane {
    source: Arc<Source>,
    rings: Rings,
    shard: usize,
    order: Order,
    /// The block that IDs are taken from. Its position is that after the last ID handed out, also when it is used up.
    current: Block,
    /// IDs of the current block that are out of reach until this wake-up has looked whether they may be handed out. Kept
    /// apart, so that the quickest way to an ID has one thing to check.
    unchecked_ids: u32,
    /// What is left of this shard's last direct claim: above the current block, below the ring.
    rest: Span,
    /// The position after the last block in the own ring.
    ring_end: Position,
    /// What can be claimed in this wake-up. Computed when first wanted: most wake-ups want one source.
    window: Option<Window>,
    now: Now,
    generation: u64,
    /// IDs that became the current block since `demand_since`: those handed out, and what is left of it.
    drawn_ids: u64,
    demand_since: BootMicros,
}

impl Lane {
    /// The way of shard number `shard` to `source`.
    pub fn new(source: Arc<Source>, rings: Rings, shard: usize, order: Order, now: Now) -> Self {
        let generation = source.grant().generation();
        let demand_since = now.boot;
        Lane {
            source,
            rings,
            shard,
            order,
            current: Block::EMPTY,
            unchecked_ids: 0,
            rest: NOTHING,
            ring_end: Position(0),
            window: None,
            now,
            generation,
            drawn_ids: 0,
            demand_since,
        }
    }

    /// The source.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Starts a wake-up.
    #[inline]
    pub(super) fn wake(&mut self, now: Now) {
        self.now = now;
        self.window = None;
        if self.current.count > 0 {
            self.unchecked_ids = self.current.count;
            self.current.count = 0;
        }
    }

    /// What can be claimed in this wake-up. Drops the current block if it has grown too old, or all blocks if the grant
    /// was lost meanwhile.
    #[inline]
    pub fn window(&mut self) -> Window {
        match self.window {
            Some(window) => window,
            None => self.look(),
        }
    }

    fn look(&mut self) -> Window {
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

    /// Drops all that was claimed ahead. Those IDs are skipped.
    fn drop_blocks(&mut self) {
        self.drop_current();
        self.rest = NOTHING;
        self.ring().clear();
    }

    fn drop_current(&mut self) {
        self.drawn_ids = self.drawn_ids.saturating_sub(u64::from(self.current.count));
        self.current.count = 0;
    }

    /// About how many IDs this shard has; siblings may take some of them away.
    fn here(&self) -> u64 {
        u64::from(self.current.count) + self.rest.count + self.ring().ids()
    }

    fn ring(&self) -> &Ring {
        &self.rings[self.shard]
    }

    /// Takes one ID from the current block; `None` when it is used up, or this wake-up has not looked at it yet:
    /// [`take`](Lane::take) then. The quickest way to an ID.
    #[inline]
    pub fn take_one(&mut self) -> Option<u64> {
        self.current.take_one()
    }

    /// Takes exactly `count` IDs and appends them to `runs`, or says how many are missing that have to be waited for;
    /// what could be had is in `runs` then, and what is missing has to come from the line.
    ///
    /// `ahead` says how many IDs the rest of this wake-up will take: they are claimed together with these. It is asked
    /// only when something has to be claimed.
    ///
    /// # Errors
    /// The number of IDs missing.
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

    fn take_beyond_current(
        &mut self,
        count: u64,
        ahead: impl FnOnce() -> u64,
        rng: &mut fastrand::Rng,
        runs: &mut Vec<Run>,
    ) -> Result<(), u64> {
        let window = &self.window();
        let short = count.saturating_sub(self.here());
        if short > 0 && self.source.left(window) < short {
            // Nothing is taken that the request could not use; but what siblings hold is within its reach.
            self.steal(window, short);
            if self.here() < count {
                return Err(count);
            }
        }
        let missing = self.take_here(window, count, runs);
        if missing == 0 {
            return Ok(());
        }
        let mut claim = |count| Some(Span { from: self.source.claim(window, count, rng)?, count });
        let span = claim(missing.saturating_add(ahead())).or_else(|| claim(missing)).ok_or(missing)?;
        self.hand_out_span(span, missing, runs);
        Ok(())
    }

    /// Takes what this shard has and is fresh, and says how many are missing.
    fn take_here(&mut self, window: &Window, count: u64, runs: &mut Vec<Run>) -> u64 {
        let mut missing = count;
        while missing > 0 {
            match self.current.take(missing) {
                Some(run) => {
                    missing -= u64::from(run.count);
                    append_run(runs, run);
                }
                None => match self.next_block(window) {
                    Some(block) => self.draw(block),
                    None => break,
                },
            }
        }
        missing
    }

    fn draw(&mut self, block: Block) {
        self.current = block;
        self.drawn_ids += u64::from(block.count);
    }

    fn cut(&self, span: &mut Span, most: u64) -> Option<Block> {
        Block::cut(self.source.numbering(), span, most, self.generation as u32)
    }

    /// The next block of the rest or the own ring that may be handed out.
    fn next_block(&mut self, window: &Window) -> Option<Block> {
        let oldest = window.floor.max(self.current.position());
        let mut rest = self.rest;
        let too_old = oldest.0.saturating_sub(rest.from.0).min(rest.count);
        rest = Span { from: Position(rest.from.0 + too_old), count: rest.count - too_old };
        let block = self.cut(&mut rest, u64::MAX);
        self.rest = rest;
        if block.is_some() {
            return block;
        }
        loop {
            let block = self.ring().pop()?;
            if self.is_usable(window, &block, oldest) {
                return Some(block);
            }
        }
    }

    /// Whether a block is young enough, above what it is to follow, and of the grant that is held now.
    fn is_usable(&self, window: &Window, block: &Block, above: Position) -> bool {
        block.position() >= window.floor.max(above) && block.generation == self.generation as u32
    }

    /// Moves siblings' blocks to the own ring until it holds `wanted` more IDs. A block that does not lie above all that
    /// this shard has is dropped, never pushed back: its owner may have handed out higher ones already.
    fn steal(&mut self, window: &Window, wanted: u64) {
        if self.order == Order::Strict || window.is_shut() || self.source.wait_queue().admitted_ids() != 0 {
            return;
        }
        let (shard, shards) = (self.shard, self.rings.len());
        let siblings = (1..shards).map(|step| (shard + step) % shards);
        let held: u64 = siblings.clone().map(|sibling| self.rings[sibling].ids()).sum();
        if held < wanted {
            return;
        }
        let mut missing = wanted;
        for sibling in siblings {
            while missing > 0 && !self.ring().is_full() {
                let Some(block) = self.rings[sibling].pop() else {
                    break;
                };
                if self.is_usable(window, &block, self.end()) {
                    missing = missing.saturating_sub(u64::from(block.count));
                    self.push(block);
                }
            }
        }
    }

    /// The position above all that this shard has.
    fn end(&self) -> Position {
        self.current.end.max(Position(self.rest.from.0 + self.rest.count)).max(self.ring_end)
    }

    /// Puts a block that lies above all that this shard has into the own ring. False when that is full.
    fn push(&mut self, block: Block) -> bool {
        let pushed = self.ring().push(block);
        if pushed {
            self.ring_end = block.end;
        }
        pushed
    }

    /// Hands out the first `count` positions of a claim and keeps the rest.
    fn hand_out_span(&mut self, mut span: Span, count: u64, runs: &mut Vec<Run>) {
        self.drop_current();
        let mut missing = count;
        while missing > 0 {
            let Some(block) = self.cut(&mut span, u64::MAX) else {
                break;
            };
            self.draw(block);
            if let Some(run) = self.current.take(missing) {
                missing -= u64::from(run.count);
                append_run(runs, run);
            }
        }
        self.rest = span;
    }

    /// Keeps what this wake-up has taken for a request while that waits for more.
    pub fn keep(&self, runs: Vec<Run>) -> Taken {
        Taken { runs, generation: self.generation }
    }

    /// Ends a request's wait: `runs` becomes what it was given before and what was claimed for it since, and the refusal, if
    /// there is one, says why that is not all. If the grant was lost after any of it was claimed, `runs` becomes empty and the
    /// request is refused, and what was claimed for it anew is skipped: a reply has all IDs or is a refusal.
    pub fn end_wait(&mut self, taken: Taken, finished: &Finished, runs: &mut Vec<Run>) -> Option<Refusal> {
        let Taken { runs: before, generation } = taken;
        runs.clear();
        // Read anew: the lane's is that of its last look, which may be from before the loss.
        let held = self.source.grant().generation();
        let is_lost = !before.is_empty() && generation != held
            || !finished.spans.is_empty() && finished.generation != held;
        if is_lost {
            return finished.refusal.or_else(|| Some(self.source.refusal_without_grant()));
        }
        *runs = before;
        self.hand_out_waited(&finished.spans, runs);
        finished.refusal
    }

    /// Hands out what was claimed for a request that waited. What this shard has and lies below it is not handed out any
    /// more: the request's connection may be the next to ask.
    pub(super) fn hand_out_waited(&mut self, spans: &[Span], runs: &mut Vec<Run>) {
        self.window();
        let (current, rest) = (self.current, self.rest);
        for &span in spans {
            self.hand_out_span(span, span.count, runs);
        }
        // Another connection of this shard was served above it meanwhile: go on from there.
        if current.position() >= self.current.end {
            (self.current, self.rest) = (current, rest);
        }
    }

    /// Ends a wake-up. In strict order nothing is kept; otherwise claims ahead what the demand of late suggests: nothing
    /// for a lone request, at most this shard's share of a part of the burst window, and never while others wait or the
    /// edge is near.
    pub(super) fn top_up(&mut self, rng: &mut fastrand::Rng) {
        let Some(window) = self.window else {
            return;
        };
        if self.order == Order::Strict {
            if self.here() > 0 {
                self.drop_blocks();
            }
            return;
        }
        let span_of_demand = self.source.rules().burst_window / AHEAD_SHARE;
        let elapsed = self.now.boot.since(self.demand_since);
        let handed_out = self.drawn_ids.saturating_sub(u64::from(self.current.count));
        if elapsed < span_of_demand / 2 && handed_out < LEAST_AHEAD {
            return;
        }
        let wanted = self.ahead_of_demand(handed_out, span_of_demand, elapsed);
        if elapsed >= span_of_demand {
            self.drawn_ids = u64::from(self.current.count);
            self.demand_since = self.now.boot;
        }
        if wanted < LEAST_AHEAD || self.here() >= wanted / 2 || self.source.wait_queue().admitted_ids() != 0 {
            return;
        }
        // What is claimed ahead must leave as much to others.
        if self.source.left(&window) < wanted.saturating_mul(2) {
            return;
        }
        if let Some(from) = self.source.claim_ahead(&window, wanted, span_of_demand, rng) {
            self.fill_ring(Span { from, count: wanted });
        }
    }

    /// Cuts a claim, which lies above all that this shard has, into blocks small enough for siblings to share.
    fn fill_ring(&mut self, mut span: Span) {
        let most = span.count.div_ceil(RING_BLOCKS as u64 / 4).max(LEAST_AHEAD);
        while let Some(block) = self.cut(&mut span, most) {
            if !self.push(block) {
                return;
            }
        }
    }

    /// What this shard would hand out in `span` if it went on as it did in `elapsed`; at most its share.
    fn ahead_of_demand(&self, handed_out: u64, span: Duration, elapsed: Duration) -> u64 {
        let span_us = micros(span).max(1) as u64;
        let elapsed_us = (micros(elapsed) as u64).max(span_us / 8).max(1);
        let wanted = handed_out.saturating_mul(span_us) / elapsed_us;
        let tick_us = micros(self.source.tick()) as u64;
        let ids_in_span = self.source.numbering().ids_per_tick().saturating_mul(span_us) / tick_us;
        wanted.min(ids_in_span / self.rings.len() as u64)
    }
}
