//! An application: tasks that number rows and fetch batches, and check the client's promises.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::ms;
use super::world::Wire;
use crate::client::{Client, Error, IdsOptions};

/// The deadline of every call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// A running application.
pub(super) struct App {
    ledger: Arc<Ledger>,
    tasks: Vec<JoinHandle<()>>,
}

/// The IDs that the application got, and whether its calls must succeed.
struct Ledger {
    wire: Wire,
    seed: u64,
    seen: Mutex<HashSet<u64>>,
    digest: Mutex<u64>,
    is_calm: AtomicBool,
    is_over: AtomicBool,
}

impl App {
    pub(super) fn start(wire: &Wire, client: &Client, seed: u64) -> Self {
        let ledger = Arc::new(Ledger {
            wire: wire.clone(),
            seed,
            seen: Mutex::default(),
            digest: Mutex::new(0),
            is_calm: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let tasks = vec![
            tokio::spawn(number_rows(client.clone(), Arc::clone(&ledger), 64)),
            tokio::spawn(number_rows(client.clone(), Arc::clone(&ledger), 10_000)),
            tokio::spawn(fetch_batches(client.clone(), Arc::clone(&ledger))),
        ];
        Self { ledger, tasks }
    }

    /// Allows no error but `WentBack` from now on.
    pub(super) fn expect_calm(&self) {
        self.ledger.is_calm.store(true, Ordering::SeqCst);
    }

    /// Ends the application. Returns the number of IDs, and a digest of the IDs in the order in
    /// which they came.
    pub(super) async fn finish(self) -> (u64, u64) {
        self.ledger.is_over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("no broken promise");
        }
        let seen = self.ledger.seen.lock().expect("no panic").len() as u64;
        (seen, *self.ledger.digest.lock().expect("no panic"))
    }
}

impl Ledger {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Records the end of a call, which must keep its deadline.
    fn record(&self, began: Instant, was_calm: bool, failure: Option<&Error>) {
        let seed = self.seed;
        let took = began.elapsed();
        assert!(took <= TIMEOUT + ms(1), "seed {seed}: {took:?}, {failure:?}");
        if let Some(error) = failure {
            let is_allowed = !was_calm || matches!(error, Error::WentBack { .. });
            assert!(is_allowed, "seed {seed}: all daemons serve, and a call failed: {error}");
        }
    }

    fn record_id(&self, id: u64) {
        assert!(self.seen.lock().expect("no panic").insert(id), "seed {}: {id} came twice", self.seed);
        let mut digest = self.digest.lock().expect("no panic");
        *digest = (*digest ^ id).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
    }

    fn pause(&self) -> Duration {
        let rng = &mut self.wire.world().rng;
        // Some pauses are long enough for IDs in a buffer to get too old.
        if rng.u32(..50) == 0 { ms(rng.u64(..1_500)) } else { ms(rng.u64(..60)) }
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }
}

/// Takes IDs one at a time. Checks that the IDs increase while they come from one address, except
/// after `WentBack`.
async fn number_rows(client: Client, ledger: Arc<Ledger>, max_batch: u32) {
    let mut ids = client.ids(IdsOptions::default().max_batch(max_batch)).expect("IDs");
    let mut last: Option<(usize, u64)> = None;
    while !ledger.is_over() {
        let rows = ledger.wire.world().rng.u32(1..30);
        for _ in 0..rows {
            let began = Instant::now();
            let was_calm = ledger.is_calm();
            let outcome = ids.next().await;
            ledger.record(began, was_calm, outcome.as_ref().err());
            match outcome {
                Ok(id) => {
                    let origin = ledger.wire.world().origin(id);
                    let is_above = last.is_none_or(|(from, highest)| from != origin || highest < id);
                    assert!(is_above, "seed {}: {id} after {last:?}", ledger.seed);
                    last = Some((origin, id));
                    ledger.record_id(id);
                }
                Err(Error::WentBack { .. }) => last = None,
                Err(_) => {}
            }
        }
        sleep(ledger.pause()).await;
    }
}

async fn fetch_batches(client: Client, ledger: Arc<Ledger>) {
    while !ledger.is_over() {
        let count = ledger.wire.world().rng.u32(1..2_000);
        let began = Instant::now();
        let was_calm = ledger.is_calm();
        let outcome = client.batch(count).partial().await;
        ledger.record(began, was_calm, outcome.as_ref().err());
        if let Ok(batch) = outcome {
            batch.iter().for_each(|id| ledger.record_id(id));
        }
        sleep(ledger.pause() * 5).await;
    }
}
