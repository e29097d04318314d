//! Parses the bytes of one connection: each ID is checked, each reply timed.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use snowbank_client::layout::Run;
use snowbank_client::protocol::Parsed;
use snowbank_client::protocol::reply::{self, Reply};

use super::clocks::Seen;
use super::connection::InFlight;
use super::wire;
use super::worker::{MAX_SPANS, Worker};
use super::{Now, Wire};
use crate::check::reply::Received;
use crate::frontend::{self, At, FrontEnd, Part, Refusal};
use crate::measure::Fault;

impl Worker<'_> {
    /// Reads once and takes the whole replies.
    pub(super) fn receive(&mut self, index: usize, input: &mut [u8]) -> Result<(), Fault> {
        let Some(size) = self.connections[index].read(input)? else {
            return Ok(());
        };
        let now = self.shared.now();
        let mut partial = std::mem::take(&mut self.connections[index].partial);
        if partial.is_empty() {
            let consumed = self.replies(index, &input[..size], now)?;
            partial.extend_from_slice(&input[consumed..size]);
        } else {
            partial.extend_from_slice(&input[..size]);
            let consumed = self.replies(index, &partial, now)?;
            partial.drain(..consumed);
        }
        self.connections[index].partial = partial;
        if self.spans.iter().map(Vec::len).sum::<usize>() > MAX_SPANS {
            self.hand_over_spans(now);
        }
        Ok(())
    }

    /// Takes the whole replies and returns their size.
    fn replies(&mut self, index: usize, bytes: &[u8], now: Now) -> Result<usize, Fault> {
        let shared = self.shared;
        match &shared.peers[self.connections[index].peer].wire {
            Wire::Native => self.frames(index, bytes, now),
            Wire::FrontEnd(front_end) => self.parts(index, bytes, now, &**front_end),
            Wire::Echo => self.echoes(index, bytes, now),
        }
    }

    fn echoes(&mut self, index: usize, bytes: &[u8], now: Now) -> Result<usize, Fault> {
        let whole = bytes.len() / wire::ECHO_SIZE;
        for _ in 0..whole {
            let request = self.connections[index].in_flight.pop_front();
            let request = request.ok_or_else(|| Fault::Unreadable("an echo of nothing".to_owned()))?;
            self.meter.answered(&request, now);
        }
        Ok(whole * wire::ECHO_SIZE)
    }

    /// Takes the parts of replies in another protocol, and returns their size.
    fn parts(
        &mut self,
        index: usize,
        bytes: &[u8],
        now: Now,
        front_end: &dyn FrontEnd,
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        while taken < bytes.len() {
            let connection = &self.connections[index];
            let Some(&request) = connection.in_flight.front() else {
                return Err(Fault::Unreadable("a reply to nothing".to_owned()));
            };
            let at = At { asked: request.asked.count, come: connection.check.come() };
            let mut runs = std::mem::take(&mut self.runs);
            let read = front_end.read(&bytes[taken..], at, &mut runs);
            runs.drain(..).try_for_each(|run| self.check(index, &request, run, now))?;
            self.runs = runs;
            let Some((part, size)) = read? else {
                frontend::check_size(bytes.len() - taken, at)?;
                break;
            };
            taken += size;
            match part {
                Part::More => {}
                Part::End => self.finish(index, &request, now)?,
                Part::Refused(refusal) => self.refuse(index, &request, &refusal, now)?,
            }
        }
        Ok(taken)
    }

    /// Takes a refusal of the next request.
    fn refuse(
        &mut self,
        index: usize,
        request: &InFlight,
        refusal: &Refusal<'_>,
        now: Now,
    ) -> Result<(), Fault> {
        if self.connections[index].check.come() > 0 {
            return Err(Fault::Unreadable("an error in the middle of a reply".to_owned()));
        }
        self.connections[index].in_flight.pop_front();
        if self.is_excused(refusal.code, now) {
            self.meter.lost(request, now);
        } else {
            self.meter.refused(request, now, refusal);
        }
        Ok(())
    }

    /// Takes the whole frames and returns their size.
    fn frames(&mut self, index: usize, bytes: &[u8], now: Now) -> Result<usize, Fault> {
        let mut taken = 0;
        loop {
            match reply::parse(&bytes[taken..]) {
                Parsed::Incomplete => return Ok(taken),
                Parsed::BadLength(length) => {
                    return Err(Fault::Unreadable(format!("a frame of {length} bytes")));
                }
                Parsed::Frame { content, tag, consumed } => {
                    let frame = content.map_err(|fault| Fault::Unreadable(fault.to_string()))?;
                    self.frame(index, frame, tag, now)?;
                    taken += consumed;
                }
            }
        }
    }

    fn frame(&mut self, index: usize, frame: Reply<'_>, tag: u16, now: Now) -> Result<(), Fault> {
        let in_flight = &self.connections[index].in_flight;
        let Some(&request) = in_flight.front().filter(|request| request.tag == tag) else {
            return Err(unasked(frame, tag, in_flight.len()));
        };
        let more = match frame {
            Reply::Runs { runs, more } => {
                runs.iter().try_for_each(|run| self.check(index, &request, run, now))?;
                more
            }
            Reply::List { ids, more } => {
                for id in ids.iter() {
                    self.check(index, &request, Run { first: id, count: 1, stride: 1 }, now)?;
                }
                more
            }
            Reply::Error(error) => {
                let refusal = Refusal { code: error.code, words: Cow::Borrowed(error.message) };
                return self.refuse(index, &request, &refusal, now);
            }
            Reply::Info { .. } | Reply::Pong(_) | Reply::Ok => {
                return Err(Fault::Unreadable("a frame that answers another kind of request".to_owned()));
            }
        };
        if more { Ok(()) } else { self.finish(index, &request, now) }
    }

    /// Ends a reply whose last frame has come.
    fn finish(&mut self, index: usize, request: &InFlight, now: Now) -> Result<(), Fault> {
        let connection = &mut self.connections[index];
        connection.in_flight.pop_front();
        connection.check.end(&request.asked).map_err(Fault::Violation)?;
        let peer = &self.shared.peers[connection.peer];
        if peer.promise.strict
            && let Some(last) = connection.check.last()
        {
            peer.highest.fetch_max(last, Ordering::SeqCst);
        }
        self.meter.answered(request, now);
        self.record_recovery(now);
        Ok(())
    }

    fn check(&mut self, index: usize, request: &InFlight, run: Run, now: Now) -> Result<(), Fault> {
        let number = self.connections[index].peer;
        let promise = &self.shared.peers[number].promise;
        let clock = &mut self.clocks[number];
        if clock.is_measured() {
            let seen = Seen {
                now_ns: now.ns,
                round_trip_ns: now.ns - request.sent_ns,
                dated_us: promise.instant_us(run.first),
                received_us: now.wall_us,
                is_warm: self.meter.counts_at(request.intended_ns),
            };
            clock.see(&request.asked, seen);
        }
        let received = Received { received_us: now.wall_us, offset_us: clock.known_us() };
        let check = &mut self.connections[index].check;
        let checked = check.run(promise, &request.asked, received, run, &mut self.spans[number]);
        checked.map_err(Fault::Violation)
    }
}

/// Returns the fault of a frame that answers no request: a refused connection has tag 0 and closes.
fn unasked(frame: Reply<'_>, tag: u16, unanswered: usize) -> Fault {
    match frame {
        Reply::Error(error) => {
            let name = crate::target::code_name(error.code);
            let message = crate::units::printable(&String::from_utf8_lossy(error.message));
            Fault::Closed { unanswered, reason: Some(format!("{name}: {message}")) }
        }
        _ => Fault::Unreadable(format!("a reply with tag {tag}, which is not the next request's")),
    }
}
