//! Replies: encoded by the server, parsed by the client.
//!
//! IDs that exceed a frame are encoded frame by frame, [`RUNS_PER_FRAME`] runs or
//! [`IDS_PER_FRAME`] IDs at a time. So a server can wait until the socket has taken a frame, and
//! only then encode the next. Every frame except the last has `more`.

use std::time::Duration;

use super::Unencodable;
use super::frame::{self, Fault, Parsed, RawFrame};
use super::{Action, ErrorCode, HEADER_SIZE, MAX_CLAIMS, MAX_PING_SIZE, MAX_REPLY_LENGTH, MIN_LENGTH};
use snowbank_id::layout::Run;

const RUNS: u8 = 0x81;
const LIST: u8 = 0x82;
const INFO: u8 = 0x83;
const PONG: u8 = 0x84;
const WELCOME: u8 = 0x85;
const ERROR: u8 = 0xff;

const MORE: u8 = 0x01;

const RUN_SIZE: usize = 16;
const ID_SIZE: usize = 8;
const CLAIM_SIZE: usize = 8;
const ERROR_HEAD_SIZE: usize = 8;
const WELCOME_HEAD_SIZE: usize = 16;
const MAX_BODY_SIZE: usize = (MAX_REPLY_LENGTH - MIN_LENGTH) as usize;

const _: () = assert!(
    WELCOME_HEAD_SIZE + MAX_CLAIMS * CLAIM_SIZE <= MAX_BODY_SIZE,
    "a WELCOME with all its claims is one frame"
);

/// The most runs in one RUNS frame.
pub const RUNS_PER_FRAME: usize = MAX_BODY_SIZE / RUN_SIZE;

/// The most IDs in one LIST frame.
pub const IDS_PER_FRAME: usize = MAX_BODY_SIZE / ID_SIZE;

/// The most bytes of a message that [`encode_error`] sends: one line for a person.
pub const MAX_MESSAGE_SIZE: usize = 1_024;

const NO_IDS: Unencodable = Unencodable("a frame without IDs means nothing; send at least one run or ID");
const TOO_MANY: Unencodable = Unencodable("more runs or IDs than one frame carries; split them");

/// One frame of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// IDs as runs.
    Runs {
        /// The runs. The parser does not compare them with each other.
        runs: WireRuns<'a>,
        /// True if another frame of this reply follows.
        more: bool,
    },
    /// IDs, listed one by one.
    List {
        /// The IDs. The parser does not compare them with each other.
        ids: WireIds<'a>,
        /// True if another frame of this reply follows.
        more: bool,
    },
    /// JSON for [`Info::from_json`](super::Info::from_json), once all frames have been joined.
    Info {
        /// The JSON or a part of it.
        json: &'a [u8],
        /// True if another frame of this reply follows.
        more: bool,
    },
    /// The answer to a PING: the body of that PING.
    Pong(&'a [u8]),
    /// The answer to HELLO.
    Welcome(Welcome<'a>),
    /// The daemon refuses the request; with tag 0, the connection.
    Error(ErrorReply<'a>),
}

/// The body of an ERROR frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReply<'a> {
    /// The code's number; see [`ErrorCode::from_u16`].
    pub code: u16,
    /// What the client is to do.
    pub action: Action,
    /// The time before which the same request cannot succeed, in whole milliseconds. It says
    /// nothing if the action is [`Action::Tell`].
    pub retry_after: Duration,
    /// One line for a person. A daemon that is not ours may send other bytes than UTF-8.
    pub message: &'a [u8],
}

impl<'a> ErrorReply<'a> {
    /// Returns an error that the client tells its caller.
    #[must_use]
    pub fn tell(code: ErrorCode, message: &'a str) -> Self {
        let message = message.as_bytes();
        Self { code: code.to_u16(), action: Action::Tell, retry_after: Duration::ZERO, message }
    }

    /// Returns an error after which the client asks again on its connection.
    #[must_use]
    pub fn stay(code: ErrorCode, retry_after: Duration, message: &'a str) -> Self {
        Self { action: Action::Stay, retry_after, ..Self::tell(code, message) }
    }

    /// Returns an error after which the client asks elsewhere.
    #[must_use]
    pub fn leave(code: ErrorCode, retry_after: Duration, message: &'a str) -> Self {
        Self { action: Action::Leave, retry_after, ..Self::tell(code, message) }
    }
}

/// The body of a WELCOME frame: what a client must know of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The version that both sides speak from now on.
    pub version: u8,
    /// The longest time for which a client may keep an ID after it was asked for.
    pub good_for: Duration,
    /// The most IDs of one request.
    pub max_count: u32,
    /// A number that each start of a daemon chooses again.
    pub instance: u64,
    /// The claims, ascending. Each stands for one worker ID of one ID space. Two daemons with
    /// different instances and an equal claim can hand out the same IDs.
    pub claims: WireIds<'a>,
}

/// The runs of one RUNS frame, as the bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireRuns<'a>(&'a [[u8; RUN_SIZE]]);

impl<'a> WireRuns<'a> {
    /// Returns the runs in order. Counts and strides are unchecked and can be zero.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Run> + use<'a> {
        self.0.iter().map(|&[f0, f1, f2, f3, f4, f5, f6, f7, c0, c1, c2, c3, s0, s1, s2, s3]| Run {
            first: u64::from_le_bytes([f0, f1, f2, f3, f4, f5, f6, f7]),
            count: u32::from_le_bytes([c0, c1, c2, c3]),
            stride: u32::from_le_bytes([s0, s1, s2, s3]).into(),
        })
    }
}

/// The IDs of one LIST frame, or the claims of a WELCOME, as the bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireIds<'a>(&'a [[u8; ID_SIZE]]);

impl<'a> WireIds<'a> {
    /// Creates the numbers from their bytes, little-endian.
    #[must_use]
    pub fn new(bytes: &'a [[u8; ID_SIZE]]) -> Self {
        Self(bytes)
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.0.iter().map(|&bytes| u64::from_le_bytes(bytes))
    }
}

/// Parses the first reply frame in `bytes`.
#[inline]
pub fn parse(bytes: &[u8]) -> Parsed<Reply<'_>> {
    frame::parse(bytes, MAX_REPLY_LENGTH, understand)
}

#[inline]
fn understand<'a>(frame: &RawFrame<'a>) -> Result<Reply<'a>, Fault> {
    let more = frame.flags & MORE != 0;
    match frame.kind {
        RUNS => {
            let (runs, odd) = frame.body.as_chunks();
            frame.check_body(!runs.is_empty() && odd.is_empty(), "16 bytes for each run, at least one")?;
            Ok(Reply::Runs { runs: WireRuns(runs), more })
        }
        LIST => {
            let (ids, odd) = frame.body.as_chunks();
            frame.check_body(!ids.is_empty() && odd.is_empty(), "8 bytes for each ID, at least one")?;
            Ok(Reply::List { ids: WireIds(ids), more })
        }
        INFO => {
            frame.check_body(!frame.body.is_empty(), "JSON")?;
            Ok(Reply::Info { json: frame.body, more })
        }
        PONG => {
            frame.check_body(frame.body.len() <= MAX_PING_SIZE, "at most 64 bytes")?;
            Ok(Reply::Pong(frame.body))
        }
        WELCOME => understand_welcome(frame),
        ERROR => understand_error(frame),
        kind => Err(Fault::Kind { kind }),
    }
}

fn understand_error<'a>(frame: &RawFrame<'a>) -> Result<Reply<'a>, Fault> {
    let Some((&[c0, c1, action, _, r0, r1, r2, r3], message)) =
        frame.body.split_first_chunk::<ERROR_HEAD_SIZE>()
    else {
        return Err(frame.body_fault("at least 8 bytes"));
    };
    Ok(Reply::Error(ErrorReply {
        code: u16::from_le_bytes([c0, c1]),
        action: Action::from_u8(action),
        retry_after: Duration::from_millis(u32::from_le_bytes([r0, r1, r2, r3]).into()),
        message,
    }))
}

fn understand_welcome<'a>(frame: &RawFrame<'a>) -> Result<Reply<'a>, Fault> {
    const ALLOWED: &str = "16 bytes, and 8 bytes for each claim";
    let Some((head, claims)) = frame.body.split_first_chunk::<WELCOME_HEAD_SIZE>() else {
        return Err(frame.body_fault(ALLOWED));
    };
    let (claims, odd) = claims.as_chunks();
    frame.check_body(odd.is_empty(), ALLOWED)?;
    let &[version, _, g0, g1, m0, m1, m2, m3, ref instance @ ..] = head;
    Ok(Reply::Welcome(Welcome {
        version,
        good_for: Duration::from_millis(u16::from_le_bytes([g0, g1]).into()),
        max_count: u32::from_le_bytes([m0, m1, m2, m3]),
        instance: u64::from_le_bytes(*instance),
        claims: WireIds(claims),
    }))
}

/// Appends one RUNS frame of 1 to [`RUNS_PER_FRAME`] runs. `more` says that another frame of this
/// reply follows.
///
/// # Errors
/// Returns [`Unencodable`] if the number of runs is 0 or too large, if a run is empty, or if a
/// stride exceeds `u32`.
#[inline]
pub fn encode_runs_frame(out: &mut Vec<u8>, tag: u16, runs: &[Run], more: bool) -> Result<(), Unencodable> {
    let [run] = runs else {
        return encode_many_runs(out, tag, runs, more);
    };
    let stride = encodable_stride(run)?;
    let mut bytes = [0; HEADER_SIZE + RUN_SIZE];
    bytes[..HEADER_SIZE].copy_from_slice(&frame::header(RUNS, flags(more), tag, RUN_SIZE));
    bytes[HEADER_SIZE..].copy_from_slice(&run_bytes(run, stride));
    out.extend_from_slice(&bytes);
    Ok(())
}

/// Appends a RUNS frame, or nothing if the function returns an error. The caller itself encodes
/// frames of one run, which are the most common and need no loop.
fn encode_many_runs(out: &mut Vec<u8>, tag: u16, runs: &[Run], more: bool) -> Result<(), Unencodable> {
    if runs.is_empty() {
        return Err(NO_IDS);
    }
    if runs.len() > RUNS_PER_FRAME {
        return Err(TOO_MANY);
    }
    let start = out.len();
    out.reserve(HEADER_SIZE + runs.len() * RUN_SIZE);
    out.extend_from_slice(&frame::header(RUNS, flags(more), tag, runs.len() * RUN_SIZE));
    for run in runs {
        match encodable_stride(run) {
            Ok(stride) => out.extend_from_slice(&run_bytes(run, stride)),
            Err(reason) => {
                out.truncate(start);
                return Err(reason);
            }
        }
    }
    Ok(())
}

/// Returns the stride of a run in 32 bits, as on the wire.
#[inline]
fn encodable_stride(run: &Run) -> Result<u32, Unencodable> {
    if run.count == 0 || run.stride == 0 {
        return Err(Unencodable("a run's count and stride are at least 1"));
    }
    u32::try_from(run.stride).map_err(|_| Unencodable("a stride above 32 bits; send such IDs as a LIST"))
}

#[inline]
fn run_bytes(run: &Run, stride: u32) -> [u8; RUN_SIZE] {
    let mut bytes = [0; RUN_SIZE];
    bytes[..8].copy_from_slice(&run.first.to_le_bytes());
    bytes[8..12].copy_from_slice(&run.count.to_le_bytes());
    bytes[12..].copy_from_slice(&stride.to_le_bytes());
    bytes
}

/// Appends one LIST frame of 1 to [`IDS_PER_FRAME`] IDs. `more` says that another frame of this
/// reply follows.
///
/// # Errors
/// Returns [`Unencodable`] if there are no IDs or too many. Then `ids` has been read to its end, or
/// to one ID past the limit.
pub fn encode_list_frame(
    out: &mut Vec<u8>,
    tag: u16,
    ids: impl IntoIterator<Item = u64>,
    more: bool,
) -> Result<(), Unencodable> {
    let start = out.len();
    // The header contains the body's size, which is known only at the end. So the header is written
    // twice.
    out.extend_from_slice(&frame::header(LIST, flags(more), tag, 0));
    let mut count = 0;
    for id in ids {
        if count == IDS_PER_FRAME {
            out.truncate(start);
            return Err(TOO_MANY);
        }
        out.extend_from_slice(&id.to_le_bytes());
        count += 1;
    }
    if count == 0 {
        out.truncate(start);
        return Err(NO_IDS);
    }
    let header = frame::header(LIST, flags(more), tag, count * ID_SIZE);
    out[start..start + header.len()].copy_from_slice(&header);
    Ok(())
}

/// Appends an INFO reply, in as many frames as the JSON needs. Empty JSON appends nothing.
pub fn encode_info(out: &mut Vec<u8>, tag: u16, json: &[u8]) {
    let mut parts = json.chunks(MAX_BODY_SIZE).peekable();
    while let Some(part) = parts.next() {
        out.extend_from_slice(&frame::header(INFO, flags(parts.peek().is_some()), tag, part.len()));
        out.extend_from_slice(part);
    }
}

/// Appends a PONG frame with the body of a PING, cut at [`MAX_PING_SIZE`].
pub fn encode_pong(out: &mut Vec<u8>, tag: u16, body: &[u8]) {
    let body = &body[..body.len().min(MAX_PING_SIZE)];
    out.extend_from_slice(&frame::header(PONG, 0, tag, body.len()));
    out.extend_from_slice(body);
}

/// Appends a WELCOME frame. Rounds `good_for` down to whole milliseconds, and leaves out the claims
/// beyond the first [`MAX_CLAIMS`].
pub fn encode_welcome(out: &mut Vec<u8>, tag: u16, welcome: &Welcome<'_>) {
    let claims = welcome.claims.0;
    let claims = claims[..claims.len().min(MAX_CLAIMS)].as_flattened();
    let good_for_ms = u16::try_from(welcome.good_for.as_millis()).unwrap_or(u16::MAX);
    out.extend_from_slice(&frame::header(WELCOME, 0, tag, WELCOME_HEAD_SIZE + claims.len()));
    out.extend_from_slice(&[welcome.version, 0]);
    out.extend_from_slice(&good_for_ms.to_le_bytes());
    out.extend_from_slice(&welcome.max_count.to_le_bytes());
    out.extend_from_slice(&welcome.instance.to_le_bytes());
    out.extend_from_slice(claims);
}

/// Appends an ERROR frame. Rounds `retry_after` up to whole milliseconds. Cuts the message at
/// [`MAX_MESSAGE_SIZE`], between two characters.
pub fn encode_error(out: &mut Vec<u8>, tag: u16, error: &ErrorReply<'_>) {
    let message = cut(error.message, MAX_MESSAGE_SIZE);
    let retry_after_ms = u32::try_from(error.retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
    out.extend_from_slice(&frame::header(ERROR, 0, tag, ERROR_HEAD_SIZE + message.len()));
    out.extend_from_slice(&error.code.to_le_bytes());
    out.extend_from_slice(&[error.action.to_u8(), 0]);
    out.extend_from_slice(&retry_after_ms.to_le_bytes());
    out.extend_from_slice(message);
}

/// Returns the longest prefix of `text` with at most `max_size` bytes that ends with a whole
/// character, if the text is UTF-8.
fn cut(text: &[u8], max_size: usize) -> &[u8] {
    let mut end = text.len().min(max_size);
    let is_within = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while end > 0 && is_within(end) {
        end -= 1;
    }
    &text[..end]
}

fn flags(more: bool) -> u8 {
    if more { MORE } else { 0 }
}
