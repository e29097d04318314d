//! MongoDB's ObjectId: four bytes of Unix seconds, and then eight bytes that hold the whole ID.
//!
//! The ObjectId contains the whole ID, so that a person can read the ID without arithmetic. `read`
//! refuses an ObjectId that another program made, because its seconds do not match the ID in its
//! other bytes.

use std::fmt::Write;

use super::{FormatError, Mismatch};
use crate::layout::{Layout, excerpt};

/// The number of hexadecimal digits of an ObjectId.
const DIGITS: usize = 24;

const FORMAT: &str = "objectid";

pub(super) fn write(layout: &Layout, id: u64, text: &mut String) -> Result<(), FormatError> {
    let seconds = seconds_of(layout, id)?;
    // Writing to a String cannot fail.
    let _ = write!(text, "{seconds:08x}{id:016x}");
    Ok(())
}

pub(super) fn read(layout: &Layout, text: &str) -> Result<u64, FormatError> {
    let number = read_hex(text, DIGITS).ok_or_else(|| FormatError::Shape {
        text: excerpt(text),
        format: FORMAT,
        allowed: "24 hexadecimal digits, as in 62bb274c1565a11f6217a000",
    })?;
    let seconds = (number >> 64) as u32;
    let id = number as u64;
    match seconds_of(layout, id) {
        Ok(expected) if expected == seconds => Ok(id),
        _ => Err(FormatError::OtherMaker { text: excerpt(text), format: FORMAT, found: Mismatch::Seconds }),
    }
}

fn seconds_of(layout: &Layout, id: u64) -> Result<u32, FormatError> {
    let instant = layout.instant_of(id)?;
    u32::try_from(instant.unix_ms().div_euclid(1000)).map_err(|_| FormatError::OutsideTime {
        id,
        instant,
        decimals: layout.decimals(),
        format: FORMAT,
        holds: "1970-01-01 to 2106-02-07",
    })
}

/// Reads exactly `digits` hexadecimal digits, at most 32.
pub(super) fn read_hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex)
}
