//! Rounds: all endpoints are greeted, and their claims compared. With the caller's order, a round
//! also moves a client back to the first endpoint that greets. Rule 7 of the page.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Core;
use crate::connection::{Answer, Asked, Connection};
use crate::dial::{Opened, Place, dial};
use crate::error::Collision;

/// The time between two rounds that find the same pair.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// The most bytes of each INFO that the error of a collision shows.
const INFO_SHOWN: usize = 1_000;

/// Two daemons with one claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pair {
    /// The instances, the lower one first.
    instances: [u64; 2],
    claim: u64,
}

/// A daemon that greeted, and the index of its endpoint.
type Greeted = (usize, Opened);

/// Makes rounds until the client closes.
pub(crate) async fn rounds(core: Arc<Core>) {
    let limits = core.options.limits;
    sleep(limits.first_round.mul_f64(fastrand::f64())).await;
    let mut suspects: HashSet<Pair> = HashSet::new();
    // Their own, because calls remember which address they used last.
    let own: Vec<_> = core.options.endpoints.iter().map(|_| Place::new()).collect();
    loop {
        let mut greeted = greet_all(&core, &own).await;
        let found = pairs(&greeted);
        match found.iter().find(|(pair, _)| suspects.contains(pair)) {
            Some((pair, places)) if core.collision().is_none() => {
                let endpoints = places.map(|place| core.name(greeted[place].0));
                let mut collision = Collision { endpoints, claim: pair.claim, infos: Default::default() };
                core.set_collision(Some(Arc::new(collision.clone())));
                // Calls fail meanwhile. The error that they have got does not change.
                collision.infos = ask_both(&core, *places, &mut greeted).await;
                core.set_collision(Some(Arc::new(collision)));
            }
            None if found.is_empty() => core.set_collision(None),
            _ => {}
        }
        if !greeted.is_empty() && core.prefers(greeted[0].0) {
            let (at, opened) = greeted.remove(0);
            core.adopt(at, opened);
        }
        drop(greeted);
        suspects = found.into_iter().map(|(pair, _)| pair).collect();
        sleep(if suspects.is_empty() { limits.round } else { SECOND_LOOK }).await;
    }
}

/// Greets all endpoints at the same time. Returns those that greeted, in their order.
async fn greet_all(core: &Arc<Core>, own: &[Arc<Place>]) -> Vec<Greeted> {
    let mut tasks = tokio::task::JoinSet::new();
    for (at, place) in own.iter().cloned().enumerate() {
        let core = Arc::clone(core);
        tasks.spawn(async move {
            let endpoint = &core.options.endpoints[at];
            let opened = dial(&core.options, endpoint, &core.name(at), &place).await;
            opened.ok().map(|opened| (at, opened))
        });
    }
    let mut greeted = Vec::new();
    while let Some(done) = tasks.join_next().await {
        greeted.extend(done.ok().flatten());
    }
    greeted.sort_by_key(|(at, _)| *at);
    greeted
}

/// Returns the pairs with one claim, and for each the places of the two in `greeted`.
fn pairs(greeted: &[Greeted]) -> Vec<(Pair, [usize; 2])> {
    let mut found = Vec::new();
    for (one, (_, first)) in greeted.iter().enumerate() {
        let claims: HashSet<u64> = first.welcome.claims.iter().copied().collect();
        for (other, (_, second)) in greeted.iter().enumerate().skip(one + 1) {
            let mut instances = [first.welcome.instance, second.welcome.instance];
            instances.sort_unstable();
            if instances[0] == instances[1] {
                continue;
            }
            let shared = second.welcome.claims.iter().filter(|claim| claims.contains(claim));
            found.extend(shared.map(|&claim| (Pair { instances, claim }, [one, other])));
        }
    }
    found
}

/// Asks both daemons of a pair for INFO, over the connections that greeted.
async fn ask_both(core: &Core, places: [usize; 2], greeted: &mut Vec<Greeted>) -> [String; 2] {
    let mut infos = <[String; 2]>::default();
    // The later place first, so that the earlier one still holds.
    for which in [1, 0] {
        let (at, opened) = greeted.remove(places[which]);
        let limit = core.options.limits.answer;
        let connection = Connection::start(opened, core.name(at), limit, |_, _| {});
        if let Ok(Some(Answer::Info(json))) = timeout(limit, connection.ask(Asked::Info)).await {
            infos[which] = json.chars().take(INFO_SHOWN).collect();
        }
    }
    infos
}
