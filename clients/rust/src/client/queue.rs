//! The queue of calls that wait to be sent.

use std::collections::VecDeque;
use std::pin::pin;

use tokio::sync::mpsc;

use super::call::Call;
use super::error::Error;

/// The calls of all handles, oldest first. `waiting` holds at most as many calls as the channel.
pub(super) struct Queue {
    /// Calls taken from the channel while there was no connection.
    waiting: VecDeque<Call>,
    receiver: mpsc::Receiver<Call>,
}

/// The application has dropped every handle.
pub(super) struct Abandoned;

impl Queue {
    pub(super) fn new(receiver: mpsc::Receiver<Call>) -> Self {
        Self { waiting: VecDeque::new(), receiver }
    }

    /// Waits for the next call. Returns `None` once every handle is dropped. Dropping the future
    /// loses no call.
    pub(super) async fn next(&mut self) -> Option<Call> {
        match self.waiting.pop_front() {
            Some(call) => Some(call),
            None => self.receiver.recv().await,
        }
    }

    /// Returns the next call, if there is one.
    pub(super) fn try_next(&mut self) -> Option<Call> {
        self.waiting.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits until a call needs a connection.
    pub(super) async fn wait_for_work(&mut self) -> Result<(), Abandoned> {
        self.forget_abandoned_calls();
        while self.waiting.is_empty() {
            let call = self.receiver.recv().await.ok_or(Abandoned)?;
            self.waiting.push_back(call);
            self.forget_abandoned_calls();
        }
        Ok(())
    }

    /// Runs `work`, and takes calls from the channel meanwhile. Returns early when the last handle
    /// is dropped.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Abandoned> {
        let mut work = pin!(work);
        loop {
            let room = self.waiting.len() < self.receiver.max_capacity();
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                call = self.receiver.recv(), if room => self.waiting.push_back(call.ok_or(Abandoned)?),
            }
        }
    }

    /// Fails every waiting call.
    pub(super) fn fail_all(&mut self, error: &Error) {
        while let Some(call) = self.try_next() {
            call.exchange.fail(error.clone());
        }
    }

    fn forget_abandoned_calls(&mut self) {
        self.waiting.retain(|call| !call.exchange.is_abandoned());
    }
}
