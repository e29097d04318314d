//! The lowest cost of any server. A single-thread epoll server answers each NEXT of one ID with 24
//! bytes, or each INCR with a number of 19 digits.
//!
//! One turn is one `recv`, one `send` and a share of one `epoll_wait`. Every server has these
//! costs. All further costs of a server are its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// A kind of request, and the reply to each of these requests.
struct Exchange {
    /// A byte that occurs exactly once in each request, so that counting it counts the requests.
    marker: u8,
    /// A reply that is as long as the daemon's reply.
    reply: &'static [u8],
}

/// The marker is the value of the frame's length field.
const NEXT: Exchange =
    Exchange { marker: 12, reply: b"\x14\0\0\0\x81\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0" };
const INCR: Exchange = Exchange { marker: b'*', reply: b":2123826781336245015\r\n" };

const INPUT_SIZE: usize = 64 * 1024;
/// How many of the shortest requests fit into the input, and one more.
const REQUESTS_MAX: usize = INPUT_SIZE / 16 + 1;

const LISTENER: u64 = u64::MAX;
const PARENT: u64 = u64::MAX - 1;

/// Serves until standard input ends, which happens when the parent process ends. If `answers_incr`
/// is true, clients speak Redis' protocol.
pub(crate) fn serve(answers_incr: bool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = epoll::EventFlags::IN;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), watch)?;
    epoll::add(&epoll, io::stdin(), epoll::EventData::new_u64(PARENT), watch)?;
    println!("listening on {}", listener.local_addr()?);

    let exchange = if answers_incr { INCR } else { NEXT };
    let replies = exchange.reply.repeat(REQUESTS_MAX);
    let mut input = vec![0; INPUT_SIZE];
    let mut peers: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(256);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            match event.data.u64() {
                PARENT => return Ok(()),
                LISTENER => {
                    let (stream, _) = listener.accept()?;
                    stream.set_nodelay(true)?;
                    epoll::add(&epoll, &stream, epoll::EventData::new_u64(peers.len() as u64), watch)?;
                    peers.push(Some(stream));
                }
                index => {
                    let peer = &mut peers[index as usize];
                    // The socket is readable, so this does not block.
                    let size = peer.as_mut().map_or(Ok(0), |stream| stream.read(&mut input)).unwrap_or(0);
                    let requests = input[..size].iter().filter(|byte| **byte == exchange.marker).count();
                    let answer = &replies[..requests * exchange.reply.len()];
                    let is_sent = peer.as_mut().is_some_and(|stream| stream.write_all(answer).is_ok());
                    if size == 0 || !is_sent {
                        *peer = None;
                    }
                }
            }
        }
    }
}
