//! Fuzzing of a front-end: any bytes, in any pieces, from a client.

use super::{Ask, Facts, Front, Native, Refused, Step};
use crate::access::{Rules, Session};
use crate::clock::BootMicros;
use crate::config::Tokens;
use crate::fuzzing::Choices;
use crate::source::wait_queue::Refusal;
use snowbank_client::protocol::reply::{self, Reply};
use snowbank_client::protocol::{MAX_REQUEST_SIZE, Parsed, Request, request};

const TOKENS: &[u8] = b"t\ntoken";
const MAX_COUNT: u32 = 1_000;

/// Runs the server's side of a stream: two choices (tokens and draining; the size of pieces), then the stream itself.
///
/// Any cut of the stream gives the same requests and replies. Each message gets its whole reply under its tag. No request
/// asks for IDs without the token, while draining, or out of bounds. Each parsed request encodes to the same bytes.
pub fn request_frames(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (asks_token, draining) = match choices.byte() % 4 {
        0 => (false, false),
        1 => (true, false),
        2 => (false, true),
        _ => (true, true),
    };
    let piece_size = usize::from(choices.byte()) + 1;
    let tokens = asks_token.then(|| Tokens::parse("tokens".as_ref(), TOKENS).expect("two tokens"));
    let access = Rules::new([], tokens, None, None);
    let facts = Facts { info_json: b"{}".to_vec(), max_count: MAX_COUNT, sources: 2, access };
    let stream = choices.rest();
    let whole = serve([stream], &facts, draining);
    let in_pieces = serve(stream.chunks(piece_size), &facts, draining);
    assert_eq!(whole, in_pieces, "in pieces of {piece_size}");
}

/// Returns the requests for IDs in a stream, and all bytes of the replies.
fn serve<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    facts: &Facts,
    draining: bool,
) -> (Vec<Ask>, Vec<u8>) {
    let mut front = Native;
    let mut session = Session::new((&facts.access, 0), None, None, BootMicros(0));
    let mut authorized = facts.access.tokens.is_none();
    let (mut unread, mut asks, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let (bytes, answered) = (&unread[at..], out.len());
            authorized |= brings_token(bytes, facts);
            let demand: u64 = (0..facts.sources).map(|source| front.demand(bytes, source, facts)).sum();
            let step = front.step(bytes, facts, &mut session, draining, &mut out);
            match &step {
                Step::Incomplete => {
                    assert!(bytes.len() < MAX_REQUEST_SIZE, "an unfinished request stays below its limit");
                    assert_eq!(out.len(), answered);
                    break;
                }
                Step::Ids { ask, .. } => {
                    assert!(authorized && !draining && ask.source < facts.sources);
                    assert!((1..=MAX_COUNT.into()).contains(&ask.count) && demand >= ask.count);
                    let refusal = Refusal::Exhausted(None);
                    front.refuse(
                        &mut out,
                        ask.form,
                        Refused { refusal, source: "default", longer_wait: None },
                    );
                    asks.push(*ask);
                }
                Step::Answered { .. } | Step::Close { .. } => {}
            }
            check_reply(&out[answered..], bytes);
            let (Step::Answered { consumed, .. } | Step::Ids { consumed, .. }) = step else {
                return (asks, out);
            };
            assert!((8..=bytes.len()).contains(&consumed));
            at += consumed;
        }
        unread.drain(..at);
    }
    (asks, out)
}

/// Returns whether the first message is an AUTH with one of the daemon's tokens. Checks that it encodes to the same bytes.
fn brings_token(bytes: &[u8], facts: &Facts) -> bool {
    let Parsed::Frame { content: Ok(request), tag, consumed } = request::parse(bytes) else {
        return false;
    };
    let mut encoded = Vec::new();
    match request {
        Request::Next(next) => request::encode_next(&mut encoded, tag, &next),
        Request::Info => request::encode_info(&mut encoded, tag),
        Request::Ping(body) => request::encode_ping(&mut encoded, tag, body).expect("a size that was parsed"),
        Request::Auth(token) => {
            request::encode_auth(&mut encoded, tag, token).expect("a size that was parsed")
        }
    }
    assert_eq!(encoded, bytes[..consumed]);
    matches!(request, Request::Auth(token) if facts.access.tokens.as_ref().is_some_and(|tokens| tokens.accepts(token)))
}

/// Checks that the answer is one whole frame, under the tag of the message or, if that has no end, under tag 0.
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
