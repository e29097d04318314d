//! The events on the console of a machine whose daemon belongs to a fleet.

use crate::support::ids::twitter_worker;

/// The name of the source of IDs.
pub(super) const IDS: &str = "ids";
/// The name of the ticket source.
pub(super) const TICKETS: &str = "orders";
/// The number of draws that are enough to show that a source serves.
pub(super) const ENOUGH: usize = 20;

/// A run of IDs or tickets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) source: &'static str,
    /// The guest's clock at the request.
    pub(super) asked_us: i64,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Draw {
    pub(super) fn count(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// The events that a console shows.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) draws: Vec<Draw>,
    /// The refused requests: the time of the request, and the code.
    pub(super) refusals: Vec<(i64, u16)>,
    /// The exit codes of daemons that ended.
    pub(super) ends: Vec<i32>,
    /// The reason that a daemon gave for its end.
    pub(super) reason: Option<String>,
    /// The time at which the daemon logged that the machine was restored, or the time to which the
    /// clock was set.
    pub(super) noticed_us: Option<i64>,
}

impl Life {
    /// Reads a console. Its first and its last line may be incomplete.
    pub(super) fn read(console: &str) -> Result<Life, String> {
        let mut life = Life::default();
        let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines().map(str::trim_end) {
            if line.contains("panicked") {
                return Err(line.to_owned());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok());
            match (words.first(), words.get(1), number(1), number(2), number(3), number(4)) {
                (Some(&"DREW"), Some(source), _, Some(asked_us), Some(first), Some(last)) => {
                    let source = if *source == IDS { IDS } else { TICKETS };
                    let first = first as u64;
                    let last = last as u64;
                    life.draws.push(Draw { source, asked_us, first, last });
                }
                (Some(&"REFUSED"), _, Some(asked_us), Some(code), ..) => {
                    life.refusals.push((asked_us, code as u16));
                }
                (Some(&"STEPPED"), _, Some(to), ..) => life.noticed_us = Some(to * 1_000_000),
                (Some(&"ENDED"), _, Some(code), ..) => life.ends.push(code as i32),
                _ if line.contains("the state is lost") => life.reason = Some(line.to_owned()),
                (Some(time), ..) if line.contains("was, or may have been, restored from a snapshot") => {
                    life.noticed_us = time.parse::<jiff::Timestamp>().ok().map(|time| time.as_microsecond());
                }
                _ => {}
            }
        }
        Ok(life)
    }

    /// Returns the draws from a source that were requested at or after this time.
    pub(super) fn drawn(&self, source: &'static str, since_us: i64) -> impl Iterator<Item = Draw> + '_ {
        self.draws.iter().filter(move |draw| draw.source == source && draw.asked_us >= since_us).copied()
    }

    /// Returns whether both sources have served enough requests from this time on.
    pub(super) fn serves(&self, since_us: i64) -> bool {
        [IDS, TICKETS].iter().all(|&source| self.drawn(source, since_us).count() >= ENOUGH)
    }

    /// Returns the time of the first request whose IDs have another worker ID than the IDs of the
    /// very first request.
    pub(super) fn moved_us(&self) -> i64 {
        let worker = |draw: &Draw| twitter_worker(draw.first);
        let first = self.drawn(IDS, 0).map(|draw| worker(&draw)).next();
        self.drawn(IDS, 0).find(|draw| Some(worker(draw)) != first).map_or(i64::MAX, |draw| draw.asked_us)
    }
}

/// Returns how many IDs or tickets are in more than one draw.
pub(super) fn repeated(mut draws: Vec<Draw>) -> u64 {
    draws.sort_unstable_by_key(|draw| draw.first);
    let mut end = 0;
    let mut repeated = 0;
    for draw in draws {
        repeated += end.min(draw.last + 1).saturating_sub(draw.first);
        end = end.max(draw.last + 1);
    }
    repeated
}
