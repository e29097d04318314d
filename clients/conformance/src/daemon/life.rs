//! The state of a daemon in one life. All connections of the life share this state.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Notify;

use super::frames;
use super::request::{Next, Request};
use crate::case::{Answer, Expect, Kind, Life, WelcomeSpec};
use crate::report::{self, Report};

/// One life of one daemon.
#[derive(Debug)]
pub(super) struct LifeState {
    /// The daemon's index, for messages.
    pub(super) daemon: usize,
    number: usize,
    pub(super) script: Life,
    seen: Mutex<Seen>,
    pub(super) release: Notify,
    /// True once the daemon is frozen, and so answers nothing.
    pub(super) frozen: AtomicBool,
    report: Arc<Report>,
}

#[derive(Debug)]
struct Seen {
    connections: usize,
    open: usize,
    next_requests: usize,
    first_next: Option<Instant>,
    next_id: u64,
    hello: VecDeque<Answer>,
    next: VecDeque<Answer>,
    ping: VecDeque<Answer>,
    info: VecDeque<Answer>,
}

/// An open connection. Its end is noticed when this is dropped.
pub(super) struct Open(pub(super) Arc<LifeState>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.seen().open -= 1;
    }
}

fn queue(answers: &[Answer]) -> VecDeque<Answer> {
    let repeated = answers.iter().flat_map(|answer| std::iter::repeat_n(answer, answer.times.unwrap_or(1)));
    repeated.cloned().collect()
}

impl LifeState {
    pub(super) fn new(daemon: usize, number: usize, script: &Life, report: Arc<Report>) -> Self {
        Self {
            daemon,
            number,
            script: script.clone(),
            seen: Mutex::new(Seen {
                connections: 0,
                open: 0,
                next_requests: 0,
                first_next: None,
                next_id: script.first.unwrap_or(1),
                hello: queue(&script.hello),
                next: queue(&script.next),
                ping: queue(&script.ping),
                info: queue(&script.info),
            }),
            release: Notify::new(),
            frozen: AtomicBool::new(script.is == Kind::Frozen),
            report,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a fault of the client in this life.
    pub(super) fn fault(&self, text: &str) {
        self.report.fault(format!("daemon {}, life {}: {text}", self.daemon, self.number));
    }

    pub(super) fn connected(self: &Arc<Self>) -> Open {
        let (connections, open) = {
            let mut seen = self.seen();
            seen.connections += 1;
            seen.open += 1;
            (seen.connections, seen.open)
        };
        if self.script.max_connections.is_some_and(|max| connections > max) {
            self.fault(&format!("connection {connections} came, and fewer were expected"));
        }
        if self.script.max_open.is_some_and(|max| open > max) {
            self.fault(&format!("{open} connections are open at the same time, and fewer were expected"));
        }
        Open(Arc::clone(self))
    }

    /// Returns true while the client has no connection.
    pub(super) fn is_idle(&self) -> bool {
        self.seen().open == 0
    }

    /// Returns true once the life has lasted as long as its script allows.
    pub(super) fn is_over(&self) -> bool {
        let lasts = self.script.lasts_ms.map(Duration::from_millis);
        lasts.zip(self.seen().first_next).is_some_and(|(lasts, first)| first.elapsed() >= lasts)
    }

    /// Returns the scripted answer to a request, or an ordinary daemon's.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        let mut seen = self.seen();
        let answer = match request {
            Request::Hello(_) => seen.hello.pop_front(),
            Request::Ping(_) => seen.ping.pop_front(),
            Request::Info => seen.info.pop_front(),
            Request::Next(next) => {
                seen.next_requests += 1;
                seen.first_next.get_or_insert_with(Instant::now);
                let (requests, answer) = (seen.next_requests, seen.next.pop_front());
                drop(seen);
                if self.script.max_next.is_some_and(|max| requests > max) {
                    self.fault(&format!(
                        "request {requests} for IDs came, and fewer were expected: {next:?}"
                    ));
                }
                if let Some(mismatch) = answer.as_ref().and_then(|answer| mismatch(&answer.expect, next)) {
                    self.fault(&format!("request {requests} for IDs: {mismatch}"));
                }
                answer
            }
        };
        answer.unwrap_or_default()
    }

    /// Takes `count` consecutive IDs. Returns the first.
    pub(super) fn take(&self, count: u32) -> u64 {
        let mut seen = self.seen();
        let first = seen.next_id;
        seen.next_id += u64::from(count);
        first
    }

    /// Returns this life's WELCOME with the members of `spec`.
    pub(super) fn welcome(&self, tag: u16, spec: &WelcomeSpec) -> Vec<u8> {
        let instance = 1 + 1_000 * self.daemon as u64 + self.number as u64;
        frames::welcome(tag, spec, instance, 100 + self.daemon as u64)
    }

    /// Returns the body of INFO, which a client shows and does not read.
    pub(super) fn info(&self) -> String {
        json!({ "protocol": 1, "version": "0.1.0", "sources": [{ "name": "default", "worker_ids": [self.daemon] }] })
            .to_string()
    }

    /// Prints the event `held`: an answer waits until the test releases it.
    pub(super) fn held(&self) {
        report::print(&json!({ "event": "held", "daemon": self.daemon }));
    }

    /// Records a fault if expected requests did not come.
    pub(super) fn end(&self) {
        let seen = self.seen();
        let answers = [&seen.hello, &seen.next, &seen.ping, &seen.info].into_iter().flatten();
        let left = answers.filter(|answer| !answer.optional).count();
        let requests = seen.next_requests;
        drop(seen);
        if left > 0 {
            self.fault(&format!("{left} expected requests did not come"));
        }
        if requests < self.script.min_next {
            self.fault(&format!("{requests} requests for IDs came, and more were expected"));
        }
    }
}

/// Compares a request with the script. Returns the first difference.
fn mismatch(expect: &Expect, next: &Next) -> Option<String> {
    let Next { count, wait_ms, source, partial, .. } = next;
    let differs = expect.count.is_some_and(|wanted| wanted != *count)
        || expect.max_count.is_some_and(|most| *count > most)
        || expect.min_count.is_some_and(|fewest| *count < fewest)
        || expect.wait_ms.is_some_and(|wanted| wanted != *wait_ms)
        || expect.max_wait_ms.is_some_and(|most| *wait_ms > most)
        || expect.source.as_ref().is_some_and(|wanted| wanted != source)
        || expect.partial.is_some_and(|wanted| wanted != *partial);
    differs.then(|| format!("expected {expect:?}, found {next:?}"))
}
