//! Snowbank's own protocol, version 1, as a front-end.

use std::borrow::Cow;
use std::time::Duration;

use super::{Ask, Facts, Form, FrameIds, FrameLimit, Front, Refused, Step, stranger};
use crate::access::{Denial, Session};
use crate::source::wait_queue::Refusal;
use snowbank_client::protocol::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME};
use snowbank_client::protocol::{ErrorCode, Next, Parsed, Request, request};

/// The number of pipelined requests that an estimate of their demand reads. It is more than clients pipeline, and few enough
/// that the estimate costs less than the claim it saves.
const LOOK_AHEAD_REQUESTS: usize = 64;

/// The native protocol on one connection.
#[derive(Debug)]
pub struct Native;

/// What the answer to a request depends on, besides the request.
#[derive(Debug)]
struct Context<'c> {
    facts: &'c Facts,
    session: &'c mut Session,
    draining: bool,
}

impl Context<'_> {
    /// Returns whether a NEXT is valid and can be passed to its source.
    #[inline]
    fn is_served(&self, next: &Next) -> bool {
        let source = usize::from(next.source);
        self.session.is_authorized()
            && !self.draining
            && (1..=self.facts.max_count).contains(&next.count)
            && source < self.facts.sources
            && self.session.may_draw(source)
    }

    /// Answers requests that need no IDs: all but a NEXT that [`is_served`](Self::is_served). Returns the error code, if the
    /// answer is an error.
    // Not inlined: inside `step` it would cost each pipelined request 30 ns.
    #[cold]
    #[inline(never)]
    fn answer(&mut self, request: Request<'_>, tag: u16, out: &mut Vec<u8>) -> Option<ErrorCode> {
        if let Some((code, message)) = self.refusal(&request) {
            reply::encode_error(out, tag, code, None, &message);
            return Some(code);
        }
        match request {
            Request::Ping(body) => reply::encode_pong(out, tag, body),
            Request::Auth(_) => reply::encode_ok(out, tag),
            Request::Info => {
                let own = self.session.identity().map(|identity| &identity.info_json);
                reply::encode_info(out, tag, own.unwrap_or(&self.facts.info_json));
            }
            // Refused above, or passed to its source.
            Request::Next(_) => {}
        }
        None
    }

    /// Returns the error code and the message for a request that this connection or the daemon's limits do not allow. A
    /// token that is allowed is taken.
    fn refusal(&mut self, request: &Request<'_>) -> Option<(ErrorCode, Cow<'static, str>)> {
        let facts = self.facts;
        match request {
            Request::Ping(_) => None,
            Request::Auth(token) => {
                let denial = self.session.show_token(token, &facts.access).err()?;
                Some((ErrorCode::Unauthorized, denial.to_string().into()))
            }
            _ if !self.session.is_authorized() => {
                Some((ErrorCode::Unauthorized, "this daemon asks for a token; send AUTH first".into()))
            }
            Request::Info => None,
            Request::Next(_) if self.draining => Some((ErrorCode::ShuttingDown, STOPPING.into())),
            Request::Next(next) if !(1..=facts.max_count).contains(&next.count) => {
                let (found, most) = (next.count, facts.max_count);
                Some((ErrorCode::BadCount, format!("found count {found}, allowed 1 to {most}").into()))
            }
            Request::Next(next) if usize::from(next.source) < facts.sources => {
                let name = self.session.deny(next.source.into());
                let message =
                    format!("{name:?} may not draw from source {}; INFO lists what it may", next.source);
                Some((ErrorCode::UnknownSource, message.into()))
            }
            Request::Next(next) => {
                let (found, last) = (next.source, facts.sources - 1);
                let message = format!("found source {found}, this daemon has 0 to {last}; INFO lists them");
                Some((ErrorCode::UnknownSource, message.into()))
            }
        }
    }
}

/// The answer to a request for IDs while the daemon stops.
const STOPPING: &str = "the daemon is stopping; ask another, or this one when it is back";

impl Front for Native {
    #[inline]
    fn step(
        &mut self,
        bytes: &[u8],
        facts: &Facts,
        session: &mut Session,
        draining: bool,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut context = Context { facts, session, draining };
        match request::parse(bytes) {
            Parsed::Incomplete => Step::Incomplete,
            Parsed::BadLength(length) => {
                let message = stranger::answer(bytes, length);
                reply::encode_error(out, 0, ErrorCode::Malformed, None, &message);
                Step::Close { error: Some(ErrorCode::Malformed) }
            }
            Parsed::Frame { content: Err(fault), tag, consumed } => {
                reply::encode_error(out, tag, fault.code(), None, &fault.to_string());
                Step::Answered { consumed, error: Some(fault.code()) }
            }
            Parsed::Frame { content: Ok(Request::Next(next)), tag, consumed } if context.is_served(&next) => {
                let form = Form { tag, explicit: next.explicit };
                let (source, count) = (next.source.into(), next.count.into());
                Step::Ids {
                    consumed,
                    ask: Ask { source, count, wait: next.wait.limit(), partial: next.partial, form },
                }
            }
            Parsed::Frame { content: Ok(request), tag, consumed } => {
                match context.answer(request, tag, out) {
                    error @ Some(code) if code.closes() => Step::Close { error },
                    error => Step::Answered { consumed, error },
                }
            }
        }
    }

    fn revoke(&self, out: &mut Vec<u8>, denial: Denial) {
        reply::encode_error(out, 0, ErrorCode::Unauthorized, None, &denial.to_string());
    }

    fn rejection(&self, bytes: &[u8], session: &Session) -> Option<&'static str> {
        match request::parse(bytes) {
            Parsed::BadLength(_) => Some(stranger::describe(bytes)),
            Parsed::Frame { content: Ok(Request::Auth(_)), .. } => Some(session.rejection()),
            Parsed::Frame { content: Ok(Request::Next(_) | Request::Info), .. }
                if !session.is_authorized() =>
            {
                Some("no token, and auth.token_file asks for one; give the client one of its lines")
            }
            _ => None,
        }
    }

    fn demand(&self, mut bytes: &[u8], source: usize, facts: &Facts) -> u64 {
        let mut demand = 0;
        for _ in 0..LOOK_AHEAD_REQUESTS {
            let Parsed::Frame { content, consumed, .. } = request::parse(bytes) else {
                break;
            };
            if let Ok(Request::Next(next)) = content
                && usize::from(next.source) == source
                && next.count <= facts.max_count
            {
                demand += u64::from(next.count);
            }
            bytes = &bytes[consumed..];
        }
        demand
    }

    #[inline]
    fn frame_limit(&self, form: Form, needs_list: bool) -> FrameLimit {
        if form.explicit || needs_list {
            FrameLimit { runs: usize::MAX, ids: IDS_PER_FRAME as u64 }
        } else {
            FrameLimit { runs: RUNS_PER_FRAME, ids: u64::MAX }
        }
    }

    #[inline]
    fn encode_ids(&self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        let encoded = if form.explicit || ids.needs_list {
            reply::encode_list_frame(out, form.tag, ids.ids(rng), ids.more)
        } else {
            reply::encode_runs_frame(out, form.tag, ids.runs, ids.more)
        };
        debug_assert_eq!(encoded, Ok(()), "at least one ID, and within the frame's limit");
    }

    fn refuse(&self, out: &mut Vec<u8>, form: Form, refused: Refused<'_>) -> ErrorCode {
        let (code, retry_after, message) = in_words(refused);
        reply::encode_error(out, form.tag, code, retry_after, &message);
        code
    }
}

/// Returns the error code, the time to retry after and the message of a refusal.
fn in_words(refused: Refused<'_>) -> (ErrorCode, Option<Duration>, String) {
    let Refused { refusal, source, longer_wait } = refused;
    let wait_longer =
        longer_wait.map_or_else(String::new, |most| format!("wait longer (up to {most:?}) or "));
    match refusal {
        Refusal::Exhausted(Some(retry_after)) => (
            ErrorCode::Exhausted,
            Some(retry_after),
            format!(
                "source {source} cannot give that many within the wait; ask again later, {wait_longer}ask for fewer"
            ),
        ),
        Refusal::Exhausted(None) => (
            ErrorCode::Exhausted,
            None,
            format!("source {source} can never give that many within that wait; {wait_longer}ask for fewer"),
        ),
        Refusal::ClockBehind(retry_after) => (
            ErrorCode::ClockBehind,
            Some(retry_after),
            format!(
                "the wall clock is too far behind the next ID of source {source}; set the machine's clock right, or give \
                 the source a worker ID that was never used"
            ),
        ),
        Refusal::YetToBegin(retry_after) => (
            ErrorCode::ClockBehind,
            Some(retry_after),
            format!(
                "no state is kept of source {source}, so it begins with the tick after its start; ask again then, or \
                 keep a state (state_dir)"
            ),
        ),
        Refusal::NoCeiling => (
            ErrorCode::NoCeiling,
            Some(Duration::from_secs(1)),
            format!(
                "the ceiling of source {source} was not raised in time; check the daemon's storage and clock"
            ),
        ),
        Refusal::Lost => (
            ErrorCode::NoCeiling,
            None,
            format!(
                "the worker ID of source {source} is lost: another process may have it; see the daemon's log"
            ),
        ),
        Refusal::Ended => (
            ErrorCode::NoCeiling,
            None,
            format!("the layout of source {source} has come to the end of its life; change it"),
        ),
        Refusal::Sealed => (ErrorCode::ShuttingDown, None, String::from(STOPPING)),
    }
}
