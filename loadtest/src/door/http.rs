//! HTTP 1.1: `GET /v1/ids` of Snowbank, `GET /ids?n=` of katsubushi.

use std::borrow::Cow;
use std::sync::Arc;

use snowbank_client::Endpoint;
use snowbank_client::layout::Run;
use snowbank_client::protocol::Info;

use super::{At, Door, Met, Part, Read, code_of, line, number, push, unreadable};
use crate::target::{Access, Conversation, NoTarget};
use crate::units::printable;

/// The longest head of a reply.
const MAX_HEAD_SIZE: usize = 16 * 1024;

/// A request without its count: the bytes before it and behind it.
#[derive(Debug)]
pub(super) struct Http {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A whole reply.
#[derive(Debug, PartialEq, Eq)]
struct Reply<'a> {
    status: u64,
    body: Cow<'a, [u8]>,
}

/// Reads the sources of Snowbank; of any other server, an ID of `/ids`.
pub(super) fn meet(
    conversation: &mut Conversation,
    access: &Access,
    source: Option<&str>,
) -> Result<Met, NoTarget> {
    let headers = headers(access);
    let (status, body) = get(conversation, "/v1/sources", &headers)?;
    if status == 200
        && let Ok(info) = Info::from_json(&body)
    {
        let source = source.map(str::to_owned).or_else(|| {
            info.sources.iter().find(|source| source.index == 0).map(|source| source.name.clone())
        });
        let named = source.map(|name| format!("&source={}", in_query(&name))).unwrap_or_default();
        let door = Http::of("GET /v1/ids?count=", &named, &headers);
        let version = info.version.clone();
        return Ok(Met { door: Arc::new(door), info: Some(info), version });
    }
    check_status(conversation, status, &body)?;
    let (status, body) = get(conversation, "/ids?n=1", &headers)?;
    check_status(conversation, status, &body)?;
    if status != 200 || number(body.trim_ascii_end()).is_none() {
        return Err(conversation.not_that("HTTP with /v1/ids or /ids?n=", &body));
    }
    let door = Http::of("GET /ids?n=", "", &headers);
    Ok(Met { door: Arc::new(door), info: None, version: None })
}

fn check_status(conversation: &Conversation, status: u64, body: &[u8]) -> Result<(), NoTarget> {
    if !matches!(status, 401 | 403 | 429 | 503) {
        return Ok(());
    }
    match refusal(&Reply { status, body: Cow::Borrowed(body) }) {
        Part::Refused { code, words } => Err(conversation.refused(code, &words)),
        Part::More | Part::End => Ok(()),
    }
}

pub(super) fn get(
    conversation: &mut Conversation,
    path: &str,
    headers: &[u8],
) -> Result<(u64, Vec<u8>), NoTarget> {
    conversation.send(|out| {
        out.extend_from_slice(format!("GET {path}").as_bytes());
        out.extend_from_slice(headers);
    })?;
    conversation.next(|bytes| {
        let found = reply(bytes)?;
        Ok(found.map(|(reply, size)| ((reply.status, reply.body.into_owned()), size)))
    })
}

/// Returns the end of a request's first line, and its headers.
pub(super) fn headers(access: &Access) -> Vec<u8> {
    let host = match &access.endpoint {
        Endpoint::Unix(_) => "localhost".to_owned(),
        Endpoint::Tcp { .. } | Endpoint::Tls { .. } => {
            access.endpoint.to_string().trim_start_matches("tls:").to_owned()
        }
    };
    let mut headers = format!(" HTTP/1.1\r\nHost: {host}\r\nAccept: text/plain\r\n").into_bytes();
    if let Some(token) = &access.token {
        headers.extend_from_slice(b"Authorization: Bearer ");
        headers.extend_from_slice(token.bytes());
        headers.extend_from_slice(b"\r\n");
    }
    headers.extend_from_slice(b"\r\n");
    headers
}

/// Encodes a name for a query.
fn in_query(name: &str) -> String {
    let each = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(each).collect()
}

impl Http {
    pub(super) fn of(before: &str, after: &str, headers: &[u8]) -> Self {
        Self { before: before.as_bytes().to_vec(), after: [after.as_bytes(), headers].concat() }
    }
}

impl Door for Http {
    fn ask(&self, out: &mut Vec<u8>, count: u32) {
        out.extend_from_slice(&self.before);
        out.extend_from_slice(count.to_string().as_bytes());
        out.extend_from_slice(&self.after);
    }

    fn read<'a>(&self, bytes: &'a [u8], _at: At, runs: &mut Vec<Run>) -> Read<'a> {
        let Some((reply, size)) = reply(bytes).map_err(|reason| unreadable(&reason))? else {
            return Ok(None);
        };
        if reply.status != 200 {
            let Part::Refused { code, words } = refusal(&reply) else { unreachable!("a refusal is refused") };
            return Ok(Some((Part::Refused { code, words: Cow::Owned(words.into_owned()) }, size)));
        }
        for id in reply.body.trim_ascii_end().split(|&byte| byte == b'\n') {
            push(runs, number(id).ok_or_else(|| unreadable("a line that is no ID"))?);
        }
        Ok(Some((Part::End, size)))
    }
}

/// Returns the refusal of a reply with another status than 200: Snowbank's are JSON.
fn refusal<'a>(reply: &'a Reply<'_>) -> Part<'a> {
    let json: Option<serde_json::Value> = serde_json::from_slice(&reply.body).ok();
    let text = |key| json.as_ref().and_then(|json| json.get(key)?.as_str());
    let Some((error, message)) = text("error").zip(text("message")) else {
        let words = format!("status {}", reply.status).into_bytes();
        let code = if reply.status == 401 { code_of("unauthorized") } else { crate::target::OTHER_ERROR };
        return Part::Refused { code, words: Cow::Owned(words) };
    };
    Part::Refused { code: code_of(error), words: Cow::Owned(message.as_bytes().to_vec()) }
}

/// Returns the first reply and its size; `None` if it is not all there.
fn reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    // Another protocol may never send what ends a head.
    if let Some((first, _)) = line(bytes).filter(|(first, _)| !first.starts_with(b"HTTP/1.")) {
        return Err(format!("a reply that begins with {:?}", printable(&String::from_utf8_lossy(first))));
    }
    let Some(head_size) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4) else {
        let is_endless = bytes.len() > MAX_HEAD_SIZE;
        return if is_endless { Err("a head without an end".to_owned()) } else { Ok(None) };
    };
    let head = String::from_utf8_lossy(&bytes[..head_size]);
    let first = head.lines().next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| number(rest.get(2..5)?.as_bytes()));
    let status = status.ok_or_else(|| format!("a reply that begins with {:?}", printable(first)))?;
    let header = |wanted: &str| {
        let mut pairs = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_owned())
    };
    if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        let body = chunks(&bytes[head_size..])?;
        return Ok(body.map(|(body, size)| (Reply { status, body: Cow::Owned(body) }, head_size + size)));
    }
    let length = header("content-length").and_then(|value| usize::try_from(number(value.as_bytes())?).ok());
    let length = length.ok_or("a reply without a length")?;
    let end = head_size.checked_add(length).ok_or("a reply without an end")?;
    let body = bytes.get(head_size..end).map(Cow::Borrowed);
    Ok(body.map(|body| (Reply { status, body }, end)))
}

/// Returns the content of a body in chunks, and its size; `None` if it is not all there.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    // Finds its end first, so that a long body that comes in pieces is copied once.
    let mut places = Vec::new();
    let mut at = 0;
    loop {
        let Some((size_line, start)) = bytes.get(at..).and_then(line) else { return Ok(None) };
        let digits =
            String::from_utf8_lossy(size_line.split(|&byte| byte == b';').next().unwrap_or_default())
                .trim()
                .to_owned();
        let length = usize::from_str_radix(&digits, 16).map_err(|_| format!("a chunk of size {digits:?}"))?;
        let begin = at + start;
        let end = begin.checked_add(length).ok_or("a chunk without an end")?;
        if bytes.len() < end.saturating_add(2) {
            return Ok(None);
        }
        at = end + 2;
        if length == 0 {
            break;
        }
        places.push(begin..end);
    }
    Ok(Some((places.into_iter().flat_map(|place| &bytes[place]).copied().collect(), at)))
}
