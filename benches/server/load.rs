//! The load generator: one thread, one epoll, a closed loop on each connection.
//!
//! It shares the machine's cores with the server that it measures, so it does as little as it can:
//! one `recv` and one `send` for all that a connection has in flight, and a few instructions for
//! each reply.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use snowbank_client::protocol::request::{self, Next, Wait};

use crate::process::{self, Process};

const INPUT_SIZE: usize = 256 * 1024;
const HEADER_SIZE: usize = 8;
const ERROR: u8 = 0xff;
const MORE: u8 = 0x01;

/// The framing of a server's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// The daemon's own protocol.
    Native,
    /// Redis's: one line for each reply.
    Lines,
}

/// When a connection sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// When all that it has in flight is answered, so that every server sees batches of the same
    /// size.
    Batches,
    /// As soon as something is answered.
    Each,
}

/// The requests, the number of connections, and the requests in flight on each.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) refill: Refill,
    pub(crate) wire: Wire,
    /// The bytes of one request.
    pub(crate) request: Vec<u8>,
}

/// The results of a stretch of load.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) elapsed: Duration,
    pub(crate) replies: u64,
    /// Those of the replies that were errors.
    pub(crate) refused: u64,
    /// The first error, in the server's words.
    pub(crate) first_refusal: Option<String>,
    /// The server's processor time.
    pub(crate) cpu: Duration,
    /// The load generator's.
    pub(crate) own_cpu: Duration,
    /// Round trips, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

/// The bytes of a NEXT.
pub(crate) fn next(count: u32, wait: Wait) -> Vec<u8> {
    let mut bytes = Vec::new();
    let next = Next { count, source: 0, wait, explicit: false, partial: false };
    request::encode_next(&mut bytes, 0, &next);
    bytes
}

impl Load {
    /// NEXT for this many IDs on this many connections.
    pub(crate) fn next(count: u32, connections: usize, depth: usize) -> Load {
        let request = next(count, Wait::DEFAULT);
        Load { connections, depth, refill: Refill::Batches, wire: Wire::Native, request }
    }

    /// Loads a server: first for `warm`, then for `stretch`, in which it measures.
    pub(crate) fn run(&self, server: &Process, warm: Duration, stretch: Duration) -> io::Result<Sample> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let requests = self.request.repeat(self.depth);
        let mut connections = Vec::new();
        for index in 0..self.connections {
            let connection = Connection::open(server.address())?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        let begin = Instant::now();
        let mut meter = Meter::new(server, begin + warm, begin + warm + stretch)?;
        for connection in &mut connections {
            connection.send(&requests, self.depth)?;
        }

        let mut input = vec![0; INPUT_SIZE];
        let mut events = Vec::with_capacity(256);
        // So that the stretch ends even if the server answers nothing.
        let at_most = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            epoll::wait(&epoll, spare_capacity(&mut events), Some(&at_most))?;
            for event in events.drain(..) {
                let connection = &mut connections[event.data.u64() as usize];
                connection.receive(self.wire, &mut input, &mut meter)?;
                if self.refill == Refill::Each || connection.in_flight == 0 {
                    let free = self.depth - connection.in_flight;
                    connection.send(&requests[..free * self.request.len()], free)?;
                }
            }
            if meter.is_over(Instant::now())? {
                return meter.finish();
            }
        }
    }
}

/// Counts replies while the stretch lasts.
struct Meter<'a> {
    server: &'a Process,
    begin: Instant,
    end: Instant,
    sample: Option<Sample>,
    /// The clocks at the start of the stretch.
    started: (Instant, Duration, Duration),
    first_refusal: Option<String>,
}

impl<'a> Meter<'a> {
    fn new(server: &'a Process, begin: Instant, end: Instant) -> io::Result<Self> {
        let started = (begin, Duration::ZERO, Duration::ZERO);
        Ok(Meter { server, begin, end, sample: None, started, first_refusal: None })
    }

    #[inline]
    fn count(&mut self, counted: Counted) {
        if let Some(sample) = &mut self.sample {
            sample.replies += counted.replies;
            sample.refused += counted.refused;
        }
    }

    #[inline]
    fn time(&mut self, round_trip: Duration, replies: u64) {
        if let Some(sample) = &mut self.sample {
            sample.latency.saturating_record_n(round_trip.as_nanos() as u64, replies);
        }
    }

    /// Begins the stretch when its time has come, and tells whether it is over.
    fn is_over(&mut self, now: Instant) -> io::Result<bool> {
        if self.sample.is_none() && now >= self.begin {
            let latency = Histogram::new_with_max(60_000_000_000, 3).map_err(io::Error::other)?;
            self.started = (Instant::now(), self.server.cpu()?, process::own_cpu()?);
            self.sample = Some(Sample {
                elapsed: Duration::ZERO,
                replies: 0,
                refused: 0,
                first_refusal: None,
                cpu: Duration::ZERO,
                own_cpu: Duration::ZERO,
                latency,
            });
        }
        Ok(now >= self.end)
    }

    fn finish(self) -> io::Result<Sample> {
        let mut sample = self.sample.ok_or_else(|| io::Error::other("the stretch has no length"))?;
        let (at, cpu, own_cpu) = self.started;
        sample.elapsed = at.elapsed();
        sample.cpu = self.server.cpu()?.saturating_sub(cpu);
        sample.own_cpu = process::own_cpu()?.saturating_sub(own_cpu);
        sample.first_refusal = self.first_refusal;
        Ok(sample)
    }
}

struct Connection {
    stream: TcpStream,
    frames: Frames,
    in_flight: usize,
    /// When what is in flight was sent, and how many requests at once.
    sent: VecDeque<(Instant, usize)>,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, frames: Frames::default(), in_flight: 0, sent: VecDeque::new() })
    }

    /// Sends requests. Those in flight on one connection fill only a small part of a socket's
    /// buffer.
    fn send(&mut self, requests: &[u8], count: usize) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.sent.push_back((Instant::now(), count));
        self.in_flight += count;
        self.stream.write_all(requests)
    }

    fn receive(&mut self, wire: Wire, input: &mut [u8], meter: &mut Meter<'_>) -> io::Result<()> {
        let size = match self.stream.read(input) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let counted = match wire {
            Wire::Native => self.frames.count(&input[..size], &mut meter.first_refusal),
            Wire::Lines => Counted::lines(&input[..size]),
        };
        meter.count(counted);
        self.in_flight -= counted.replies as usize;
        let mut replies = counted.replies as usize;
        let now = Instant::now();
        while let Some((at, count)) = self.sent.front_mut()
            && replies > 0
        {
            let answered = replies.min(*count);
            meter.time(now - *at, answered as u64);
            replies -= answered;
            *count -= answered;
            if *count == 0 {
                self.sent.pop_front();
            }
        }
        Ok(())
    }
}

/// Replies that were complete in what was read.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    replies: u64,
    refused: u64,
}

impl Counted {
    fn lines(bytes: &[u8]) -> Counted {
        let replies = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let refused = if bytes.first() == Some(&b'-') { replies } else { 0 };
        Counted { replies, refused }
    }
}

/// Finds the ends of the daemon's replies in a stream of bytes.
#[derive(Debug, Default)]
struct Frames {
    /// The header of the current frame, as far as it is there.
    header: [u8; HEADER_SIZE],
    have: usize,
    /// Bytes of the current frame's body still to come.
    left: usize,
}

impl Frames {
    fn count(&mut self, mut bytes: &[u8], first_refusal: &mut Option<String>) -> Counted {
        let mut counted = Counted::default();
        loop {
            if self.have < HEADER_SIZE {
                let size = bytes.len().min(HEADER_SIZE - self.have);
                self.header[self.have..self.have + size].copy_from_slice(&bytes[..size]);
                bytes = &bytes[size..];
                self.have += size;
                if self.have < HEADER_SIZE {
                    return counted;
                }
                let [l0, l1, l2, l3, kind, ..] = self.header;
                self.left = (u32::from_le_bytes([l0, l1, l2, l3]) as usize).saturating_sub(4);
                if kind == ERROR && first_refusal.is_none() {
                    *first_refusal = bytes
                        .get(HEADER_SIZE..self.left)
                        .map(|message| String::from_utf8_lossy(message).into_owned());
                }
            }
            let size = bytes.len().min(self.left);
            bytes = &bytes[size..];
            self.left -= size;
            if self.left > 0 {
                return counted;
            }
            self.have = 0;
            let [.., kind, flags, _, _] = self.header;
            if kind == ERROR {
                counted.refused += 1;
                counted.replies += 1;
            } else if flags & MORE == 0 {
                counted.replies += 1;
            }
        }
    }
}
