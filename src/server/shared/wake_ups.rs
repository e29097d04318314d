//! Wake-ups between threads: the shards' tickers and the keeper sleep until another thread wakes
//! them.

use std::sync::OnceLock;
use std::thread::Thread;

use tokio::sync::Notify;

/// The threads that can be woken.
#[derive(Debug)]
pub(crate) struct WakeUps {
    /// Wakes the ticker of each shard.
    shards: Box<[Notify]>,
    /// The keeper thread. Set once the thread runs.
    keeper: OnceLock<Thread>,
}

impl WakeUps {
    pub(crate) fn new(shards: usize) -> Self {
        WakeUps { shards: (0..shards).map(|_| Notify::new()).collect(), keeper: OnceLock::new() }
    }

    /// Wakes a shard's ticker. If the ticker is awake, its next sleep ends at once.
    pub(crate) fn wake_shard(&self, shard: usize) {
        if let Some(ticker) = self.shards.get(shard) {
            ticker.notify_one();
        }
    }

    pub(crate) fn wake_all_shards(&self) {
        self.shards.iter().for_each(Notify::notify_one);
    }

    /// Sleeps until this shard's ticker is woken.
    pub(crate) async fn shard_woken(&self, shard: usize) {
        self.shards[shard].notified().await;
    }

    /// Sets the thread that [`wake_keeper`](Self::wake_keeper) wakes. Calls after the first one
    /// have no effect.
    pub(crate) fn set_keeper(&self, keeper: Thread) {
        let _ = self.keeper.set(keeper);
    }

    /// Wakes the keeper thread, if it has been set.
    pub(crate) fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}
