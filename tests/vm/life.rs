//! The console of a machine, and what it shows of the machine's life.

use crate::support::ids::twitter_worker;

/// The sources, by their index.
pub(crate) const IDS: u16 = 0;
pub(crate) const TICKETS: u16 = 1;
/// Runs of each source that show that it is served.
pub(crate) const ENOUGH: usize = 20;

/// Numbers that came in one reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    pub(crate) source: u16,
    /// The guest's clock at the request, and at the reply.
    pub(crate) asked_us: i64,
    pub(crate) answered_us: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Draw {
    pub(crate) fn count(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// The events that a console shows.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) draws: Vec<Draw>,
    /// Requests that were refused: when they were sent, and the code.
    pub(crate) refusals: Vec<(i64, u16)>,
    /// The exit codes of daemons that ended.
    pub(crate) ends: Vec<i32>,
    /// The reason that such a daemon gave.
    pub(crate) reason: Option<String>,
    /// The time when the daemon logged that the machine was restored.
    pub(crate) noticed_us: Option<i64>,
    /// The time when it logged that the ceilings are durable again.
    pub(crate) renewed_us: Option<i64>,
}

impl Life {
    /// Reads a console. Its first and its last line may be half.
    pub(crate) fn read(console: &str) -> Result<Life, String> {
        let mut life = Life::default();
        let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines().map(str::trim_end) {
            if line.contains("panicked") {
                return Err(line.to_owned());
            }
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            let at = || first.parse::<jiff::Timestamp>().ok().map(|time| time.as_microsecond());
            let numbers: Vec<i64> = words.map_while(|word| word.parse().ok()).collect();
            match (first, &numbers[..]) {
                ("DREW", &[source, asked_us, answered_us, first, last]) => {
                    let source = source as u16;
                    let first = first as u64;
                    let last = last as u64;
                    life.draws.push(Draw { source, asked_us, answered_us, first, last });
                }
                ("REFUSED", &[asked_us, code]) => life.refusals.push((asked_us, code as u16)),
                ("ENDED", &[code]) => life.ends.push(code as i32),
                _ if line.contains("a worker ID is lost") => life.reason = Some(line.to_owned()),
                _ if line.contains("was, or may have been, restored from a snapshot") => {
                    life.noticed_us = at();
                }
                _ if line.contains("the ceilings were made durable") => life.renewed_us = at(),
                _ => {}
            }
        }
        Ok(life)
    }

    /// Returns what a source handed out to requests from this instant on.
    pub(crate) fn drawn(&self, source: u16, since_us: i64) -> impl Iterator<Item = Draw> + '_ {
        self.draws.iter().filter(move |draw| draw.source == source && draw.asked_us >= since_us).copied()
    }

    /// Returns whether both sources serve requests from this instant on.
    pub(crate) fn serves(&self, since_us: i64) -> bool {
        [IDS, TICKETS].iter().all(|&source| self.drawn(source, since_us).count() >= ENOUGH)
    }

    /// Returns when it asked for the first ID that has another worker ID than the IDs before.
    pub(crate) fn moved_us(&self) -> i64 {
        let worker = |draw: &Draw| twitter_worker(draw.first);
        let first = self.drawn(IDS, 0).map(|draw| worker(&draw)).next();
        self.drawn(IDS, 0).find(|draw| Some(worker(draw)) != first).map_or(i64::MAX, |draw| draw.asked_us)
    }
}

/// Returns how many numbers are in more than one run.
pub(crate) fn repeated(mut draws: Vec<Draw>) -> u64 {
    draws.sort_unstable_by_key(|draw| draw.first);
    let mut end = 0;
    let mut repeated = 0;
    for draw in draws {
        repeated += end.min(draw.last + 1).saturating_sub(draw.first);
        end = end.max(draw.last + 1);
    }
    repeated
}
