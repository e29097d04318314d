//! One connection of the load: its requests in flight, and its bytes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use crate::check::reply::{Asked, ConnectionCheck};
use crate::measure::Fault;
use crate::target::Stream;

use super::{Now, Peer};

/// A request that has had no answer so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) intended_ns: u64,
    /// 0 until the request is handed to the socket.
    pub(super) sent_ns: u64,
    pub(super) asked: Asked,
    pub(super) tag: u16,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) peer: usize,
    pub(super) check: ConnectionCheck,
    pub(super) in_flight: VecDeque<InFlight>,
    out: Vec<u8>,
    /// True from the moment at which the planned outage ended the connection until the connection
    /// is open again.
    pub(super) is_down: bool,
    /// True if the connection was opened again after the outage ended it.
    pub(super) is_reopened: bool,
    /// The start of a reply whose rest has not arrived.
    pub(super) partial: Vec<u8>,
    tag: u16,
}

impl Connection {
    /// Adds an open stream to `epoll`. The events for this stream carry `index`.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn watched(stream: Stream, peer: usize, epoll: &OwnedFd, index: usize) -> io::Result<Self> {
        stream.socket.set_nonblocking(true)?;
        epoll::add(epoll, &stream.socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        Ok(Self {
            stream,
            peer,
            check: ConnectionCheck::default(),
            in_flight: VecDeque::new(),
            is_down: false,
            is_reopened: false,
            out: Vec::new(),
            partial: Vec::new(),
            tag: 1,
        })
    }

    /// Returns true if bytes wait to be flushed. After a flush, true means that the socket took no
    /// more: the target reads more slowly than we write.
    pub(super) fn is_dirty(&self) -> bool {
        !self.out.is_empty() || self.stream.has_unsent()
    }

    /// Prepares a request, which leaves with the next [`flush`](Self::flush).
    pub(super) fn ask(&mut self, of: &Peer, count: u32, intended_ns: u64) {
        of.front_end.ask(&mut self.out, self.tag, count);
        let asked = Asked { count, sent_us: 0, above: 0 };
        self.in_flight.push_back(InFlight { intended_ns, sent_ns: 0, asked, tag: self.tag });
        // No request has tag 0, which is for errors that answer none.
        self.tag = self.tag.checked_add(1).unwrap_or(1);
    }

    /// Stamps the prepared requests as sent now and hands them to the socket.
    pub(super) fn flush(
        &mut self,
        now: Now,
        above: u64,
        mut each: impl FnMut(&InFlight),
    ) -> Result<(), Fault> {
        for request in self.in_flight.iter_mut().rev().take_while(|request| request.sent_ns == 0) {
            request.sent_ns = now.ns;
            request.asked.sent_us = now.wall_us;
            request.asked.above = above;
            each(request);
        }
        let taken = match self.stream.write(&self.out) {
            Ok(taken) => taken,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) => return Err(self.closed(Some(&error))),
        };
        self.out.drain(..taken);
        Ok(())
    }

    /// Reads once. Returns the number of bytes, or `None` if no bytes have arrived.
    pub(super) fn read(&mut self, input: &mut [u8]) -> Result<Option<usize>, Fault> {
        match self.stream.read(input) {
            Ok(0) => Err(self.closed(None)),
            Ok(size) => Ok(Some(size)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(self.closed(Some(&error))),
        }
    }

    fn closed(&self, reason: Option<&io::Error>) -> Fault {
        Fault::Closed { unanswered: self.in_flight.len(), reason: reason.map(ToString::to_string) }
    }
}
