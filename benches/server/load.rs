//! The load generator: one thread, one epoll, a closed loop on each connection.
//!
//! It shares the machine's cores with the server that it measures, so it does little. For all
//! requests that a connection has in flight, it makes one `recv` and one `send`, and it checks one
//! byte of each reply. For this check, all replies must have the same size.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::{micros, server};

/// The longest pause in the middle of replies. If a server pauses for longer, the benchmark ends
/// with an error.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for events, so that a stretch ends even if the server answers nothing.
const EVENTS_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A request and the form of its reply.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) reply_size: usize,
    /// The index of a byte in the reply, and the value that this byte has unless the reply is an
    /// error.
    pub(crate) marker: (usize, u8),
}

/// Requests on several connections. Each connection has `depth` requests in flight, and sends the
/// next ones when all of them are answered. So every server gets batches of the same size.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
}

impl Load<'_> {
    /// Loads the server that runs as `process`: first for `warm`, then for `stretch`. Returns the
    /// server's processor time for each request of the stretch, in µs.
    pub(crate) fn run(
        &self,
        address: SocketAddr,
        process: u32,
        warm: Duration,
        stretch: Duration,
    ) -> io::Result<f64> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..self.connections {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(READ_TIMEOUT))?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            connections.push(stream);
        }
        for connection in &mut connections {
            connection.write_all(&self.exchange.request.repeat(self.depth))?;
        }
        self.drive(&epoll, &mut connections, warm)?;
        let before = server::cpu_of(process)?;
        let replies = self.drive(&epoll, &mut connections, stretch)?;
        let cpu = server::cpu_of(process)?.saturating_sub(before);
        Ok(micros(cpu) / replies as f64)
    }

    /// Loads the server for a stretch. Returns the number of replies.
    fn drive(&self, epoll: &OwnedFd, connections: &mut [TcpStream], stretch: Duration) -> io::Result<u64> {
        let requests = self.exchange.request.repeat(self.depth);
        let mut replies = vec![0; self.exchange.reply_size * self.depth];
        let mut count = 0;
        let mut events = Vec::with_capacity(256);
        let end = Instant::now() + stretch;
        while Instant::now() < end {
            epoll::wait(epoll, spare_capacity(&mut events), Some(&EVENTS_TIMEOUT))?;
            for event in events.drain(..) {
                let connection = &mut connections[event.data.u64() as usize];
                connection.read_exact(&mut replies)?;
                self.exchange.check(&replies)?;
                count += self.depth as u64;
                connection.write_all(&requests)?;
            }
        }
        Ok(count)
    }
}

impl Exchange {
    fn check(&self, replies: &[u8]) -> io::Result<()> {
        let (at, byte) = self.marker;
        match replies.chunks(self.reply_size).find(|reply| reply[at] != byte) {
            Some(reply) => Err(io::Error::other(format!("the server refused: {}", reply.escape_ascii()))),
            None => Ok(()),
        }
    }
}
