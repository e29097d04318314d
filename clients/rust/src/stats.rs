//! Figures and events, for an application's own metrics and logs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Collision, Refusal};
use crate::options::Report;

/// The most events that the application has not heard yet. Later ones are lost.
const MAX_EVENTS: usize = 1_000;

/// What a client has done since it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were answered, with those of buffers.
    pub calls: u64,
    /// Requests after the first of a call.
    pub retries: u64,
    /// ERROR replies.
    pub refusals: u64,
    /// Failures of endpoints: no connection, lost, late, another protocol.
    pub failures: u64,
    /// IDs that were handed out. Those of a buffer that hands them out fast are counted when half of
    /// a batch is used.
    pub ids: u64,
    /// IDs that a buffer dropped, because they were too old or two daemons collided.
    pub dropped: u64,
    /// The highest age at which a buffer handed out an ID, in milliseconds.
    pub oldest_ms: u64,
    /// The endpoint with an open connection.
    pub endpoint: Option<Arc<str>>,
}

/// Something that happened to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A daemon greeted.
    Connected {
        /// The endpoint.
        endpoint: Arc<str>,
    },
    /// An endpoint failed.
    Failed {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// A daemon refused a request or the connection.
    Refused(Arc<Refusal>),
    /// Two endpoints are daemons that hand out the same IDs. Calls fail from now on.
    Collision(Arc<Collision>),
    /// The two daemons are gone, or hand out different IDs. Calls go on.
    CollisionOver(Arc<Collision>),
}

#[cfg(feature = "tracing")]
impl Event {
    /// Reports this event to `tracing`.
    pub(crate) fn trace(&self) {
        match self {
            Self::Connected { endpoint } => tracing::debug!(%endpoint, "connected"),
            Self::Failed { endpoint, reason } => tracing::warn!(%endpoint, %reason, "failed"),
            Self::Refused(refusal) => tracing::warn!(
                endpoint = %refusal.endpoint, code = refusal.code, action = ?refusal.action, message = refusal.message,
                "refused"
            ),
            Self::Collision(collision) => tracing::error!(
                one = %collision.endpoints[0], other = %collision.endpoints[1], claim = collision.claim, "collision"
            ),
            Self::CollisionOver(collision) => tracing::info!(
                one = %collision.endpoints[0], other = %collision.endpoints[1], "collision over"
            ),
        }
    }
}

/// The application's function for events, and the events that it has not heard yet. No call waits
/// for the function: a thread calls it, and ends when there are no events.
pub(crate) struct Events {
    report: Report,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    has_thread: bool,
}

impl Events {
    pub(crate) fn new(report: Report) -> Self {
        Self { report, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(self: &Arc<Self>, event: Event) {
        let mut waiting = self.waiting();
        if waiting.events.len() < MAX_EVENTS {
            waiting.events.push_back(event);
        }
        if !waiting.has_thread {
            let events = self.clone();
            let thread = thread::Builder::new().name("snowbank-events".to_owned());
            // If there is no thread, the next event tries again.
            waiting.has_thread = thread.spawn(move || events.tell_all()).is_ok();
        }
    }

    fn tell_all(&self) {
        while let Some(event) = self.next() {
            // A panic of the application's function, which Rust has reported, changes no call.
            let _ = catch_unwind(AssertUnwindSafe(|| (self.report)(&event)));
        }
    }

    fn next(&self) -> Option<Event> {
        let mut waiting = self.waiting();
        let event = waiting.events.pop_front();
        waiting.has_thread = event.is_some();
        event
    }
}

/// The figures of [`Stats`], counted where they happen.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) calls: Figure,
    pub(crate) retries: Figure,
    pub(crate) refusals: Figure,
    pub(crate) failures: Figure,
    pub(crate) ids: Figure,
    pub(crate) dropped: Figure,
    oldest_ms: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Figures {
    /// Notes the age at which an ID is handed out.
    pub(crate) fn note_age(&self, age: Duration) {
        let age_ms = age.as_millis() as u64;
        // Mostly there is nothing to write, so threads need not compete for the cache line.
        if age_ms > self.oldest_ms.load(Ordering::Relaxed) {
            self.oldest_ms.fetch_max(age_ms, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self, endpoint: Option<Arc<str>>) -> Stats {
        Stats {
            calls: self.calls.get(),
            retries: self.retries.get(),
            refusals: self.refusals.get(),
            failures: self.failures.get(),
            ids: self.ids.get(),
            dropped: self.dropped.get(),
            oldest_ms: self.oldest_ms.load(Ordering::Relaxed),
            endpoint,
        }
    }
}
