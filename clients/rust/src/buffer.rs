//! The buffer: IDs one by one, fetched ahead. Rule 6 of the page: when to fetch, how many, when to
//! drop, and what happens after a fork.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use snowbank_wire::Action;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::birth::{Birth, TICK};
use crate::call::{Core, Deadline};
use crate::connection::{Answer, Asked, Ids};
use crate::error::Error;
use crate::options::check_timeout;

/// The least size of a fetch, and the first.
const SIZE_MIN: u32 = 16;

/// The largest size of a fetch.
const SIZE_MAX: u32 = 10_000;

/// The wait of a fetch. With PARTIAL, the daemon then sends what there is.
const WAIT: Duration = Duration::from_millis(50);

/// A look at the clocks covers the IDs up to the next multiple of this, for [`COVER`].
const LOOK_EVERY: usize = 16;

/// The time for which a look covers IDs.
const COVER: Duration = Duration::from_millis(10);

/// Begins the covers of a client's buffers. A thread of the client ends them in the same order, because
/// the application may block those of its runtime. Without the thread, a cover ends at once. The thread
/// ends with the client.
pub(crate) type Covers = Sender<(Instant, Covered)>;

pub(crate) fn covers() -> Covers {
    let (covers, begun) = mpsc::channel::<(Instant, Covered)>();
    let end = move || begun.iter().for_each(|(ends, _covered)| sleep(ends - Instant::now()));
    drop(thread::Builder::new().name("snowbank-client".to_owned()).spawn(end));
    covers
}

/// The cover of a buffer's last look, until this is dropped.
pub(crate) struct Covered(Arc<Fetched>);

impl Drop for Covered {
    fn drop(&mut self) {
        self.0.is_covered.store(false, Ordering::Relaxed);
    }
}

/// A batch whose half went within this part of `good_for` is followed by one twice as large.
const FAST_PART: u32 = 4;

/// A batch of a buffer, in the epoch in which it was asked for.
#[derive(Debug)]
struct Batch {
    ids: Ids,
    epoch: u64,
}

/// A buffer for one owner at a time.
pub(crate) struct Buffer {
    core: Arc<Core>,
    fetched: Arc<Fetched>,
    batch: Ids,
    /// The time at which its first ID could be taken.
    began: Birth,
    has_reached_half: bool,
    /// The index of the next ID.
    at: usize,
    /// The index at which the clocks are looked at again, or earlier if the last look covers no
    /// more. At most the number of IDs.
    look_at: usize,
    /// The index behind the ID that was taken with the last look.
    looked: usize,
    /// The IDs that were handed out and are not in the client's figures yet.
    uncounted: usize,
    epoch: u64,
    /// The size of the next fetch.
    size: u32,
}

/// Where a fetch leaves its batch, and where calls wait for it.
#[derive(Debug)]
pub(crate) struct Fetched {
    source: Arc<str>,
    slot: Mutex<Slot>,
    changed: Notify,
    waiting: AtomicUsize,
    /// True for [`COVER`] after a look.
    is_covered: AtomicBool,
}

#[derive(Debug, Default)]
struct Slot {
    batch: Option<Batch>,
    is_fetching: bool,
    /// The number of fetches that failed, and the last error.
    failures: u64,
    error: Option<Error>,
    /// The latest deadline of the calls that wait.
    waits_until: Option<Instant>,
}

impl Fetched {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_covered(&self) -> bool {
        self.is_covered.load(Ordering::Relaxed)
    }
}

impl Buffer {
    pub(crate) fn new(core: Arc<Core>, source: Arc<str>) -> Self {
        let birth = Birth::now();
        let fetched = Fetched {
            source,
            slot: Mutex::default(),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
            is_covered: AtomicBool::new(false),
        };
        Self {
            core,
            fetched: Arc::new(fetched),
            batch: Ids { ids: Vec::new(), birth, good_for: Duration::ZERO, max_count: SIZE_MAX },
            began: birth,
            has_reached_half: true,
            at: 0,
            look_at: 0,
            looked: 0,
            uncounted: 0,
            epoch: 0,
            size: SIZE_MIN,
        }
    }

    pub(crate) fn fetched(&self) -> &Arc<Fetched> {
        &self.fetched
    }

    /// Takes the next ID. Returns `None` if there is none, or none that may be handed out.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        let id = if self.at < self.look_at && self.fetched.is_covered.load(Ordering::Relaxed) {
            self.at += 1;
            self.batch.ids[self.at - 1]
        } else {
            self.take_with_a_look()?
        };
        // Compared after the ID was taken: a fork between the two gives it to nobody.
        if self.epoch == self.core.epoch() && !self.core.is_forked() { Some(id) } else { None }
    }

    /// Looks at the clocks, drops IDs that are too old, begins a fetch when it is time, and takes an
    /// ID.
    #[cold]
    #[inline(never)]
    fn take_with_a_look(&mut self) -> Option<u64> {
        let now = Birth::now();
        self.uncounted += self.at - self.looked;
        self.looked = self.at;
        loop {
            let age = self.batch.birth.age_at(&now);
            let left = self.batch.ids.len() - self.at;
            if left > 0 && (age + TICK > self.batch.good_for || self.epoch != self.core.epoch()) {
                self.core.figures.dropped.add(left);
                self.resize(self.at, false);
                let end = self.batch.ids.len();
                (self.at, self.looked, self.look_at) = (end, end, end);
                continue;
            }
            if left == 0 {
                self.count();
                self.open_next(&now)?;
                continue;
            }
            self.core.figures.note_age(age);
            if self.at.is_multiple_of(LOOK_EVERY) && self.at > 0 {
                self.cover();
            }
            let half = self.batch.ids.len() / 2;
            if self.at >= half && !self.has_reached_half {
                self.has_reached_half = true;
                self.count();
                let took = Duration::from_nanos(self.began.running_at(&now));
                self.resize(self.at, took <= self.batch.good_for / FAST_PART);
                self.fetch();
            }
            let limit = if self.at < half { half } else { self.batch.ids.len() };
            self.look_at = (self.at + 1).next_multiple_of(LOOK_EVERY).min(limit);
            self.at += 1;
            (self.looked, self.uncounted) = (self.at, self.uncounted + 1);
            if !self.fetched.is_covered.load(Ordering::Relaxed) {
                self.count();
            }
            return Some(self.batch.ids[self.at - 1]);
        }
    }

    /// Lets the last look cover more IDs.
    fn cover(&self) {
        if !self.fetched.is_covered.swap(true, Ordering::Relaxed) {
            // What cannot be sent is dropped.
            let covered = Covered(self.fetched.clone());
            let _ = self.core.covers.get_or_init(covers).send((Instant::now() + COVER, covered));
        }
    }

    /// Counts the IDs that were handed out.
    fn count(&mut self) {
        self.core.figures.ids.add(std::mem::take(&mut self.uncounted));
    }

    /// Sets the size of the next fetch: twice the IDs that were handed out of the last batch, or
    /// twice that batch if its half went fast.
    fn resize(&mut self, handed_out: usize, was_fast: bool) {
        let handed_out = if was_fast { self.batch.ids.len() } else { handed_out };
        let size = u32::try_from(2 * handed_out).unwrap_or(SIZE_MAX);
        self.size = size.clamp(SIZE_MIN, SIZE_MAX).min(self.batch.max_count.max(1));
    }

    /// Goes on to the next batch, if it has come. All IDs of the last one are gone.
    fn open_next(&mut self, now: &Birth) -> Option<()> {
        let Batch { ids, epoch } = self.fetched.slot().batch.take()?;
        (self.batch, self.began, self.has_reached_half, self.epoch) = (ids, *now, false, epoch);
        (self.at, self.looked, self.look_at) = (0, 0, 0);
        Some(())
    }

    /// Takes the next ID, or begins a fetch.
    pub(crate) fn take_or_fetch(&mut self) -> Option<u64> {
        let id = self.take();
        if id.is_none() {
            self.fetch();
        }
        id
    }

    /// Begins a fetch, unless one runs or its batch has come.
    fn fetch(&mut self) {
        if self.core.is_forked() {
            return;
        }
        {
            let mut slot = self.fetched.slot();
            if slot.is_fetching || slot.batch.is_some() {
                return;
            }
            slot.is_fetching = true;
        }
        let (core, size) = (self.core.clone(), self.size);
        let fetching = Fetching { fetched: self.fetched.clone(), result: Some(Err(Error::Closed)) };
        self.core.runtime.spawn(async move {
            let result = fetch(&core, &fetching.fetched, size).await;
            fetching.finish(result);
        });
    }
}

/// A fetch. Its result is there when this is dropped, also if the client's runtime shuts down.
struct Fetching {
    fetched: Arc<Fetched>,
    result: Option<Result<Batch, Error>>,
}

impl Fetching {
    fn finish(mut self, result: Result<Batch, Error>) {
        self.result = Some(result);
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        {
            let mut slot = self.fetched.slot();
            slot.is_fetching = false;
            match self.result.take() {
                Some(Ok(batch)) => slot.batch = Some(batch),
                // Its deadline is none of the calls that wait: the first of them begins another one.
                Some(Err(Error::Timeout { .. })) | None => {}
                Some(Err(error)) => (slot.failures, slot.error) = (slot.failures + 1, Some(error)),
            }
        }
        self.fetched.changed.notify_waiters();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.uncounted += self.at - self.looked;
        self.count();
    }
}

/// Fetches a batch of this size, or larger if more calls wait.
async fn fetch(core: &Arc<Core>, fetched: &Fetched, size: u32) -> Result<Batch, Error> {
    loop {
        let epoch = core.epoch();
        let waiting = u32::try_from(fetched.waiting.load(Ordering::Relaxed)).unwrap_or(SIZE_MAX);
        let count = size.max(waiting.min(SIZE_MAX));
        let source = fetched.source.clone();
        let asked = Asked::Next { count, source, partial: true, wait: WAIT, is_fetch: true };
        let mut deadline = Deadline::after(core.options.timeout);
        deadline.at = fetched.slot().waits_until.map_or(deadline.at, |until| until.max(deadline.at));
        match core.call(&asked, &deadline).await {
            Ok(Answer::Ids(ids)) => return Ok(Batch { ids, epoch }),
            // A call that came later waits for longer. What the daemon tells does not change by that.
            Err(Error::Refused(refusal))
                if refusal.action != Action::Tell && fetched.slot().waits_until > Some(deadline.at) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Error::Closed),
        }
    }
}

/// A call that waits for a fetch.
struct Waiting<'a>(&'a Fetched);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        if self.0.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            slot.waits_until = None;
        }
    }
}

/// Waits for an ID until the timeout. `take` takes one or begins a fetch, and may lock the buffer.
pub(crate) async fn wait(
    core: &Core,
    fetched: &Fetched,
    timeout: Duration,
    mut take: impl FnMut() -> Option<u64>,
) -> Result<u64, Error> {
    check_timeout(timeout)?;
    let deadline = Deadline::after(timeout);
    let _active = core.begin()?;
    let failures = {
        let mut slot = fetched.slot();
        fetched.waiting.fetch_add(1, Ordering::Relaxed);
        slot.waits_until = slot.waits_until.max(Some(deadline.at));
        slot.failures
    };
    let _waiting = Waiting(fetched);
    loop {
        let changed = fetched.changed.notified();
        if let Some(id) = take() {
            return Ok(id);
        }
        if let Slot { failures: now, error: Some(error), .. } = &*fetched.slot()
            && *now > failures
        {
            return Err(error.clone());
        }
        if timeout_at(deadline.at, changed).await.is_err() {
            return Err(core.timed_out(&deadline));
        }
    }
}

#[cfg(test)]
mod unit {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::{Client, ClientOptions};

    /// The call comes after the fetch has found nobody waiting, and before it has ended.
    #[tokio::test]
    async fn a_fetch_that_is_late_fails_no_call_that_has_just_come() {
        let options = ClientOptions::new(["127.0.0.1:1"]).expect("an address");
        let client = Client::new(options).expect("a client");
        let core = client.core();
        let buffer = Buffer::new(core.clone(), "".into());
        let fetched = buffer.fetched();
        let mut fetching = Some(Fetching { fetched: fetched.clone(), result: None });
        let mut call = pin!(wait(core, fetched, Duration::from_secs(5), || None));
        for _ in 0..2 {
            let is_pending = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
            assert!(is_pending);
            if let Some(fetching) = fetching.take() {
                fetching.finish(Err(core.timed_out(&Deadline::after(Duration::ZERO))));
            }
        }
    }
}
