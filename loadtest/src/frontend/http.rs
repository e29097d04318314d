//! HTTP 1.1: `GET /v1/ids`.

use std::borrow::Cow;

use httparse::Status;
use snowbank_id::layout::Run;
use snowbank_wire::Address as Endpoint;
use snowbank_wire::Info;

use super::{
    Access, Awaited, Conversation, FrontEnd, Met, Part, Read, Refusal, Row, Unreadable, code_of, number,
    push, text, unreadable,
};
use crate::failure::Failure;
use crate::promise::source_of;
use crate::target::OTHER_ERROR;

pub(crate) static ROW: Row = Row { name: "http", protocol: "HTTP", authorize: None, meet };

/// The most headers of a reply, including the headers that a proxy adds.
const MAX_HEADERS: usize = 64;

/// A request without its count: the bytes before and after the count.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

struct Reply<'a> {
    status: u64,
    body: Cow<'a, [u8]>,
}

/// Asks for the list of sources, which only Snowbank has.
fn meet(conversation: &mut Conversation<'_>, source: Option<&str>) -> Result<Met, Failure> {
    let headers = headers(conversation.access);
    conversation.send(|out| out.extend([&b"GET /v1/sources"[..], &headers].concat()))?;
    let (status, body) = conversation.next(|bytes| {
        let found = reply(bytes)?;
        Ok(found.map(|(reply, size)| ((reply.status, reply.body.into_owned()), size)))
    })?;
    if matches!(status, 401 | 403 | 429 | 503) {
        return Err(conversation.refused(&refusal(status, &body)));
    }
    let info = Info::from_json(&body).ok().filter(|_| status == 200);
    let Some(info) = info else { return Err(conversation.answered(&body)) };
    let source = source.or(source_of(&info, None).map(|source| source.name.as_str()));
    let query = source.map(|name| form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>());
    let query = query.map(|name| format!("&source={name}")).unwrap_or_default();
    let before = b"GET /v1/ids?count=".to_vec();
    let front_end = Http { before, after: [query.as_bytes(), &headers].concat() };
    Ok(Met { front_end: Box::new(front_end), info: Some(info), version: None })
}

/// Returns the end of a request's first line, and its headers.
fn headers(access: &Access) -> Vec<u8> {
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

impl FrontEnd for Http {
    fn ask(&self, out: &mut Vec<u8>, _tag: u16, count: u32) {
        out.extend_from_slice(&self.before);
        out.extend_from_slice(count.to_string().as_bytes());
        out.extend_from_slice(&self.after);
    }

    fn read<'a>(&self, bytes: &'a [u8], _awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        let read = reply(bytes)?;
        let Some((Reply { status, body }, size)) = read else { return Ok(None) };
        if status != 200 {
            return Ok(Some((Part::Refused(refusal(status, &body)), size)));
        }
        for id in body.trim_ascii_end().split(|&byte| byte == b'\n') {
            push(runs, number(id).ok_or_else(|| unreadable("a line that is not an ID"))?);
        }
        Ok(Some((Part::End, size)))
    }
}

/// Returns the refusal in a reply whose status is not 200. Snowbank's refusals are JSON.
fn refusal(status: u64, body: &[u8]) -> Refusal<'static> {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let (code, words) = match (json["error"].as_str(), json["message"].as_str()) {
        (Some(error), Some(message)) => (code_of(error), message.to_owned()),
        _ if status == 401 => (code_of("unauthorized"), "status 401".to_owned()),
        _ => (OTHER_ERROR, format!("status {status}")),
    };
    Refusal { code, words: Cow::Owned(words.into_bytes()) }
}

/// Returns the first reply and its size; `None` while the reply is incomplete.
fn reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Unreadable> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let head_size = match head.parse(bytes) {
        Ok(Status::Complete(size)) => size,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => {
            let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
            return Err(Unreadable(format!("a reply that begins with {:?}", text(first))));
        }
    };
    let status = head.code.unwrap_or_default().into();
    if value_of("transfer-encoding", head.headers).is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"))
    {
        let body = chunks(&bytes[head_size..])?;
        return Ok(body.map(|(body, size)| (Reply { status, body: Cow::Owned(body) }, head_size + size)));
    }
    let length = value_of("content-length", head.headers)
        .and_then(number)
        .and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or_else(|| Unreadable("a reply without a length".to_owned()))?;
    let end = head_size
        .checked_add(length)
        .ok_or_else(|| Unreadable("a reply of an impossible length".to_owned()))?;
    let body = bytes.get(head_size..end).map(Cow::Borrowed);
    Ok(body.map(|body| (Reply { status, body }, end)))
}

fn value_of<'v>(name: &str, headers: &[httparse::Header<'v>]) -> Option<&'v [u8]> {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.map(|header| header.value.trim_ascii())
}

/// Returns the content of a body that comes in chunks, and the size of these chunks; `None` while
/// the body is incomplete.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Unreadable> {
    // Copies nothing before the end of the body has arrived, so that a long body that arrives in
    // pieces is copied only once.
    let mut chunks = Vec::new();
    let mut taken = 0;
    loop {
        let rest = &bytes[taken..];
        let (start, length) = match httparse::parse_chunk_size(rest) {
            Ok(Status::Complete(chunk)) => chunk,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Unreadable("a chunk without a size".to_owned())),
        };
        let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(b"\r\n".len());
        let Some(chunk) = rest[start..].get(..size) else { return Ok(None) };
        taken += start + size;
        if length == 0 {
            return Ok(Some((chunks.concat(), taken)));
        }
        chunks.push(&chunk[..size - b"\r\n".len()]);
    }
}
