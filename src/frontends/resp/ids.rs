//! The commands that ask for IDs: INCR, INCRBY and SNOWBANK.NEXT.

use super::commands::{NO_INTEGER, Refused, shown};
use super::{Form, IdForm, Reply, encode, parse};
use crate::frontends::words::{STOPPING, Words};
use crate::frontends::{Ask, Facts};
use snowbank_wire::{Action, ErrorCode};

/// Asks for the ID of an INCR.
#[inline]
pub(super) fn incr(key: &[u8], facts: &Facts, form: IdForm) -> Result<Reply, Refused> {
    Ok(Reply::Ids(Ask::new(source_of(key, facts)?, 1), Form::One(form)))
}

/// Asks for the IDs of an INCRBY. The number 1 asks any source for one ID. A larger number asks a
/// ticket source with increment 1 for that many IDs, and the reply is the last of them. All other
/// sources refuse every number but 1.
pub(super) fn incrby(operands: &[&[u8]], facts: &Facts, form: IdForm) -> Result<Reply, Refused> {
    let source = source_of(operands[0], facts)?;
    match parse::number(operands[1]) {
        Some(1) => Ok(Reply::Ids(Ask::new(source, 1), Form::One(form))),
        Some(_) if facts.is_consecutive(source) => {
            // One claim takes all numbers of a request, so the last is the counter's new value.
            let ask = Ask::new(source, count_of(operands[1], facts)?);
            Ok(Reply::Ids(ask, Form::Last(form)))
        }
        Some(_) => {
            let name = &facts.sources[source];
            let text = format!(
                "ERR INCRBY of source {name} can only add 1, because its IDs are not consecutive; SNOWBANK.NEXT {name} \
                 COUNT draws several"
            );
            Err(Refused::new(ErrorCode::BadCount, text))
        }
        None => Err(Refused::malformed(NO_INTEGER)),
    }
}

/// Asks for the IDs of SNOWBANK.NEXT [source] [count] [WAIT ms] [PARTIAL].
pub(super) fn snowbank_next(mut operands: &[&[u8]], facts: &Facts) -> Result<Reply, Refused> {
    let mut ask = Ask::new(0, 1);
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
    facts.sources.iter().any(|source| source.as_bytes() == name)
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
fn source_of(key: &[u8], facts: &Facts) -> Result<usize, Refused> {
    facts.source_of_key(key).ok_or_else(|| unknown_source(key, facts))
}

#[cold]
fn unknown_source(key: &[u8], facts: &Facts) -> Refused {
    let found = shown(key);
    let names = facts.sources.join(", ");
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
