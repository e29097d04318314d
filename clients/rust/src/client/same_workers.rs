//! The check that no two endpoints are daemons with the same worker IDs. Such daemons would hand
//! out the same IDs.
//!
//! A daemon refuses a worker ID that another daemon of its machine has. Containers and machines do
//! not see each other's locks, but a client sees all of its endpoints. So a client that has
//! connected asks each of its endpoints for INFO.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::error::Error;
use super::shared::Shared;
use snowbank_wire::Info;
use snowbank_wire::info::SharedWorkerId;

/// The time before the first comparison, and between two comparisons while daemons collide. A
/// client that lives for a shorter time makes no connections for the check. A daemon that restarts,
/// or that passes its worker IDs on, can look like two daemons for a moment. So a collision counts
/// only if two comparisons in a row find it.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// The time between two comparisons while an endpoint does not answer, and the shortest time
/// between the starts of two checks.
const REPETITION: Duration = Duration::from_secs(60);

/// The check of one driver. Dropping this handle ends the check.
#[derive(Debug, Default)]
pub(super) struct Check {
    task: Option<AbortHandle>,
    began: Option<Instant>,
}

impl Check {
    /// Starts a check in the background, unless one is running. If the last check started less than
    /// [`REPETITION`] ago, the new check waits.
    pub(super) fn start(&mut self, shared: &Arc<Shared>) {
        let is_running = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if shared.names.len() > 1 && !is_running {
            let now = Instant::now();
            let begins = self.began.map_or(now, |began| now.max(began + REPETITION));
            self.began = Some(begins);
            let check = check(Arc::clone(shared), begins + CONFIRMATION);
            self.task = Some(tokio::spawn(check).abort_handle());
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Compares the endpoints until all have answered and no two of them collide.
async fn check(shared: Arc<Shared>, begins: Instant) {
    sleep_until(begins).await;
    let mut earlier = None;
    loop {
        let answers = ask_endpoints(&shared).await;
        let found = find_collision(&answers);
        let is_silent = answers.len() < shared.names.len();
        // A silent endpoint may be restarting, and may still collide. So while one is silent, only
        // the second comparison in a row that finds nothing clears the collision.
        let is_confirmed = if found.is_none() { !is_silent || earlier.is_none() } else { found == earlier };
        if is_confirmed {
            shared.set_collision(found.clone().map(|collision| collision.error));
        }
        if found.is_none() && !is_silent {
            return;
        }
        let pause = if found.is_some() || earlier.is_some() { CONFIRMATION } else { REPETITION };
        earlier = found;
        sleep(pause).await;
    }
}

/// The INFO of the daemon at an endpoint.
struct Answer {
    endpoint: Arc<str>,
    info: Info,
}

/// Returns the INFO of each endpoint that answers, in the endpoints' order. All connections are
/// open at the same time.
async fn ask_endpoints(shared: &Arc<Shared>) -> Vec<Answer> {
    let mut questions = JoinSet::new();
    for index in 0..shared.names.len() {
        let shared = Arc::clone(shared);
        questions.spawn(async move {
            let mut connection = Connection::connect(shared, index).await.ok()?;
            let info = connection.greet().await.ok()?;
            Some((connection, index, info))
        });
    }
    let mut answers: Vec<_> = questions.join_all().await.into_iter().flatten().collect();
    answers.sort_by_key(|(_, index, _)| *index);
    answers.into_iter().map(|(connection, _, info)| Answer { endpoint: connection.endpoint, info }).collect()
}

/// Two endpoints whose daemons can hand out the same ID.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collision {
    instances: [String; 2],
    error: Error,
}

fn find_collision(answers: &[Answer]) -> Option<Collision> {
    answers
        .iter()
        .enumerate()
        .find_map(|(at, one)| answers[at + 1..].iter().find_map(|other| compare(one, other)))
}

/// Returns the collision of two endpoints, if they collide. Endpoints with the same instance lead
/// to one daemon.
fn compare(one: &Answer, other: &Answer) -> Option<Collision> {
    let SharedWorkerId { worker_id, layout, .. } = one.info.shared_worker_id(&other.info)?;
    let instances = [one.info.instance.clone()?, other.info.instance.clone()?];
    let [one, other] = [one, other].map(|answer| Arc::clone(&answer.endpoint));
    Some(Collision {
        instances,
        error: Error::SameWorkerIds { one, other, worker_id, layout: layout.into() },
    })
}
