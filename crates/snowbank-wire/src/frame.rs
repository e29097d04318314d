//! Frames: their boundaries and their faults.

use super::{ErrorCode, HEADER_SIZE, MIN_LENGTH};

/// The result of parsing the start of a stream. `T` is a [`Request`](super::Request) or a
/// [`Reply`](super::Reply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// The first frame is not complete: read more bytes, and parse again from the same place.
    Incomplete,
    /// One complete frame.
    Frame {
        /// The content. A [`Fault`] concerns this frame only: the next frame starts after
        /// `consumed` bytes.
        content: Result<T, Fault>,
        /// The frame's tag.
        tag: u16,
        /// The size of the frame in bytes.
        consumed: usize,
    },
    /// The length field is below [`MIN_LENGTH`] or above the limit. The start of the next frame is
    /// unknown, so the stream is lost. The parser reports this as soon as it has the length field.
    BadLength(u32),
}

/// The fault of a frame whose length is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No frame of this direction has that kind.
    #[error("frame kind 0x{kind:02x} is unknown to protocol version 1")]
    Kind {
        /// The kind of the frame.
        kind: u8,
    },
    /// The frame has a flag that its kind does not define.
    #[error("flags 0x{flags:02x} do not fit frame kind 0x{kind:02x}: it defines 0x{allowed:02x}")]
    Flags {
        /// The kind of the frame.
        kind: u8,
        /// The flags of the frame.
        flags: u8,
        /// The flags that the kind defines.
        allowed: u8,
    },
    /// The body has a size that does not fit the frame's kind.
    #[error("a body of {size} bytes does not fit frame kind 0x{kind:02x}: it takes {allowed}")]
    Body {
        /// The kind of the frame.
        kind: u8,
        /// The size of the body in bytes.
        size: usize,
        /// The sizes that fit, as a text.
        allowed: &'static str,
    },
    /// A HELLO begins with other bytes than [`MAGIC`](super::MAGIC). The sender may speak another
    /// protocol, so the stream is lost.
    #[error("HELLO begins with \"SNOW\", CR LF CR LF, and this one does not")]
    Magic,
}

impl Fault {
    /// Returns the code with which a server answers a request that has this fault.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Kind { .. } => ErrorCode::Unsupported,
            Self::Flags { .. } | Self::Body { .. } | Self::Magic => ErrorCode::Malformed,
        }
    }
}

/// The reason why a frame cannot be encoded. The encoder then appends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unencodable(pub(crate) &'static str);

/// One frame of a valid length, before its content is read.
pub(crate) struct RawFrame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) body: &'a [u8],
}

impl RawFrame<'_> {
    pub(crate) fn check_flags(&self, allowed: u8) -> Result<(), Fault> {
        if self.flags & !allowed == 0 {
            Ok(())
        } else {
            Err(Fault::Flags { kind: self.kind, flags: self.flags, allowed })
        }
    }

    pub(crate) fn body_fault(&self, allowed: &'static str) -> Fault {
        Fault::Body { kind: self.kind, size: self.body.len(), allowed }
    }

    pub(crate) fn check_body(&self, fits: bool, allowed: &'static str) -> Result<(), Fault> {
        if fits { Ok(()) } else { Err(self.body_fault(allowed)) }
    }
}

/// Splits the first frame off `bytes`, and reads its content with `understand`.
#[inline]
pub(crate) fn parse<'a, T>(
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
    let frame = RawFrame { kind, flags, body };
    Parsed::Frame { content: understand(&frame), tag, consumed: HEADER_SIZE + body.len() }
}

/// Returns the eight bytes before a body. The caller keeps `body_size` within the limit.
#[inline]
pub(crate) fn header(kind: u8, flags: u8, tag: u16, body_size: usize) -> [u8; HEADER_SIZE] {
    debug_assert!(body_size <= super::MAX_REPLY_LENGTH as usize);
    let [l0, l1, l2, l3] = (body_size as u32 + MIN_LENGTH).to_le_bytes();
    let [t0, t1] = tag.to_le_bytes();
    [l0, l1, l2, l3, kind, flags, t0, t1]
}
