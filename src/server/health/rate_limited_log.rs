//! Events that can repeat, said seldom: a log that floods hides what matters in it, and fills a disk.

use std::time::Duration;

use tokio::time::Instant;

/// How often one kind of event is said. Long enough for a page of the journal to hold an hour of it.
const PERIOD: Duration = Duration::from_secs(60);
/// How long what was said of a state stands before another is said: what flaps faster is said as it is then.
const SETTLED: Duration = Duration::from_secs(10);

/// Events of one kind: the first is said at once, later ones once in [`PERIOD`], with how many there were.
#[derive(Debug, Default)]
pub(crate) struct RateLimited {
    said_at: Option<Instant>,
    unsaid: u64,
}

impl RateLimited {
    pub(crate) const fn new() -> Self {
        RateLimited { said_at: None, unsaid: 0 }
    }

    /// Whether one was said so lately that another is not to be.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.said_at.is_some_and(|said_at| now.duration_since(said_at) < PERIOD)
    }

    /// Another event: how many there have been since one was said, this one among them, if it is to be said.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.is_recent(now) {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// A state that is looked at again and again, and said when it changes: at once, unless it was said a moment ago.
#[derive(Debug)]
pub(crate) struct LoggedState<T> {
    state: T,
    said_at: Option<Instant>,
}

impl<T: PartialEq> LoggedState<T> {
    /// Begins with a state that need not be said.
    pub(crate) fn new(state: T) -> Self {
        LoggedState { state, said_at: None }
    }

    /// The state as it is now: true if it is to be said.
    pub(crate) fn should_log(&mut self, state: T, now: Instant) -> bool {
        let is_settled = self.said_at.is_none_or(|said_at| now.duration_since(said_at) >= SETTLED);
        if state == self.state || !is_settled {
            return false;
        }
        *self = LoggedState { state, said_at: Some(now) };
        true
    }
}

impl<T: PartialEq + Default> Default for LoggedState<T> {
    fn default() -> Self {
        LoggedState::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_counted_and_said_seldom() {
        let (mut events, start) = (RateLimited::default(), Instant::now());
        let said: Vec<_> =
            (0..=120).map(|second| events.count(start + Duration::from_secs(second))).collect();
        assert_eq!(said.iter().flatten().collect::<Vec<_>>(), [&1, &60, &60]);
        assert_eq!((said[0], said[60], said[120]), (Some(1), Some(60), Some(60)));
    }

    #[test]
    fn a_state_that_flaps_is_said_as_it_is_when_it_has_settled() {
        let (mut fails, start) = (LoggedState::new(false), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        assert!(!fails.should_log(false, at(0)), "as it began");
        assert!(fails.should_log(true, at(1)), "at once");
        for second in 2..11 {
            assert!(!fails.should_log(second % 2 == 0, at(second)));
        }
        assert!(!fails.should_log(true, at(11)), "said already");
        assert!(fails.should_log(false, at(12)));
    }
}
