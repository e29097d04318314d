//! Checks in bounded memory that no ID comes twice in a whole run.
//!
//! Positions are kept as disjoint spans, and neighbours are merged. A source whose positions are
//! all handed out needs one span; a half idle source needs a few for each tick. Positions whose IDs
//! are now too old for the promised window are forgotten ([`Distinct::forget_below`]), because no
//! later reply may contain these IDs. So memory grows with the window, not with the run.

use std::collections::BTreeMap;

use crate::promise::Span;

/// The largest number of spans to keep; they take some 100 MiB. A source with scattered IDs without
/// a time may reach this limit.
pub(crate) const MAX_SPANS: usize = 4_000_000;

/// The positions handed out so far.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    /// Maps the start of each span to its end. Invariant: no two spans overlap or touch.
    spans: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// A position was added before.
    Twice { position: u64 },
    /// There are [`MAX_SPANS`] spans: duplicates can no longer be found.
    Full,
}

impl Distinct {
    /// Adds the positions of `spans`, in any order, and empties `spans`.
    ///
    /// # Errors
    /// [`NotAdded`] if a position was added before, or is twice in `spans`, or if there are too
    /// many spans.
    pub(crate) fn add(&mut self, spans: &mut Vec<Span>) -> Result<(), NotAdded> {
        spans.sort_unstable();
        let mut merged: Vec<Span> = Vec::new();
        for span in spans.drain(..) {
            if merged.last().is_some_and(|last| span.start < last.end) {
                return Err(NotAdded::Twice { position: span.start });
            }
            span.append_to(&mut merged);
        }
        merged.into_iter().try_for_each(|span| self.insert(span))
    }

    fn insert(&mut self, span: Span) -> Result<(), NotAdded> {
        let Span { mut start, mut end } = span;
        if let Some((&before, &before_end)) = self.spans.range(..=start).next_back() {
            if before_end > start {
                return Err(NotAdded::Twice { position: start });
            }
            if before_end == start {
                start = before;
            }
        }
        if let Some((&after, &after_end)) = self.spans.range(span.start..).next() {
            if after < end {
                return Err(NotAdded::Twice { position: after });
            }
            if after == end {
                self.spans.remove(&after);
                end = after_end;
            }
        }
        if self.spans.len() >= MAX_SPANS {
            return Err(NotAdded::Full);
        }
        self.spans.insert(start, end);
        Ok(())
    }

    /// Returns how many positions between the first and the last span are in no span.
    pub(crate) fn left_out(&self) -> u64 {
        self.spans.iter().zip(self.spans.iter().skip(1)).map(|((_, before), (start, _))| start - before).sum()
    }

    /// Forgets the spans that end at or before `position`.
    pub(crate) fn forget_below(&mut self, position: u64) {
        while let Some(first) = self.spans.first_entry()
            && *first.get() <= position
        {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    #[test]
    fn neighbours_merge_and_gaps_count_as_left_out() {
        let mut distinct = Distinct::default();
        assert_eq!(distinct.add(&mut vec![span(10, 20), span(30, 40), span(0, 5)]), Ok(()));
        assert_eq!((distinct.spans.len(), distinct.left_out()), (3, 15));
        assert_eq!(distinct.add(&mut vec![span(20, 30), span(5, 10)]), Ok(()));
        assert_eq!((distinct.spans.len(), distinct.left_out()), (1, 0));
    }

    #[test]
    fn spans_below_the_window_are_forgotten() {
        let mut distinct = Distinct::default();
        for tick in 0..1_000 {
            assert_eq!(distinct.add(&mut vec![span(tick * 4_096, tick * 4_096 + 10)]), Ok(()));
            distinct.forget_below(tick.saturating_sub(12) * 4_096);
            assert!(distinct.spans.len() <= 13);
        }
    }

    proptest! {
        #[test]
        fn positions_added_before_and_only_these_are_refused(
            chunks in prop::collection::vec(prop::collection::vec((0_u64..200, 1_u64..6), 1..5), 1..30)
        ) {
            let mut distinct = Distinct::default();
            let mut model = BTreeSet::new();
            for chunk in chunks {
                let mut spans: Vec<Span> = chunk.iter().map(|&(start, count)| span(start, start + count)).collect();
                let positions: Vec<u64> = spans.iter().flat_map(|span| span.start..span.end).collect();
                let repeated = positions.iter().filter(|&&position| !model.insert(position)).count();
                let fresh = repeated == 0;
                let added = distinct.add(&mut spans);
                prop_assert_eq!(added.is_ok(), fresh);
                if let Err(NotAdded::Twice { position }) = added {
                    prop_assert!(model.contains(&position));
                }
                if !fresh {
                    break;
                }
            }
        }
    }
}
