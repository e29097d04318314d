//! noeqd's protocol: a request is one byte, which is the number of IDs. In the reply, each ID is
//! eight bytes, big-endian.

use snowbank_id::layout::Run;

use super::{Awaited, Conversation, FrontEnd, Met, Part, Read, Row, push};
use crate::failure::Failure;
use crate::target::Token;

pub(super) static ROW: Row =
    Row { name: "noeqd", protocol: "noeqd's protocol", authorize: Some(authorize), meet };

const ID_SIZE: usize = 8;

/// The protocol. It has no error replies: a server that refuses a request closes the connection.
#[derive(Debug)]
pub(super) struct Noeqd;

/// Sends a zero byte, then the size of the token, then the token. The server does not answer.
fn authorize(conversation: &mut Conversation<'_>, token: &Token) -> Result<(), Failure> {
    let Ok(size) = u8::try_from(token.bytes().len()) else {
        return Err(conversation.cannot("a token of noeqd's protocol has at most 255 bytes"));
    };
    conversation.send(|out| {
        out.extend_from_slice(&[0, size]);
        out.extend_from_slice(token.bytes());
    })
}

/// Asks for an ID, because the server answers no other request.
fn meet(conversation: &mut Conversation<'_>, _: Option<&str>) -> Result<Met, Failure> {
    conversation.send(|out| out.push(1))?;
    conversation.next(|bytes| Ok(bytes.get(..ID_SIZE).map(|_| ((), ID_SIZE))))?;
    Ok(Met { front_end: Box::new(Noeqd), info: None, version: None })
}

impl FrontEnd for Noeqd {
    fn ask(&self, out: &mut Vec<u8>, _tag: u16, count: u32) {
        // `count` is never more than `max_count`.
        out.push(u8::try_from(count).unwrap_or(u8::MAX));
    }

    fn read<'a>(&self, bytes: &'a [u8], awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        let size = awaited.count as usize * ID_SIZE;
        let Some(reply) = bytes.get(..size) else { return Ok(None) };
        let (ids, _) = reply.as_chunks::<ID_SIZE>();
        ids.iter().for_each(|id| push(runs, u64::from_be_bytes(*id)));
        Ok(Some((Part::End, size)))
    }

    fn max_count(&self) -> u32 {
        u8::MAX.into()
    }
}
