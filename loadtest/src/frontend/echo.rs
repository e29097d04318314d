//! A bare echo, which has no protocol: each byte of a request comes back.

use std::sync::atomic::{AtomicU64, Ordering};

use snowbank_id::layout::Run;
use snowbank_wire::HEADER_SIZE;

use super::{Awaited, Conversation, FrontEnd, Met, Part, Read, Row, native};
use crate::failure::Failure;

pub(crate) static ROW: Row = Row { name: "echo", protocol: "a bare echo", authorize: None, meet };

/// The size of a NEXT without a source's name, and of its echo: count and wait follow the header.
const SIZE: usize = HEADER_SIZE + 6;

/// Treats each echo as a reply whose IDs are the next numbers.
#[derive(Debug, Default)]
struct Echo {
    next: AtomicU64,
}

fn meet(_: &mut Conversation<'_>, _: Option<&str>) -> Result<Met, Failure> {
    Ok(Met { front_end: Box::new(Echo::default()), info: None, version: None })
}

impl FrontEnd for Echo {
    fn ask(&self, out: &mut Vec<u8>, tag: u16, count: u32) {
        native::encode(out, tag, "", count);
    }

    fn read<'a>(&self, bytes: &'a [u8], awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        if bytes.len() < SIZE {
            return Ok(None);
        }
        let first = self.next.fetch_add(awaited.count.into(), Ordering::Relaxed);
        runs.push(Run { first, count: awaited.count, stride: 1 });
        Ok(Some((Part::End, SIZE)))
    }
}
