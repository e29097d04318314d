//! One turn of a connection, and the requests of a turn.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::thread_state::ThreadState;
use super::turn_state::TurnState;
use crate::access::Session;
use crate::frontends::{Ask, Conditions};
use crate::server::shared::live_config::LiveConfig;
use snowbank_core::clock::{BootMicros, Now};

/// One turn of a connection. It has one configuration and one reading of the clock.
pub(super) struct Turn<'t> {
    pub(super) thread: &'t Rc<ThreadState>,
    pub(super) config: &'t LiveConfig,
    pub(super) state: &'t mut TurnState,
    /// The client's session, and the facts that front ends need for their answers.
    pub(super) conditions: Conditions<'t>,
    pub(super) now: Now,
}

/// A request on its way from bytes to IDs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<F> {
    pub(super) ask: Ask,
    /// The details that its reply needs.
    pub(super) form: F,
    /// The instant at which the request was read. The request's wait counts from this instant.
    pub(super) read_at: BootMicros,
    /// The size of the request in bytes. 0 for a request that the front end has kept from an
    /// earlier message.
    pub(super) size: usize,
}

impl<'t> Turn<'t> {
    /// Takes a turn for a request that has waited.
    pub(super) fn take<T>(
        thread: &Rc<ThreadState>,
        session: &mut Session,
        serve: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> T {
        let config = &*thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        let served = serve(&mut Turn::begin(thread, config, state, session, thread.now()));
        state.shard.top_up();
        served
    }

    /// Begins a turn at `now`, and gives this reading of the clock to the shard.
    #[inline]
    pub(super) fn begin(
        thread: &'t Rc<ThreadState>,
        config: &'t LiveConfig,
        state: &'t mut TurnState,
        session: &'t mut Session,
        now: Now,
    ) -> Self {
        state.shard.wake(now);
        let metrics = &thread.common.metrics;
        let conditions = Conditions {
            facts: &config.facts,
            session,
            draining: false,
            is_stopping: metrics.draining.load(Ordering::Relaxed),
            wall: now.wall,
            incr_connections: &metrics.incr_connections,
            daemon: &**thread,
            rejection: None,
        };
        Turn { thread, config, state, conditions, now }
    }
}
