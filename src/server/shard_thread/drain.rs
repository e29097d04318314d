//! A shard thread's part of a stop: answers the requests that have arrived, within the drain
//! timeout.

use std::time::{Duration, Instant};

use super::thread_state::ThreadState;

/// The time for which a stop waits for the first request of a connection. A client that connected
/// just before the stop may already have sent that request. This time is enough for a long round
/// trip.
const NEWCOMER_GRACE: Duration = Duration::from_millis(250);

/// Answers the requests that have arrived, and waits until the other shards have done the same.
/// Ends at `drained_by` at the latest.
pub(super) async fn drain(thread: &ThreadState, drained_by: Instant) {
    // This completes after the thread has polled its sockets. The thread then knows of all bytes
    // that arrived before the stop, so the requests in them are not refused.
    tokio::task::yield_now().await;
    thread.draining.set(true);
    thread.turn.borrow().wakers.wake_all();
    let mut drained = std::pin::pin!(all_drained(thread));
    let timeout = drained_by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    // In the last quarter of the time, requests that still wait are refused, and clients can read
    // the refusals.
    let answer_within = timeout - timeout / 4;
    if tokio::time::timeout(answer_within, &mut drained).await.is_ok() {
        return;
    }
    refuse_waits(thread);
    let in_time = tokio::time::timeout(timeout / 4, drained).await.is_ok();
    let left = thread.undrained.get();
    if !in_time && left > 0 {
        tracing::warn!(
            shard = thread.index,
            left,
            "closed connections that had a request half sent, or had not taken their replies"
        );
    }
}

/// Waits until the connections of all shards are drained. After [`NEWCOMER_GRACE`], no longer waits
/// for connections that have sent nothing.
async fn all_drained(thread: &ThreadState) {
    let end_grace = async {
        tokio::time::sleep(NEWCOMER_GRACE).await;
        thread.awaits_newcomers.set(false);
        thread.turn.borrow().wakers.wake_all();
        std::future::pending().await
    };
    let drained = async {
        while thread.undrained.get() > 0 {
            thread.drained.notified().await;
        }
        thread.common.all_drained.wait().await;
    };
    tokio::select! {
        () = end_grace => {}
        () = drained => {}
    }
}

fn refuse_waits(thread: &ThreadState) {
    let turn = &mut *thread.turn.borrow_mut();
    thread.refuses_all.set(true);
    // Wakes the requests that wait for their clients' rates.
    turn.wakers.wake_all();
    let live_config = thread.live_config.borrow();
    for ((source, id), waiter) in turn.waiters.drain() {
        // Sending fails if the connection is gone.
        let _ = waiter.send(live_config.source(source).refuse(id));
    }
}
