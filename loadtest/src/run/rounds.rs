//! Puts runs of one target together: the second prolongs the first.

use super::Outcome;

/// The last answers of a run come a moment after its end.
const LATE_S: f64 = 0.05;

impl Outcome {
    /// Returns the number of the first second of a later run.
    pub(crate) fn next_second(&self) -> u64 {
        (self.elapsed.as_secs_f64() + LATE_S) as u64
    }

    /// Adds a later run of the same scenario against the same target, whose seconds go on from
    /// these. Removes the late answers of the earlier run from its seconds.
    pub(crate) fn prolong(&mut self, next: Self) {
        let begin = self.next_second();
        self.seconds.retain(|second| second.second < begin);
        self.seconds.extend(next.seconds);
        self.interval_log.extend(next.interval_log);
        self.counts.merge(next.counts);
        self.faults.extend(next.faults);
        self.target_cpu = self.target_cpu.zip(next.target_cpu).map(|(one, other)| one + other);
        self.interrupted |= next.interrupted;
        self.too_scattered |= next.too_scattered;
        // The positions of all rounds are kept together.
        self.left_out = next.left_out;
        self.rounds += next.rounds;
        self.planned = self.planned.zip(next.planned).map(|(one, other)| one + other);
        self.elapsed += next.elapsed;
        self.undisturbed += next.undisturbed;
        self.stalls.merge(next.stalls);
        self.held_up += next.held_up;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::SecondFigures;

    #[test]
    fn a_second_run_goes_on_where_the_first_ended() {
        let second = |second| SecondFigures { second, ..SecondFigures::default() };
        let run = |seconds: [u64; 3], count| Outcome {
            seconds: seconds.map(second).into(),
            elapsed: Duration::from_secs(2),
            left_out: Some(count),
            ..Outcome::default()
        };
        let mut all = run([0, 1, 2], 1);
        assert_eq!(all.next_second(), 2);
        all.prolong(run([2, 3, 4], 2));
        let numbers: Vec<u64> = all.seconds.iter().map(|second| second.second).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4], "the partial one between goes");
        assert_eq!(all.left_out, Some(2), "those after the last round");
    }
}
