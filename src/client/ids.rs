//! IDs one at a time, from a buffer that is refilled in the background.
//!
//! ```text
//!   next() ─▶ slice (SLICE IDs or fewer) ─▶ shelf (a batch) ─▶ standby shelf ─▶ fetch (a task)
//!             a load, a comparison and      when a slice is    when a shelf     one at a time; the task then
//!             an addition or two per ID     used up            is used up       says when its batch is too old
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::batch::Batch;
use super::call::Deadline;
use super::error::Error;
use super::options::SourceChoice;
use super::{Client, forked};
use crate::protocol::{ErrorCode, Next, Wait};

/// IDs handed out between two looks at the clock and at how much is left. The two cost some 40 ns together, so at 256
/// they are lost beside the IDs themselves; fewer would show, more would let a blocked runtime keep IDs for longer.
const SLICE: usize = 256;

/// The first fetch asks for no more: how many a caller needs is not known yet, and on a scarce layout they are worth
/// something.
const FIRST_FETCH: u32 = 16;

/// A fetch asks for at most so many times what the one before it did.
const GROWTH: u32 = 4;

/// A batch is meant to last for this part of the maximum age, so that little of it gets too old.
const LASTING_PART: u32 = 4;

/// How long a daemon may gather a batch. It sends what there is then: a caller without IDs should not wait for many.
const GATHERING: Duration = Duration::from_millis(10);

/// Longer than any age matters, and short enough to add to now.
const MAX_AGE: Duration = Duration::from_secs(365 * 86_400);

/// The pause before asking again where there was nothing that could be used.
const PAUSE: Duration = Duration::from_millis(1);

/// How [`Ids`] keeps its buffer.
#[derive(Debug, Clone)]
pub struct IdsOptions {
    source: SourceChoice,
    max_batch: u32,
    max_age: Duration,
    timeout: Option<Duration>,
}

impl Default for IdsOptions {
    /// The default source, batches of up to 10,000, nothing older than a second.
    fn default() -> Self {
        Self {
            source: SourceChoice::Index(0),
            max_batch: 10_000,
            max_age: Duration::from_secs(1),
            timeout: None,
        }
    }
}

impl IdsOptions {
    /// Draws from this source, by name or index.
    #[must_use]
    pub fn source(mut self, source: impl Into<SourceChoice>) -> Self {
        self.source = source.into();
        self
    }

    /// The most IDs that are fetched at once (10,000). Fetches start small and follow the demand up to this. At most two
    /// batches are kept.
    #[must_use]
    pub fn max_batch(mut self, count: u32) -> Self {
        self.max_batch = count;
        self
    }

    /// How long an ID may stay in the buffer (1 s); see [`Ids`] for what is guaranteed.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// The deadline of a fetch, and so of [`Ids::next`] with an empty buffer: the client's own unless given here.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn check(&self) -> Result<(), Error> {
        if self.max_batch == 0 {
            return Err(Error::BadOption("max_batch is 0; at least 1 is needed".into()));
        }
        if self.max_age.is_zero() {
            return Err(Error::BadOption("max_age is 0; it must be longer".into()));
        }
        Ok(())
    }
}

/// IDs one at a time, from a local buffer that is refilled in the background once it is half used.
///
/// - **Increasing**: while they come from one daemon, over reconnects too. From another daemon they follow its clock.
/// - **Not old**: no ID is handed out later than `max_age` after the reply that brought it, plus the time that the
///   client's runtime takes to run a timer. Should that runtime be blocked (a current-thread runtime whose only thread
///   numbers rows without awaiting), the clock itself is still looked at once in 256 IDs. Time that the machine spends
///   suspended does not count. What gets too old is dropped, and nothing is fetched until somebody asks again.
/// - **Never in a fork**: in a child process every ID is [`Error::Forked`].
///
/// Dropping the future of [`next`](Self::next) loses nothing.
#[derive(Debug)]
pub struct Ids {
    /// IDs cut from the shelf, of which those before `at` are handed out.
    slice: Vec<u64>,
    at: usize,
    /// Set once the shelf that the slice was cut from is too old.
    expired: Arc<AtomicBool>,
    process: forkguard::Guard,
    stock: Stock,
}

/// What lies behind the slice.
#[derive(Debug)]
struct Stock {
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

impl Ids {
    pub(super) fn new(client: Client, options: IdsOptions) -> Result<Self, Error> {
        options.check()?;
        let process = client.process.clone();
        let fetch_count = FIRST_FETCH.min(options.max_batch);
        let stock =
            Stock { client, options, shelf: None, standby: None, fetch: None, fetch_count, highest: None };
        Ok(Self { slice: Vec::with_capacity(SLICE), at: 0, expired: Arc::default(), process, stock })
    }

    /// The next ID: at once from the buffer, or with the next reply if it is empty.
    ///
    /// # Errors
    /// Why the buffer could not be refilled, once it is empty: see [`Error`]. The next call tries anew.
    #[inline]
    pub async fn next(&mut self) -> Result<u64, Error> {
        match self.take() {
            Some(id) => Ok(id),
            None => self.next_from_stock().await,
        }
    }

    /// The next ID if the buffer has one; `None` while it is being refilled. It never waits, and may be called from any
    /// thread.
    ///
    /// # Errors
    /// Why the buffer could not be refilled, once it is empty: see [`Error`]. The next call tries anew.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<u64>, Error> {
        match self.take() {
            Some(id) => Ok(Some(id)),
            None => self.restock().map(|restocked| if restocked { self.take() } else { None }),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<u64> {
        if forked(&self.process) || self.expired.load(Ordering::Relaxed) {
            return None;
        }
        let id = *self.slice.get(self.at)?;
        self.at += 1;
        Some(id)
    }

    #[cold]
    async fn next_from_stock(&mut self) -> Result<u64, Error> {
        let deadline = Deadline::after(self.stock.timeout());
        loop {
            if self.restock()?
                && let Some(id) = self.take()
            {
                return Ok(id);
            }
            // Batches that are too old by the time this task gets to run could otherwise go on for ever.
            if deadline.left().is_zero() {
                return Err(deadline.passed(None));
            }
            self.stock.fetched().await?;
        }
    }

    /// Cuts the next slice; false if there is nothing to cut it from yet.
    #[inline(never)]
    fn restock(&mut self) -> Result<bool, Error> {
        self.stock.client.check_process()?;
        // Some are left if they got too old.
        let unused = self.slice.len() - self.at;
        self.slice.clear();
        self.at = 0;
        if !self.stock.cut(&mut self.slice, unused)? {
            return Ok(false);
        }
        if let Some(shelf) = &self.stock.shelf {
            self.expired = Arc::clone(&shelf.expired);
        }
        Ok(true)
    }
}

impl Stock {
    fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(self.client.shared.options.timeout)
    }

    /// Cuts the next slice of what is at hand, and begins a fetch if it is time for one. `unused` IDs of the slice before
    /// were not handed out.
    fn cut(&mut self, slice: &mut Vec<u64>, unused: usize) -> Result<bool, Error> {
        loop {
            if let Some(shelf) = &mut self.shelf {
                let now = Instant::now();
                if !shelf.is_expired(now) {
                    shelf.cut(now, slice);
                    self.fetch_if_low(now);
                    if !slice.is_empty() {
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
    async fn fetched(&mut self) -> Result<(), Error> {
        let Some(fetch) = &mut self.fetch else { return Ok(()) };
        let outcome = (&mut fetch.arrival).await.unwrap_or(Err(Error::Closed));
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
        let (sender, arrival) = oneshot::channel();
        let order = Order {
            client: self.client.clone(),
            source: self.options.source.clone(),
            count: self.fetch_count,
            timeout: self.timeout(),
            max_age: self.options.max_age,
            highest: self.highest.clone(),
        };
        let task = self.client.runtime.spawn(order.fulfil(sender)).abort_handle();
        let keeper = Keeper { task, process: self.client.process.clone() };
        self.fetch = Some(Fetch { arrival, keeper });
    }
}

/// One batch in use.
#[derive(Debug)]
struct Shelf {
    batch: Batch,
    /// The run that the next slice is cut from.
    run: usize,
    /// IDs of that run that are used or skipped.
    offset: u32,
    /// IDs that this shelf had when it was opened.
    count: u64,
    /// Of those, IDs not yet cut.
    left: u64,
    opened_at: Option<Instant>,
    good_until: Instant,
    expired: Arc<AtomicBool>,
    /// Says when the batch is too old; ended with the shelf.
    _keeper: Keeper,
}

impl Shelf {
    /// A shelf without the IDs that are not above `above`, in case a reconnect came to a less advanced shard.
    fn new(delivery: Delivery, keeper: Keeper, above: Option<u64>) -> Self {
        let Delivery { batch, good_until, expired } = delivery;
        let (mut run, mut offset, mut skipped) = (0, 0, 0);
        if let Some(above) = above {
            while let Some(found) = batch.run(run) {
                let low = match above.checked_sub(found.first) {
                    None => 0,
                    Some(_) if found.last() <= above => found.count,
                    // Fewer than the run's count, because its last ID is above.
                    Some(distance) => (distance / found.stride) as u32 + 1,
                };
                skipped += u64::from(low);
                if low < found.count {
                    offset = low;
                    break;
                }
                run += 1;
            }
        }
        let count = batch.len() as u64 - skipped;
        Self { batch, run, offset, count, left: count, opened_at: None, good_until, expired, _keeper: keeper }
    }

    /// Fills `slice` with up to [`SLICE`] IDs, ending where the shelf becomes low.
    fn cut(&mut self, now: Instant, slice: &mut Vec<u64>) {
        self.opened_at.get_or_insert(now);
        let until_low = match self.left - self.left.min(self.count / 2) {
            0 => SLICE,
            more => SLICE.min(more as usize),
        };
        while slice.len() < until_low
            && let Some(run) = self.batch.run(self.run)
        {
            let room = (until_low - slice.len()) as u64;
            // No more than a run's count, which has 32 bits.
            let taken = u64::from(run.count - self.offset).min(room) as u32;
            let first = u64::from(self.offset);
            slice.extend((first..first + u64::from(taken)).map(|step| run.first + step * run.stride));
            self.left -= u64::from(taken);
            self.offset += taken;
            if self.offset == run.count {
                self.run += 1;
                self.offset = 0;
            }
        }
    }

    fn is_expired(&self, now: Instant) -> bool {
        now >= self.good_until || self.expired.load(Ordering::Relaxed)
    }

    fn is_low(&self) -> bool {
        self.left <= self.count / 2
    }

    /// IDs cut so far.
    fn used(&self) -> u64 {
        self.count - self.left
    }

    /// How many to fetch next, so that they last for a part of the maximum age at the pace of this shelf.
    fn next_count(&self, now: Instant, last_count: u32, options: &IdsOptions) -> u32 {
        let Some(opened_at) = self.opened_at else { return last_count };
        let pace_ns = now.saturating_duration_since(opened_at).as_nanos().max(1);
        let lasting_ns = options.max_age.as_nanos() / u128::from(LASTING_PART);
        let wanted = u128::from(self.used()).saturating_mul(lasting_ns) / pace_ns;
        let most = last_count.saturating_mul(GROWTH).min(options.max_batch);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }
}

/// A fetch under way, or ended and not yet looked at.
#[derive(Debug)]
struct Fetch {
    arrival: oneshot::Receiver<Result<Delivery, Error>>,
    keeper: Keeper,
}

impl Fetch {
    /// What it brought, once it has ended.
    fn poll(&mut self) -> Option<Result<Delivery, Error>> {
        match self.arrival.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(Error::Closed)),
        }
    }
}

/// A batch as its fetch brought it.
#[derive(Debug)]
struct Delivery {
    batch: Batch,
    good_until: Instant,
    expired: Arc<AtomicBool>,
}

/// Ends a fetch's task with its owner.
#[derive(Debug)]
struct Keeper {
    task: AbortHandle,
    process: forkguard::Guard,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A forked child must leave the runtime alone: its locks and wake-ups are the parent's.
        if !forked(&self.process) {
            self.task.abort();
        }
    }
}

/// What a fetch is to bring.
struct Order {
    client: Client,
    source: SourceChoice,
    count: u32,
    timeout: Duration,
    max_age: Duration,
    /// IDs from that endpoint are of use only above this one.
    highest: Option<(Arc<str>, u64)>,
}

impl Order {
    /// Fetches the batch, and stays to say when it has become too old.
    async fn fulfil(self, arrival: oneshot::Sender<Result<Delivery, Error>>) {
        let batch = match self.fetch().await {
            Ok(batch) => batch,
            Err(error) => return drop(arrival.send(Err(error))),
        };
        // No age that matters is too long to add.
        let good_until = Instant::now() + self.max_age.min(MAX_AGE);
        let expired = Arc::new(AtomicBool::new(false));
        let delivery = Delivery { batch, good_until, expired: Arc::clone(&expired) };
        if arrival.send(Ok(delivery)).is_ok() {
            sleep_until(good_until).await;
            expired.store(true, Ordering::Relaxed);
        }
    }

    /// A batch with at least one ID that is of use, before the deadline.
    async fn fetch(&self) -> Result<Batch, Error> {
        let deadline = Deadline::after(self.timeout);
        let (index, name) = match &self.source {
            SourceChoice::Index(index) => (*index, None),
            SourceChoice::Name(name) => (0, Some(Arc::clone(name))),
        };
        let wait = Wait::at_most(GATHERING);
        let next = Next { count: self.count, source: index, wait, explicit: false, partial: true };
        loop {
            let pause = match self.client.next(&deadline, next, name.clone()).await {
                Ok(batch) if self.is_of_use(&batch) => return Ok(batch),
                Ok(_) => PAUSE,
                // The wait that it was given is a short one, and this deadline may allow for a longer.
                Err(error) if error.code() == Some(ErrorCode::Exhausted) => match error.retry_after() {
                    Some(pause) if pause < deadline.left() => pause.max(PAUSE),
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if deadline.left() <= pause {
                return Err(deadline.passed(None));
            }
            sleep(pause).await;
        }
    }

    fn is_of_use(&self, batch: &Batch) -> bool {
        match &self.highest {
            Some((endpoint, highest)) if endpoint == batch.endpoint_name() => batch.last() > Some(*highest),
            _ => true,
        }
    }
}
