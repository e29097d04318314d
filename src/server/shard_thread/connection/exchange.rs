//! Serves the requests of a turn, some after a wait, and encodes their replies.

use std::time::Duration;

use super::super::allocate::{NotYet, Parked};
use super::super::backlog::Backlog;
use super::super::scheduler::{TURN_COST, scan_cost, turn_cost};
use super::super::turn::{Request, Turn};
use super::super::turn_state::{INPUT_SIZE, READ_BYTES_MAX};
use super::budget::Share;
use super::write::Unwritten;
use super::{NEVER_READ, TurnEnd};
use crate::access::NO_TOKEN;
use crate::frontends::{FEW_IDS, FrameIds, FrontEnd, Reason, Step, Words};
use crate::server::health::metrics::CloseReason;
use crate::server::net::socket_stream::SocketStream;
use snowbank_core::clock::BootMicros;
use snowbank_wire::{Action, ErrorCode};
use zeroize::Zeroizing;

/// The number of errors in a row after which a connection is closed, because an error costs more
/// than a request. This many errors are enough to notice a defect of an honest client.
const ERRORS_IN_ROW_MAX: u16 = 1_000;

/// The requests of a connection that are not answered yet, and the replies that are not written
/// yet.
pub(super) struct Exchange<F: FrontEnd> {
    pub(super) front: F,
    /// Bytes that were read and are not decoded yet: half a request, or requests for a later turn.
    pub(super) unread: Zeroizing<Vec<u8>>,
    pub(super) unwritten: Unwritten,
    /// The instant at which `unread` was read. If `unread` is half a request, the instant at which
    /// its first byte was read. A request's wait and `stall_timeout` count from this instant.
    pub(super) read_at: BootMicros,
    /// The rest of a reply that is longer than a frame. Boxed, because few connections ever have
    /// such a reply.
    backlog: Option<Box<Backlog<F::Form>>>,
    /// The number of errors in a row. A request for IDs, and any answer without an error, sets it
    /// to 0.
    errors_in_row: u16,
    /// True once the connection is to end, but answers for another moment: a token was refused, or
    /// too many requests were errors.
    pub(super) is_ending: bool,
    /// True once a token was refused.
    is_denied: bool,
    /// The share of the budget for queued bytes that the connection had in its last turn.
    pub(super) share: Share,
    /// The cost of the turn so far, without the cost of TLS.
    pub(super) turn_cost: usize,
}

impl<F: FrontEnd> Exchange<F> {
    pub(super) fn new(front: F) -> Self {
        Exchange {
            front,
            unread: Zeroizing::default(),
            unwritten: Unwritten::default(),
            read_at: NEVER_READ,
            backlog: None,
            errors_in_row: 0,
            is_ending: false,
            is_denied: false,
            share: Share::WHOLE,
            turn_cost: TURN_COST,
        }
    }

    /// Serves the requests in `bytes`, and keeps the bytes that are left.
    pub(super) fn serve(&mut self, turn: &mut Turn<'_>, peer: &SocketStream, bytes: &[u8]) -> TurnEnd<F> {
        let full_at = self.share.full_at(self.unwritten.len());
        let extra_before = self.front.extra_cost_bytes();
        let mut at = 0;
        let mut served = 0;
        let end = loop {
            if let Some(end) = self.end_reply(turn, peer) {
                break end;
            }
            let is_costly = self.front.extra_cost_bytes() - extra_before >= READ_BYTES_MAX;
            let is_full = turn.state.output.len() >= full_at || is_costly;
            if is_full && (at < bytes.len() || self.front.has_kept_requests()) {
                break TurnEnd::Again;
            }
            let answered = turn.state.output.len();
            let rest = &bytes[at..];
            match self.front.step(rest, &mut turn.conditions, &mut turn.state.output) {
                Step::Incomplete => break TurnEnd::Done,
                Step::Skipped { consumed } => at += consumed,
                Step::Answered { consumed, error } => {
                    at += consumed;
                    let is_answered = turn.state.output.len() > answered;
                    if self.record_answer(turn, peer, error, is_answered) {
                        if turn.conditions.session.is_authorized() {
                            // A pipeline's client reads a reply to each request that it has sent.
                            self.is_ending = true;
                        } else {
                            at = bytes.len();
                        }
                        break TurnEnd::Close;
                    }
                }
                Step::Ids { consumed, ask, form } => {
                    at += consumed;
                    self.errors_in_row = 0;
                    let request = Request { ask, form, read_at: self.read_at, size: consumed };
                    match self.serve_ids(turn, request, rest) {
                        Ok(alike) => {
                            at += consumed * alike;
                            served += 1 + alike as u64;
                        }
                        Err(parked) => break TurnEnd::Parked(parked),
                    }
                }
                Step::Denied { consumed } => {
                    at += consumed;
                    turn.thread.counters.record_other(F::PROTOCOL, Some(ErrorCode::Unauthorized));
                    self.is_ending = true;
                    if !std::mem::replace(&mut self.is_denied, true) {
                        break close(turn, peer, Some(ErrorCode::Unauthorized));
                    }
                }
                Step::Close { error } => {
                    if error.is_some() || turn.state.output.len() > answered {
                        turn.thread.counters.record_other(F::PROTOCOL, error);
                    }
                    at = bytes.len();
                    break close(turn, peer, error);
                }
            }
        };
        turn.state.timing.record_served(served);
        self.keep(&bytes[at..]);
        let cost_bytes = at / F::BYTES_OF_COST + self.front.extra_cost_bytes() - extra_before;
        self.turn_cost = turn_cost(cost_bytes, turn.state.output.len()) + scan_cost(bytes.len() - at);
        end
    }

    /// Keeps `rest` for the next turn. An idle connection owns no buffer.
    fn keep(&mut self, rest: &[u8]) {
        debug_assert!(rest.len() <= INPUT_SIZE);
        if rest.is_empty() || rest.len() > self.unread.capacity() {
            // The old buffer is erased: it may have a token. A buffer that grows would leave a copy.
            self.unread = Zeroizing::new(rest.to_vec());
        } else {
            self.unread.clear();
            self.unread.extend_from_slice(rest);
        }
    }

    /// Encodes frames of the backlog, if there is one. Returns how the turn ended, or `None` if the
    /// next request may be served.
    #[inline]
    fn end_reply(&mut self, turn: &mut Turn<'_>, peer: &SocketStream) -> Option<TurnEnd<F>> {
        if self.backlog.is_some() && !self.encode_backlog(turn) {
            return Some(TurnEnd::Again);
        }
        let is_revoked = turn.conditions.session.revoked().is_some() && !self.is_amid_reply();
        if is_revoked { self.close_revoked(turn, peer) } else { None }
    }

    /// Encodes the IDs or the refusal of the request at the start of `bytes`. If equal requests
    /// follow it and IDs are at hand, also serves these requests, and returns their number.
    ///
    /// # Errors
    /// Returns the request if it must wait.
    #[inline]
    fn serve_ids(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<F::Form>,
        bytes: &[u8],
    ) -> Result<usize, Parked<F::Form>> {
        let source = request.ask.source;
        let size = request.size;
        let facts = &turn.config.facts;
        if let Err(not_yet) = turn.allocate(request, || self.front.demand(&bytes[size..], source, facts)) {
            return self.put_off(turn, request, not_yet).map_or(Ok(0), Err);
        }
        let alike = match self.front.alike(bytes, size, request.form, || turn.at_hand(source)) {
            0 => 0,
            most => turn.allocate_at_hand(source, most),
        };
        self.encode_ids(turn, request);
        Ok(alike)
    }

    /// Encodes the refusal of a request, or returns the request if it must wait.
    #[cold]
    fn put_off(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<F::Form>,
        not_yet: NotYet<F::Form>,
    ) -> Option<Parked<F::Form>> {
        match not_yet {
            NotYet::Refused(reason) => {
                self.refuse(turn, request, reason);
                None
            }
            NotYet::Parked(parked) => Some(parked),
        }
    }

    /// Encodes the reply to a parked request. Returns the request if it must wait again.
    #[cold]
    pub(super) fn resume(&mut self, turn: &mut Turn<'_>, parked: Parked<F::Form>) -> Option<Parked<F::Form>> {
        let request = parked.request();
        let timed_from = parked.timed_from();
        match parked.resume(turn) {
            Ok(()) => self.encode_ids(turn, request),
            Err(NotYet::Refused(reason)) => self.refuse(turn, request, reason),
            Err(NotYet::Parked(parked)) => return Some(parked),
        }
        turn.thread.counters.record_served(F::PROTOCOL, timed_from);
        self.unwritten.extend(&turn.state.output);
        turn.state.output.clear();
        None
    }

    /// Encodes the IDs in `state.runs`. If the IDs need more than one frame, makes a backlog of
    /// them instead.
    // Always inlined, because a call would add a tenth to the cost of each request.
    #[inline(always)]
    fn encode_ids(&mut self, turn: &mut Turn<'_>, request: Request<F::Form>) {
        let supply = &turn.config.supplies[request.ask.source];
        let needs_list = supply.needs_list;
        let form = request.form;
        let state = &mut *turn.state;
        let are_few = matches!(state.runs[..], [run] if run.count <= FEW_IDS);
        if !are_few && !self.share.frame_limit(self.front.frame_limit(form, needs_list)).fits(&state.runs) {
            return self.start_backlog(turn, request);
        }
        let frame_ids = FrameIds {
            runs: &state.runs,
            random: if needs_list { supply.source.numbering().random_parts() } else { &[] },
            needs_list,
            reply_count: Some(request.ask.count_in(&state.runs)),
            more: false,
        };
        self.front.encode_ids(&mut state.output, form, &frame_ids, &mut state.rng);
    }

    #[cold]
    #[inline(never)]
    fn start_backlog(&mut self, turn: &mut Turn<'_>, request: Request<F::Form>) {
        let source = request.ask.source;
        let numbering = turn.config.source(source).numbering();
        self.backlog = Some(Box::new(Backlog::new(source, request.form, numbering, &turn.state.runs)));
        turn.state.shrink();
    }

    /// Encodes frames of the backlog while the queue has room. Returns true if no backlog is left.
    #[cold]
    fn encode_backlog(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(mut backlog) = self.backlog.take() else {
            return true;
        };
        let form = backlog.form;
        let state = &mut *turn.state;
        let numbering = turn.config.source(backlog.source).numbering();
        let random = numbering.random_parts();
        let needs_list = numbering.needs_list();
        let limit = self.share.frame_limit(self.front.frame_limit(form, needs_list));
        let full_at = self.share.full_at(self.unwritten.len());
        while state.output.len() < full_at {
            let reply_count = backlog.reply_count();
            let more = backlog.next_frame(numbering, limit, &mut state.runs);
            let frame_ids = FrameIds { runs: &state.runs, random, needs_list, reply_count, more };
            self.front.encode_ids(&mut state.output, form, &frame_ids, &mut state.rng);
            if !more {
                return true;
            }
        }
        self.backlog = Some(backlog);
        false
    }

    #[cold]
    fn refuse(&mut self, turn: &mut Turn<'_>, request: Request<F::Form>, reason: Reason) {
        let words = turn.refuse(&request.ask, F::PROTOCOL, reason);
        self.front.refuse(&mut turn.state.output, request.form, &words);
    }

    /// Returns true if a part of a long reply is not encoded yet.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// Returns true if a part of the reply to an earlier message is not encoded yet.
    fn is_amid_reply(&self) -> bool {
        self.backlog.is_some() || self.front.has_kept_requests()
    }

    /// Applies a reload to the session. If the new configuration does not accept the client's token
    /// or certificate, encodes a last message, and returns that the connection must close.
    #[cold]
    pub(super) fn renew(&mut self, turn: &mut Turn<'_>, peer: &SocketStream) -> Option<TurnEnd<F>> {
        let rules = &turn.config.facts.access;
        let version = turn.config.version;
        turn.conditions.session.renew(rules, version, peer.shown()).err()?;
        // If a part of a reply is encoded, the rest is encoded first. Requests that have no IDs yet
        // and that belong to this reply are refused in it.
        if self.is_amid_reply() { None } else { self.close_revoked(turn, peer) }
    }

    /// If a reload has revoked the client, encodes a last message, and returns that the connection
    /// must close.
    #[cold]
    fn close_revoked(&mut self, turn: &mut Turn<'_>, peer: &SocketStream) -> Option<TurnEnd<F>> {
        let denial = turn.conditions.session.revoked()?;
        let text = format!("after a reload: {denial}");
        turn.thread.common.rejections.close_revoked(&peer.ends(), &text);
        // The client's files may already have another token or certificate.
        let words = Words {
            code: ErrorCode::Unauthorized,
            action: Action::Leave,
            retry_after: Some(Duration::ZERO),
            message: denial.to_string(),
        };
        self.front.farewell(&mut turn.state.output, &words);
        turn.thread.counters.record_error(F::PROTOCOL, words.code);
        Some(TurnEnd::Close)
    }

    /// Encodes the last message to a client that has sent too many bytes without a token.
    #[cold]
    pub(super) fn say_too_long(&mut self) {
        let most = F::TOKEN_MESSAGE_BYTES_MAX;
        let words = Words {
            code: ErrorCode::Unauthorized,
            action: Action::Tell,
            retry_after: None,
            message: format!("found a request of more than {most} bytes before a token; send a token first"),
        };
        let mut last = Vec::new();
        self.front.farewell(&mut last, &words);
        self.unwritten.extend(&last);
    }

    /// Counts an answer without IDs. Logs the answer if it refuses a client that has sent no token.
    /// Returns true if the connection must close, because too many answers in a row were errors.
    #[cold]
    fn record_answer(
        &mut self,
        turn: &mut Turn<'_>,
        peer: &SocketStream,
        error: Option<ErrorCode>,
        is_answered: bool,
    ) -> bool {
        turn.thread.counters.record_other(F::PROTOCOL, error);
        if error == Some(ErrorCode::Unauthorized) {
            turn.thread.counters.unauthorized_refusals.add(1);
            turn.thread.common.rejections.log_refused(&peer.ends(), NO_TOKEN);
        }
        match error {
            // The bytes of a request without a reply are its whole cost.
            Some(_) if !is_answered => return false,
            Some(_) => self.errors_in_row = self.errors_in_row.saturating_add(1),
            None => self.errors_in_row = 0,
        }
        let is_one_too_many = self.errors_in_row == ERRORS_IN_ROW_MAX && !self.is_ending;
        if is_one_too_many {
            let text = "its last thousand requests were errors";
            turn.thread.common.rejections.close(CloseReason::Errors, &peer.ends(), text);
        }
        is_one_too_many
    }
}

/// If a message closes the connection because of the peer's error, logs why. Returns how the last
/// turn ends.
#[cold]
fn close<F: FrontEnd>(turn: &mut Turn<'_>, peer: &SocketStream, error: Option<ErrorCode>) -> TurnEnd<F> {
    let is_unauthorized = error == Some(ErrorCode::Unauthorized);
    let reason = if is_unauthorized { CloseReason::Unauthorized } else { CloseReason::BadRequest };
    if let Some(text) = turn.conditions.rejection.take() {
        turn.thread.common.rejections.close(reason, &peer.ends(), &text);
    }
    if is_unauthorized {
        turn.thread.counters.unauthorized_refusals.add(1);
        return TurnEnd::Unauthorized;
    }
    TurnEnd::Close
}
