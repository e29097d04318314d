//! Encodes replies, in both versions of the protocol.

use crate::frontends::IdForm;
use crate::frontends::exact::EXACT_MAX;
use snowbank_wire::one_line;

/// The version of the protocol that a connection speaks. A client chooses it by HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two = 2,
    Three = 3,
}

pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// Encodes an error. Control characters become blanks, because an error is one line.
pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend_from_slice(one_line(text).as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn integer(out: &mut Vec<u8>, number: u64) {
    header(out, b':', number);
}

pub(super) fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    header(out, b'$', text.len() as u64);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Encodes the keys and values of a map.
pub(super) fn pairs(out: &mut Vec<u8>, pairs: &[(&str, &str)]) {
    for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
        bulk(out, text.as_bytes());
    }
}

/// Encodes numbers as bulk strings.
pub(super) fn bulk_numbers(out: &mut Vec<u8>, ids: impl Iterator<Item = u64>) {
    ids.for_each(|id| bulk(out, itoa::Buffer::new().format(id).as_bytes()));
}

/// Encodes a reply of INCR for each ID.
#[inline]
pub(super) fn replies(out: &mut Vec<u8>, form: IdForm, ids: impl Iterator<Item = u64>) {
    match form {
        IdForm::String => bulk_numbers(out, ids),
        IdForm::Integer => ids.for_each(|id| header(out, b':', id)),
        IdForm::IntegerIfExact => ids.for_each(|id| {
            let form = if id <= EXACT_MAX { IdForm::Integer } else { IdForm::String };
            replies(out, form, std::iter::once(id));
        }),
    }
}

pub(super) fn array(out: &mut Vec<u8>, items: u64) {
    header(out, b'*', items);
}

/// Encodes the header of a map. Version 2 has no maps, so the keys and values are an array there.
pub(super) fn map(out: &mut Vec<u8>, version: Version, pairs: u64) {
    match version {
        Version::Two => header(out, b'*', 2 * pairs),
        Version::Three => header(out, b'%', pairs),
    }
}

/// Encodes a text for people: in version 3 as a verbatim string, in version 2 as a bulk string.
pub(super) fn verbatim(out: &mut Vec<u8>, version: Version, text: &str) {
    if version == Version::Two {
        return bulk(out, text.as_bytes());
    }
    header(out, b'=', "txt:".len() as u64 + text.len() as u64);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

fn header(out: &mut Vec<u8>, kind: u8, number: u64) {
    line(out, kind, itoa::Buffer::new().format(number).as_bytes());
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}
