//! Positions, and runs of IDs.

/// The number of an ID in the order in which IDs are handed out: tick × IDs per tick + index within
/// the tick.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub u64);

/// `count` IDs: `first`, `first + stride`, …
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first ID.
    pub first: u64,
    /// The number of IDs, at least 1.
    pub count: u32,
    /// The distance between neighbours, at least 1. For a single ID, the distance to the ID that
    /// would come next.
    pub stride: u64,
}

impl Run {
    /// Returns the last ID. Saturates for a run that overflows, which this crate never makes.
    pub fn last(&self) -> u64 {
        let steps = u64::from(self.count.saturating_sub(1));
        self.first.saturating_add(steps.saturating_mul(self.stride))
    }

    /// Returns the IDs in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let Run { first, count, stride } = *self;
        (0..count).map(move |step| first.saturating_add(u64::from(step).saturating_mul(stride)))
    }

    /// Appends `next` if it continues this run with the same stride, and the count of both fits a
    /// u32. Returns true if `next` was appended.
    pub fn try_append(&mut self, next: Run) -> bool {
        let goes_on = next.stride == self.stride && self.last().checked_add(self.stride) == Some(next.first);
        match self.count.checked_add(next.count) {
            Some(count) if goes_on => {
                self.count = count;
                true
            }
            _ => false,
        }
    }
}

/// Appends a run to `runs`. If the run continues the last one in `runs`, extends that last one
/// instead.
#[inline]
pub fn append_run(runs: &mut Vec<Run>, run: Run) {
    if !runs.last_mut().is_some_and(|last| last.try_append(run)) {
        runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_continue_each_other_merge() {
        let mut run = Run { first: 10, count: 1, stride: 5 };
        assert!(run.try_append(Run { first: 15, count: 3, stride: 5 }));
        assert!(run.try_append(Run { first: 30, count: 1, stride: 5 }));
        assert_eq!(run, Run { first: 10, count: 5, stride: 5 });
        assert_eq!(run.ids().collect::<Vec<_>>(), [10, 15, 20, 25, 30]);
        assert_eq!(run.last(), 30);
    }

    #[test]
    fn runs_that_do_not_continue_each_other_stay_apart() {
        let run = Run { first: 10, count: 2, stride: 5 };
        for next in [
            Run { first: 21, count: 1, stride: 5 },
            Run { first: 15, count: 1, stride: 5 },
            Run { first: 20, count: 2, stride: 1 },
            Run { first: 20, count: 1, stride: 1 },
            Run { first: 20, count: u32::MAX, stride: 5 },
        ] {
            let mut kept = run;
            assert!(!kept.try_append(next), "{next:?}");
            assert_eq!(kept, run);
        }
        let mut at_the_top = Run { first: u64::MAX, count: 1, stride: 1 };
        assert!(!at_the_top.try_append(Run { first: 0, count: 1, stride: 1 }));
    }
}
