//! The batches behind an [`Ids`]: the current one, the next, and the fetch in flight.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::Ids;
use super::buffered_batch::BufferedBatch;
use super::fetch::{Delivery, Fetch, FetchRequest};
use crate::client::{Error, check_fork};
use snowbank_wire::ErrorCode;

/// The most IDs that the first fetch asks for. The number is small because the demand is not known
/// yet, and because unused IDs are lost, which matters if a layout has few IDs.
pub(super) const FIRST_FETCH: u32 = 16;

impl Ids {
    /// Begins the next slice of a batch, and starts a fetch if the batch is half used. Returns
    /// false if no batch has arrived yet.
    #[inline(never)]
    pub(super) fn restock(&mut self) -> Result<bool, Error> {
        check_fork(&self.client.process)?;
        loop {
            let now = Instant::now();
            if let Some(current) = &mut self.current {
                if !current.is_expired(&self.options) {
                    let has_more = current.begin_slice(now);
                    self.fetch_if_low(now);
                    if has_more {
                        return Ok(true);
                    }
                } else if current.used() > 0 {
                    self.fetch_count = current.used().min(self.options.max_batch);
                }
            }
            self.current = self.next.take();
            if self.current.is_none() && !self.take_delivery()? {
                return Ok(false);
            }
        }
    }

    /// Starts the next fetch once the current batch is half used. Repeats a fetch that failed,
    /// because its error matters only to a caller that finds the buffer empty.
    fn fetch_if_low(&mut self, now: Instant) {
        let Some(current) = &self.current else { return };
        if !current.is_low() || self.next.is_some() {
            return;
        }
        if self.fetch.is_none() {
            self.fetch_count = current.next_count(now, self.fetch_count, &self.options);
        }
        match self.fetch.as_mut().map(Fetch::poll) {
            Some(None) => {}
            Some(Some(Ok(delivery))) => self.keep(delivery),
            Some(Some(Err(error))) => {
                self.asks_for_fewer(&error);
                self.start_fetch();
            }
            None => self.start_fetch(),
        }
    }

    /// Takes the result of the fetch. Returns false if there is no result yet. If no fetch is in
    /// flight, starts one.
    fn take_delivery(&mut self) -> Result<bool, Error> {
        let Some(fetch) = &mut self.fetch else {
            self.start_fetch();
            return Ok(false);
        };
        match fetch.poll() {
            None => Ok(false),
            Some(outcome) => self.end_fetch(outcome),
        }
    }

    /// Waits for the end of the fetch in flight, if there is one.
    pub(super) fn poll_fetched(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(fetch) = &mut self.fetch else { return Poll::Ready(Ok(())) };
        let outcome = ready!(fetch.poll_ended(context));
        Poll::Ready(self.end_fetch(outcome).map(|_| ()))
    }

    /// Takes the result of the fetch. Returns false if the fetch failed and another has been
    /// started in its place.
    fn end_fetch(&mut self, outcome: Result<Delivery, Error>) -> Result<bool, Error> {
        match outcome {
            Ok(delivery) => self.keep(delivery),
            Err(error) if self.asks_for_fewer(&error) => {
                self.start_fetch();
                return Ok(false);
            }
            Err(error) => {
                self.fetch = None;
                // This error tells the caller that the IDs went back, so the next fetch accepts
                // lower IDs.
                if matches!(error, Error::WentBack { .. }) {
                    self.highest = None;
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    /// If the daemon refused the number of IDs per fetch as too large, halves the number and
    /// returns true.
    fn asks_for_fewer(&mut self, error: &Error) -> bool {
        let is_too_large = error.code() == Some(ErrorCode::BadCount) && self.fetch_count > 1;
        if is_too_large {
            self.fetch_count /= 2;
            self.options.max_batch = self.fetch_count;
        }
        is_too_large
    }

    /// Makes the result of the fetch the next batch.
    fn keep(&mut self, delivery: Delivery) {
        let endpoint = Arc::clone(&delivery.batch.endpoint);
        self.highest = delivery.batch.last().map(|last| (endpoint, last));
        self.next = self.fetch.take().map(|fetch| BufferedBatch::new(delivery, fetch.task_guard));
    }

    fn start_fetch(&mut self) {
        self.fetch = Some(Fetch::start(FetchRequest {
            client: self.client.clone(),
            source: self.options.source.clone(),
            count: self.fetch_count,
            timeout: self.timeout(),
            max_age: self.options.max_age,
            highest: self.highest.clone(),
        }));
    }
}
