//! One shard's ticker: sleeps until the next tick while requests of this shard wait, and hands out what was claimed for
//! them. Without waiting requests it sleeps until one comes.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::worker::Worker;
use crate::source::line::Finished;

pub(super) async fn run(worker: Rc<Worker>) {
    let bell = &worker.common.wake_ups.shards[worker.index];
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let next = advance(&worker);
        let now = Instant::now();
        worker.state.borrow_mut().ticker_wakes_at = next.map(|next| now + next);
        match next {
            None => bell.notified().await,
            Some(next) => {
                sleep.as_mut().reset(now + next);
                tokio::select! {
                    () = &mut sleep => {}
                    () = bell.notified() => {}
                }
            }
        }
    }
}

/// Advances every line in which this shard has requests, and says after how long to do it again.
fn advance(worker: &Worker) -> Option<Duration> {
    let state = &mut *worker.state.borrow_mut();
    if state.waiters.is_empty() {
        return None;
    }
    let now = worker.now();
    let mut next: Option<Duration> = None;
    for (index, supply) in worker.live_config.borrow().supplies.iter().enumerate() {
        let source = &supply.source;
        if source.line().admitted_ids() > 0 {
            let again = source.advance(now, &mut state.rng, &*worker.common.wake_ups);
            next = [next, again].into_iter().flatten().min();
        }
        for finished in source.collect(worker.index) {
            hand_over(state, index, finished);
        }
    }
    next
}

fn hand_over(state: &mut super::worker::State, source: usize, finished: Finished) {
    if let Some(waiter) = state.waiters.remove(&(source, finished.ticket)) {
        // Fails when the connection is gone: the IDs are skipped.
        let _ = waiter.send(finished);
    }
}
