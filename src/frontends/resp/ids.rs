//! The commands that ask for IDs: INCR, INCRBY and SNOWBANK.NEXT.

use super::encode::Version;
use super::error_reply::{NO_INTEGER, Refused, shown};
use super::form::Announced;
use super::{Form, Reply, encode, parse};
use crate::frontends::facts::Increment;
use crate::frontends::refusals::{STOPPING, Words, increment_out_of_range, only_by_one};
use crate::frontends::{Ask, Conditions, Facts};
use snowbank_wire::{Action, ErrorCode};

/// Asks for the ID of an INCR.
#[inline]
pub(super) fn incr(
    key: &[u8],
    conditions: &Conditions<'_>,
    announced: &mut Announced,
) -> Result<Reply, Refused> {
    let source = source_of(key, conditions.facts)?;
    Ok(Reply::Ids(Ask::new(source, 1), Form::One(announced.form(source, conditions))))
}

/// Asks for the IDs of an INCRBY, or answers the last number of a ticket source.
pub(super) fn incrby(
    operands: &[&[u8]],
    conditions: &Conditions<'_>,
    announced: &mut Announced,
    out: &mut Vec<u8>,
) -> Result<Reply, Refused> {
    let facts = conditions.facts;
    // A Redis, too, looks at the number first.
    let by = parse::number(operands[1]).ok_or_else(|| Refused::malformed(NO_INTEGER))?;
    let source = source_of(operands[0], facts)?;
    let form = announced.form(source, conditions);
    match facts.increment(source, by) {
        Increment::Draw(1) => Ok(Reply::Ids(Ask::new(source, 1), Form::One(form))),
        // One claim takes all numbers of a request, so the last is the counter's new value.
        Increment::Draw(count) => Ok(Reply::Ids(Ask::new(source, count), Form::Last(form))),
        Increment::Read => {
            encode::replies(out, form, std::iter::once(last_number(source, conditions)?));
            Ok(Reply::Encoded(None))
        }
        Increment::OutOfRange => {
            let text = format!("BAD_COUNT {}", increment_out_of_range(by, facts.max_count));
            Err(Refused::new(ErrorCode::BadCount, text))
        }
        Increment::OnlyByOne => {
            let name = &facts.sources[source];
            let text = format!("ERR INCRBY {}; SNOWBANK.NEXT {name} 2 draws two", only_by_one(name));
            Err(Refused::new(ErrorCode::BadCount, text))
        }
    }
}

/// Answers GET, SETNX and SET … NX of a ticket source, which has a number and so is always set.
/// Counters of libraries, such as Spring's RedisAtomicLong, begin with one of these. They compute other
/// numbers from a reply, so the numbers of the source must be consecutive.
pub(super) fn get(
    name: &str,
    key: &[u8],
    conditions: &Conditions<'_>,
    version: Version,
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    let source = source_of(key, conditions.facts)?;
    if !conditions.facts.is_consecutive(source) {
        let found = &conditions.facts.sources[source];
        let text = format!(
            "ERR {} of source {found}: only a ticket source with increment 1 has a last number; INCR {found} draws an ID",
            name.to_ascii_uppercase()
        );
        return Err(Refused::new(ErrorCode::Unsupported, text));
    }
    let number = last_number(source, conditions)?;
    match name {
        "get" => encode::bulk_numbers(out, std::iter::once(number)),
        "setnx" => encode::integer(out, 0),
        _ => encode::null(out, version),
    }
    Ok(())
}

/// Returns the last number of a ticket source.
fn last_number(source: usize, conditions: &Conditions<'_>) -> Result<u64, Refused> {
    if conditions.draining {
        return Err(Refused::new(ErrorCode::ShuttingDown, format!("SHUTTING_DOWN {STOPPING}")));
    }
    let last = conditions.last_number(source);
    last.map(|last| last.number)
        .map_err(|words| Refused::new(words.code, words.line(&words.code.name().to_ascii_uppercase())))
}

/// Asks for the IDs of SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL].
pub(super) fn snowbank_next(mut operands: &[&[u8]], facts: &Facts) -> Result<Reply, Refused> {
    let mut ask = Ask::new(facts.first, 1);
    if let [name, rest @ ..] = operands
        && (is_source(name, facts) || !is_count(name) && !is_option(name))
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
                let ms = ms.ok_or_else(|| Refused::malformed(NO_INTEGER))?;
                ask.wait_ms = Some(u32::try_from(ms).unwrap_or(u32::MAX));
                rest
            }
            rest if option.eq_ignore_ascii_case(b"partial") => {
                ask.partial = true;
                rest
            }
            _ => {
                let text = "ERR syntax error, allowed: SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL]";
                return Err(Refused::malformed(text));
            }
        };
    }
    Ok(Reply::Ids(ask, Form::List))
}

/// Returns true for a number, which may be negative.
fn is_count(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn is_option(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"wait") || text.eq_ignore_ascii_case(b"partial")
}

fn is_source(name: &[u8], facts: &Facts) -> bool {
    facts.source_named(name).is_some()
}

fn count_of(text: &[u8], facts: &Facts) -> Result<u64, Refused> {
    let count = parse::number(text).and_then(|count| u64::try_from(count).ok());
    count.filter(|count| (1..=facts.max_count.into()).contains(count)).ok_or_else(|| {
        let found = shown(text);
        let most = facts.max_count;
        Refused::new(ErrorCode::BadCount, format!("BAD_COUNT found count {found}, allowed 1 to {most}"))
    })
}

/// Returns the source that a key draws from.
#[inline]
pub(super) fn source_of(key: &[u8], facts: &Facts) -> Result<usize, Refused> {
    facts.source_of_key(key).ok_or_else(|| unknown_source(key, facts))
}

#[cold]
fn unknown_source(key: &[u8], facts: &Facts) -> Refused {
    let found = shown(key);
    let names = facts.names_in_words();
    let text = format!(
        "UNKNOWN_SOURCE found key '{found}', allowed: a source's name ({names}); or set any_key in the daemon's \
         configuration"
    );
    Refused::new(ErrorCode::UnknownSource, text)
}

/// Refuses requests for IDs while the daemon stops.
pub(super) fn refuse_stopping(out: &mut Vec<u8>) -> Reply {
    let code = ErrorCode::ShuttingDown;
    let message = String::from(STOPPING);
    refuse(out, &Words { code, action: Action::Leave, retry_after: None, message });
    Reply::Last(Some(code))
}

/// Encodes a refusal: the code as a word, the time after which to retry, if known, and the reason.
pub(super) fn refuse(out: &mut Vec<u8>, words: &Words) {
    encode::error(out, &words.line(&words.code.name().to_ascii_uppercase()));
}
