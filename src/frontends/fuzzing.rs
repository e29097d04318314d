//! Fuzzing of front ends: any bytes, in any pieces, from a client.

use std::time::Duration;

use super::{
    Ask, Conditions, Daemon, Facts, FrontEnd, Http, IncrConnections, Memcached, Native, Noeqd, Protocol,
    Resp, Step, in_words, noeqd,
};
use crate::access::{Rules, Session};
use crate::config::{Settings, SourceSettings, Tokens};
use snowbank_core::source::wait_queue::Refusal;
use snowbank_id::layout::UnixMicros;
use snowbank_wire::reply::{self, Reply, WireIds};
use snowbank_wire::{Hello, MAX_REQUEST_SIZE, Parsed, Request, VERSION, Welcome, request};

const TOKENS: &[u8] = b"t\ntoken";
const MAX_COUNT: u32 = 1_000;

/// Returns the facts of a daemon with the sources `orders` and `batches`.
pub(super) fn facts(asks_token: bool) -> Facts {
    let source = |name: &str| SourceSettings { name: name.to_owned(), ..SourceSettings::default() };
    let mut settings = Settings { sources: ["orders", "batches"].map(source).into(), ..Settings::default() };
    settings.limits.max_count = MAX_COUNT.try_into().expect("above 0");
    let tokens = asks_token.then(|| Tokens::parse("tokens".as_ref(), TOKENS, &[]).expect("two tokens"));
    Facts::new(&settings, b"{}".to_vec(), Rules::new([], tokens, None))
}

/// A daemon without claims.
struct Unclaimed;

impl Daemon for Unclaimed {
    fn welcome(&self, tag: u16, out: &mut Vec<u8>) {
        let good_for = Duration::from_secs(1);
        let claims = WireIds::new(&[]);
        let welcome = Welcome { version: VERSION, good_for, max_count: MAX_COUNT, instance: 1, claims };
        reply::encode_welcome(out, tag, &welcome);
    }
}

/// Returns the conditions of a daemon that serves.
pub(super) fn conditions<'f>(
    facts: &'f Facts,
    session: &'f mut Session,
    incr_connections: &'f IncrConnections,
) -> Conditions<'f> {
    Conditions {
        facts,
        session,
        draining: false,
        is_stopping: false,
        wall: UnixMicros(1_000_000),
        incr_connections,
        daemon: &Unclaimed,
        rejection: None,
    }
}

/// Checks the answer to the first message in `bytes`. Returns true if that message may have brought
/// a token.
type Check<F> =
    fn(bytes: &[u8], answer: &[u8], step: &Step<<F as FrontEnd>::Form>, conditions: &Conditions<'_>) -> bool;

/// Runs the server's side of a connection. The first byte of `data` chooses tokens and draining.
/// The second byte chooses the size of pieces. The client's stream follows.
///
/// However the stream is cut, it gives the same requests and replies. A request for IDs never comes
/// before a required token or while the daemon drains. Its source exists, and its count is allowed.
/// `make` starts a connection, and `check` receives each message with its answer. Returns all bytes
/// of the replies.
fn any_pieces<F: FrontEnd>(data: &[u8], make: fn() -> F, check: Check<F>) -> Vec<u8> {
    let [kind, size, stream @ ..] = data else { return Vec::new() };
    let asks_token = kind & 1 == 1;
    let draining = kind & 2 == 2;
    let piece_size = usize::from(*size) + 1;
    let facts = facts(asks_token);
    let whole = serve(&mut make(), [stream], &facts, draining, check);
    let in_pieces = serve(&mut make(), stream.chunks(piece_size), &facts, draining, check);
    assert_eq!(whole, in_pieces, "in pieces of {piece_size}");
    whole.replies
}

/// What a stream has led to.
#[derive(Debug, Default, PartialEq)]
struct Served {
    /// The requests for IDs.
    asks: Vec<Ask>,
    /// All bytes of the replies.
    replies: Vec<u8>,
}

/// Serves a stream.
fn serve<'a, F: FrontEnd>(
    front: &mut F,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    facts: &Facts,
    draining: bool,
    check: Check<F>,
) -> Served {
    let mut session = Session::new(&facts.access, 0, None, F::PROTOCOL.has_tokens());
    let mut has_token = session.is_authorized();
    let incr_connections = IncrConnections::default();
    let conditions = &mut conditions(facts, &mut session, &incr_connections);
    conditions.draining = draining;
    let mut unread = Vec::new();
    let mut asks = Vec::new();
    let mut out = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut at = 0;
        let mut alike = Alike::default();
        loop {
            let bytes = &unread[at..];
            let answered = out.len();
            let had_kept = front.has_kept_requests();
            let step = front.step(bytes, conditions, &mut out);
            if let Step::Ids { ask, form, .. } = &step {
                assert!(!conditions.draining && ask.source < facts.sources.len());
                assert!((1..=MAX_COUNT.into()).contains(&ask.count));
                let reason = Refusal::Exhausted(None).into();
                front.refuse(&mut out, *form, &in_words(reason, "anonymous", "default", None, false));
                asks.push(*ask);
            }
            alike.check(front, bytes, &step);
            has_token |= check(bytes, &out[answered..], &step, conditions);
            assert!(has_token || !matches!(step, Step::Ids { .. }));
            assert!(!conditions.session.is_authorized() || has_token);
            match step {
                Step::Incomplete => {
                    assert!(bytes.len() < super::MESSAGE_BYTES_MAX);
                    // Only HTTP's clients ask before they send the rest of a request.
                    assert!(out.len() == answered || F::PROTOCOL == Protocol::Http);
                    break;
                }
                Step::Close { .. } => return Served { asks, replies: out },
                Step::Skipped { consumed } => {
                    assert!((1..=bytes.len()).contains(&consumed) && out.len() == answered);
                    at += consumed;
                }
                Step::Answered { consumed, .. } | Step::Denied { consumed } | Step::Ids { consumed, .. } => {
                    assert!(consumed <= bytes.len() && (consumed > 0) != had_kept);
                    at += consumed;
                }
            }
        }
        unread.drain(..at);
    }
    Served { asks, replies: out }
}

/// The messages that are served together with an earlier message, because they equal it.
#[derive(Default)]
struct Alike {
    /// The number of messages that are still to come.
    left: usize,
    /// The step of the earlier message, as text.
    first: Option<String>,
}

impl Alike {
    /// Checks a message. If it is served together with an earlier message, it must ask for the same
    /// IDs.
    fn check<F: FrontEnd>(&mut self, front: &F, bytes: &[u8], step: &Step<F::Form>) {
        if self.left > 0 {
            assert_eq!(Some(format!("{step:?}")), self.first, "an equal message asks for something else");
            self.left -= 1;
        } else if let Step::Ids { consumed, form, ask } = step {
            self.left = front.alike(bytes, *consumed, *form, || usize::MAX);
            assert!(self.left == 0 || ask.count == 1 && !ask.partial);
            self.first = Some(format!("{step:?}"));
        }
    }
}

/// Checks Snowbank's own protocol: each message gets its whole reply under its tag, and each parsed
/// request encodes to the bytes that were parsed.
pub fn request_frames(data: &[u8]) {
    any_pieces::<Native>(data, Native::default, |bytes, answer, step, conditions| {
        match step {
            Step::Incomplete => {
                assert!(bytes.len() < MAX_REQUEST_SIZE, "an unfinished request stays below its limit");
                return false;
            }
            Step::Ids { ask, .. } => {
                let demand = Native::default().demand(bytes, ask.source, conditions.facts);
                assert!(demand >= ask.count);
            }
            Step::Skipped { .. } | Step::Answered { .. } | Step::Denied { .. } | Step::Close { .. } => {}
        }
        check_reply(answer, bytes);
        brings_token(bytes, conditions.facts)
    });
}

/// Returns whether the first message is a HELLO with one of the daemon's tokens. Checks that the
/// message encodes to the same bytes, apart from a byte that is ignored.
fn brings_token(bytes: &[u8], facts: &Facts) -> bool {
    let Parsed::Frame { content: Ok(request), tag, consumed } = request::parse(bytes) else {
        return false;
    };
    let mut encoded = Vec::new();
    match request {
        Request::Next(next) => {
            request::encode_next(&mut encoded, tag, &next).expect("a size within its limit");
        }
        Request::Info => request::encode_info(&mut encoded, tag),
        Request::Ping(body) => {
            request::encode_ping(&mut encoded, tag, body).expect("a size within its limit")
        }
        Request::Hello(hello) => {
            request::encode_hello(&mut encoded, tag, &hello).expect("a size within its limit");
            encoded[17] = bytes[17];
        }
    }
    assert_eq!(encoded, bytes[..consumed]);
    matches!(request, Request::Hello(Hello { version: 1.., token }) if facts.access.tokens.as_ref().is_some_and(|tokens| tokens.accepts(token)))
}

/// Checks that the answer is one whole frame. Its tag must be that of the message, or 0 if the end
/// of the message is unknown.
fn check_reply(answer: &[u8], message: &[u8]) {
    let expected_tag = match request::parse(message) {
        Parsed::Frame { tag, .. } => tag,
        Parsed::BadLength(_) | Parsed::Incomplete => 0,
    };
    let Parsed::Frame { content: Ok(reply), tag, consumed } = reply::parse(answer) else {
        panic!("{answer:?} is no reply to {message:?}");
    };
    assert_eq!((tag, consumed), (expected_tag, answer.len()), "{reply:?}");
    assert!(!matches!(reply, Reply::Runs { .. } | Reply::List { .. }), "{reply:?}");
    if let Reply::Error(error) = reply {
        let message = std::str::from_utf8(error.message).expect("UTF-8");
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

/// Checks Redis' protocol: all bytes of the replies together are whole replies, and no line of a
/// reply has a control character.
pub fn resp_requests(data: &[u8]) {
    let replies = any_pieces::<Resp>(
        data,
        || Resp::numbered(7),
        |bytes, answer, step, _| {
            assert!(
                matches!(step, Step::Incomplete | Step::Answered { .. }) || !answer.is_empty(),
                "{step:?}"
            );
            let is_accepted = matches!(step, Step::Answered { error: None, .. });
            is_accepted
                && bytes.to_ascii_lowercase().windows(4).any(|word| word == b"auth")
                && bytes.contains(&b't')
        },
    );
    let mut rest = &replies[..];
    while !rest.is_empty() {
        rest = behind_value(rest);
    }
}

/// Checks memcached's protocol: each answer, except a refusal of IDs, is whole lines without
/// control characters, or packets.
pub fn memcached_commands(data: &[u8]) {
    any_pieces::<Memcached>(data, Memcached::default, |bytes, answer, step, _| {
        let has_answer = !matches!(step, Step::Incomplete | Step::Ids { .. });
        assert!(!has_answer || is_memcached(answer), "{answer:?}");
        assert!(!matches!(step, Step::Incomplete) || bytes.first() == Some(&0x80) || !bytes.contains(&b'\n'));
        false
    });
}

/// Returns whether an answer is empty, lines of text, or packets.
fn is_memcached(answer: &[u8]) -> bool {
    match answer {
        [] => true,
        [0x81, ..] if answer.len() >= 24 => {
            let size = u32::from_be_bytes([answer[8], answer[9], answer[10], answer[11]]) as usize;
            answer.get(24 + size..).is_some_and(is_memcached)
        }
        _ => answer.strip_suffix(b"\r\n").is_some_and(|lines| {
            std::str::from_utf8(lines).is_ok_and(|lines| {
                lines.split("\r\n").all(|line| !line.bytes().any(|byte| byte.is_ascii_control()))
            })
        }),
    }
}

/// Checks HTTP: each answer, except a refusal of IDs, is a whole response, and the body of a
/// refusal is empty or JSON.
pub fn http_heads(data: &[u8]) {
    any_pieces::<Http>(data, Http::default, |bytes, answer, step, _| {
        if !matches!(step, Step::Incomplete | Step::Ids { .. }) && !answer.is_empty() {
            let text = std::str::from_utf8(answer).expect("text");
            let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(text);
            let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
            let is_refusal = head.starts_with("HTTP/1.1 4") || head.starts_with("HTTP/1.1 5");
            assert!(is_refusal || head.starts_with("HTTP/1.1 200 OK"), "{head}");
            if is_refusal && !body.is_empty() {
                let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
                assert!(json["error"].is_string(), "{body}");
            }
        }
        bytes.to_ascii_lowercase().windows(6).any(|word| word == b"bearer")
    });
}

/// Checks noeqd's protocol: no answer without IDs has a byte. Streams of other protocols' clients
/// are left out: a whole stream is refused, but byte by byte, its first byte passes for a count.
pub fn noeqd_requests(data: &[u8]) {
    if data.get(2..).is_some_and(noeqd::is_foreign) {
        return;
    }
    let replies = any_pieces::<Noeqd>(data, Noeqd::default, |_, answer, step, _| {
        assert!(answer.is_empty(), "{answer:?}");
        matches!(step, Step::Answered { .. })
    });
    assert!(replies.is_empty());
}

/// Returns the bytes behind the first RESP value.
fn behind_value(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line end");
    let line = std::str::from_utf8(&bytes[1..end]).expect("UTF-8");
    let mut rest = &bytes[end + 2..];
    assert!(!line.contains(char::is_control), "{line:?}");
    let number = || line.parse::<i64>().expect("a number");
    match bytes[0] {
        b'+' | b'-' => {}
        b'_' => assert!(line.is_empty()),
        b':' => _ = number(),
        b'$' | b'=' if number() >= 0 => {
            let (_, behind) = rest.split_at(number() as usize);
            rest = behind.strip_prefix(b"\r\n").expect("a line end");
        }
        b'$' => assert_eq!(number(), -1),
        kind @ (b'*' | b'%') => {
            let items = number() * if kind == b'%' { 2 } else { 1 };
            (0..items).for_each(|_| rest = behind_value(rest));
        }
        other => panic!("{other:?} begins no value: {bytes:?}"),
    }
    rest
}
