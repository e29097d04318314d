//! The endpoints: which one is asked next, and how long each rests after a failure. Rules 1, 4, 5
//! and 8 of the page. Time is an argument.

use std::sync::Arc;
use std::time::Duration;

use snowbank_wire::Action;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::dial::{Failure, Place};
use crate::error::{Error, Refusal};

/// The back-off of an endpoint after its first failure. Each further one doubles it.
const MIN_BACKOFF: Duration = Duration::from_millis(50);

/// The longest back-off: a fifth of the deadline of a call, which finds a daemon that is back.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// The shortest wait before the same daemon is asked again.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Returns the time that a daemon asks for, up to a second, and a random time up to as much again,
/// so that a herd spreads.
fn asked_wait(retry_after: Duration) -> Duration {
    let wait = retry_after.min(MAX_BACKOFF);
    wait + wait.mul_f64(fastrand::f64())
}

/// An endpoint of a client.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: Arc<str>,
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) is_dialing: bool,
    pub(crate) place: Arc<Place>,
    /// The limit of the last random rest, or zero if the last call was answered.
    backoff: Duration,
    /// The time before which it is not connected again, nor asked if calls take turns.
    rests_until: Instant,
    /// The time before which the daemon cannot serve, as its last refusal says.
    serves_at: Instant,
    last: Option<Failure>,
    /// The number of failures and refusals so far.
    failures: u64,
}

/// All endpoints of a client.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) all: Vec<Endpoint>,
    /// The endpoint that calls use, unless they take turns.
    pub(crate) current: usize,
    takes_turns: bool,
}

/// The next step of a call.
#[derive(Debug)]
pub(crate) enum Step {
    /// Ask this endpoint over its connection.
    Ask(usize, Arc<Connection>),
    /// Connect to this endpoint.
    Dial(usize),
    /// Wait until something changes, at most until this time.
    Wait(Option<Instant>),
}

impl Endpoints {
    pub(crate) fn new(names: Vec<Arc<str>>, first: usize, takes_turns: bool, now: Instant) -> Self {
        let new = |name| Endpoint {
            name,
            connection: None,
            is_dialing: false,
            place: Place::new(),
            backoff: Duration::ZERO,
            rests_until: now,
            serves_at: now,
            last: None,
            failures: 0,
        };
        Self { all: names.into_iter().map(new).collect(), current: first, takes_turns }
    }

    /// Returns the next step of a call. `turn` is the endpoint whose turn it is, if calls take
    /// turns.
    pub(crate) fn step(&self, turn: usize, now: Instant) -> Step {
        let count = self.all.len();
        let first = if self.takes_turns { turn % count } else { self.current };
        for at in (first..first + count).map(|at| at % count) {
            let endpoint = &self.all[at];
            if self.takes_turns && endpoint.rests_until > now {
                continue;
            }
            if let Some(connection) = &endpoint.connection {
                return Step::Ask(at, connection.clone());
            }
            if endpoint.is_dialing {
                return Step::Wait(None);
            }
            if endpoint.rests_until <= now {
                return Step::Dial(at);
            }
        }
        Step::Wait(self.all.iter().map(|endpoint| endpoint.rests_until).min())
    }

    /// Notes that a call was answered.
    pub(crate) fn answered(&mut self, at: usize) {
        let endpoint = &mut self.all[at];
        (endpoint.backoff, endpoint.last, endpoint.serves_at) = (Duration::ZERO, None, endpoint.rests_until);
    }

    /// Notes a failure. The endpoint rests, and the next one has its turn.
    pub(crate) fn failed(&mut self, at: usize, failure: Failure, now: Instant) {
        let is_lone = self.all.len() == 1;
        let endpoint = &mut self.all[at];
        let is_first = endpoint.backoff.is_zero();
        endpoint.backoff = (endpoint.backoff * 2).clamp(MIN_BACKOFF, MAX_BACKOFF);
        let (asked, serves_at) = match &failure {
            Failure::Refused(refusal) => (refusal.retry_after, now + refusal.retry_after),
            Failure::Lost(refusal) => (refusal.retry_after, now),
            Failure::Reason(_) => (Duration::ZERO, now),
        };
        let mut rest = endpoint.backoff.mul_f64(fastrand::f64()).max(asked_wait(asked));
        // The first time, a lone endpoint is connected again at once: it may be a balancer's name.
        if is_lone && is_first {
            rest = Duration::ZERO;
        }
        (endpoint.rests_until, endpoint.serves_at) = (now + rest, serves_at);
        endpoint.connection = None;
        endpoint.is_dialing = false;
        endpoint.failures += 1;
        endpoint.last = Some(failure);
        if self.current == at {
            self.current = (at + 1) % self.all.len();
        }
    }

    /// Returns the refusal that a call hears from endpoints that failed since its start, when they had
    /// these failures: one that no try changes, or that of [`Self::refused_until_after`].
    pub(crate) fn refused_since(&self, failures: &[u64], deadline: Instant) -> Option<Error> {
        let has_failed = |(endpoint, before): &(&Endpoint, &u64)| endpoint.failures > **before;
        let mut failed = self.all.iter().zip(failures).filter(has_failed).peekable();
        // Without a failure since its start, a call may always ask once.
        failed.peek()?;
        let told = failed.find_map(|(endpoint, _)| match &endpoint.last {
            Some(Failure::Refused(refusal)) if refusal.action == Action::Tell => {
                Some(Error::Refused(refusal.clone()))
            }
            _ => None,
        });
        told.or_else(|| self.refused_until_after(deadline))
    }

    /// Returns the refusal with the shortest wait, if no endpoint can serve before the deadline.
    pub(crate) fn refused_until_after(&self, deadline: Instant) -> Option<Error> {
        if self.all.iter().any(|endpoint| endpoint.serves_at <= deadline) {
            return None;
        }
        match self.all.iter().min_by_key(|endpoint| endpoint.serves_at)?.last.as_ref()? {
            Failure::Refused(refusal) => Some(Error::Refused(refusal.clone())),
            Failure::Lost(_) | Failure::Reason(_) => None,
        }
    }

    /// Notes that the daemon asks for a pause, and keeps its connection. Returns the pause's end.
    pub(crate) fn stays(&mut self, at: usize, refusal: &Arc<Refusal>, now: Instant) -> Instant {
        let endpoint = &mut self.all[at];
        endpoint.serves_at = now + refusal.retry_after;
        endpoint.last = Some(Failure::Refused(refusal.clone()));
        let until = now + asked_wait(refusal.retry_after).max(MIN_PAUSE);
        if self.takes_turns {
            endpoint.rests_until = until;
        }
        until
    }

    /// Returns the number of failures of each endpoint.
    pub(crate) fn failures(&self) -> Vec<u64> {
        self.all.iter().map(|endpoint| endpoint.failures).collect()
    }

    /// Returns a line for each endpoint: its name, and its last reason.
    pub(crate) fn reasons(&self) -> Arc<[String]> {
        let reason = |Endpoint { name, last, connection, is_dialing, .. }: &Endpoint| match last {
            Some(Failure::Refused(refusal) | Failure::Lost(refusal)) => refusal.to_string(),
            Some(Failure::Reason(reason)) => format!("{name}: {reason}"),
            None if connection.is_some() => format!("{name}: connected, and no answer yet"),
            None if *is_dialing => format!("{name}: not connected yet"),
            None => format!("{name}: not asked"),
        };
        self.all.iter().map(reason).collect()
    }
}

#[cfg(test)]
mod unit {
    use snowbank_wire::ErrorCode;
    use snowbank_wire::reply::ErrorReply;

    use super::*;

    fn endpoints(count: usize, takes_turns: bool) -> (Endpoints, Instant) {
        let now = Instant::now();
        (Endpoints::new((0..count).map(|at| format!("ids-{at}").into()).collect(), 0, takes_turns, now), now)
    }

    fn dials(step: &Step) -> Option<usize> {
        if let Step::Dial(at) = step { Some(*at) } else { None }
    }

    #[test]
    fn the_next_endpoint_follows_a_failure_and_all_rest_after_theirs() {
        let (mut endpoints, now) = endpoints(2, false);
        assert_eq!(dials(&endpoints.step(0, now)), Some(0));
        endpoints.failed(0, Failure::new("down"), now);
        assert_eq!(dials(&endpoints.step(0, now)), Some(1));
        endpoints.failed(1, Failure::new("down"), now);
        let Step::Wait(Some(until)) = endpoints.step(0, now) else { panic!("both rest") };
        assert!(until <= now + MIN_BACKOFF);
        assert_eq!(endpoints.reasons()[..], ["ids-0: down", "ids-1: down"]);
    }

    #[test]
    fn the_back_off_grows_to_a_second_and_is_random() {
        let (mut endpoints, now) = endpoints(2, false);
        let mut rests = |failure: Failure, count| -> Vec<Duration> {
            let mut rest = |_| {
                endpoints.failed(0, failure.clone(), now);
                endpoints.all[0].rests_until - now
            };
            (0..count).map(&mut rest).collect()
        };
        // The back-off has its limit after a few failures.
        let limited = rests(Failure::new("down"), 1_000).split_off(10);
        assert!(limited.iter().all(|rest| *rest <= MAX_BACKOFF));
        assert!(limited.iter().any(|rest| *rest > MAX_BACKOFF / 2));
        assert!(limited.iter().any(|rest| *rest < MAX_BACKOFF / 2));
        let error = ErrorReply::leave(ErrorCode::Exhausted, Duration::from_secs(60), "");
        let waits = rests(Failure::Refused(Arc::new(Refusal::new(&"ids".into(), &error))), 100);
        assert!(waits.iter().all(|wait| (MAX_BACKOFF..=2 * MAX_BACKOFF).contains(wait)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }

    #[test]
    fn a_lone_endpoint_is_connected_again_at_once_the_first_time() {
        let (mut endpoints, now) = endpoints(1, false);
        endpoints.failed(0, Failure::new("lost"), now);
        assert_eq!(dials(&endpoints.step(0, now)), Some(0));
        for _ in 0..20 {
            endpoints.failed(0, Failure::new("down"), now);
        }
        assert_eq!(dials(&endpoints.step(0, now + MAX_BACKOFF)), Some(0));
    }

    #[test]
    fn a_refusal_beyond_the_deadline_counts_once_all_endpoints_gave_one() {
        let (mut endpoints, now) = endpoints(2, false);
        let deadline = now + Duration::from_secs(5);
        for (at, seconds) in [(0, 60), (1, 40)] {
            assert_eq!(endpoints.refused_until_after(deadline), None);
            let error = ErrorReply::leave(ErrorCode::Exhausted, Duration::from_secs(seconds), "");
            let refusal = Arc::new(Refusal::new(&"ids".into(), &error));
            endpoints.failed(at, Failure::Refused(refusal), now);
        }
        let found = endpoints.refused_until_after(deadline).expect("no endpoint serves before");
        assert_eq!(found.retry_after(), Some(Duration::from_secs(40)));
    }

    #[test]
    fn turns_skip_an_endpoint_that_rests() {
        let (mut endpoints, now) = endpoints(3, true);
        endpoints.failed(1, Failure::new("down"), now);
        endpoints.all[1].rests_until = now + MIN_BACKOFF;
        assert_eq!([0, 1, 2].map(|turn| dials(&endpoints.step(turn, now))), [Some(0), Some(2), Some(2)]);
    }
}
