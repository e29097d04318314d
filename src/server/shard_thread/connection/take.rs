//! Takes the requests of a turn and encodes their replies.

use super::super::backlog::Backlog;
use super::super::thread_state::ThreadState;
use super::super::turn_state::{INPUT_SIZE, TurnState};
use super::wait::{Waiting, wait_of};
use super::{Connection, Turn};
use crate::front::{Ask, FrameIds, Front, Refused, Step};
use crate::server::net::rejections;
use crate::server::shared::live_config::LiveConfig;
use crate::source::wait_queue::Refusal;
use snowbank_client::protocol::{ErrorCode, MAX_REPLY_SIZE};

/// Bytes queued for a client that reads slowly; then nothing more is read from it. Four whole reply frames: two on their way
/// to the socket, two being filled.
const REPLY_QUEUE_BYTES_MAX: usize = 4 * MAX_REPLY_SIZE;

/// Errors in a row, with nothing else between them, after which the connection is closed. A client with a defect has seen
/// many of them by then, and an error costs more than a request.
const ERRORS_IN_ROW_MAX: u16 = 1_000;

impl<F: Front> Connection<F> {
    /// Takes all requests in `bytes`, and keeps the rest of the bytes.
    pub(super) fn take(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        bytes: &[u8],
    ) -> Turn {
        let mut at = 0;
        let turn = loop {
            if self.backlog.is_some() && !self.encode_backlog(live_config, state) {
                break Turn::Again;
            }
            if self.is_queue_full(&state.output) {
                break Turn::Again;
            }
            // Requests that arrived before the stop are answered. Those read after it was noticed are refused.
            let draining = thread.draining.get() && !self.member.is_undrained();
            match self.front.step(
                &bytes[at..],
                &live_config.facts,
                &mut self.session,
                draining,
                &mut state.output,
            ) {
                Step::Incomplete => break Turn::Done,
                Step::Answered { consumed, error } => {
                    at += consumed;
                    note_answer(thread, error);
                    self.log_access(live_config);
                    if self.has_only_errors(error) {
                        at = bytes.len();
                        break Turn::Close;
                    }
                }
                Step::Ids { consumed, ask } => {
                    at += consumed;
                    self.errors_in_row = 0;
                    if let Some(waiting) = self.serve_ids(thread, live_config, state, ask, &bytes[at..]) {
                        break Turn::Waits(waiting);
                    }
                    state.timing.note_served();
                }
                Step::Close { error } => {
                    self.log_rejection(&bytes[at..]);
                    at = bytes.len();
                    note_answer(thread, error);
                    break Turn::Close;
                }
            }
        };
        keep(&mut self.unread, &bytes[at..]);
        turn
    }

    /// Counts an answer. Returns true if the peer has only sent errors for so long that it must be closed.
    #[cold]
    fn has_only_errors(&mut self, error: Option<ErrorCode>) -> bool {
        self.errors_in_row = if error.is_some() { self.errors_in_row + 1 } else { 0 };
        let is_one_too_many = self.errors_in_row == ERRORS_IN_ROW_MAX;
        if is_one_too_many {
            rejections::log(self.stream.peer(), "a thousand requests in a row that are errors");
        }
        is_one_too_many
    }

    /// Logs why the connection is closed, if the bytes show an error of the peer.
    #[cold]
    fn log_rejection(&self, bytes: &[u8]) {
        if let Some(reason) = self.front.rejection(bytes, &self.session) {
            rejections::log(self.stream.peer(), reason);
        }
    }

    /// Returns true if one more frame could exceed the bytes that may be queued for the client.
    fn is_queue_full(&self, output: &[u8]) -> bool {
        output.len() + self.unwritten.len() > REPLY_QUEUE_BYTES_MAX - MAX_REPLY_SIZE
    }

    /// Serves a request for IDs: encodes them or a refusal, or returns the request if it has to wait. `later` are the bytes
    /// behind the request.
    #[inline]
    fn serve_ids(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        ask: Ask,
        later: &[u8],
    ) -> Option<Box<Waiting>> {
        state.runs.clear();
        let (lane, rng) = state.shard.lane(ask.source);
        let ahead = || self.front.demand(later, ask.source, &live_config.facts);
        match lane.take(ask.count, ahead, rng, &mut state.runs) {
            Ok(()) => {
                self.encode_ids(thread, live_config, state, ask);
                None
            }
            Err(missing) => self.enqueue(thread, live_config, state, ask, missing),
        }
    }

    /// Encodes the IDs in `state.runs`. If they need more than one frame, they become the backlog.
    #[inline]
    pub(super) fn encode_ids(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        ask: Ask,
    ) {
        let counters = &thread.counters.sources[ask.source];
        counters.requests.add(1);
        let some_of_it = || state.runs.iter().map(|run| u64::from(run.count)).sum();
        let count = if ask.partial { some_of_it() } else { ask.count };
        counters.ids.add(count);
        if let Some(identity) = self.session.identity() {
            identity.usage.note_ids(thread.index, ask.source, count);
        }
        let numbering = live_config.source(ask.source).numbering();
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        if self.front.frame_limit(ask.form, needs_list).fits(&state.runs) {
            let frame_ids = FrameIds { runs: &state.runs, random, needs_list, more: false };
            self.front.encode_ids(&mut state.output, ask.form, &frame_ids, &mut state.rng);
        } else {
            self.backlog = Some(Box::new(Backlog::new(ask, numbering, &state.runs)));
            state.shrink();
        }
    }

    /// Encodes a refusal of the source.
    pub(super) fn refuse(
        &self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
        ask: Ask,
        refusal: Refusal,
    ) {
        let (source, limits) = (live_config.source(ask.source), &live_config.limits);
        let longer_wait = Some(limits.max_wait).filter(|most| wait_of(&ask, limits, source) < *most);
        let refused = Refused { refusal, source: source.name(), longer_wait };
        let code = self.front.refuse(&mut state.output, ask.form, refused);
        let counters = &thread.counters.sources[ask.source];
        counters.requests.add(1);
        counters.refused.add(1);
        counters.exhausted.add(u64::from(code == ErrorCode::Exhausted));
        thread.counters.errors.add(code);
    }

    /// Encodes more of the backlog while the queue has room. Returns true when nothing of it is left.
    fn encode_backlog(&mut self, live_config: &LiveConfig, state: &mut TurnState) -> bool {
        let Some(mut backlog) = self.backlog.take() else {
            return true;
        };
        let form = backlog.ask.form;
        let numbering = live_config.source(backlog.ask.source).numbering();
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        let limit = self.front.frame_limit(form, needs_list);
        while !self.is_queue_full(&state.output) {
            let more = backlog.next_frame(numbering, limit, &mut state.runs);
            let frame_ids = FrameIds { runs: &state.runs, random, needs_list, more };
            self.front.encode_ids(&mut state.output, form, &frame_ids, &mut state.rng);
            if !more {
                return true;
            }
        }
        self.backlog = Some(backlog);
        false
    }
}

/// Counts an answer that needed no IDs.
#[cold]
fn note_answer(thread: &ThreadState, error: Option<ErrorCode>) {
    match error {
        Some(code) => thread.counters.errors.add(code),
        None => thread.counters.other_requests.add(1),
    }
}

/// Keeps `rest` for the next turn. An idle connection owns no buffer.
fn keep(unread: &mut Vec<u8>, rest: &[u8]) {
    debug_assert!(rest.len() <= INPUT_SIZE);
    if rest.is_empty() {
        *unread = Vec::new();
    } else {
        unread.clear();
        unread.extend_from_slice(rest);
    }
}
