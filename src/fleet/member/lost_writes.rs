//! Tests: a coordinator that loses its last write, as a failover of Redis does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::*;
use crate::ceiling::draw_identity;
use crate::fleet::Marker;
use crate::fleet::rules::Proof;
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, UnixMicros, WorkerSet};

const WALL: UnixMicros = UnixMicros(1_800_000_000_000_000);
const HORIZON: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Server {
    keys: BTreeMap<String, Stored>,
    /// The keys before each write.
    before: Vec<BTreeMap<String, Stored>>,
}

#[derive(Clone, Default)]
struct Forgetful(Arc<Mutex<Server>>);

impl Forgetful {
    fn prepared() -> Forgetful {
        let mut server = Forgetful::default();
        let text = Marker::new("1f", vec![layout().space().to_string()]).text();
        assert!(server.swap(&[Swap { key: Paths::of("f").marker(), expected: None, text }]).is_ok());
        server
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap()
    }

    fn lose_last_write(&self) {
        let mut server = self.server();
        server.keys = server.before.pop().unwrap();
    }

    fn writes(&self) -> usize {
        self.server().before.len()
    }

    fn bound(&self) -> u64 {
        NumberKey::parse(&self.server().keys[&Paths::of("f").number(0, 5)].text).unwrap().id_bound
    }
}

impl Coordinator for Forgetful {
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<Stored>>, NoAnswer> {
        Ok(keys.iter().map(|key| self.server().keys.get(key).cloned()).collect())
    }

    fn list(&mut self, _: &str) -> Result<Vec<(String, Stored)>, NoAnswer> {
        Ok(Vec::new())
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let found = self.read(&swaps.iter().map(|swap| swap.key.clone()).collect::<Vec<_>>())?;
        let fits =
            |(swap, found): (&Swap, &Option<Stored>)| found.as_ref().map(|it| it.version) == swap.expected;
        if !swaps.iter().zip(&found).all(fits) {
            return Ok(Swapped::Refused(found));
        }
        let mut server = self.server();
        let before = server.keys.clone();
        server.before.push(before);
        // Of the text, as Redis's is.
        let version = Version(
            swaps[0]
                .text
                .bytes()
                .fold(7, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
        );
        for Swap { key, text, .. } in swaps {
            server.keys.insert(key.clone(), Stored { version, text: text.clone() });
        }
        Ok(Swapped::Done(version))
    }

    fn may_lose_writes(&self) -> bool {
        true
    }
}

fn layout() -> Layout {
    Layout::resolve("twitter").unwrap()
}

fn member(server: &Forgetful, state: &str) -> Member<Forgetful> {
    Member::new(server.clone(), "f", (state, state), Notes::default(), draw_identity)
}

fn take(member: &mut Member<Forgetful>, wall: UnixMicros) -> Result<Taken, JoinError> {
    let layout = layout();
    let max_ahead = Duration::from_secs(10);
    let (index, source, proof, horizon) = (0, "orders", Proof::None, HORIZON);
    let want = Want { index, source, layout: &layout, wall, proof, max_ahead, horizon };
    member.take(want, &WorkerSet::single(5))
}

#[test]
fn a_bound_that_was_lost_is_written_again() {
    let server = Forgetful::prepared();
    let mut member = member(&server, "a");
    let taken = take(&mut member, WALL).unwrap();
    let raised = [Bound { source: 0, id_bound: taken.covered + 9 }];
    assert_eq!(member.raise(&raised, 0), Raised::Done);
    server.lose_last_write();
    assert_eq!(server.bound(), taken.covered);
    assert_eq!(member.look(), Raised::Done);
    assert_eq!(server.bound(), taken.covered + 9);
    assert_eq!(member.raise(&[Bound { source: 0, id_bound: taken.covered + 10 }], 0), Raised::Done);
}

#[test]
fn a_taken_number_is_used_once_its_bound_is_written_twice() {
    let server = Forgetful::prepared();
    let before = server.writes();
    let taken = take(&mut member(&server, "a"), WALL).unwrap();
    assert_eq!(server.writes() - before, 2);
    server.lose_last_write();
    assert_eq!(server.bound(), taken.covered);
}

#[test]
fn who_takes_a_number_starts_a_horizon_above_its_bound() {
    let server = Forgetful::prepared();
    let first = take(&mut member(&server, "a"), WALL).unwrap();
    let after = |horizons: i64| UnixMicros(WALL.0 + horizons * HORIZON.as_micros() as i64);
    assert!(matches!(take(&mut member(&server, "b"), after(1)), Err(JoinError::Held(_))));
    let second = take(&mut member(&server, "b"), after(2)).unwrap();
    let numbering = Numbering::new(layout(), WorkerSet::single(5)).unwrap();
    let instant = |bound| numbering.start_of(numbering.tick_of(numbering.position_from(bound))).0;
    assert!(instant(second.floor) - instant(first.covered) >= HORIZON.as_micros() as i64);
}

#[test]
fn a_number_whose_claim_was_lost_is_lost_with_it() {
    let server = Forgetful::prepared();
    let (mut first, mut second) = (member(&server, "a"), member(&server, "b"));
    take(&mut first, WALL).unwrap();
    server.lose_last_write();
    server.lose_last_write();
    take(&mut second, WALL).unwrap();
    assert!(matches!(first.look(), Raised::Lost(_)));
    assert!(matches!(first.raise(&[Bound { source: 0, id_bound: u64::MAX }], 0), Raised::Lost(_)));
}
