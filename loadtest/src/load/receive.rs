//! Parses the bytes of one connection, checks each ID, and times each reply.

use std::sync::atomic::Ordering;

use snowbank_id::layout::Run;
use snowbank_wire::ErrorCode;

use super::Now;
use super::clocks::Clock;
use super::connection::InFlight;
use super::worker::{MAX_SPANS, Worker};
use crate::check::reply::Received;
use crate::frontend::{self, Awaited, Part, Refusal};
use crate::measure::Fault;

impl Worker<'_> {
    /// Reads once, and handles the replies that are complete.
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

    /// Handles the complete parts of replies, and returns their total size in bytes.
    fn replies(&mut self, index: usize, bytes: &[u8], now: Now) -> Result<usize, Fault> {
        let front_end = &*self.shared.peers[self.connections[index].peer].front_end;
        let mut taken = 0;
        while taken < bytes.len() {
            let connection = &self.connections[index];
            let Some(&request) = connection.in_flight.front() else {
                front_end.unasked(&bytes[taken..], 0)?;
                break;
            };
            let unanswered = connection.in_flight.len();
            let awaited = Awaited { count: request.asked.count, tag: request.tag, unanswered };
            let mut runs = std::mem::take(&mut self.runs);
            let read = front_end.read(&bytes[taken..], awaited, &mut runs);
            runs.drain(..).try_for_each(|run| self.check(index, &request, run, now))?;
            self.runs = runs;
            let Some((part, size)) = read? else {
                frontend::check_size(bytes.len() - taken, awaited)?;
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

    fn refuse(
        &mut self,
        index: usize,
        request: &InFlight,
        refusal: &Refusal<'_>,
        now: Now,
    ) -> Result<(), Fault> {
        if self.connections[index].check.found > 0 {
            return Err(Fault::Unreadable("an error inside a reply".to_owned()));
        }
        self.connections[index].in_flight.pop_front();
        let is_stop = refusal.code == ErrorCode::ShuttingDown.to_u16();
        if is_stop && self.meter.outage_lasting(now).is_some() {
            self.meter.lost(request, now);
        } else {
            self.meter.refused(request, now, refusal);
        }
        Ok(())
    }

    /// Ends a reply after its last part.
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
        // The outage ends with the first answer after every connection is open again.
        if self.meter.outage_lasting(now).is_some() && self.connections.iter().all(|one| one.is_reopened) {
            self.meter.recovered(now);
        }
        Ok(())
    }

    fn check(&mut self, index: usize, request: &InFlight, run: Run, now: Now) -> Result<(), Fault> {
        let number = self.connections[index].peer;
        let promise = &self.shared.peers[number].promise;
        let clock = &mut self.clocks[number];
        if clock.clock != Clock::Same {
            let is_warm = self.meter.counts_at(request.intended_ns);
            clock.see(request, now, promise.instant_us(run.first), is_warm);
        }
        let received = Received { received_us: now.wall_us, offset_us: clock.known_us };
        let check = &mut self.connections[index].check;
        let checked = check.run(promise, &request.asked, received, run, &mut self.spans[number]);
        checked.map_err(Fault::Violation)
    }
}
