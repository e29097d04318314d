//! A shard's ticker. While requests of the shard wait, the ticker sleeps until the next tick. Then
//! it hands out the IDs that were claimed for these requests. While no request waits, the ticker
//! sleeps until a request has to wait.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::thread_state::ThreadState;

/// Runs until the thread ends.
pub(super) async fn run(thread: Rc<ThreadState>) {
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let next = advance(&thread);
        let now = Instant::now();
        thread.turn.borrow_mut().ticker_wakes_at = next.map(|next| now + next);
        match next {
            None => thread.common.wake_ups.shard_woken(thread.index).await,
            Some(next) => {
                sleep.as_mut().reset(now + next);
                tokio::select! {
                    () = &mut sleep => {}
                    () = thread.common.wake_ups.shard_woken(thread.index) => {}
                }
            }
        }
    }
}

/// Advances all wait queues, if any request of this shard waits. Returns the time until the next
/// call. `None`: no request waits.
pub(super) fn advance(thread: &ThreadState) -> Option<Duration> {
    let turn = &mut *thread.turn.borrow_mut();
    if turn.waiters.is_empty() {
        return None;
    }
    let now = thread.now();
    let mut next: Option<Duration> = None;
    for (index, supply) in thread.live_config.borrow().supplies.iter().enumerate() {
        let source = &supply.source;
        if source.wait_queue().admitted_ids() > 0 {
            let advanced = source.advance(now, &mut turn.rng);
            for shard in advanced.shards {
                thread.common.wake_ups.wake_shard(shard);
            }
            if advanced.meets_ceiling {
                thread.common.wake_ups.wake_keeper();
            }
            next = [next, advanced.next_in].into_iter().flatten().min();
        }
        for finished in source.collect(thread.index) {
            // Sending fails if the connection is gone. The request's IDs are then skipped.
            let waiter = turn.waiters.remove(&(index, finished.id));
            let _ = waiter.map(|waiter| waiter.send(finished));
        }
    }
    next
}
