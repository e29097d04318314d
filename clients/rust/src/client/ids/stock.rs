//! The batches behind an [`Ids`](super::Ids): the one in use, the next, and when to fetch.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use super::fetch::{Delivery, Fetch, Order};
use super::options::IdsOptions;
use super::shelf::Shelf;
use crate::client::{Client, Error};

/// The first fetch asks for no more: how many a caller needs is not known yet, and on a scarce layout they are worth
/// something.
const FIRST_FETCH: u32 = 16;

/// What lies behind the slice.
#[derive(Debug)]
pub(super) struct Stock {
    client: Client,
    options: IdsOptions,
    shelf: Option<Shelf>,
    standby: Option<Shelf>,
    fetch: Option<Fetch>,
    /// How many IDs the next fetch asks for.
    fetch_count: u32,
    /// The highest ID fetched so far, and the endpoint that it came from.
    highest: Option<(Arc<str>, u64)>,
}

impl Stock {
    pub(super) fn new(client: Client, options: IdsOptions) -> Self {
        let fetch_count = FIRST_FETCH.min(options.max_batch);
        Self { client, options, shelf: None, standby: None, fetch: None, fetch_count, highest: None }
    }

    /// Refuses to work in a forked child.
    pub(super) fn check_process(&self) -> Result<(), Error> {
        self.client.check_process()
    }

    /// What says that the IDs cut last are too old.
    pub(super) fn expiry(&self) -> Option<&Arc<AtomicBool>> {
        self.shelf.as_ref().map(|shelf| &shelf.expired)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(self.client.shared.options.timeout)
    }

    /// Cuts the next slice of what is at hand, and begins a fetch if it is time for one. `unused` IDs of the slice before
    /// were not handed out.
    pub(super) fn cut(&mut self, slice: &mut Vec<u64>, unused: usize) -> Result<bool, Error> {
        loop {
            let now = Instant::now();
            if let Some(shelf) = &mut self.shelf {
                if !shelf.is_expired(now) {
                    // Before the cut: what was cut earlier is handed out by now, so low is low.
                    self.fetch_if_low(now);
                    if self.shelf.as_mut().is_some_and(|shelf| shelf.cut(now, slice)) {
                        return Ok(true);
                    }
                } else if shelf.opened_at.is_some() {
                    let used = shelf.used().saturating_sub(unused as u64);
                    self.fetch_count =
                        u32::try_from(used).unwrap_or(u32::MAX).clamp(1, self.options.max_batch);
                }
            }
            self.shelf = self.standby.take();
            if self.shelf.is_none() && !self.take_delivery()? {
                return Ok(false);
            }
        }
    }

    /// Starts the next fetch once the shelf is half used. One that failed meanwhile is begun again: its error matters
    /// only to a caller who finds no IDs.
    fn fetch_if_low(&mut self, now: Instant) {
        let Some(shelf) = &self.shelf else { return };
        if !shelf.is_low() || self.standby.is_some() {
            return;
        }
        if self.fetch.is_none() {
            self.fetch_count = shelf.next_count(now, self.fetch_count, &self.options);
        }
        match self.fetch.as_mut().map(Fetch::poll) {
            Some(None) => {}
            Some(Some(Ok(delivery))) => self.shelve(delivery),
            None | Some(Some(Err(_))) => self.start_fetch(),
        }
    }

    /// Takes what a fetch brought; false if it has brought nothing yet. Begins a fetch if none is under way.
    fn take_delivery(&mut self) -> Result<bool, Error> {
        let Some(fetch) = &mut self.fetch else {
            self.start_fetch();
            return Ok(false);
        };
        match fetch.poll() {
            None => Ok(false),
            Some(outcome) => self.end_fetch(outcome).map(|()| true),
        }
    }

    /// Waits until the fetch under way, if any, has ended.
    pub(super) async fn fetched(&mut self) -> Result<(), Error> {
        let Some(fetch) = &mut self.fetch else { return Ok(()) };
        let outcome = fetch.ended().await;
        self.end_fetch(outcome)
    }

    fn end_fetch(&mut self, outcome: Result<Delivery, Error>) -> Result<(), Error> {
        match outcome {
            Ok(delivery) => self.shelve(delivery),
            Err(error) => {
                self.fetch = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts what the fetch brought on the standby shelf.
    fn shelve(&mut self, delivery: Delivery) {
        let endpoint = Arc::clone(delivery.batch.endpoint_name());
        let above = self.highest.take().filter(|(from, _)| *from == endpoint).map(|(_, highest)| highest);
        self.highest = delivery.batch.last().map(|last| (endpoint, last));
        self.standby = self.fetch.take().map(|fetch| Shelf::new(delivery, fetch.keeper, above));
    }

    fn start_fetch(&mut self) {
        self.fetch = Some(Fetch::start(Order {
            client: self.client.clone(),
            source: self.options.source.clone(),
            count: self.fetch_count,
            timeout: self.timeout(),
            max_age: self.options.max_age,
            highest: self.highest.clone(),
        }));
    }
}
