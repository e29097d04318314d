//! Frames: where one ends, and what is wrong with it.

use super::{ErrorCode, HEADER_SIZE, MIN_LENGTH};

/// What the first bytes of a stream hold. `T` is a [`Request`](super::Request) or a [`Reply`](super::Reply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// The first frame is not all there yet: read more and parse again from the same place.
    Incomplete,
    /// One whole frame.
    Frame {
        /// What it says; a [`Fault`] spoils this frame alone, the next one starts after `consumed`.
        content: Result<T, Fault>,
        /// The tag that the client chose.
        tag: u16,
        /// The bytes that the frame takes.
        consumed: usize,
    },
    /// The length field is below [`MIN_LENGTH`] or above the direction's limit: where the next frame would start is
    /// unknown, so the stream is lost. Reported as soon as the length field is at hand.
    BadLength(u32),
}

/// Why a frame of a sound length means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No frame of this direction has that kind.
    #[error("frame kind 0x{kind:02x} is unknown to protocol version 1")]
    Kind {
        /// The kind found.
        kind: u8,
    },
    /// The kind does not define one of the flags that are set.
    #[error("flags 0x{flags:02x} do not fit frame kind 0x{kind:02x}: it defines 0x{allowed:02x}")]
    Flags {
        /// The kind found.
        kind: u8,
        /// The flags found.
        flags: u8,
        /// The flags that the kind defines.
        allowed: u8,
    },
    /// The body has a size that the kind does not have.
    #[error("a body of {size} bytes does not fit frame kind 0x{kind:02x}: it takes {allowed}")]
    Body {
        /// The kind found.
        kind: u8,
        /// The body's bytes.
        size: usize,
        /// The sizes that fit, in words.
        allowed: &'static str,
    },
}

impl Fault {
    /// The code that a server answers such a request with.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Kind { .. } => ErrorCode::Unsupported,
            Self::Flags { .. } | Self::Body { .. } => ErrorCode::Malformed,
        }
    }
}

/// One frame of a sound length, not yet understood.
pub(super) struct RawFrame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) tag: u16,
    pub(super) body: &'a [u8],
}

impl RawFrame<'_> {
    pub(super) fn check_flags(&self, allowed: u8) -> Result<(), Fault> {
        if self.flags & !allowed == 0 {
            Ok(())
        } else {
            Err(Fault::Flags { kind: self.kind, flags: self.flags, allowed })
        }
    }

    pub(super) fn body_fault(&self, allowed: &'static str) -> Fault {
        Fault::Body { kind: self.kind, size: self.body.len(), allowed }
    }

    pub(super) fn check_body(&self, fits: bool, allowed: &'static str) -> Result<(), Fault> {
        if fits { Ok(()) } else { Err(self.body_fault(allowed)) }
    }
}

/// Cuts the first frame off `bytes` and has `understand` read it.
#[inline]
pub(super) fn parse<'a, T>(
    bytes: &'a [u8],
    max_length: u32,
    understand: impl FnOnce(&RawFrame<'a>) -> Result<T, Fault>,
) -> Parsed<T> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Parsed::Incomplete;
    };
    let length = u32::from_le_bytes(*length);
    if !(MIN_LENGTH..=max_length).contains(&length) {
        return Parsed::BadLength(length);
    }
    let Some((&[kind, flags, tag_low, tag_high], body)) =
        rest.get(..length as usize).and_then(<[u8]>::split_first_chunk::<4>)
    else {
        return Parsed::Incomplete;
    };
    let tag = u16::from_le_bytes([tag_low, tag_high]);
    let frame = RawFrame { kind, flags, tag, body };
    Parsed::Frame { content: understand(&frame), tag: frame.tag, consumed: HEADER_SIZE + body.len() }
}

/// The eight bytes before a body. Callers keep `body_size` within their direction's limit.
#[inline]
pub(super) fn header(kind: u8, flags: u8, tag: u16, body_size: usize) -> [u8; HEADER_SIZE] {
    debug_assert!(body_size <= super::MAX_REPLY_LENGTH as usize);
    let [l0, l1, l2, l3] = (body_size as u32 + MIN_LENGTH).to_le_bytes();
    let [t0, t1] = tag.to_le_bytes();
    [l0, l1, l2, l3, kind, flags, t0, t1]
}
