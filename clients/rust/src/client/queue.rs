//! Calls that wait to be sent.

use std::collections::VecDeque;
use std::pin::pin;

use tokio::sync::mpsc;

use super::call::Call;
use super::error::Error;

/// The receiving end of every handle's calls, oldest first. Both parts are bounded by the channel's capacity.
pub(super) struct Queue {
    /// Taken from the channel while there was no connection to send them on.
    waiting: VecDeque<Call>,
    receiver: mpsc::Receiver<Call>,
}

/// Every handle is gone.
pub(super) struct Abandoned;

impl Queue {
    pub(super) fn new(receiver: mpsc::Receiver<Call>) -> Self {
        Self { waiting: VecDeque::new(), receiver }
    }

    /// The next call, or `None` once every handle is gone. Losing the race in a `select!` loses no call.
    pub(super) async fn next(&mut self) -> Option<Call> {
        match self.waiting.pop_front() {
            Some(call) => Some(call),
            None => self.receiver.recv().await,
        }
    }

    /// The next call, if one is there.
    pub(super) fn try_next(&mut self) -> Option<Call> {
        self.waiting.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits until some call wants a connection.
    pub(super) async fn wait_for_work(&mut self) -> Result<(), Abandoned> {
        self.forget_abandoned_calls();
        while self.waiting.is_empty() {
            let call = self.receiver.recv().await.ok_or(Abandoned)?;
            self.waiting.push_back(call);
            self.forget_abandoned_calls();
        }
        Ok(())
    }

    /// Runs `work`, taking calls in meanwhile, so that the last handle's end is noticed and ends it.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Abandoned> {
        let mut work = pin!(work);
        loop {
            let room = self.waiting.len() < self.receiver.max_capacity();
            tokio::select! {
                done = &mut work => return Ok(done),
                call = self.receiver.recv(), if room => self.waiting.push_back(call.ok_or(Abandoned)?),
            }
        }
    }

    /// Fails every call that waits.
    pub(super) fn fail_all(&mut self, error: &Error) {
        while let Some(call) = self.try_next() {
            call.fail(error.clone());
        }
    }

    fn forget_abandoned_calls(&mut self) {
        self.waiting.retain(|call| !call.is_abandoned());
    }
}
