//! The IDs of a reply that is longer than a frame. They are encoded one frame at a time, as fast as
//! the client reads them.

use crate::frontends::FrameLimit;
use snowbank_core::source::Span;
use snowbank_id::layout::{Position, Run, append_run};
use snowbank_id::numbering::Numbering;

/// The IDs of a reply that are not encoded yet. They are kept as spans of positions, which need
/// less memory than runs. If the worker IDs are scattered, a million IDs are a million runs, but
/// usually one span.
#[derive(Debug)]
pub(super) struct Backlog<F> {
    /// The index of the source.
    pub(super) source: usize,
    pub(super) form: F,
    /// The number of all IDs in the reply. `None` once the first frame has taken this number.
    reply_count: Option<u64>,
    /// The remaining IDs, in order. The first span shrinks as its IDs are encoded.
    spans: std::collections::VecDeque<Span>,
}

impl<F> Backlog<F> {
    /// Makes a backlog of the IDs of `runs`, which were made with `numbering`.
    pub(super) fn new(source: usize, form: F, numbering: &Numbering, runs: &[Run]) -> Self {
        let mut spans: Vec<Span> = Vec::new();
        for run in runs {
            let mut left = *run;
            while left.count > 0 {
                let Some(from) = numbering.position_of(left.first) else {
                    unreachable!("granted IDs have positions");
                };
                // A run may skip a position that was not claimed, if the IDs just before and
                // after it differ by the stride. `dense` ends before the first skipped position.
                let dense = numbering.run_at(from, left.count.into());
                let count = if dense.stride == left.stride { dense.count } else { 1 };
                left.count -= count;
                left.first = left.first.saturating_add(u64::from(count) * left.stride);
                match spans.last_mut() {
                    Some(last) if last.end() == from => last.count += u64::from(count),
                    _ => spans.push(Span { from, count: count.into() }),
                }
            }
        }
        let reply_count = Some(spans.iter().map(|span| span.count).sum());
        Backlog { source, form, reply_count, spans: spans.into() }
    }

    /// The first call returns the number of all IDs in the reply. Later calls return `None`.
    pub(super) fn reply_count(&mut self) -> Option<u64> {
        self.reply_count.take()
    }

    /// Moves the IDs of the next frame to `runs`. Returns true if more IDs are left.
    pub(super) fn next_frame(
        &mut self,
        numbering: &Numbering,
        limit: FrameLimit,
        runs: &mut Vec<Run>,
    ) -> bool {
        runs.clear();
        let mut ids_left = limit.ids;
        while let Some(span) = self.spans.front_mut() {
            if ids_left == 0 || runs.len() == limit.runs {
                break;
            }
            let run = numbering.run_at(span.from, span.count.min(ids_left));
            append_run(runs, run);
            ids_left -= u64::from(run.count).min(ids_left);
            *span = Span {
                from: Position(span.from.0 + u64::from(run.count)),
                count: span.count - u64::from(run.count),
            };
            if span.count == 0 {
                self.spans.pop_front();
            }
        }
        !self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use snowbank_id::layout::{Layout, PRESETS, WorkerSet};

    proptest! {
        #[test]
        fn frames_hold_the_ids_of_the_backlog_in_order(
            preset in prop::sample::select(PRESETS),
            workers in prop::sample::select(vec!["0", "0,2,3,9", "0-5"]),
            mut from in 0_u64..100_000,
            spans in prop::collection::vec((0_u64..1_000, 1_u64..2_000), 1..5),
            is_by_runs: bool,
        ) {
            let layout = Layout::resolve(preset.name).expect("a preset");
            let workers: WorkerSet = workers.parse().expect("worker IDs");
            let has_them = workers.highest() < layout.workers();
            let workers = if has_them { workers } else { WorkerSet::single(0) };
            let numbering = Numbering::new(layout, workers).expect("worker IDs of the layout");
            let mut runs = Vec::new();
            for (gap, count) in spans {
                from += gap;
                let end = from + count;
                while from < end {
                    let run = numbering.run_at(Position(from), end - from);
                    from += u64::from(run.count);
                    append_run(&mut runs, run);
                }
            }
            let expected: Vec<u64> = runs.iter().flat_map(Run::ids).collect();
            let by_runs = FrameLimit { runs: 10, ids: u64::MAX };
            let limit = if is_by_runs { by_runs } else { FrameLimit { runs: usize::MAX, ids: 100 } };
            let mut backlog = Backlog::new(0, (), &numbering, &runs);
            let mut frame = Vec::new();
            let mut found = Vec::new();
            let mut more = true;
            while more {
                more = backlog.next_frame(&numbering, limit, &mut frame);
                prop_assert!(limit.fits(&frame) && !frame.is_empty());
                found.extend(frame.iter().flat_map(Run::ids));
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_run_that_skips_a_position_keeps_its_ids() {
        let layout = Layout::resolve("clearing-batch").expect("a preset");
        let workers: WorkerSet = "0,25,50".parse().expect("worker IDs");
        let numbering = Numbering::new(layout, workers).expect("worker IDs of the layout");
        // The IDs are of worker 50, worker 0, and worker 50 again, without worker 25 in between.
        // Each ID is 50 above the ID before it.
        let mut runs = vec![numbering.run_at(Position(2), 2)];
        append_run(&mut runs, numbering.run_at(Position(5), 1));
        assert_eq!(runs, [Run { first: 50, count: 3, stride: 50 }]);
        let mut backlog = Backlog::new(0, (), &numbering, &runs);
        assert_eq!((backlog.reply_count(), backlog.reply_count()), (Some(3), None));
        let mut frame = Vec::new();
        assert!(!backlog.next_frame(&numbering, FrameLimit { runs: 10, ids: 100 }, &mut frame));
        assert_eq!(frame.iter().flat_map(Run::ids).collect::<Vec<_>>(), [50, 100, 150]);
    }
}
