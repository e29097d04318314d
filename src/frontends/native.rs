//! The front end for version 1 of Snowbank's own protocol.

use std::borrow::Cow;
use std::time::Duration;

use super::words::{STOPPING, Words};
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, LOOK_AHEAD, Step, foreign};
use crate::access::NO_TOKEN;
use crate::config::Protocol;
use snowbank_client::protocol::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME};
use snowbank_client::protocol::{ErrorCode, Next, Parsed, Request, Unencodable, request};

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a client of Snowbank's own protocol",
    listener: "a listener of Snowbank's own protocol",
    address: "an address of the setting listen",
    option_help: None,
    token_exemption: None,
    // A request begins with the length of its frame. The length is so small that its two high bytes
    // are 0.
    recognises: |bytes, _| matches!(bytes, [_, 0..=4, 0, 0, ..]),
    refuse_connection: |out, message| {
        reply::encode_error(out, 0, ErrorCode::TooBusy, Some(Duration::from_secs(1)), message);
    },
};

/// The details of a request that its reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The client's tag.
    pub tag: u16,
    /// True if the reply lists every ID instead of runs.
    pub explicit: bool,
}

/// The native protocol on one connection.
#[derive(Debug, Default)]
pub struct Native;

impl Conditions<'_> {
    /// Returns whether a NEXT is valid and can be passed to its source.
    #[inline]
    fn allow(&self, next: &Next) -> bool {
        self.session.is_authorized()
            && !self.draining
            && (1..=self.facts.max_count).contains(&next.count)
            && usize::from(next.source) < self.facts.sources.len()
    }

    /// Answers every request except an [allowed](Self::allow) NEXT. Returns the error code, if the
    /// answer is an error.
    // Not inlined: inside `step`, this function would cost each pipelined request 30 ns.
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
            Request::Info => reply::encode_info(out, tag, &self.info_json()),
            // Every NEXT that comes here was refused above.
            Request::Next(_) => {}
        }
        None
    }

    /// Returns the error code and the message for a request that this connection or the daemon's
    /// limits do not allow. Gives the token of an AUTH to the session.
    fn refusal(&mut self, request: &Request<'_>) -> Option<(ErrorCode, Cow<'static, str>)> {
        let facts = self.facts;
        match request {
            Request::Ping(_) => None,
            Request::Auth(token) => {
                let denial = self.show_token(token).err()?;
                Some((ErrorCode::Unauthorized, denial.to_string().into()))
            }
            _ if !self.session.is_authorized() => {
                self.rejection = Some(NO_TOKEN.to_owned());
                Some((ErrorCode::Unauthorized, "this daemon asks for a token; send AUTH first".into()))
            }
            Request::Info => None,
            Request::Next(_) if self.draining => Some((ErrorCode::ShuttingDown, STOPPING.into())),
            Request::Next(next) if !(1..=facts.max_count).contains(&next.count) => {
                let found = next.count;
                let most = facts.max_count;
                Some((ErrorCode::BadCount, format!("found count {found}, allowed 1 to {most}").into()))
            }
            Request::Next(next) => {
                let found = next.source;
                let last = facts.sources.len() - 1;
                let message = format!("found source {found}, this daemon has 0 to {last}; INFO lists them");
                Some((ErrorCode::UnknownSource, message.into()))
            }
        }
    }
}

// Not inlined: few replies are lists, and inlining would make all others save more registers.
#[inline(never)]
fn encode_list(
    out: &mut Vec<u8>,
    tag: u16,
    ids: FrameIds<'_>,
    rng: &mut fastrand::Rng,
) -> Result<(), Unencodable> {
    reply::encode_list_frame(out, tag, ids.ids(rng), ids.more)
}

impl FrontEnd for Native {
    const PROTOCOL: Protocol = Protocol::Native;

    type Form = Form;

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        match request::parse(bytes) {
            Parsed::Incomplete => Step::Incomplete,
            Parsed::BadLength(length) => {
                let reason = foreign::describe(bytes, Protocol::Native);
                let message = if foreign::known(bytes, Protocol::Native).is_some() {
                    &reason
                } else {
                    &format!("found frame length {length}, allowed 4 to 1024; the stream is lost")
                };
                reply::encode_error(out, 0, ErrorCode::Malformed, None, message);
                conditions.rejection = Some(reason);
                Step::Close { error: Some(ErrorCode::Malformed) }
            }
            Parsed::Frame { content: Err(fault), tag, consumed } => {
                reply::encode_error(out, tag, fault.code(), None, &fault.to_string());
                Step::Answered { consumed, error: Some(fault.code()) }
            }
            Parsed::Frame { content: Ok(Request::Next(next)), tag, consumed } if conditions.allow(&next) => {
                let form = Form { tag, explicit: next.explicit };
                let source = next.source.into();
                let count = next.count.into();
                Step::Ids {
                    consumed,
                    ask: Ask { source, count, wait_ms: next.wait.limit_ms(), partial: next.partial },
                    form,
                }
            }
            Parsed::Frame { content: Ok(request), tag, consumed } => {
                match conditions.answer(request, tag, out) {
                    error @ Some(code) if code.closes() => Step::Close { error },
                    error => Step::Answered { consumed, error },
                }
            }
        }
    }

    fn demand(&self, mut bytes: &[u8], source: usize, facts: &Facts) -> u64 {
        let mut demand = 0;
        for _ in 0..LOOK_AHEAD {
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
    fn encode_ids(&mut self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        let encoded = if form.explicit || ids.needs_list {
            encode_list(out, form.tag, *ids, rng)
        } else {
            reply::encode_runs_frame(out, form.tag, ids.runs, ids.more)
        };
        debug_assert_eq!(encoded, Ok(()), "at least one ID, and within the frame's limit");
    }

    fn farewell(&mut self, out: &mut Vec<u8>, words: &Words) {
        reply::encode_error(out, 0, words.code, words.retry_after, &words.message);
    }

    fn refuse(&mut self, out: &mut Vec<u8>, form: Form, words: &Words) {
        reply::encode_error(out, form.tag, words.code, words.retry_after, &words.message);
    }
}
