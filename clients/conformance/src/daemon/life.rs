//! The state of a daemon in one life. All connections of the life share this state.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use snowbank_client::protocol::Next;
use tokio::sync::Notify;

use crate::case::{Answer, Expect, Kind, Life};
use crate::report::{self, Report};

/// One life of one daemon.
#[derive(Debug)]
pub(super) struct LifeState {
    /// The daemon's index, for messages.
    pub(super) daemon: usize,
    number: usize,
    pub(super) script: Life,
    /// The body of INFO.
    pub(super) info: Value,
    seen: Mutex<Seen>,
    pub(super) release: Notify,
    /// True once the daemon is frozen, and so answers nothing.
    pub(super) frozen: AtomicBool,
    report: Arc<Report>,
}

#[derive(Debug)]
struct Seen {
    connections: usize,
    next_requests: usize,
    next_id: u64,
    answers: VecDeque<Answer>,
}

impl LifeState {
    pub(super) fn new(daemon: usize, number: usize, script: &Life, report: Arc<Report>) -> Self {
        let mut answers = VecDeque::new();
        for answer in &script.next {
            answers.extend(std::iter::repeat_n(answer, answer.times.unwrap_or(1)).cloned());
        }
        Self {
            daemon,
            number,
            script: script.clone(),
            info: info(daemon, number, script),
            seen: Mutex::new(Seen {
                connections: 0,
                next_requests: 0,
                next_id: script.first.unwrap_or(1),
                answers,
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

    pub(super) fn connected(&self) {
        let connections = {
            let mut seen = self.seen();
            seen.connections += 1;
            seen.connections
        };
        if self.script.max_connections.is_some_and(|max| connections > max) {
            self.fault(&format!("connection {connections} came, and fewer were expected"));
        }
    }

    /// Returns the scripted answer to a NEXT request, or `None` if the daemon gives an ordinary
    /// answer.
    pub(super) fn answer(&self, next: &Next) -> Option<Answer> {
        let (answer, requests) = {
            let mut seen = self.seen();
            seen.next_requests += 1;
            (seen.answers.pop_front(), seen.next_requests)
        };
        if self.script.max_next.is_some_and(|max| requests > max) {
            self.fault(&format!("request {requests} for IDs came, and fewer were expected: {next:?}"));
        }
        if let Some(mismatch) = answer.as_ref().and_then(|answer| mismatch(&answer.expect, next)) {
            self.fault(&format!("request {requests} for IDs: {mismatch}"));
        }
        answer
    }

    /// Takes `count` consecutive IDs. Returns the first.
    pub(super) fn take(&self, count: u32) -> u64 {
        let mut seen = self.seen();
        let first = seen.next_id;
        seen.next_id += u64::from(count);
        first
    }

    /// Prints the event `held`: an answer waits until the test releases it.
    pub(super) fn held(&self) {
        report::print(&json!({ "event": "held", "daemon": self.daemon }));
    }

    /// Records a fault if expected requests did not come.
    pub(super) fn end(&self) {
        let left = self.seen().answers.iter().filter(|answer| !answer.optional).count();
        if left > 0 {
            self.fault(&format!("{left} expected requests for IDs did not come"));
        }
    }
}

/// Compares a request with the script. Returns the first difference.
fn mismatch(expect: &Expect, next: &Next) -> Option<String> {
    let wait_ms = next.wait.limit_ms().map_or(u64::from(u16::MAX), u64::from);
    let members = [
        ("count", expect.count.map(u64::from), u64::from(next.count)),
        ("source", expect.source.map(u64::from), u64::from(next.source)),
        ("max_wait_ms", expect.max_wait_ms, wait_ms),
        ("explicit", expect.explicit.map(u64::from), u64::from(next.explicit)),
        ("partial", expect.partial.map(u64::from), u64::from(next.partial)),
    ];
    members.iter().find_map(|(name, wanted, found)| {
        let wanted = (*wanted)?;
        (wanted != *found).then(|| format!("expected {name} {wanted}, found {found}"))
    })
}

/// Returns the INFO of an ordinary daemon, with the members and the padding of this life's script.
fn info(daemon: usize, number: usize, life: &Life) -> Value {
    let mut info = json!({
        "protocol": 1,
        "version": "0.1.0",
        "instance": format!("daemon-{daemon}-life-{number}"),
        "max_count": 1_000_000,
        "order": "relaxed",
        "burst_window_ms": 10,
        "max_ahead_ms": 10_000,
        "sources": [{
            "index": 0,
            "name": "default",
            "kind": "snowflake",
            "layout": "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657",
            "worker_ids": [daemon],
            "per_second": 4_096_000,
        }],
    });
    if let Value::Object(members) = &mut info {
        members.extend(life.info.clone());
        if life.info_padding > 0 {
            members.insert("padding".to_owned(), json!(" ".repeat(life.info_padding)));
        }
    }
    info
}
