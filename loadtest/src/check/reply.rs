//! Checks the replies of one connection, run by run.

use snowbank_id::layout::Run;

use super::Violation;
use crate::promise::{Promise, Span};

/// The request that a reply is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) count: u32,
    /// The wall clock when the request was sent, in Unix microseconds.
    pub(crate) sent_us: i64,
    /// With strict order: the largest ID that any connection had received when the request was
    /// sent. Otherwise 0.
    pub(crate) above: u64,
}

/// The time at which a reply was received, and how far the clocks may differ. Both limit the times
/// that the reply's IDs may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// The wall clock when the reply was received, in Unix microseconds.
    pub(crate) received_us: i64,
    /// The time by which the promised window is widened. `None` until the offset of the target's
    /// clock is known. While it is `None`, times are not checked.
    pub(crate) offset_us: Option<i64>,
}

/// The last ID that a connection received, against which its next ID is checked.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCheck {
    last: Option<Checked>,
    /// The number of IDs found so far in the current reply.
    pub(crate) found: u64,
}

#[derive(Debug, Clone, Copy)]
struct Checked {
    id: u64,
    position: u64,
    /// The start of the ID's tick; `None` for IDs without a time.
    date_us: Option<i64>,
}

impl Checked {
    fn at(position: u64, id: u64, promise: &Promise) -> Self {
        Self { id, position, date_us: promise.date_us(position) }
    }
}

impl ConnectionCheck {
    pub(crate) fn last(&self) -> Option<u64> {
        self.last.map(|last| last.id)
    }

    /// Checks a run of the current reply and appends the run's positions to `spans`. A run that is
    /// out of order is appended, too, so that a duplicate in that run is found.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub(crate) fn run(
        &mut self,
        promise: &Promise,
        asked: &Asked,
        received: Received,
        run: Run,
        spans: &mut Vec<Span>,
    ) -> Result<(), Violation> {
        let last_id = last_of(&run)?;
        self.found += u64::from(run.count);
        if self.found > u64::from(asked.count) {
            return Err(Violation::Count { asked: asked.count, found: self.found });
        }
        // Finding a position costs more than all other checks. So an ID that directly follows the
        // last ID gets the next position without a search.
        let (first, last) = match self.last {
            Some(last) if run.count == 1 && promise.is_next(last.id, run.first) => {
                let next = Checked { id: run.first, position: last.position + 1, ..last };
                Span { start: next.position, end: next.position + 1 }.append_to(spans);
                (next, next)
            }
            _ => self.place(promise, run, last_id, spans)?,
        };
        let previous = self.last.replace(last);
        match previous.map(|last| last.id) {
            Some(previous) if run.first == previous => return Err(Violation::Duplicate { id: previous }),
            Some(previous) if run.first < previous => {
                return Err(Violation::Order { previous, id: run.first });
            }
            _ => {}
        }
        if promise.increment().is_some() {
            let goes_on = self.found > u64::from(run.count);
            let before = previous.filter(|_| goes_on).map(|last| last.position);
            let begin = before.map_or(first.position, |position| position + 1);
            if last.position - begin + 1 != u64::from(run.count) {
                return Err(Violation::Gap { id: run.first });
            }
        }
        if promise.strict && run.first <= asked.above {
            return Err(Violation::Strict { received: asked.above, id: run.first });
        }
        let Some(offset_us) = received.offset_us else { return Ok(()) };
        // The IDs of a run increase, so the first ID has the earliest time and the last ID the
        // latest.
        let (earliest_us, latest_us) = promise.bounds_us(asked.sent_us, received.received_us, offset_us);
        match (first.date_us, last.date_us) {
            (Some(first_us), _) if first_us < earliest_us => {
                Err(Violation::Time { id: first.id, by_us: first_us - earliest_us })
            }
            (_, Some(last_us)) if last_us > latest_us => {
                Err(Violation::Time { id: last.id, by_us: last_us - latest_us })
            }
            _ => Ok(()),
        }
    }

    /// Appends the positions of a run to `spans`. Returns the first and the last ID of the run.
    fn place(
        &self,
        promise: &Promise,
        run: Run,
        last_id: u64,
        spans: &mut Vec<Span>,
    ) -> Result<(Checked, Checked), Violation> {
        let placed = promise.positions(run, spans).map_err(|id| match promise.foreign_worker(id) {
            Some(worker) => Violation::Worker { id, worker },
            None => Violation::Layout { id, previous: self.last() },
        })?;
        Ok((Checked::at(placed.start, run.first, promise), Checked::at(placed.end - 1, last_id, promise)))
    }

    /// Ends the current reply.
    ///
    /// # Errors
    /// [`Violation::Count`] if the reply had fewer IDs than the request asked for.
    pub(crate) fn end(&mut self, asked: &Asked) -> Result<(), Violation> {
        let found = std::mem::take(&mut self.found);
        if found < u64::from(asked.count) {
            return Err(Violation::Count { asked: asked.count, found });
        }
        Ok(())
    }
}

/// Returns the last ID of a run, or an error if the run is empty, repeats an ID or exceeds 64 bits.
fn last_of(run: &Run) -> Result<u64, Violation> {
    let bad = Violation::BadRun { first: run.first };
    let steps = u64::from(run.count.checked_sub(1).ok_or(bad)?);
    if steps > 0 && run.stride == 0 {
        return Err(bad);
    }
    steps.checked_mul(run.stride).and_then(|length| length.checked_add(run.first)).ok_or(bad)
}

#[cfg(test)]
mod tests {
    use snowbank_wire::Info;

    use super::*;

    const EPOCH_MS: i64 = 1_288_834_974_657;
    const NOW_US: i64 = (EPOCH_MS + 1_000_000) * 1_000;
    const ASKED: Asked = Asked { count: 10, sent_us: NOW_US, above: 0 };
    const RECEIVED: Received = Received { received_us: NOW_US + 500, offset_us: Some(0) };

    fn promise(order: &str) -> Promise {
        let json = format!(
            r#"{{"protocol":1,"max_count":1000,"order":"{order}","sources":[
            {{"name":"a","layout":"twitter","worker_ids":[3]}}]}}"#
        );
        Promise::from_info(&Info::from_json(json.as_bytes()).expect("sound"), None).expect("sound")
    }

    /// Returns an ID of worker 3, dated `ms` after `NOW_US`.
    fn id(ms: i64, sequence: u64) -> u64 {
        ((1_000_000 + ms) as u64) << 22 | 3 << 12 | sequence
    }

    fn run(first: u64, count: u32) -> Run {
        Run { first, count, stride: 1 }
    }

    /// Checks replies that have one run each.
    fn replies(order: &str, runs: &[Run]) -> Result<Vec<Span>, Violation> {
        let promise = promise(order);
        let mut check = ConnectionCheck::default();
        let mut spans = Vec::new();
        for &run in runs {
            check.run(&promise, &ASKED, RECEIVED, run, &mut spans)?;
            check.end(&ASKED)?;
        }
        Ok(spans)
    }

    #[test]
    fn sound_replies_pass_and_their_spans_join() {
        let spans = replies("strict", &[run(id(0, 0), 10), run(id(0, 10), 10), run(id(1, 5), 10)]);
        assert_eq!(spans.map(|spans| spans.len()), Ok(2), "consecutive positions are one span");
    }

    #[test]
    fn broken_promises_have_their_violations() {
        let first = id(0, 100);
        let worker_4 = id(0, 100) + (1 << 12);
        let after = |second: Run| replies("relaxed", &[run(first, 10), second]).map(|spans| spans.len());
        assert_eq!(after(run(first + 9, 10)), Err(Violation::Duplicate { id: first + 9 }));
        assert_eq!(after(run(first - 50, 10)), Err(Violation::Order { previous: first + 9, id: first - 50 }));
        assert_eq!(after(run(first + 10, 9)), Err(Violation::Count { asked: 10, found: 9 }));
        assert_eq!(after(run(first + 10, 11)), Err(Violation::Count { asked: 10, found: 11 }));
        assert_eq!(after(run(first + 10, 0)), Err(Violation::BadRun { first: first + 10 }));
        assert_eq!(after(run(worker_4, 10)), Err(Violation::Worker { id: worker_4, worker: 4 }));
        let beyond = u64::MAX - 20;
        assert_eq!(after(run(beyond, 10)), Err(Violation::Layout { id: beyond, previous: Some(first + 9) }));
        assert_eq!(after(run(u64::MAX, 10)), Err(Violation::BadRun { first: u64::MAX }));
        let stuck = Run { first: first + 20, count: 10, stride: 0 };
        assert_eq!(after(stuck), Err(Violation::BadRun { first: first + 20 }));
    }

    #[test]
    fn an_id_outside_the_promised_window_is_found() {
        let at = |ms| replies("relaxed", &[run(id(ms, 0), 10)]).map(|_| ());
        assert_eq!(at(-11), Ok(()));
        assert_eq!(at(-12), Err(Violation::Time { id: id(-12, 0), by_us: -1_000 }));
        assert_eq!(at(10_000), Ok(()));
        assert_eq!(at(10_001), Err(Violation::Time { id: id(10_001, 9), by_us: 500 }));
    }

    #[test]
    fn strict_order_holds_across_connections() {
        let asked = Asked { above: id(0, 50), ..ASKED };
        let mut check = ConnectionCheck::default();
        let refused = check.run(&promise("strict"), &asked, RECEIVED, run(id(0, 41), 10), &mut Vec::new());
        assert_eq!(refused, Err(Violation::Strict { received: id(0, 50), id: id(0, 41) }));
    }

    #[test]
    fn times_are_not_checked_while_the_clock_is_unknown() {
        let received = Received { offset_us: None, ..RECEIVED };
        let mut check = ConnectionCheck::default();
        let old = run(id(-60_000, 0), 10);
        assert_eq!(check.run(&promise("relaxed"), &ASKED, received, old, &mut Vec::new()), Ok(()));
    }
}
