//! The task behind a client's handles. It chooses the daemon to connect to, and decides when to try
//! the next daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, End};
use super::error::{Error, IS_IT_OURS};
use super::queue::{Abandoned, Queue};
use super::same_workers::Check;
use super::shared::Shared;

/// The recent failures of an endpoint.
#[derive(Debug, Clone, Copy)]
struct Health {
    /// The number of failures since the endpoint last answered a call.
    failures: u32,
    /// The earliest time for the next attempt to connect.
    not_before: Instant,
    /// The time from which the endpoint may again have IDs for every call. Until then, the driver
    /// prefers other endpoints.
    exhausted_until: Instant,
}

impl Health {
    /// Returns the time from which the endpoint may be tried again. If the endpoint's pauses are
    /// over, that time is now.
    fn due_at(&self) -> Instant {
        self.not_before.max(self.exhausted_until).max(Instant::now())
    }

    /// Keeps the client away from the endpoint for a back-off, plus the time that the daemon asked
    /// for.
    fn rest(&mut self, shared: &Shared, error: &Error) {
        let asked = asked(shared, error);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Instant::now() + asked + shared.backoff(self.failures);
    }

    fn forget_failures_if_answered(&mut self, connection: &Connection) {
        // Without this condition, the pause would not grow for a daemon that greets and then fails
        // every call.
        if connection.has_answered {
            self.failures = 0;
        }
    }
}

/// A connection after its greeting, and the index of its endpoint.
struct Greeted {
    index: usize,
    connection: Connection,
}

/// The task's state. The task connects when a call needs a connection, stays with a daemon that
/// serves, and moves on after a failure. It ends when the last handle is dropped.
pub(super) struct Driver {
    shared: Arc<Shared>,
    queue: Queue,
    health: Vec<Health>,
    /// The index of the endpoint that served last.
    current: usize,
    /// The number of failed connections since the last success, or since [`Self::fail_calls`].
    failed_in_a_row: usize,
    check: Check,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, queue: Queue) -> Self {
        let now = Instant::now();
        let fresh = Health { failures: 0, not_before: now, exhausted_until: now };
        let health = vec![fresh; shared.names.len()];
        Self { shared, queue, health, current: 0, failed_in_a_row: 0, check: Check::default() }
    }

    /// Runs until the application has dropped the last handle.
    pub(super) async fn run(mut self) {
        while self.connect_and_serve().await.is_ok() {}
    }

    /// Waits for a call, connects to an endpoint, and serves calls until no connection is left.
    async fn connect_and_serve(&mut self) -> Result<(), Abandoned> {
        self.queue.wait_for_work().await?;
        let index = self.pick();
        let shared = Arc::clone(&self.shared);
        let not_before = self.health[index].not_before;
        let attempt = async move {
            sleep_until(not_before).await;
            let unfinished = if shared.options.endpoints[index].is_tls() {
                "it has not finished the TLS handshake, or not accepted the connection"
            } else {
                "it has not accepted the connection"
            };
            shared.awaits(index, unfinished.to_owned());
            let mut connection = connect(&shared, index).await?;
            shared.awaits(index, format!("it accepted the connection and has sent no greeting{IS_IT_OURS}"));
            connection.greet().await?;
            Ok::<_, Error>(connection)
        };
        let connection = match self.queue.meanwhile(attempt).await? {
            Ok(connection) => connection,
            Err(error) => {
                self.failed_to_connect(index, error);
                return Ok(());
            }
        };
        let mut greeted = Greeted { index, connection };
        while let Some(preferred) = self.serve(greeted).await? {
            greeted = preferred;
        }
        Ok(())
    }

    /// Serves until the connection ends, or until the client has also connected to an endpoint that
    /// is earlier in the list. In the second case, returns the connection to that endpoint.
    async fn serve(&mut self, greeted: Greeted) -> Result<Option<Greeted>, Abandoned> {
        let Greeted { index, mut connection } = greeted;
        self.shared.serves(index, &connection.endpoint);
        self.check.start(&self.shared);
        self.failed_in_a_row = 0;
        self.current = index;
        let can_return = index > 0 && self.shared.options.returns_to_first();
        let end = tokio::select! {
            end = connection.serve(&mut self.queue) => end,
            preferred = connect_to_any(&self.shared, &mut self.health[..index]), if can_return => {
                self.health[index].forget_failures_if_answered(&connection);
                tokio::spawn(connection.finish());
                return Ok(Some(preferred));
            }
        };
        self.health[index].forget_failures_if_answered(&connection);
        let error = match end {
            End::Abandoned => return Err(Abandoned),
            End::Failed(error) => {
                self.health[index].rest(&self.shared, &error);
                error
            }
            End::Exhausted(error) => {
                tokio::spawn(connection.finish());
                self.prefer_others(index, &error);
                error
            }
        };
        self.shared.fail(index, error);
        Ok(None)
    }

    /// Returns the endpoint that may be tried soonest. Of several such endpoints, prefers those
    /// that are not exhausted, then those that have not failed, then the next in the circle. The
    /// circle begins with the current endpoint, or with the first if the client returns to it.
    fn pick(&self) -> usize {
        let now = Instant::now();
        let count = self.health.len();
        let first = if self.shared.options.returns_to_first() { 0 } else { self.current };
        (0..count)
            .map(|step| (first + step) % count)
            .min_by_key(|index| {
                let health = &self.health[*index];
                (health.not_before.max(now), health.exhausted_until.max(now), health.failures > 0)
            })
            .unwrap_or_default()
    }

    /// Makes the driver prefer the other endpoints to this one, which has no IDs before a call's
    /// deadline. The next call may ask for another source or allow a longer wait. So if all other
    /// endpoints fail, the driver tries this one again after a short pause.
    fn prefer_others(&mut self, index: usize, error: &Error) {
        let now = Instant::now();
        self.health[index].not_before = now + self.shared.backoff(1);
        self.health[index].exhausted_until = now + asked(&self.shared, error);
    }

    /// Records a failed attempt, and fails the waiting calls if no further attempt can help or is
    /// allowed.
    ///
    /// An endpoint that speaks another protocol makes calls fail only if all endpoints speak
    /// another protocol.
    fn failed_to_connect(&mut self, index: usize, error: Error) {
        self.health[index].rest(&self.shared, &error);
        self.shared.fail(index, error.clone());
        self.failed_in_a_row += 1;
        let failures = self.shared.failures();
        let all_failed = self.failed_in_a_row >= self.health.len();
        let all_speak_another_protocol = failures.len() == self.health.len()
            && failures.iter().all(|failure| matches!(failure, Error::Protocol { .. }));
        if error.is_final() {
            self.fail_calls(&error);
        } else if all_speak_another_protocol || (self.shared.options.fail_fast && all_failed) {
            self.fail_calls(&Error::join(failures));
        }
    }

    fn fail_calls(&mut self, error: &Error) {
        self.failed_in_a_row = 0;
        self.queue.fail_all(error);
    }
}

/// Waits until one of the endpoints in `health` (at least one) has connected and greeted. Tries one
/// at a time, each once its pauses are over.
async fn connect_to_any(shared: &Arc<Shared>, health: &mut [Health]) -> Greeted {
    loop {
        let index = (0..health.len()).min_by_key(|index| health[*index].due_at()).unwrap_or_default();
        sleep_until(health[index].due_at()).await;
        match connect_and_greet(shared, index).await {
            Ok(connection) => return Greeted { index, connection },
            Err(error) => {
                health[index].rest(shared, &error);
                shared.fail_in_background(index, error);
            }
        }
    }
}

async fn connect_and_greet(shared: &Arc<Shared>, index: usize) -> Result<Connection, Error> {
    let mut connection = connect(shared, index).await?;
    connection.greet().await?;
    Ok(connection)
}

/// Connects, and records which address of the name accepted.
async fn connect(shared: &Arc<Shared>, index: usize) -> Result<Connection, Error> {
    let connection = Connection::connect(Arc::clone(shared), index).await?;
    shared.set_address_number(index, connection.address_number);
    Ok(connection)
}

/// Returns the time that the daemon asked for, capped at `max_backoff`, because a restarted daemon
/// may serve earlier.
fn asked(shared: &Shared, error: &Error) -> Duration {
    error.retry_after().unwrap_or_default().min(shared.options.max_backoff)
}
