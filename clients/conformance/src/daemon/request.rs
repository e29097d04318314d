//! Requests, read as docs/protocol.md says. Clients do not share this code, so it finds a mistake
//! that they make.

/// The first bytes of HELLO's body.
const MAGIC: &[u8] = b"SNOW\r\n\r\n";

/// The allowed lengths of a request's frame.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=1_024;

/// The most bytes of a source's name.
const NAME_BYTES_MAX: usize = 64;

/// The most bytes of a token.
const TOKEN_BYTES_MAX: usize = 512;

/// The bits of EXPLICIT and PARTIAL.
const NEXT_FLAGS: u8 = 0x03;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Next(Next),
    Info,
    Ping(Vec<u8>),
    /// HELLO, with its token.
    Hello(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) count: u32,
    pub(super) wait_ms: u16,
    pub(super) source: String,
    pub(super) explicit: bool,
    pub(super) partial: bool,
}

/// Takes the first request from the input, with its tag. Returns `None` while the request is
/// incomplete. The error says what is wrong with the request.
pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<(Request, u16)>, String> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if !LENGTHS.contains(&length) {
        return Err(format!("a request with the length {length} came"));
    }
    if input.len() < 4 + length {
        return Ok(None);
    }
    let frame: Vec<u8> = input.drain(..4 + length).collect();
    let (kind, flags, tag, body) =
        (frame[4], frame[5], u16::from_le_bytes([frame[6], frame[7]]), &frame[8..]);
    if tag == 0 {
        return Err(format!("a request with tag 0 came: {frame:02x?}"));
    }
    let request = parse(kind, flags, body);
    request
        .map(|request| Some((request, tag)))
        .ok_or_else(|| format!("a request that does not fit: {frame:02x?}"))
}

fn parse(kind: u8, flags: u8, body: &[u8]) -> Option<Request> {
    match (kind, flags) {
        (0x01, _) if flags & !NEXT_FLAGS == 0 => {
            let (count, rest) = body.split_first_chunk()?;
            let (wait_ms, name) = rest.split_first_chunk()?;
            let source =
                std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES_MAX)?.to_owned();
            Some(Request::Next(Next {
                count: u32::from_le_bytes(*count),
                wait_ms: u16::from_le_bytes(*wait_ms),
                source,
                explicit: flags & 0x01 != 0,
                partial: flags & 0x02 != 0,
            }))
        }
        (0x02, 0) if body.is_empty() => Some(Request::Info),
        (0x03, 0) if body.len() <= 64 => Some(Request::Ping(body.to_vec())),
        (0x04, 0) => {
            let rest = body.strip_prefix(MAGIC)?;
            let token = rest.strip_prefix(&[1, 0])?;
            (token.len() <= TOKEN_BYTES_MAX).then(|| Request::Hello(token.to_vec()))
        }
        _ => None,
    }
}
