//! Claims ahead of demand: a busy shard claims blocks for its ring before requests ask for them.

use std::time::Duration;

use super::Lane;
use crate::clock::micros;
use crate::shard::Order;
use crate::shard::ring::RING_BLOCKS;
use crate::source::Span;

/// The fraction of the burst window, as a divisor, for which a shard claims ahead. Blocks claimed ahead must be young
/// enough to last that long. So a burst may lose twice that fraction of its reserve: to ticks that a claim ahead has
/// skipped, and to siblings' blocks that lie too low. The documents allow an eighth. A smaller fraction would need more
/// claims. At a sixteenth of the default 10 ms a busy shard claims about 3,200 times a second.
const AHEAD_SHARE: u32 = 16;

/// The most blocks of one claim ahead. Siblings can share them, and a ring has room for several claims.
const BLOCKS_PER_CLAIM: usize = RING_BLOCKS / 4;

/// The fewest IDs that are claimed ahead. For fewer, a direct claim costs no more than the ring.
const LEAST_AHEAD: u64 = 16;

impl Lane {
    /// Ends a wake-up. In strict order it drops all blocks. In relaxed order it claims ahead what recent demand suggests.
    ///
    /// It claims nothing for a lone request, at most this shard's share of a fraction of the burst window, and nothing while
    /// requests wait or the limit is near.
    pub(in crate::shard) fn top_up(&mut self, rng: &mut fastrand::Rng) {
        self.is_awake = false;
        let Some(window) = self.window else {
            return;
        };
        if self.order == Order::Strict || self.source.numbering().is_ticket() {
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
        let here = self.here();
        if wanted < LEAST_AHEAD || here >= wanted / 2 || self.source.wait_queue().admitted_ids() != 0 {
            return;
        }
        let count = wanted - here;
        // Leaves as many IDs to others as it claims ahead, and claims nothing that its ring cannot hold.
        if self.source.left(&window) < count.saturating_mul(2) || self.ring().room() < BLOCKS_PER_CLAIM {
            return;
        }
        if let Some(from) = self.source.claim_ahead(&window, count, span_of_demand, rng) {
            self.fill_ring(Span { from, count });
        }
    }

    /// Cuts a claim, which lies above all IDs of this shard, into blocks small enough for siblings to share.
    fn fill_ring(&mut self, mut span: Span) {
        let most = span.count.div_ceil(BLOCKS_PER_CLAIM as u64).max(LEAST_AHEAD);
        while span.count > 0 {
            let block = Span { count: span.count.min(most), ..span };
            span = span.above(block.end());
            self.push(block);
        }
    }

    /// Returns how many IDs this shard would hand out in `span` at the rate of `elapsed`, at most its share.
    fn ahead_of_demand(&self, handed_out: u64, span: Duration, elapsed: Duration) -> u64 {
        let span_us = micros(span).max(1) as u64;
        let elapsed_us = (micros(elapsed) as u64).max(span_us / 8).max(1);
        let wanted = handed_out.saturating_mul(span_us) / elapsed_us;
        let tick_us = micros(self.source.tick()) as u64;
        let ids_in_span = self.source.numbering().ids_per_tick().saturating_mul(span_us) / tick_us;
        wanted.min(ids_in_span / self.rings.len() as u64)
    }
}
