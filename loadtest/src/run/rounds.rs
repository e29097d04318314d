//! Puts runs of one target together: the second prolongs the first.

use crate::measure::SecondFigures;

use super::{Collected, Outcome};

/// The last answers of a run come a moment after its end.
const LATE_S: f64 = 0.05;

impl Outcome {
    /// Adds a later run of the same scenario against the same target.
    pub(crate) fn prolong(&mut self, next: Self) {
        let whole_seconds = (self.elapsed.as_secs_f64() + LATE_S) as u64;
        self.collected.prolong(next.collected, whole_seconds);
        self.rounds += next.rounds;
        self.elapsed += next.elapsed;
        self.stalls.merge(next.stalls);
        self.held_up += next.held_up;
    }
}

impl Collected {
    /// Adds a run that begins after this second. The late answers of the one before go.
    fn prolong(&mut self, next: Self, begin: u64) {
        self.seconds.retain(|second| second.second < begin);
        self.counts.merge(next.counts);
        self.faults.extend(next.faults);
        for second in next.seconds {
            self.seconds.push(SecondFigures { second: second.second + begin, ..second });
        }
        self.interval_log.extend(later_lines(&next.interval_log, begin).into_bytes());
        self.target_cpu = self.target_cpu.zip(next.target_cpu).map(|(one, other)| one + other);
        self.interrupted |= next.interrupted;
        self.too_scattered |= next.too_scattered;
        // The positions of all rounds are kept together.
        self.gaps = next.gaps;
    }
}

/// Returns the intervals of a log that begins later. Each line is its start in seconds, a comma and
/// the rest.
fn later_lines(log: &[u8], begin: u64) -> String {
    let lines = String::from_utf8_lossy(log);
    let later = lines.lines().filter_map(|line| {
        let (from_s, rest) = line.split_once(',')?;
        Some(format!("{:.3},{rest}\n", from_s.parse::<f64>().ok()? + begin as f64))
    });
    later.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::distinct::Gaps;

    #[test]
    fn an_interval_log_goes_on_without_a_second_head() {
        let log = b"#[comment, with a comma]\n\"StartTimestamp\",\"Interval_Length\"\n0.000,1.000,7.1,abc\n1.5,1,2,x\n";
        assert_eq!(later_lines(log, 10), "10.000,1.000,7.1,abc\n11.500,1,2,x\n");
    }

    #[test]
    fn seconds_are_numbered_on_and_a_partial_one_between_goes() {
        let second = |second| SecondFigures { second, ..SecondFigures::default() };
        let run = || Collected { seconds: [0, 1, 2].map(second).into(), ..Collected::default() };
        let mut all = run();
        all.prolong(run(), 2);
        assert_eq!(all.seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn gaps_are_those_after_the_last_round() {
        let run = |count| Collected { gaps: Some(Gaps { count, numbers: 9 }), ..Collected::default() };
        let mut all = run(1);
        all.prolong(run(2), 0);
        assert_eq!(all.gaps, run(2).gaps);
    }
}
