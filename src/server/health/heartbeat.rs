//! The heartbeat shows that the shards' threads and the keeper make progress. Each thread is asked,
//! and answers between its other work. So no thread needs a timer for the heartbeat.
//!
//! ```text
//!  feeder (main thread) ──asks──▶ shard-0, shard-1, …  a task answers between its other tasks
//!          │   ▲                  keeper               is woken for a poll, which answers
//!          │   └──────answers──────┘
//!          └─▶ all have answered: the service manager's watchdog is fed
//! ```
//!
//! A thread does not answer if it is blocked, runs an endless loop, or has ended. The round then
//! does not end. No other thread is asked. If the disk hangs, for example, a restart does not help,
//! because the new process would hang too.

use tokio::sync::watch;

use crate::server::shared::wake_ups::WakeUps;

/// Asks the shards and the keeper to answer, and collects their answers.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The number of the latest round. A thread answers with this number.
    round: watch::Sender<u64>,
    /// The latest round that each shard has answered, and as the last element the latest round that
    /// the keeper has answered.
    answered: watch::Sender<Vec<u64>>,
    shards: usize,
}

impl Heartbeat {
    pub(crate) fn new(shards: usize) -> Self {
        Heartbeat { round: watch::Sender::new(0), answered: watch::Sender::new(vec![0; shards + 1]), shards }
    }

    /// Asks the shards and the keeper, and completes when all have answered. Several tasks may ask
    /// at the same time.
    pub(crate) async fn all_beat(&self, wake_ups: &WakeUps) {
        let mut answered = self.answered.subscribe();
        self.round.send_modify(|round| *round += 1);
        let round = self.round();
        wake_ups.wake_keeper();
        // Waiting fails only if the sender is gone, but `self` owns the sender.
        let _ = answered.wait_for(|answers| answers.iter().all(|answer| *answer >= round)).await;
    }

    /// Answers each round for a shard. The shard's thread runs this between its other tasks, until
    /// the thread ends.
    pub(crate) async fn beat(&self, shard: usize) {
        let mut rounds = self.round.subscribe();
        loop {
            let round = *rounds.borrow_and_update();
            self.answer(shard, round);
            if rounds.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the number of the latest round. The keeper reads this number before a poll, and
    /// answers with it after the poll.
    pub(crate) fn round(&self) -> u64 {
        *self.round.borrow()
    }

    /// Answers `round` for the keeper, which began and ended a poll after the round had begun.
    pub(crate) fn keeper_polled(&self, round: u64) {
        self.answer(self.shards, round);
    }

    fn answer(&self, thread: usize, round: u64) {
        self.answered.send_modify(|answers| answers[thread] = round);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Polls a future once, without a runtime. Returns whether the future has completed.
    fn ends(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_round_ends_when_the_last_thread_has_answered() {
        let heartbeat = Heartbeat::new(2);
        let wake_ups = WakeUps::new(2);
        let mut first = pin!(heartbeat.beat(0));
        let mut second = pin!(heartbeat.beat(1));
        assert!(!ends(first.as_mut()) && !ends(second.as_mut()), "no round has begun");
        for _ in 0..3 {
            let mut round = pin!(heartbeat.all_beat(&wake_ups));
            assert!(!ends(round.as_mut()), "no thread has answered");
            heartbeat.keeper_polled(heartbeat.round());
            assert!(!ends(first.as_mut()));
            assert!(!ends(round.as_mut()), "one shard has not answered");
            assert!(!ends(second.as_mut()));
            assert!(ends(round.as_mut()));
        }
    }

    #[test]
    fn a_poll_from_before_a_round_does_not_answer_that_round() {
        let heartbeat = Heartbeat::new(0);
        let wake_ups = WakeUps::new(0);
        let before = heartbeat.round();
        let mut round = pin!(heartbeat.all_beat(&wake_ups));
        assert!(!ends(round.as_mut()));
        heartbeat.keeper_polled(before);
        assert!(!ends(round.as_mut()));
        heartbeat.keeper_polled(heartbeat.round());
        assert!(ends(round.as_mut()));
    }
}
