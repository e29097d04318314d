//! The front end for version 1 of Snowbank's own protocol.

use std::borrow::Cow;
use std::time::Duration;

use super::refusals::{STOPPING, Words};
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, LOOK_AHEAD, Step, foreign};
use crate::access::NO_TOKEN;
use crate::config::Protocol;
use snowbank_wire::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME};
use snowbank_wire::{Action, ErrorCode, ErrorReply, Fault, Hello, Next, Parsed, Request, Unencodable};
use snowbank_wire::{VERSION, request};

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a client of Snowbank's own protocol",
    listener: "a listener of Snowbank's own protocol",
    address: "an address of the setting listen",
    // A request begins with the length of its frame. The length is so small that its two high bytes
    // are 0.
    recognises: |bytes, _| matches!(bytes, [_, 0..=4, 0, 0, ..]),
    refuse_connection: |out, message| {
        reply::encode_error(out, 0, &ErrorReply::leave(ErrorCode::TooBusy, ASK_AGAIN_AFTER, message));
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
pub struct Native {
    /// The index of the source that the last request named. Most clients name the same source in
    /// all requests, so its name is compared first.
    last_source: usize,
}

/// What follows a message that gets no IDs. A type of its own: if the rare messages returned a
/// [`Step`], every step would go through memory.
enum NoIds {
    Incomplete,
    Answered { consumed: usize, error: Option<ErrorCode> },
    Close(ErrorCode),
}

/// The time after which a client may look for a daemon that stops. A restart takes about as long.
const BACK_AFTER_STOP: Duration = Duration::from_millis(100);

/// The time after which a client may ask again if the daemon does not know it.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The reason, for the client, why it is rejected without a token.
const SEND_HELLO: &str = "this daemon asks for a token; send it in HELLO, first";

impl Native {
    /// Returns the index of the source that a NEXT names. Without a name, that is the first.
    #[inline]
    fn source_of(&mut self, name: &[u8], facts: &Facts) -> Option<usize> {
        if name.is_empty() {
            return Some(facts.first);
        }
        if facts.sources.get(self.last_source).is_some_and(|last| last.as_bytes() == name) {
            return Some(self.last_source);
        }
        self.look_up(name, facts)
    }

    #[cold]
    fn look_up(&mut self, name: &[u8], facts: &Facts) -> Option<usize> {
        let found = facts.source_named(name)?;
        self.last_source = found;
        Some(found)
    }
}

impl Conditions<'_> {
    /// Returns whether a NEXT can be passed to its source, if that exists.
    #[inline]
    fn allow(&self, next: &Next<'_>) -> bool {
        self.session.is_authorized() && !self.draining && (1..=self.facts.max_count).contains(&next.count)
    }

    /// Answers a message that gets no IDs, or finds that it is not complete.
    #[cold]
    #[inline(never)]
    fn step_without_ids(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> NoIds {
        match request::parse(bytes) {
            Parsed::Incomplete => NoIds::Incomplete,
            Parsed::BadLength(length) => {
                let reason = foreign::describe(bytes, Protocol::Native);
                let message = if foreign::known(bytes, Protocol::Native).is_some() {
                    &reason
                } else {
                    &format!("found frame length {length}, allowed 4 to 1024; the stream is lost")
                };
                reply::encode_error(out, 0, &ErrorReply::tell(ErrorCode::Malformed, message));
                self.rejection = Some(reason);
                NoIds::Close(ErrorCode::Malformed)
            }
            Parsed::Frame { content: Err(fault), tag, consumed } => {
                let code = fault.code();
                reply::encode_error(out, tag, &ErrorReply::tell(code, &fault.to_string()));
                if fault == Fault::Magic {
                    self.rejection = Some(fault.to_string());
                    return NoIds::Close(code);
                }
                NoIds::Answered { consumed, error: Some(code) }
            }
            Parsed::Frame { content: Ok(request), tag, consumed } => {
                let is_hello = matches!(request, Request::Hello(_));
                match self.answer(request, tag, out) {
                    Some(code) if is_hello || closes(code) => NoIds::Close(code),
                    error => NoIds::Answered { consumed, error },
                }
            }
        }
    }

    /// Answers every request except an [allowed](Self::allow) NEXT. Returns the error code, if the
    /// answer is an error.
    fn answer(&mut self, request: Request<'_>, tag: u16, out: &mut Vec<u8>) -> Option<ErrorCode> {
        if let Some((code, message)) = self.refusal(&request) {
            let error = match code {
                ErrorCode::ShuttingDown => ErrorReply::leave(code, BACK_AFTER_STOP, &message),
                _ => ErrorReply::tell(code, &message),
            };
            reply::encode_error(out, tag, &error);
            return Some(code);
        }
        match request {
            Request::Ping(body) => reply::encode_pong(out, tag, body),
            Request::Hello(_) => self.daemon.welcome(tag, out),
            Request::Info => reply::encode_info(out, tag, &self.info_json()),
            // Every NEXT that comes here was refused above.
            Request::Next(_) => {}
        }
        None
    }

    /// Returns the error code and the message for a request that this connection or the daemon's
    /// limits do not allow. Gives the token of a HELLO to the session.
    fn refusal(&mut self, request: &Request<'_>) -> Option<(ErrorCode, Cow<'static, str>)> {
        let facts = self.facts;
        match request {
            Request::Ping(_) => None,
            Request::Hello(Hello { version: 0, .. }) => {
                let message = format!("found version 0, this daemon speaks version {VERSION}");
                Some((ErrorCode::Unsupported, message.into()))
            }
            Request::Hello(_) if self.draining => Some((ErrorCode::ShuttingDown, STOPPING.into())),
            Request::Hello(hello) => self.refuse_token(hello.token),
            _ if !self.session.is_authorized() => {
                self.rejection = Some(NO_TOKEN.to_owned());
                Some((ErrorCode::Unauthorized, SEND_HELLO.into()))
            }
            Request::Info => None,
            Request::Next(_) if self.draining => Some((ErrorCode::ShuttingDown, STOPPING.into())),
            Request::Next(next) if !(1..=facts.max_count).contains(&next.count) => {
                let found = next.count;
                let most = facts.max_count;
                Some((ErrorCode::BadCount, format!("found count {found}, allowed 1 to {most}").into()))
            }
            Request::Next(next) => {
                Some((ErrorCode::UnknownSource, unknown_source(next.source, facts).into()))
            }
        }
    }

    /// Gives the token of a HELLO to the session, in place of an earlier one. Returns the refusal if
    /// the daemon does not accept it.
    fn refuse_token(&mut self, token: &[u8]) -> Option<(ErrorCode, Cow<'static, str>)> {
        if !token.is_empty() {
            let denial = self.show_token(token).err()?;
            return Some((ErrorCode::Unauthorized, denial.to_string().into()));
        }
        self.session.forget_token(&self.facts.access);
        if self.session.is_authorized() {
            return None;
        }
        self.rejection = Some(NO_TOKEN.to_owned());
        Some((ErrorCode::Unauthorized, SEND_HELLO.into()))
    }
}

/// Returns the message for a name that no source has. The name may be any bytes.
fn unknown_source(name: &[u8], facts: &Facts) -> String {
    let name = match std::str::from_utf8(name) {
        Ok(name) => format!("{name:?}"),
        Err(_) => format!("\"{}\"", name.escape_ascii()),
    };
    format!("found source {name}, this daemon has {}", facts.names_in_words())
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

/// Returns whether the daemon closes the connection after this answer.
fn closes(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::ShuttingDown)
}

fn encode_words(out: &mut Vec<u8>, tag: u16, words: &Words) {
    let unknown = match (words.action, words.code) {
        (Action::Leave, ErrorCode::ShuttingDown) => BACK_AFTER_STOP,
        (Action::Leave, _) => ASK_AGAIN_AFTER,
        _ => Duration::ZERO,
    };
    let retry_after = words.retry_after.unwrap_or(unknown);
    let error =
        ErrorReply { action: words.action, retry_after, ..ErrorReply::tell(words.code, &words.message) };
    reply::encode_error(out, tag, &error);
}

impl FrontEnd for Native {
    const PROTOCOL: Protocol = Protocol::Native;

    type Form = Form;

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        if let Some((next, tag, consumed)) = request::parse_next(bytes)
            && conditions.allow(&next)
            && let Some(source) = self.source_of(next.source, conditions.facts)
        {
            let form = Form { tag, explicit: next.explicit };
            let count = next.count.into();
            let ask = Ask { source, count, wait_ms: next.wait.limit_ms(), partial: next.partial };
            return Step::Ids { consumed, ask, form };
        }
        match conditions.step_without_ids(bytes, out) {
            NoIds::Incomplete => Step::Incomplete,
            NoIds::Answered { consumed, error } => Step::Answered { consumed, error },
            NoIds::Close(code) => Step::Close { error: Some(code) },
        }
    }

    fn demand(&self, mut bytes: &[u8], source: usize, facts: &Facts) -> u64 {
        let named = facts.sources[source].as_bytes();
        let mut demand = 0;
        for _ in 0..LOOK_AHEAD {
            let Parsed::Frame { content, consumed, .. } = request::parse(bytes) else {
                break;
            };
            if let Ok(Request::Next(next)) = content
                && (next.source == named || next.source.is_empty() && source == facts.first)
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
        encode_words(out, 0, words);
    }

    fn refuse(&mut self, out: &mut Vec<u8>, form: Form, words: &Words) {
        encode_words(out, form.tag, words);
    }
}
