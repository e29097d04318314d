//! The heartbeat: each thread is asked, and answers when its turn comes. No thread has a timer for it.
//!
//! ```text
//!  feeder (main thread) ──asks──▶ shard-0, shard-1, …   each has a task that answers between its other tasks
//!          │   ▲                  keeper                answers with its next look, for which it is woken
//!          │   └──────answers──────┘
//!          └─▶ all have answered: the service manager's watchdog is fed
//! ```
//!
//! A thread that is blocked, spins or has ended never answers, and the round never ends. The storage thread is not asked.
//! On a slow disk the daemon serves up to its ceilings and then refuses, and a restart would wait for the same disk.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::server::shared::wake_ups::WakeUps;

/// Asks all threads to answer, and collects their answers.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The number of the last round. Threads answer with it.
    round: AtomicU64,
    shards: Vec<Beat>,
    /// The last round that the keeper has answered.
    keeper_answered: AtomicU64,
    /// Notified by a thread that answers.
    some_answer: Notify,
}

#[derive(Debug, Default)]
struct Beat {
    asked: Notify,
    /// The last round that was answered.
    answered: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new(shards: usize) -> Self {
        Heartbeat {
            round: AtomicU64::new(0),
            shards: (0..shards).map(|_| Beat::default()).collect(),
            keeper_answered: AtomicU64::new(0),
            some_answer: Notify::new(),
        }
    }

    /// Asks every thread, and completes when all have answered. Several may ask at once.
    pub(crate) async fn all_beat(&self, wake_ups: &WakeUps) {
        let round = self.round.fetch_add(1, Ordering::AcqRel) + 1;
        self.shards.iter().for_each(|beat| beat.asked.notify_one());
        wake_ups.wake_keeper();
        loop {
            // After this no answer is missed.
            let mut answer = pin!(self.some_answer.notified());
            answer.as_mut().enable();
            if self.has_ended(round) {
                return;
            }
            answer.await;
        }
    }

    fn has_ended(&self, round: u64) -> bool {
        let has_answered = |answered: &AtomicU64| answered.load(Ordering::Acquire) >= round;
        self.shards.iter().all(|beat| has_answered(&beat.answered)) && has_answered(&self.keeper_answered)
    }

    /// Answers for a shard. Its thread runs this between its other tasks, until it ends.
    pub(crate) async fn beat(&self, shard: usize) {
        let Some(beat) = self.shards.get(shard) else { return };
        loop {
            beat.asked.notified().await;
            self.answer(&beat.answered, self.round.load(Ordering::Acquire));
        }
    }

    /// Returns the last round. A look of the keeper that begins now answers it.
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Notes that the keeper has looked since this round began.
    pub(crate) fn keeper_looked(&self, round: u64) {
        self.answer(&self.keeper_answered, round);
    }

    fn answer(&self, answered: &AtomicU64, round: u64) {
        answered.store(round, Ordering::Release);
        self.some_answer.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Polls once, without a runtime: whatever would have to wait is still waiting.
    fn ends(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_round_ends_when_the_last_thread_has_answered() {
        let (heartbeat, wake_ups) = (Heartbeat::new(2), WakeUps::new(2));
        let (mut first, mut second) = (pin!(heartbeat.beat(0)), pin!(heartbeat.beat(1)));
        assert!(!ends(first.as_mut()) && !ends(second.as_mut()), "nobody was asked");
        for _ in 0..3 {
            let mut round = pin!(heartbeat.all_beat(&wake_ups));
            assert!(!ends(round.as_mut()), "nobody has answered");
            heartbeat.keeper_looked(heartbeat.round());
            assert!(!ends(first.as_mut()));
            assert!(!ends(round.as_mut()), "one shard has not answered");
            assert!(!ends(second.as_mut()));
            assert!(ends(round.as_mut()));
        }
    }

    #[test]
    fn a_look_that_began_before_the_round_is_no_answer_to_it() {
        let (heartbeat, wake_ups) = (Heartbeat::new(0), WakeUps::new(0));
        let before = heartbeat.round();
        let mut round = pin!(heartbeat.all_beat(&wake_ups));
        assert!(!ends(round.as_mut()));
        heartbeat.keeper_looked(before);
        assert!(!ends(round.as_mut()));
        heartbeat.keeper_looked(heartbeat.round());
        assert!(ends(round.as_mut()));
    }
}
