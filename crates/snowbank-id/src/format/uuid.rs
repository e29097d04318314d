//! UUIDs of RFC 9562, versions 7 and 8, that hold the whole ID and a digest of the source's name.
//!
//! ```text
//!  version 7   unix_ts_ms 48 │ 7 │ ID, high 12 bits │ 10 │ ID, low 51 bits │ digest 11
//!  version 8   ID, high 48   │ 8 │ ID, next 12 bits │ 10 │ ID, low 3 bits  │ digest 59
//! ```
//!
//! UUIDs of both versions sort in the order of their IDs. Version 8 begins with the ID. Version 7
//! begins with the time of the ID, and continues with the ID.

use hmac_sha256::Hash;

use super::object_id::read_hex;
use super::{FormatError, Mismatch};
use crate::layout::{Layout, excerpt};

/// The bits of RFC 9562's variant, at their place in a UUID.
const VARIANT: u128 = 0b10 << 62;
const VARIANT_MASK: u128 = 0b11 << 62;

/// The number of bits below the variant.
const LOW_BITS: u32 = 62;
const LOW_MASK: u128 = (1 << LOW_BITS) - 1;

const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// A UUID's version, for the IDs of one source.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The layout of the IDs. Only version 7 has one.
    layout: Option<Layout>,
    /// The digest of the source's name, cut to [`digest_bits`](Self::digest_bits).
    digest: u128,
}

impl Version {
    /// Creates version 7 for IDs of this layout, or version 8 if there is no layout. `source` is
    /// the source's name.
    pub(super) fn new(layout: Option<Layout>, source: &str) -> Self {
        let hash = Hash::hash(source.as_bytes());
        let first = u64::from_be_bytes(std::array::from_fn(|index| hash[index]));
        let mut version = Version { layout, digest: 0 };
        version.digest = u128::from(first >> (64 - version.digest_bits()));
        version
    }

    /// Returns the number of bits that are left for the digest.
    fn digest_bits(&self) -> u32 {
        if self.layout.is_some() { 11 } else { 59 }
    }

    fn number(&self) -> u128 {
        if self.layout.is_some() { 7 } else { 8 }
    }

    fn format(&self) -> &'static str {
        if self.layout.is_some() { "uuidv7" } else { "uuidv8" }
    }

    pub(super) fn write(&self, id: u64, text: &mut String) -> Result<(), FormatError> {
        let uuid = self.uuid(id)?;
        let hex = format!("{uuid:032x}");
        text.push_str(&[&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"));
        Ok(())
    }

    pub(super) fn read(&self, text: &str) -> Result<u64, FormatError> {
        let uuid = parse(text).ok_or_else(|| FormatError::Shape {
            text: excerpt(text),
            format: self.format(),
            allowed: "a UUID as in 2f3c6a54-1b7d-7e0a-9c3b-5d2f8e6a4b10",
        })?;
        let id = self.id(uuid);
        let found = match self.uuid(id) {
            _ if uuid >> 76 & 15 != self.number() || uuid & VARIANT_MASK != VARIANT => {
                Mismatch::Version { wanted: self.number() as u8 }
            }
            Ok(expected) if expected == uuid => return Ok(id),
            Ok(expected) if expected >> self.digest_bits() == uuid >> self.digest_bits() => Mismatch::Digest,
            _ => Mismatch::Milliseconds,
        };
        Err(FormatError::OtherMaker { text: excerpt(text), format: self.format(), found })
    }

    fn uuid(&self, id: u64) -> Result<u128, FormatError> {
        // The ID and the digest are one number of 74 or 122 bits. The UUID has the variant in the
        // middle of this number, and version 8 also has the version there.
        let tail = u128::from(id) << self.digest_bits() | self.digest;
        let head = match &self.layout {
            Some(layout) => unix_ms(layout, id)? << 12 | tail >> LOW_BITS,
            None => tail >> LOW_BITS,
        };
        let high = head >> 12;
        let middle = head & 0xfff;
        Ok(high << 80 | self.number() << 76 | middle << 64 | VARIANT | tail & LOW_MASK)
    }

    fn id(&self, uuid: u128) -> u64 {
        let head = (uuid >> 80) << 12 | uuid >> 64 & 0xfff;
        let head = if self.layout.is_some() { head & 0xfff } else { head };
        let tail = head << LOW_BITS | uuid & LOW_MASK;
        (tail >> self.digest_bits()) as u64
    }
}

/// Returns the Unix milliseconds of an ID. They fit the 48 bits that version 7 has for them.
fn unix_ms(layout: &Layout, id: u64) -> Result<u128, FormatError> {
    let instant = layout.instant_of(id)?;
    // No layout outlasts the year 9999, and 48 bits of milliseconds last until the year 10889.
    u128::try_from(instant.unix_ms()).map_err(|_| FormatError::OutsideTime {
        id,
        instant,
        decimals: layout.decimals(),
        format: "uuidv7",
        holds: "1970-01-01 to 10889-08-02",
    })
}

/// Reads a UUID: 32 hexadecimal digits, with the four hyphens or without any.
fn parse(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return read_hex(text, 32);
    }
    text.chars().enumerate().try_fold(0, |number, (index, found)| {
        if HYPHENS.contains(&index) {
            return (found == '-').then_some(number);
        }
        Some(number << 4 | u128::from(found.to_digit(16)?))
    })
}
