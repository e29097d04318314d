//! Joins runs of one target: a later run prolongs an earlier one.

use crate::measure::SecondFigures;

use super::Outcome;

/// A last second that lacks no more than this is finished.
const LATE_S: f64 = 0.05;

impl Outcome {
    /// Adds a later run of the same scenario against the same target. Drops the earlier run's last
    /// second if that second is unfinished, because an unfinished second may have only late
    /// answers.
    pub(crate) fn prolong(&mut self, next: Self) {
        let begin = (self.elapsed.as_secs_f64() + LATE_S) as u64;
        self.seconds.retain(|second| second.second < begin);
        for second in next.seconds {
            self.seconds.push(SecondFigures { second: second.second + begin, ..second });
        }
        self.interval_log.extend(later_lines(&next.interval_log, begin).into_bytes());
        self.counts.merge(next.counts);
        self.faults.extend(next.faults);
        self.target_cpu = self.target_cpu.zip(next.target_cpu).map(|(one, other)| one + other);
        self.interrupted |= next.interrupted;
        self.too_scattered |= next.too_scattered;
        // The count of the later run covers all runs, because the positions of all runs are kept
        // together.
        self.left_out = next.left_out;
        self.rounds += next.rounds;
        self.planned = self.planned.zip(next.planned).map(|(one, other)| one + other);
        self.elapsed += next.elapsed;
        self.undisturbed += next.undisturbed;
        self.stalls.merge(next.stalls);
        self.held_up += next.held_up;
    }
}

/// Returns the intervals of a log without its header, each moved by `begin` seconds. An interval's
/// line is its start in seconds, a comma and the rest.
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_later_interval_log_is_moved_and_loses_its_header() {
        let log = b"#[comment, with a comma]\n\"StartTimestamp\",\"Interval_Length\"\n0.000,1.000,7.1,abc\n1.5,1,2,x\n";
        assert_eq!(later_lines(log, 10), "10.000,1.000,7.1,abc\n11.500,1,2,x\n");
    }

    #[test]
    fn a_later_runs_seconds_follow_those_of_the_first() {
        let second = |second| SecondFigures { second, ..SecondFigures::default() };
        let run = |count| Outcome {
            seconds: [0, 1, 2].map(second).into(),
            elapsed: Duration::from_secs(2),
            left_out: Some(count),
            ..Outcome::default()
        };
        let mut all = run(1);
        all.prolong(run(2));
        let numbers: Vec<u64> = all.seconds.iter().map(|second| second.second).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4], "the unfinished second of the first run is dropped");
        assert_eq!(all.left_out, Some(2), "the count after the last round");
    }
}
