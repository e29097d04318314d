//! Takes the requests of a turn and encodes their replies.

use std::io;
use std::rc::Rc;

use super::super::backlog::Backlog;
use super::super::draw::{self, NotYet, Paced, Waiting};
use super::super::thread_state::ThreadState;
use super::super::turn_state::{INPUT_SIZE, READ_BYTES_MAX, TurnState};
use super::super::turnstile::{scan_cost, turn_cost};
use super::{Connection, Turn};
use crate::access::NO_TOKEN;
use crate::front::{Ask, Conditions, FrameIds, Front, Reason, Step};
use crate::numbering::Numbering;
use crate::server::net::rejections;
use crate::server::shared::live_config::LiveConfig;
use snowbank_client::layout::UnixMicros;
use snowbank_client::protocol::ErrorCode;

/// Errors in a row, with nothing else between them, after which the connection is closed. A client with a defect has seen
/// many of them by then, and an error costs more than a request.
const ERRORS_IN_ROW_MAX: u16 = 1_000;

impl<F: Front> Connection<F> {
    /// Takes all requests in `bytes`, in a turn that began at this instant of the wall clock, and keeps the rest of the bytes.
    pub(super) fn take(
        &mut self,
        thread: &Rc<ThreadState>,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (bytes, wall): (&[u8], UnixMicros),
    ) -> Turn<F> {
        self.find_share(thread, &live_config.limits);
        // Requests that arrived before the stop are answered. Those read after it was noticed are refused.
        let draining = thread.refuses_all.is_set() || thread.draining.get() && !self.member.is_undrained();
        let (facts, counts) = (&live_config.facts, || thread.common.metrics.counts_of(F::PROTOCOL));
        let (mut at, full_at) = (0, self.full_at());
        // Requests of an EXEC were read in earlier turns. They cost as much as others.
        let (executed_before, mut executed) = (self.front.executed_bytes(), 0);
        let turn = loop {
            if let Some(turn) = self.end_reply(thread, live_config, state) {
                break turn;
            }
            executed = self.front.executed_bytes().saturating_sub(executed_before).max(executed);
            let is_full = state.output.len() >= full_at || executed >= READ_BYTES_MAX;
            if is_full && (at < bytes.len() || self.front.has_kept_requests()) {
                break Turn::Again;
            }
            let answered = state.output.len();
            let session = &mut self.session;
            let mut conditions = Conditions { facts, session, draining, wall, counts: &counts };
            match self.front.step(&bytes[at..], &mut conditions, &mut state.output) {
                Step::Incomplete => break Turn::Done,
                Step::Answered { consumed, error } => {
                    at += consumed;
                    self.note_answer(thread, error);
                    if self.has_only_errors(error) {
                        at = bytes.len();
                        break Turn::Close;
                    }
                }
                Step::Ids { consumed, ask, form } => {
                    at += consumed;
                    self.errors_in_row = 0;
                    let request = (&bytes[at - consumed..], consumed);
                    match self.serve_ids(thread, live_config, state, (&ask, form), request) {
                        Ok(alike) => {
                            at += consumed * alike;
                            state.timing.note_served(1 + alike as u64);
                        }
                        Err(waits) => break waits,
                    }
                }
                Step::Close { error } => {
                    let is_silent = error.is_none() && state.output.len() == answered;
                    let turn = self.close(thread, &bytes[at..], error, is_silent);
                    at = bytes.len();
                    break turn;
                }
            }
        };
        keep(&mut self.unread, &bytes[at..]);
        self.turn_cost = turn_cost(at + executed, state.output.len()) + scan_cost(bytes.len() - at);
        turn
    }

    /// Encodes the rest of a reply that has begun. Returns how the turn ends, unless the next request may be taken.
    #[inline]
    fn end_reply(
        &mut self,
        thread: &ThreadState,
        live_config: &LiveConfig,
        state: &mut TurnState,
    ) -> Option<Turn<F>> {
        if self.backlog.is_some() && !self.encode_backlog(live_config, state) {
            return Some(Turn::Again);
        }
        let is_revoked = self.session.revoked().is_some() && !self.is_amid_reply();
        if is_revoked { self.close_revoked(thread, state) } else { None }
    }

    /// Counts an answer. Returns true if so many requests in a row failed that the connection must close.
    #[cold]
    fn has_only_errors(&mut self, error: Option<ErrorCode>) -> bool {
        self.errors_in_row = if error.is_some() { self.errors_in_row + 1 } else { 0 };
        let is_one_too_many = self.errors_in_row == ERRORS_IN_ROW_MAX;
        if is_one_too_many {
            rejections::log(self.stream.peer(), "a thousand requests in a row that are errors");
        }
        is_one_too_many
    }

    /// Counts the message at the start of `bytes`, which closes the connection, and logs it if it is an error of the peer. Returns the last turn. A close
    /// without an error that sends nothing is not counted.
    #[cold]
    fn close(
        &self,
        thread: &ThreadState,
        bytes: &[u8],
        error: Option<ErrorCode>,
        is_silent: bool,
    ) -> Turn<F> {
        self.log_rejection(bytes, error);
        if !is_silent {
            thread.counters.note_other(F::PROTOCOL, error);
        }
        if error != Some(ErrorCode::Unauthorized) {
            return Turn::Close;
        }
        thread.counters.unauthorized_refusals.add(1);
        Turn::Unauthorized
    }

    /// Counts an answer without IDs. Logs it if it refuses a client that has shown no token; the connection stays open.
    fn note_answer(&mut self, thread: &ThreadState, error: Option<ErrorCode>) {
        thread.counters.note_other(F::PROTOCOL, error);
        if error == Some(ErrorCode::Unauthorized) {
            thread.counters.unauthorized_refusals.add(1);
            rejections::log_refused(self.stream.peer(), &self.stream.origin(), NO_TOKEN);
        }
        self.log_newcomer();
    }

    /// Logs why the connection is closed, if the bytes show an error of the peer.
    fn log_rejection(&self, bytes: &[u8], error: Option<ErrorCode>) {
        match self.front.rejection(bytes, &self.session) {
            Some(reason) if error == Some(ErrorCode::Unauthorized) => {
                rejections::log_unauthorized(self.stream.peer(), &self.stream.origin(), &reason);
            }
            Some(reason) => rejections::log(self.stream.peer(), &reason),
            None => {}
        }
    }

    /// Serves the request at the start of `bytes`, of this size: encodes its IDs or a refusal. Serves the equal requests
    /// behind it too, as far as IDs for them are at hand. Returns the number of these.
    ///
    /// # Errors
    /// The turn in which the request waits.
    #[inline]
    fn serve_ids(
        &mut self,
        thread: &Rc<ThreadState>,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (ask, form): (&Ask, F::Form),
        (bytes, size): (&[u8], usize),
    ) -> Result<usize, Turn<F>> {
        let ahead = || self.front.demand(&bytes[size..], ask.source, &live_config.facts);
        match draw::take(thread, live_config, state, (&self.session, ask, self.read_at), ahead) {
            Ok(()) => {}
            Err(not_yet) => return self.put_off(live_config, state, (ask, form), not_yet).map_or(Ok(0), Err),
        }
        let at_hand = || draw::at_hand(state, (&self.session, ask.source));
        let alike = match self.front.alike(bytes, size, form, at_hand) {
            0 => 0,
            most => draw::take_at_hand(thread, state, (&self.session, ask.source), most),
        };
        let count = ask.count_in(&state.runs);
        self.encode_ids(live_config, state, (ask.source, count), form);
        Ok(alike)
    }

    /// Encodes the IDs of a request or its refusal, or returns the turn in which it waits.
    #[cold]
    fn end_draw(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (ask, form): (&Ask, F::Form),
        drawn: Result<(), NotYet>,
    ) -> Option<Turn<F>> {
        match drawn {
            Ok(()) => {
                let count = ask.count_in(&state.runs);
                self.encode_ids(live_config, state, (ask.source, count), form);
                None
            }
            Err(not_yet) => self.put_off(live_config, state, (ask, form), not_yet),
        }
    }

    /// Encodes the refusal of a request, or returns the turn in which it waits.
    #[cold]
    fn put_off(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (ask, form): (&Ask, F::Form),
        not_yet: NotYet,
    ) -> Option<Turn<F>> {
        match not_yet {
            NotYet::Refused(reason) => {
                self.refuse(live_config, state, (ask, form), reason);
                None
            }
            NotYet::Waits(waiting) => Some(Turn::Waits(waiting, form)),
            NotYet::Paced(paced) => Some(Turn::Paced(paced, form)),
        }
    }

    /// Encodes the IDs in `state.runs`, this many of this source. If they need more than one frame, they become the backlog.
    #[inline]
    fn encode_ids(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (source, count): (usize, u64),
        form: F::Form,
    ) {
        let numbering = live_config.source(source).numbering();
        let needs_list = numbering.needs_list();
        if !self.share.of_frame(self.front.frame_limit(form, needs_list)).fits(&state.runs) {
            return self.start_backlog(state, (source, numbering), form);
        }
        let (runs, random) = (&state.runs, numbering.random_parts());
        let frame_ids = FrameIds { runs, random, needs_list, of_reply: Some(count), more: false };
        self.front.encode_ids(&mut state.output, form, &frame_ids, &mut state.rng);
    }

    /// Makes the IDs in `state.runs` the backlog.
    #[cold]
    fn start_backlog(
        &mut self,
        state: &mut TurnState,
        (source, numbering): (usize, &Numbering),
        form: F::Form,
    ) {
        self.backlog = Some(Box::new(Backlog::new(source, form, numbering, &state.runs)));
        state.shrink();
    }

    /// Encodes the refusal of a request for IDs.
    #[cold]
    fn refuse(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (ask, form): (&Ask, F::Form),
        reason: Reason,
    ) {
        let request = (&self.session, ask);
        let words = draw::refuse(&self.member.thread, live_config, request, F::PROTOCOL, reason);
        self.front.refuse(&mut state.output, form, &words);
    }

    /// Waits until a request's wait is over, and encodes its reply. Returns the request if its IDs were lost with the grant,
    /// and it waits again.
    ///
    /// # Errors
    /// If the connection is reset meanwhile. The request has left the wait queue then.
    pub(super) async fn wait(
        &mut self,
        mut waiting: Box<Waiting>,
        form: F::Form,
    ) -> io::Result<Option<Box<Waiting>>> {
        let finished = tokio::select! {
            biased;
            finished = waiting.finished() => finished,
            reset = self.stream.reset() => return Err(reset),
        };
        let thread = Rc::clone(&self.member.thread);
        let live_config = &thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        let ended = waiting.end(live_config, state, &self.session, &finished);
        Ok(self.end_late(live_config, state, (&waiting.ask, form), ended))
    }

    /// Waits until the client's rate allows a request, and encodes its reply. Returns the request if it has to wait for its
    /// source as well.
    ///
    /// # Errors
    /// If the connection is reset meanwhile. The request's IDs are given back then.
    pub(super) async fn pace(
        &mut self,
        paced: Box<Paced>,
        form: F::Form,
    ) -> io::Result<Option<Box<Waiting>>> {
        let thread = Rc::clone(&self.member.thread);
        tokio::select! {
            biased;
            () = paced.over(&thread) => {}
            gone = self.stream.reset() => return Err(gone),
        }
        let live_config = &thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        let ask = paced.ask;
        let taken = paced.take(&thread, live_config, state, &self.session);
        Ok(self.end_late(live_config, state, (&ask, form), taken))
    }

    /// Encodes the reply to a request that was put off, or returns the request if it waits for its source now.
    fn end_late(
        &mut self,
        live_config: &LiveConfig,
        state: &mut TurnState,
        (ask, form): (&Ask, F::Form),
        drawn: Result<(), NotYet>,
    ) -> Option<Box<Waiting>> {
        match self.end_draw(live_config, state, (ask, form), drawn) {
            Some(Turn::Waits(waiting, _)) => return Some(waiting),
            Some(_) => unreachable!("its rate has let it pass"),
            None => {}
        }
        self.member.thread.counters.note_served(F::PROTOCOL, self.read_at);
        self.unwritten.append(&mut state.output);
        None
    }

    /// Encodes more of the backlog while the queue has room. Returns true when nothing of it is left.
    #[cold]
    fn encode_backlog(&mut self, live_config: &LiveConfig, state: &mut TurnState) -> bool {
        let Some(mut backlog) = self.backlog.take() else {
            return true;
        };
        let form = backlog.form;
        let numbering = live_config.source(backlog.source).numbering();
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        let (limit, full_at) =
            (self.share.of_frame(self.front.frame_limit(form, needs_list)), self.full_at());
        while state.output.len() < full_at {
            let of_reply = backlog.of_reply();
            let more = backlog.next_frame(numbering, limit, &mut state.runs);
            let frame_ids = FrameIds { runs: &state.runs, random, needs_list, of_reply, more };
            self.front.encode_ids(&mut state.output, form, &frame_ids, &mut state.rng);
            if !more {
                return true;
            }
        }
        self.backlog = Some(backlog);
        false
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
