//! The promises, checked on all IDs that leave the daemon.

use snowbank_id::layout::{Position, Run, UnixMicros};
use snowbank_id::numbering::Numbering;

use super::MS;
use super::world::World;

impl World {
    /// Checks that no ID is older than the burst window allowed at this wall time.
    pub(crate) fn check_age(&self, runs: &[Run], wall_us: i64) {
        let oldest = wall_us - self.rules.burst_window.as_micros() as i64;
        let oldest = self.numbering.first_of(self.numbering.tick_at(UnixMicros(oldest)));
        for run in runs {
            let from = self.numbering.position_of(run.first).expect("an ID of this source");
            assert!(from >= oldest, "seed {}: {run:?} is older than the burst window", self.seed);
        }
    }

    /// Checks the promises on IDs that leave the daemon. `latest_us` is the highest wall time since
    /// the IDs were requested.
    pub(crate) fn hand_out(&mut self, index: usize, runs: &[Run], latest_us: i64) {
        let seed = self.seed;
        let durable = self.storage.state.granted().expect("a stored ceiling");
        // A block of another shard may have been claimed by a newer reading of the clock. Each of
        // the two readings may be torn (`read_torn`), by up to 1 ms.
        let latest = latest_us + self.max_ahead_us() + 2 * MS;
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let is_renewed = daemon.renewal.is_done.iter().all(|done| *done);
        assert!(is_renewed, "seed {seed}: handed out under ceilings from before the grant was taken away");
        for run in runs {
            assert!(
                run.first > daemon.last_ids[index],
                "seed {seed}: {run:?} on connection {index} goes back"
            );
            daemon.last_ids[index] = run.last();
        }
        for (from, to) in runs.iter().flat_map(|run| intervals(&self.numbering, run)) {
            assert!(to <= durable.0, "seed {seed}: handed out up to {to}, but only {durable:?} is durable");
            match self.handed_out.range_mut(..to).next_back() {
                Some((before, end)) if *end > from => {
                    panic!(
                        "seed {seed}: [{from}, {to}) overlaps [{before}, {end}), which was handed out before"
                    )
                }
                Some((_, end)) if *end == from => *end = to,
                _ => _ = self.handed_out.insert(from, to),
            }
            let start = self.numbering.start_of(self.numbering.tick_of(Position(to - 1)));
            assert!(start.0 <= latest, "seed {seed}: an ID is {} us ahead of the clock", start.0 - latest_us);
            self.granted += to - from;
        }
        if let Some(last) = runs.last() {
            daemon.last_of_all = daemon.last_of_all.max(last.last());
        }
    }
}

pub(crate) fn count_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// Returns the positions of a run, as intervals: from, to. A run with a stride may leave out the
/// positions of other worker IDs.
pub(crate) fn intervals(numbering: &Numbering, run: &Run) -> Vec<(u64, u64)> {
    let position = |id| numbering.position_of(id).expect("an ID of this source").0;
    let first = position(run.first);
    let last = position(run.last());
    if last - first + 1 == u64::from(run.count) {
        return vec![(first, last + 1)];
    }
    let mut all: Vec<(u64, u64)> = Vec::new();
    for from in run.ids().map(position) {
        match all.last_mut() {
            Some((_, end)) if *end == from => *end += 1,
            _ => all.push((from, from + 1)),
        }
    }
    all
}
