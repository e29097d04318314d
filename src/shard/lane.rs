//! One shard's way to one source.

use std::sync::Arc;
use std::time::Duration;

use super::Order;
use super::ring::{Block, RING_BLOCKS, Ring};
use crate::clock::{BootMicros, Now, micros};
use crate::layout::{Position, Run};
use crate::source::{Source, Span, Window};

/// The rings of one source, one for each shard.
pub type Rings = Arc<[Ring]>;

/// How far ahead a shard claims: what it hands out in this part of the burst window. Blocks claimed ahead have to be young
/// enough to last so long, and that much of the reserve for bursts is given up while the shard is busy; a smaller part
/// would claim more often. At an eighth of the default 10 ms a busy shard claims about 1,600 times a second.
const AHEAD_SHARE: u32 = 8;
/// Fewer IDs than this are not worth claiming ahead: a direct claim costs no more than the ring's.
const LEAST_AHEAD: u64 = 16;

const NOTHING: Span = Span { from: Position(0), count: 0 };

/// One shard's way to one source.
#[derive(Debug)]
pub struct Lane {
    source: Arc<Source>,
    rings: Rings,
    shard: usize,
    order: Order,
    /// Its position is that after the last ID handed out, also when it is used up.
    current: Block,
    /// What is left of this shard's last direct claim: above the current block, below the ring.
    rest: Span,
    /// What can be claimed in this wake-up. Computed when first wanted: most wake-ups want one source.
    window: Option<Window>,
    now: Now,
    generation: u64,
    /// IDs handed out since `demand_since`.
    demand_ids: u64,
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
            rest: NOTHING,
            window: None,
            now,
            generation,
            demand_ids: 0,
            demand_since,
        }
    }

    /// The source.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The moment of this wake-up.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Starts a wake-up.
    #[inline]
    pub fn wake(&mut self, now: Now) {
        self.now = now;
        self.window = None;
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
        let window = self.source.window(self.now);
        self.window = Some(window);
        let generation = self.source.grant().generation();
        if generation != self.generation {
            self.generation = generation;
            self.drop_blocks();
        }
        if window.is_shut() {
            self.drop_blocks();
        } else if self.current.position < window.floor {
            self.current.count = 0;
        }
        window
    }

    /// Drops all that was claimed ahead. Those IDs are skipped.
    fn drop_blocks(&mut self) {
        self.current.count = 0;
        self.rest = NOTHING;
        self.ring().clear();
    }

    /// About how many IDs this shard has; siblings may take some of them away.
    fn here(&self) -> u64 {
        u64::from(self.current.count) + self.rest.count + self.ring().ids()
    }

    fn ring(&self) -> &Ring {
        &self.rings[self.shard]
    }

    /// Takes up to `most` IDs from the current block; `None` when it is used up. The quickest way to an ID.
    #[inline]
    pub fn take_run(&mut self, most: u64) -> Option<Run> {
        if self.window.is_none() {
            self.look();
        }
        let run = self.current.take(most)?;
        self.demand_ids += u64::from(run.count);
        Some(run)
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
        if self.window.is_none() {
            self.look();
        }
        if count <= u64::from(self.current.count) {
            if let Some(run) = self.current.take(count) {
                self.demand_ids += count;
                append(runs, run);
            }
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
                    append(runs, run);
                }
                None => match self.next_block(window) {
                    Some(block) => self.current = block,
                    None => break,
                },
            }
        }
        self.demand_ids += count - missing;
        missing
    }

    /// The next block of the rest or the own ring that is neither too old nor below IDs already handed out.
    fn next_block(&mut self, window: &Window) -> Option<Block> {
        let oldest = window.floor.max(self.current.position);
        let too_old = oldest.0.saturating_sub(self.rest.from.0).min(self.rest.count);
        self.rest = Span { from: Position(self.rest.from.0 + too_old), count: self.rest.count - too_old };
        if let Some(block) = Block::cut(self.source.numbering(), &mut self.rest, u64::MAX) {
            return Some(block);
        }
        loop {
            let block = self.ring().pop()?;
            if self.is_usable(window, &block, oldest) {
                return Some(block);
            }
        }
    }

    fn is_usable(&self, window: &Window, block: &Block, above: Position) -> bool {
        block.position >= window.floor && block.position >= above
    }

    /// Moves siblings' blocks to the own ring until it holds `wanted` more IDs. A block that does not lie above all that
    /// this shard has is dropped, never pushed back: its owner may have handed out higher ones already.
    fn steal(&mut self, window: &Window, wanted: u64) {
        if self.order == Order::Strict || window.is_shut() || self.source.line().admitted_ids() != 0 {
            return;
        }
        let siblings = (1..self.rings.len()).map(|step| (self.shard + step) % self.rings.len());
        let held: u64 = siblings.clone().map(|sibling| self.rings[sibling].ids()).sum();
        if held < wanted {
            return;
        }
        let mut above = self.end();
        let mut missing = wanted;
        for sibling in siblings {
            while missing > 0 {
                let Some(block) = self.rings[sibling].pop() else {
                    break;
                };
                if self.is_usable(window, &block, above) && self.ring().push(block) {
                    above = block.end();
                    missing = missing.saturating_sub(u64::from(block.count));
                }
            }
        }
    }

    /// The position above all that this shard has. Turns the ring once around, which keeps its order, as nobody else
    /// pushes to it.
    fn end(&self) -> Position {
        let mut above = if self.rest.count == 0 { self.current.end() } else { self.rest.end() };
        for _ in 0..RING_BLOCKS {
            let Some(block) = self.ring().pop() else {
                break;
            };
            above = above.max(block.end());
            if !self.ring().push(block) {
                break;
            }
        }
        above
    }

    /// Hands out the first `count` positions of a claim and keeps the rest.
    fn hand_out_span(&mut self, span: Span, count: u64, runs: &mut Vec<Run>) {
        self.current = Block::EMPTY;
        self.rest = span;
        let mut missing = count;
        while missing > 0 {
            let Some(block) = Block::cut(self.source.numbering(), &mut self.rest, u64::MAX) else {
                break;
            };
            self.current = block;
            if let Some(run) = self.current.take(missing) {
                missing -= u64::from(run.count);
                append(runs, run);
            }
        }
        self.demand_ids += count;
    }

    /// Hands out what was claimed for a request that waited. What this shard has and lies below it is not handed out any
    /// more: the request's connection may be the next to ask.
    pub fn hand_out_waited(&mut self, spans: &[Span], runs: &mut Vec<Run>) {
        let (current, rest) = (self.current, self.rest);
        let mut end = Position(0);
        for &span in spans {
            self.hand_out_span(span, span.count, runs);
            end = span.end();
        }
        // Another connection of this shard was served above it meanwhile: go on from there.
        if current.position >= end {
            (self.current, self.rest) = (current, rest);
        }
    }

    /// Ends a wake-up. In strict order nothing is kept; otherwise claims ahead what the demand of late suggests: nothing
    /// for a lone request, at most this shard's share of a part of the burst window, and never while others wait or the
    /// edge is near.
    pub fn top_up(&mut self, rng: &mut fastrand::Rng) {
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
        if elapsed < span_of_demand / 2 && self.demand_ids < LEAST_AHEAD {
            return;
        }
        let wanted = self.ahead_of_demand(span_of_demand, elapsed);
        if elapsed >= span_of_demand {
            self.demand_ids = 0;
            self.demand_since = self.now.boot;
        }
        if wanted < LEAST_AHEAD || self.here() >= wanted / 2 || self.source.line().admitted_ids() != 0 {
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
        while let Some(block) = Block::cut(self.source.numbering(), &mut span, most) {
            if !self.ring().push(block) {
                return;
            }
        }
    }

    /// What this shard would hand out in `span` at its rate of late, at most its share.
    fn ahead_of_demand(&self, span: Duration, elapsed: Duration) -> u64 {
        let span_us = micros(span).max(1) as u64;
        let elapsed_us = (micros(elapsed) as u64).max(span_us / 8).max(1);
        let wanted = self.demand_ids.saturating_mul(span_us) / elapsed_us;
        let tick_us = micros(self.source.tick()) as u64;
        let ids_in_span = self.source.numbering().ids_per_tick().saturating_mul(span_us) / tick_us;
        wanted.min(ids_in_span / self.rings.len() as u64)
    }
}

#[inline]
fn append(runs: &mut Vec<Run>, run: Run) {
    if !runs.last_mut().is_some_and(|last| last.try_append(run)) {
        runs.push(run);
    }
}
