//! The floor: a bare single-thread epoll server that answers each 16 bytes with 24, or each INCR
//! with a number of 19 digits.
//!
//! One turn is one `recv`, one `send` and a share of one `epoll_wait`, and nothing else: what a
//! server adds to that is its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

const REQUEST_SIZE: usize = 16;
/// The daemon's reply to such a request, so that one load generator reads both.
const REPLY: [u8; 24] = *b"\x14\0\0\0\x81\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0";
/// A reply to INCR, as long as the daemon's.
const INCR_REPLY: [u8; 22] = *b":2123826781336245015\r\n";
/// The first byte of each INCR, and no other byte of it.
const INCR_BEGINS: u8 = b'*';
const INPUT_SIZE: usize = 64 * 1024;

const LISTENER: u64 = u64::MAX;
const PARENT: u64 = u64::MAX - 1;

struct Peer {
    stream: TcpStream,
    /// Bytes of a request that is not all there yet.
    begun: usize,
}

/// Serves until standard input ends, as it does when the process that started this one ends.
/// `of_incr`: clients speak Redis' protocol.
pub(crate) fn serve(of_incr: bool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = epoll::EventFlags::IN;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), watch)?;
    epoll::add(&epoll, io::stdin(), epoll::EventData::new_u64(PARENT), watch)?;
    println!("listening on {}", listener.local_addr()?);

    let reply: &[u8] = if of_incr { &INCR_REPLY } else { &REPLY };
    let replies = reply.repeat(INPUT_SIZE / REQUEST_SIZE + 1);
    let mut input = vec![0; INPUT_SIZE];
    let mut peers: Vec<Option<Peer>> = Vec::new();
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
                    peers.push(Some(Peer { stream, begun: 0 }));
                }
                index => {
                    let slot = &mut peers[index as usize];
                    if slot.as_mut().is_some_and(|peer| !peer.turn(&mut input, &replies, of_incr)) {
                        *slot = None;
                    }
                }
            }
        }
    }
}

impl Peer {
    /// One `recv`, which does not block because the socket is readable, and one `send`. False at
    /// the end.
    fn turn(&mut self, input: &mut [u8], replies: &[u8], of_incr: bool) -> bool {
        let Ok(size @ 1..) = self.stream.read(input) else {
            return false;
        };
        let answered = if of_incr {
            input[..size].iter().filter(|byte| **byte == INCR_BEGINS).count() * INCR_REPLY.len()
        } else {
            let bytes = self.begun + size;
            self.begun = bytes % REQUEST_SIZE;
            bytes / REQUEST_SIZE * REPLY.len()
        };
        answered == 0 || self.stream.write_all(&replies[..answered]).is_ok()
    }
}
