//! Snowbank's own protocol, version 1.

use std::borrow::Cow;

use snowbank_id::layout::Run;
use snowbank_wire::Parsed;
use snowbank_wire::collect::{BadReply, InfoCollector, Progress};
use snowbank_wire::reply::{self, Reply};
use snowbank_wire::request::{self, Next, Wait};
use snowbank_wire::{Hello, VERSION};

use super::{Awaited, Conversation, FrontEnd, Met, Part, Read, Refusal, Row, Unreadable, text, unreadable};
use crate::failure::Failure;
use crate::measure::Fault;
use crate::target::{Token, code_name};

pub(crate) static ROW: Row =
    Row { name: "snowbank", protocol: "snowbank's protocol, version 1", authorize: Some(authorize), meet };

/// The protocol, with the name of the source in all requests. Empty: the first source.
#[derive(Debug)]
struct Native {
    source: String,
}

/// The tag of the requests before the load. The tags of the load are apart from them in time.
const TAG: u16 = 1;

fn authorize(conversation: &mut Conversation<'_>, token: &Token) -> Result<(), Failure> {
    conversation.send(|out| {
        let hello = Hello { version: VERSION, token: token.bytes() };
        let encoded = request::encode_hello(out, TAG, &hello);
        debug_assert!(encoded.is_ok(), "the size of the token was checked when it was read");
    })?;
    next_reply(conversation, |reply| match reply {
        Reply::Welcome(_) => Ok(()),
        _ => Err(BadReply::Kind),
    })
}

/// Asks for INFO. If INFO does not list the source, `Promise::from_info` refuses the source later.
fn meet(conversation: &mut Conversation<'_>, source: Option<&str>) -> Result<Met, Failure> {
    conversation.send(|out| request::encode_info(out, TAG))?;
    let mut collector = InfoCollector::default();
    while next_reply(conversation, |reply| collector.add(reply))? == Progress::More {}
    let info = collector.finish().map_err(|bad| conversation.other(&bad.to_string()))?;
    let source = source.unwrap_or_default().to_owned();
    Ok(Met { front_end: Box::new(Native { source }), info: Some(info), version: None })
}

/// Waits for the next reply. An error reply is returned as a failure.
fn next_reply<T>(
    conversation: &mut Conversation<'_>,
    mut take: impl FnMut(&Reply<'_>) -> Result<T, BadReply>,
) -> Result<T, Failure> {
    let taken = conversation.next(|bytes| match frame(bytes)? {
        None => Ok(None),
        Some((Reply::Error(error), _, size)) => {
            let words = Cow::Owned(error.message.to_vec());
            Ok(Some((Err(Refusal { code: error.code, words }), size)))
        }
        Some((reply, _, size)) => {
            let taken = take(&reply).map_err(|bad| Unreadable(format!("something else: {bad}")))?;
            Ok(Some((Ok(taken), size)))
        }
    })?;
    taken.map_err(|refusal| conversation.refused(&refusal))
}

pub(super) fn encode(out: &mut Vec<u8>, tag: u16, source: &str, count: u32) {
    let source = source.as_bytes();
    let next = Next { count, source, wait: Wait::DEFAULT, explicit: false, partial: false };
    let encoded = request::encode_next(out, tag, &next);
    debug_assert!(encoded.is_ok(), "the target's INFO lists the source");
}

/// Returns the first frame with its tag and its size; `None` while the frame is incomplete.
fn frame(bytes: &[u8]) -> Result<Option<(Reply<'_>, u16, usize)>, Unreadable> {
    match reply::parse(bytes) {
        Parsed::Incomplete => Ok(None),
        Parsed::BadLength(length) => Err(Unreadable(format!("a frame of {length} bytes"))),
        Parsed::Frame { content, tag, consumed } => {
            Ok(Some((content.map_err(|fault| Unreadable(fault.to_string()))?, tag, consumed)))
        }
    }
}

impl FrontEnd for Native {
    fn ask(&self, out: &mut Vec<u8>, tag: u16, count: u32) {
        encode(out, tag, &self.source, count);
    }

    fn read<'a>(&self, bytes: &'a [u8], awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        let read = frame(bytes)?;
        let Some((reply, tag, size)) = read else { return Ok(None) };
        if tag != awaited.tag {
            return self.unasked(bytes, awaited.unanswered).map(|()| None);
        }
        let more = match reply {
            Reply::Runs { runs: found, more } => {
                runs.extend(found.iter());
                more
            }
            Reply::List { ids, more } => {
                runs.extend(ids.iter().map(|first| Run { first, count: 1, stride: 1 }));
                more
            }
            Reply::Error(error) => {
                let refusal = Refusal { code: error.code, words: Cow::Borrowed(error.message) };
                return Ok(Some((Part::Refused(refusal), size)));
            }
            Reply::Info { .. } | Reply::Pong(_) | Reply::Welcome(_) => {
                return Err(unreadable("a frame that answers another kind of request"));
            }
        };
        Ok(Some((if more { Part::More } else { Part::End }, size)))
    }

    /// Reads the error with tag 0 that the daemon sends before it closes a connection that it
    /// refuses.
    fn unasked(&self, bytes: &[u8], unanswered: usize) -> Result<(), Fault> {
        match frame(bytes)? {
            None => Ok(()),
            Some((Reply::Error(error), ..)) => {
                let reason = Some(format!("{}: {}", code_name(error.code), text(error.message)));
                Err(Fault::Closed { unanswered, reason })
            }
            Some((_, tag, _)) => {
                Err(unreadable(&format!("a reply with tag {tag}, which is not the next request's")))
            }
        }
    }
}
