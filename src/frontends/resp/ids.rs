//! The commands that ask for IDs: INCR, INCRBY and SNOWBANK.NEXT.

use super::{Form, IdForm, Reply, encode, parse};
use crate::frontends::words::{STOPPING, Words};
use crate::frontends::{Ask, Facts};
use snowbank_client::protocol::ErrorCode;

/// The bytes of a key that an error repeats.
const KEY_BYTES_SHOWN: usize = 64;

/// Asks for the ID of an INCR.
#[inline]
pub(super) fn incr(key: &[u8], facts: &Facts, form: IdForm, out: &mut Vec<u8>) -> Reply {
    match facts.source_of_key(key) {
        Some(source) => one(source, form),
        None => refuse_key(out, key, facts),
    }
}

fn one(source: usize, form: IdForm) -> Reply {
    Reply::Ids(Ask { source, count: 1, wait_ms: None, partial: false }, Form::One(form))
}

/// The reason why a request is refused: its code, and the error that the client gets.
pub(super) type Refused = (ErrorCode, String);

/// Asks for the IDs of an INCRBY: one if its number is 1. For other numbers, a ticket counter with
/// increment 1 gives that many IDs, and the reply is the last of them. Other sources refuse.
pub(super) fn incrby(operands: &[&[u8]], facts: &Facts, form: IdForm) -> Result<Reply, Refused> {
    let source = source_of(operands[0], facts)?;
    match parse::number(operands[1]) {
        Some(1) => Ok(one(source, form)),
        Some(_) if facts.is_consecutive(source) => {
            // A counter claims the numbers of a request together.
            let ask = Ask { source, count: count_of(operands[1], facts)?, wait_ms: None, partial: false };
            Ok(Reply::Ids(ask, Form::Last(form)))
        }
        Some(_) => {
            let name = &facts.sources[source];
            Err((
                ErrorCode::BadCount,
                format!(
                    "ERR INCRBY of source {name} can only add 1, because its IDs are not consecutive; SNOWBANK.NEXT {name} \
                     COUNT draws several"
                ),
            ))
        }
        None => Err(not_a_number()),
    }
}

/// Asks for the IDs of SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL].
pub(super) fn snowbank_next(mut operands: &[&[u8]], facts: &Facts) -> Result<Reply, Refused> {
    let mut ask = Ask { source: 0, count: 1, wait_ms: None, partial: false };
    if let [name, rest @ ..] = operands
        && !is_count(name)
        && (!is_option(name) || is_source(name, facts))
    {
        ask.source = source_of(name, facts)?;
        operands = rest;
    }
    if let [count, rest @ ..] = operands
        && is_count(count)
    {
        ask.count = count_of(count, facts)?;
        operands = rest;
    }
    while let [option, rest @ ..] = operands {
        operands = match rest {
            [ms, rest @ ..] if option.eq_ignore_ascii_case(b"wait") => {
                let ms = parse::number(ms).and_then(|ms| u64::try_from(ms).ok());
                ask.wait_ms = Some(u32::try_from(ms.ok_or_else(not_a_number)?).unwrap_or(u32::MAX));
                rest
            }
            rest if option.eq_ignore_ascii_case(b"partial") => {
                ask.partial = true;
                rest
            }
            _ => {
                let text = "ERR syntax error, allowed: SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL]";
                return Err((ErrorCode::Malformed, String::from(text)));
            }
        };
    }
    Ok(Reply::Ids(ask, Form::List))
}

fn not_a_number() -> Refused {
    (ErrorCode::Malformed, String::from("ERR value is not an integer or out of range"))
}

/// Returns true for a number. The name of a source is not all digits.
fn is_count(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn is_option(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"wait") || text.eq_ignore_ascii_case(b"partial")
}

fn is_source(name: &[u8], facts: &Facts) -> bool {
    facts.sources.iter().any(|source| source.as_bytes() == name)
}

fn count_of(text: &[u8], facts: &Facts) -> Result<u64, Refused> {
    let count = parse::number(text).and_then(|count| u64::try_from(count).ok());
    count.filter(|count| (1..=facts.max_count.into()).contains(count)).ok_or_else(|| {
        let found = shown(text);
        let most = facts.max_count;
        (ErrorCode::BadCount, format!("BAD_COUNT found count {found}, allowed 1 to {most}"))
    })
}

/// Returns the source that a key draws from.
fn source_of(key: &[u8], facts: &Facts) -> Result<usize, Refused> {
    facts.source_of_key(key).ok_or_else(|| unknown_key(key, facts))
}

fn unknown_key(key: &[u8], facts: &Facts) -> Refused {
    let found = shown(key);
    let names = facts.sources.join(", ");
    let text = format!(
        "UNKNOWN_SOURCE found key '{found}', allowed: a source's name ({names}); or set any_key in the daemon's configuration"
    );
    (ErrorCode::UnknownSource, text)
}

/// Refuses a key that is no source's name.
#[cold]
fn refuse_key(out: &mut Vec<u8>, key: &[u8], facts: &Facts) -> Reply {
    refuse_with(out, unknown_key(key, facts))
}

/// Refuses requests for IDs while the daemon stops.
pub(super) fn refuse_stopping(out: &mut Vec<u8>) -> Reply {
    let code = ErrorCode::ShuttingDown;
    refuse(out, &Words { code, retry_after: None, message: String::from(STOPPING) });
    Reply::Last(Some(code))
}

/// Encodes a refusal.
pub(super) fn refuse_with(out: &mut Vec<u8>, refused: Refused) -> Reply {
    encode::error(out, &refused.1);
    Reply::Encoded(Some(refused.0))
}

/// Encodes a refusal: its code as a word, the time to retry after if there is one, and the reason.
pub(super) fn refuse(out: &mut Vec<u8>, words: &Words) {
    encode::error(out, &words.line(&words.code.name().to_ascii_uppercase()));
}

/// Returns a client's text as an error repeats it.
pub(super) fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(KEY_BYTES_SHOWN)]).into_owned()
}
