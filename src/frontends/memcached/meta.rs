//! The meta commands: `mg KEY v` is a `get`, `ma KEY v` an `incr`, `mn` a no-op. Each flag is a letter,
//! perhaps with a token behind it. The reply repeats what the flags ask for. An `mg` whose flags ask
//! for no ID draws none: clients send it to ask whether a key exists.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::keys::{Keys, words};
use super::{Form, KEY_BYTES_MAX, Memcached, text};
use crate::frontends::{Ask, Conditions, Step};
use snowbank_wire::ErrorCode;

/// The flags of `mg`. An ID is a value that was never fetched before and that never expires, so the
/// flags that set a time change nothing. `L` and `P` are for routers; servers ignore them.
const GET_FLAGS: &[u8] = b"bcfhklqstvELNOPRT";
/// The flags of `ma`.
const INCREMENT_FLAGS: &[u8] = b"bckqtvDJLMNOPT";

/// The size of the longest token, as in memcached: that of a client's opaque bytes.
const TOKEN_BYTES_MAX: usize = 32;

/// The number whose size stands in the reply to an `mg` that draws no ID: no ID has more digits.
const NO_ID: u64 = i64::MAX as u64;

/// Returns the token of a flag, if the flag is there. It may be empty.
fn token<'f>(flags: impl IntoIterator<Item = &'f [u8]>, letter: u8) -> Option<&'f [u8]> {
    flags.into_iter().find_map(|flag| flag.strip_prefix(&[letter]))
}

/// Returns the key without its encoding.
fn plain_key<'k>(key: &'k [u8], is_base64: bool) -> Option<std::borrow::Cow<'k, [u8]>> {
    if is_base64 { BASE64_STANDARD.decode(key).ok().map(Into::into) } else { Some(key.into()) }
}

/// Returns what is wrong with a meta command's words, in memcached's words where it has some.
fn fault_of(key: Option<&[u8]>, flags: &[&[u8]], allowed: &[u8]) -> Option<String> {
    if !key.is_some_and(|key| key.len() <= KEY_BYTES_MAX && !key.iter().any(u8::is_ascii_control)) {
        return Some(format!("bad command line format: allowed is one key of 1 to {KEY_BYTES_MAX} bytes"));
    }
    for (index, flag) in flags.iter().enumerate() {
        let letter = flag[0];
        if !allowed.contains(&letter) {
            return Some(format!("invalid flag, allowed: {}", allowed.escape_ascii()));
        }
        if flags[..index].iter().any(|earlier| earlier[0] == letter) {
            return Some(String::from("duplicate flag"));
        }
        if flag.len() > 1 + TOKEN_BYTES_MAX || flag.iter().any(u8::is_ascii_control) {
            return Some(format!("bad token in command line format: allowed are {TOKEN_BYTES_MAX} bytes"));
        }
    }
    None
}

impl Memcached {
    /// Takes `mg` or, as an increment, `ma`.
    pub(super) fn meta(
        &mut self,
        operands: &[u8],
        is_increment: bool,
        consumed: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let mut all = words(operands);
        let key = all.next();
        let flags: Vec<&[u8]> = all.collect();
        let allowed = if is_increment { INCREMENT_FLAGS } else { GET_FLAGS };
        let letter = |letter| token(flags.iter().copied(), letter);
        let is_base64 = letter(b'b').is_some();
        let delta = match letter(b'D') {
            None => Some(1),
            Some(digits) => text::number_of(digits),
        };
        let fault = fault_of(key, &flags, allowed).or_else(|| {
            let adds = matches!(letter(b'M'), None | Some(b"I" | b"i" | b"INCR" | b"incr" | b"+"));
            (!adds).then(|| String::from("ma can only add"))
        });
        let fault = fault.or_else(|| delta.is_none().then(|| String::from("invalid numeric delta argument")));
        let name = key.and_then(|key| plain_key(key, is_base64));
        let fault = fault.or_else(|| name.is_none().then(|| String::from("error decoding key")));
        if let Some(fault) = fault {
            text::client_error(out, &fault);
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        }
        if is_increment && letter(b'q').is_some() {
            // The reply would be dropped, so an ID would be, too.
            return Step::Answered { consumed, error: None };
        }
        if !is_increment && letter(b'v').or(letter(b'c')).is_none() {
            self.keys.set(operands);
            value(out, &mut self.keys, NO_ID);
            return Step::Answered { consumed, error: None };
        }
        self.gets.commands += u64::from(!is_increment);
        if conditions.draining {
            return text::refuse_stopping(out);
        }
        let name = name.unwrap_or_default();
        if is_increment {
            self.begin_increment(operands, Form::MetaIncr);
            return self.increment(&name, delta.unwrap_or_default(), consumed, conditions, out);
        }
        self.keys.set(operands);
        self.form = Form::Meta;
        let source = super::source_of(&name, conditions.facts);
        Step::Ids { consumed, ask: Ask::new(source, 1), form: self.form }
    }
}

/// Encodes the ID of a meta command, whose key and flags are the next in `keys`.
pub(super) fn value(out: &mut Vec<u8>, keys: &mut Keys, id: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(id).as_bytes();
    let size = digits.len().to_string();
    let mut all = keys.iter();
    let key = all.next().unwrap_or_default();
    let has_value = token(all.clone(), b'v').is_some();
    let is_base64 = token(all.clone(), b'b').is_some();
    if has_value {
        out.extend_from_slice(b"VA ");
        out.extend_from_slice(size.as_bytes());
    } else {
        out.extend_from_slice(b"HD");
    }
    for flag in all {
        let shown: &[u8] = match flag[0] {
            b'c' => digits,
            b'f' | b'h' | b'l' => b"0",
            b'k' => key,
            b's' => size.as_bytes(),
            b't' => b"-1",
            b'O' => &flag[1..],
            _ => continue,
        };
        out.extend_from_slice(&[b' ', flag[0]]);
        out.extend_from_slice(shown);
        if flag[0] == b'k' && is_base64 {
            out.extend_from_slice(b" b");
        }
    }
    out.extend_from_slice(b"\r\n");
    if has_value {
        out.extend_from_slice(digits);
        out.extend_from_slice(b"\r\n");
    }
    keys.clear();
}
