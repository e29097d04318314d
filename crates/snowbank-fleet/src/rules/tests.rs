use proptest::prelude::*;

use super::*;
use crate::FleetLimits;
use snowbank_core::clock::{BootMicros, Now};
use snowbank_id::layout::{Layout, Position, WorkerSet};
use snowbank_state::Fate;

const WALL: UnixMicros = UnixMicros(1_800_000_000_000_000);
const MAX_AHEAD: Duration = Duration::from_secs(10);

impl Holding {
    /// Reads an answer, as a member does.
    fn read(&mut self, text: Option<&str>, term: &str) -> Seen {
        self.see(text, &text.map(NumberKey::parse).transpose(), term)
    }
}

fn limits() -> FleetLimits {
    FleetLimits::new(Duration::from_secs(300), MAX_AHEAD)
}

fn numbering() -> Numbering {
    Numbering::new(Layout::resolve("twitter").unwrap(), WorkerSet::single(5)).unwrap()
}

fn key(write: &str, bound: u64) -> NumberKey {
    let key = NumberKey::new("state", "host-a (process 7)", "orders", 1);
    let term = String::from("t");
    NumberKey { limits: limits(), term, write: write.to_owned(), id_bound: bound, from: bound, ..key }
}

fn text(write: &str) -> String {
    key(write, 9).text()
}

fn ours(write: &str) -> Seen {
    Seen::Ours(Box::new(key(write, 9)))
}

fn taker(writes: &[String]) -> Taker<'_> {
    Taker { writes, replaced: &[], acknowledged: None, wall: WALL, latest: WALL, max_ahead: MAX_AHEAD }
}

fn after(seconds: i64) -> UnixMicros {
    UnixMicros(WALL.0 + seconds * 1_000_000)
}

#[test]
fn a_number_that_was_never_used_is_free() {
    assert_eq!(judge(None, after(0), taker(&[])), Ok(Taking::Above(0)));
}

#[test]
fn a_state_resumes_only_if_the_last_write_is_its_own() {
    let own = [String::from("w1"), String::from("w2")];
    for write in ["w1", "w2"] {
        assert_eq!(judge(Some(&key(write, 9)), after(300), taker(&own)), Ok(Taking::Resume));
    }
    assert!(judge(Some(&key("w3", 9)), after(300), taker(&own)).is_err(), "w3 is not a write of this state");
}

#[test]
fn a_state_is_the_newest_if_no_mark_is_above_its_ceiling() {
    let mark = |state: &str, id_bound| Mark::granted(id_bound, state);
    let proof = |marks: &[Mark], stored| proof(marks, 1, "state", stored);
    assert_eq!(proof(&[mark("state", 7)], 7), Proof::Held);
    assert_eq!(proof(&[mark("state", 7)], 8), Proof::Held, "the daemon was killed before it wrote the mark");
    assert_eq!(proof(&[mark("state", 7)], 6), Proof::None, "an older copy on the same machine");
    assert_eq!(proof(&[], 7), Proof::None, "the machine has no marks of this boot");
    assert_eq!(proof(&[mark("other", 7)], 7), Proof::None);
    let fate = |fate| [Mark { fate, ..mark("state", 7) }];
    assert_eq!(proof(&fate(Fate::Released), 7), Proof::None);
    let returned = fate(Fate::Returned);
    assert_eq!(proof(&returned, 7), Proof::Newest, "another daemon may have the number");
    assert_eq!(
        proof(&returned, 8),
        Proof::Newest,
        "the state may be from before the stop that lowered the mark"
    );
    let both = [mark("state", 7), mark("state", 5)];
    assert_eq!(super::proof(&both, 2, "state", 7), Proof::Held);
    assert_eq!(super::proof(&both, 3, "state", 7), Proof::None);
}

#[test]
fn a_number_whose_bound_is_near_is_taken_above_that_bound() {
    let other = key("w", 77);
    assert_eq!(judge(Some(&other), after(-60), taker(&[])), Ok(Taking::Above(77)));
    assert_eq!(judge(Some(&other), UnixMicros(after(10).0 - 1), taker(&[])), Ok(Taking::Above(77)));
    let held = judge(Some(&other), after(10), taker(&[])).unwrap_err();
    assert_eq!((held.free_at, *held.key), (after(0), other.clone()));
    let released = NumberKey { released: true, ..other };
    assert!(
        judge(Some(&released), after(10), taker(&[])).is_err(),
        "its holder may not have noticed the release"
    );
}

fn held(write: &str) -> Holding {
    let mut holding = Holding::unseen(vec![write.to_owned()], Vec::new(), 0);
    assert_eq!(holding.read(Some(&text(write)), "t"), ours(write));
    holding
}

#[test]
fn a_write_whose_answer_was_lost_is_recognised() {
    let mut holding = held("w3");
    holding.try_write("w4");
    holding.try_write("w5");
    assert_eq!(holding.read(Some(&text("w3")), "t"), ours("w3"), "the last two writes are not done yet");
    assert_eq!(holding.read(Some(&text("w4")), "t"), ours("w4"));
    assert_eq!(holding.text(), Some(&text("w4")));
    assert_eq!(holding.writes(), ["w4", "w5"], "w5 may still be done");
}

#[test]
fn a_number_is_lost_if_its_key_is_gone_or_written_by_another() {
    assert!(matches!(held("w3").read(Some(&text("x")), "t"), Seen::Lost(Loss::Taken(_))));
    assert!(matches!(held("w3").read(Some("?"), "t"), Seen::Lost(Loss::Unreadable(_))));
    assert_eq!(
        Holding::unseen(vec![String::from("w3")], Vec::new(), 0).read(None, "t"),
        Seen::Lost(Loss::Gone)
    );
    let mut unseen = Holding::unseen(vec![String::from("w1"), String::from("w2")], Vec::new(), 0);
    assert_eq!(unseen.read(Some(&text("w2")), "t"), ours("w2"));
}

#[test]
fn a_bound_below_an_acknowledged_one_shows_a_restore() {
    assert_eq!(held("w3").read(None, "t"), Seen::Older(Loss::Gone));
    let lower = |write: &str| key(write, 8).text();
    assert_eq!(held("w3").read(Some(&lower("w2")), "t"), Seen::Older(Loss::WentBack));
    assert_eq!(
        held("w3").read(Some(&lower("x")), "t"),
        Seen::Older(Loss::WentBack),
        "another daemon has taken the number since"
    );
    let released = |highest: u64| NumberKey { released: true, highest, ..key("x", 8) }.text();
    let newer = held("w3").read(Some(&released(9)), "t");
    assert!(matches!(newer, Seen::Lost(Loss::Taken(_))), "the release is newer than the bound");
    assert_eq!(
        held("w3").read(Some(&released(8)), "t"),
        Seen::Older(Loss::WentBack),
        "the release came after a restore"
    );
    assert_eq!(
        held("w3").read(Some(&released(9)), "u"),
        Seen::Older(Loss::WentBack),
        "the key is of an earlier term"
    );
}

#[test]
fn a_replaced_write_with_the_same_bound_shows_a_restore() {
    let mut holding = held("w3");
    holding.written(&text("w4"), &key("w4", 9));
    assert_eq!(holding.read(Some(&text("w3")), "t"), Seen::Older(Loss::WentBack));
    assert!(
        matches!(holding.read(Some(&text("x")), "t"), Seen::Lost(Loss::Taken(_))),
        "another copy of this daemon wrote the key"
    );
}

#[test]
fn a_state_keeps_its_number_while_the_lost_bound_is_ahead() {
    let in_term = |term: &str| NumberKey { term: term.to_owned(), ..key("w1", 77) };
    let judge = |key: Option<&NumberKey>, until, id_bound| {
        let acknowledged = Some(Acknowledged { term: "t", id_bound, until });
        super::judge(key, after(0), Taker { acknowledged, ..taker(&[]) })
    };
    let ours = in_term("t");
    let anothers = in_term("u");
    assert_eq!(judge(Some(&ours), after(60), 88), Ok(Taking::Again(88)));
    assert_eq!(judge(None, after(60), 88), Ok(Taking::Again(88)), "the number is newer than the backup");
    assert_eq!(
        judge(Some(&ours), after(19), 88),
        Ok(Taking::Above(88)),
        "other daemons may have taken the number since"
    );
    assert_eq!(judge(Some(&anothers), after(60), 88), Ok(Taking::Above(77)));
    assert_eq!(judge(Some(&ours), after(60), 77), Ok(Taking::Above(77)), "nothing was lost");
    let released = |highest: u64| NumberKey { released: true, highest, ..in_term("t") };
    assert_eq!(judge(Some(&released(88)), after(0), 88), Ok(Taking::Above(77)), "the release is newer");
    assert_eq!(judge(Some(&released(87)), after(60), 88), Ok(Taking::Again(88)), "released after a restore");
}

/// The restore lost a write that left the bound as it was.
#[test]
fn a_state_keeps_its_number_if_a_replaced_write_comes_back() {
    let replaced = [String::from("w1")];
    let judge = |write: &str, until| {
        let acknowledged = Some(Acknowledged { term: "t", id_bound: 9, until });
        super::judge(Some(&key(write, 9)), until, Taker { acknowledged, replaced: &replaced, ..taker(&[]) })
    };
    assert_eq!(judge("w1", after(60)), Ok(Taking::Again(9)));
    assert_eq!(judge("w1", after(19)), Ok(Taking::Above(9)), "other daemons may have taken the number since");
    assert!(judge("x", after(60)).is_err(), "a copy of this state may have written that");
}

#[test]
fn the_floor_after_a_loss_is_above_every_grant() {
    let reach = limits().reach();
    let floor = floor_after_loss(after(0), after(-5), reach);
    assert_eq!(floor, after(320));
    assert_eq!(
        floor_after_loss(after(0), after(5_000), reach),
        after(5_000),
        "the daemon's clock was set back"
    );
    assert_eq!(floor_after_loss(after(3), floor, reach), after(323), "a second restore adds no second reach");
    let numbering = numbering();
    let above = numbering.position_from(bound_above(&numbering, floor));
    assert!(numbering.start_of(numbering.tick_of(above)) > floor);
    // The clock of another daemon is ahead, and its IDs are ahead of that clock.
    let wall = after(10);
    let now = Now { wall, boot: BootMicros(0), jumped: false };
    let counts_from = counts_from(now, after(10_000), MAX_AHEAD);
    let ceiling = ceiling(&numbering, counts_from, Duration::from_secs(300));
    assert!(above >= ceiling, "{above:?} is below {ceiling:?}");
}

/// The holder's clock may be behind the clock of the other daemon.
#[test]
fn a_number_that_is_free_by_another_clock_may_be_abandoned() {
    let other = key("w", 77);
    for (bound_s, ahead_s) in (-5..40).flat_map(|bound_s| (0..=10).map(move |ahead_s| (bound_s, ahead_s))) {
        let taker = Taker { wall: after(ahead_s), ..taker(&[]) };
        let may_be = may_be_abandoned(after(bound_s), WALL, MAX_AHEAD);
        // The other daemon may have another `max_ahead`.
        for max_ahead in [MAX_AHEAD / 2, MAX_AHEAD, 6 * MAX_AHEAD] {
            let is_taken = judge(Some(&other), after(bound_s), Taker { max_ahead, ..taker }).is_ok();
            assert!(may_be || !is_taken, "bound {bound_s} s, clock {ahead_s} s ahead, {max_ahead:?}");
        }
    }
    assert!(!may_be_abandoned(after(20), WALL, MAX_AHEAD), "the number is free by no clock in the fleet");
}

proptest! {
    /// A start that does not resume begins at the bound or above it.
    #[test]
    fn no_start_is_below_the_bound_of_another_holder(
        position in 0..u64::MAX >> 10, write in 0..4u8, released: bool, ahead_s in -100..1_000i64,
    ) {
        let numbering = numbering();
        let bound = numbering.id_bound(Position(position).min(numbering.end()));
        let found = NumberKey { released, ..key(&write.to_string(), bound) };
        let own = [String::from("0"), String::from("1")];
        match judge(Some(&found), after(ahead_s), taker(&own)) {
            Ok(Taking::Again(_)) => prop_assert!(false, "nothing was acknowledged"),
            Ok(Taking::Resume) => prop_assert!(own.contains(&found.write)),
            Ok(Taking::Above(above)) => {
                prop_assert_eq!(above, bound);
                prop_assert!(numbering.id_at(numbering.position_from(above).min(numbering.end())) >= bound
                    || numbering.position_from(above) == numbering.end());
            }
            Err(held) => prop_assert!(held.free_at > WALL || ahead_s >= 10),
        }
    }
}
