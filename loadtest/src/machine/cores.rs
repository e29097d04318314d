//! The work of all cores, by all programs.
//!
//! The kernel counts it in ticks of some milliseconds, so only a longer span says who had the cores.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::threads::Ran;

/// The unit of /proc/stat: the kernel shows hundredths of a second to every program.
const UNIT_NS: u64 = 10_000_000;

/// The shortest span whose work is compared: ten units, so each core's share is right to a tenth.
const SPAN_NS: u64 = 100_000_000;

/// Compares the work of all cores with that of the generator and the target.
#[derive(Debug, Default)]
pub(super) struct Cores {
    file: Option<File>,
    /// One to two spans old.
    older: Work,
    /// At most one span old.
    newer: Work,
}

/// All work until an instant, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    at_ns: u64,
    all_ns: u64,
    ran: Ran,
}

impl Cores {
    pub(super) fn begin() -> Self {
        Self { file: File::open("/proc/stat").ok(), ..Self::default() }
    }

    /// Notes the work until now, once in each span.
    pub(super) fn look(&mut self, at_ns: u64, ran: Ran) {
        if self.newer.all_ns > 0 && at_ns < self.newer.at_ns + SPAN_NS {
            return;
        }
        let now = Work { at_ns, all_ns: self.all_ns(), ran };
        self.older = if self.newer.all_ns > 0 { self.newer } else { now };
        self.newer = now;
    }

    /// Returns the share of all recent work that other programs did, from 0 to 1. It is 0 if the target did
    /// more than they did: another program does not excuse a target that takes the cores.
    pub(super) fn share_of_others(&self, ran: Ran) -> f64 {
        share_of_others(self.older, Work { at_ns: 0, all_ns: self.all_ns(), ran })
    }

    /// Reads the work of all cores since the machine started; 0 where the kernel does not show it.
    fn all_ns(&self) -> u64 {
        let mut text = [0; 256];
        let size = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        std::str::from_utf8(&text[..size]).ok().and_then(busy_ns).unwrap_or(0)
    }
}

fn share_of_others(begin: Work, end: Work) -> f64 {
    let all_ns = end.all_ns.saturating_sub(begin.all_ns);
    if begin.all_ns == 0 || all_ns == 0 {
        return 0.0;
    }
    let target_ns = end.ran.target_ns.saturating_sub(begin.ran.target_ns);
    let generator_ns = end.ran.generator_ns.saturating_sub(begin.ran.generator_ns);
    let others_ns = all_ns.saturating_sub(target_ns + generator_ns);
    if others_ns <= target_ns { 0.0 } else { others_ns as f64 / all_ns as f64 }
}

/// Reads the line of all cores: idle time, waits for disks and time that the host took are no work.
fn busy_ns(statistics: &str) -> Option<u64> {
    let numbers = statistics.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let units: Vec<u64> = numbers.map_while(|number| number.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = units[..] else { return None };
    Some((user + nice + system + irq + softirq) * UNIT_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_no_work() {
        let text = "cpu  100 20 30 9999 500 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(busy_ns(text), Some(163 * UNIT_NS));
        assert_eq!([busy_ns(""), busy_ns("cpu  1 2\n")], [None, None]);
    }

    #[test]
    fn others_have_a_share_only_if_they_did_more_than_the_target() {
        let work =
            |all_ns, target_ns, generator_ns| Work { at_ns: 0, all_ns, ran: Ran { generator_ns, target_ns } };
        let share = |others: u64, target: u64, generator: u64| {
            let end = work(1_000 + others + target + generator, 50 + target, 70 + generator);
            (share_of_others(work(1_000, 50, 70), end) * 100.0).round()
        };
        assert_eq!([share(60, 20, 20), share(0, 10, 90), share(0, 0, 0)], [60.0, 0.0, 0.0]);
        assert_eq!([share(40, 60, 0), share(49, 51, 10)], [0.0, 0.0], "the target took more");
        assert_eq!(share_of_others(Work::default(), work(9_000, 0, 0)), 0.0, "nothing was read before");
    }
}
