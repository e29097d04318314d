use super::*;
use crate::numbering::TicketCounter;

fn counter(floor: u64) -> Counter {
    Counter::new(TicketCounter::new("orders", 1, 1).unwrap().into(), floor)
}

fn stored(version: u64, next: u64, write: &str) -> Stored {
    Stored { version: Version(version), text: CounterKey::new("c", next, write, "host-a (process 7)").text() }
}

fn step(
    counter: &mut Counter,
    found: (&Stored, bool),
    generation: u64,
    write: &str,
) -> Result<Step, CounterLoss> {
    counter.step((Some(found.0), found.1), (10, generation), || write.to_owned())
}

fn claim(version: u64, write: &str, from: u64) -> Step {
    let range = NumberRange { from, to: from + 10 };
    Step::Write(Claim { expected: Version(version), write: write.to_owned(), range })
}

#[test]
fn a_range_begins_at_the_next_free_number_and_is_written_before_it_is_used() {
    let mut counter = counter(0);
    assert_eq!(step(&mut counter, (&stored(4, 101, "w0"), true), 0, "w1"), Ok(claim(4, "w1", 101)));
    assert_eq!(counter.done(), Some(NumberRange { from: 101, to: 111 }));
    assert_eq!(counter.done(), None, "once");
}

#[test]
fn a_lost_answer_counts_only_if_the_key_has_its_identity_in_the_same_generation() {
    let tried = || {
        let mut counter = counter(0);
        assert!(step(&mut counter, (&stored(4, 101, "w0"), true), 0, "w1").is_ok());
        counter
    };
    let found = stored(5, 111, "w1");
    let ours = Step::Ours(NumberRange { from: 101, to: 111 });
    assert_eq!(step(&mut tried(), (&found, true), 0, "w2"), Ok(ours));
    assert_eq!(step(&mut tried(), (&found, true), 1, "w2"), Ok(claim(5, "w2", 111)), "a copy may have it");
    let not_done = stored(4, 101, "w0");
    assert_eq!(step(&mut tried(), (&not_done, true), 0, "w2"), Ok(claim(4, "w2", 101)));
    let by_another = stored(6, 121, "x1");
    assert_eq!(step(&mut tried(), (&by_another, true), 0, "w2"), Ok(claim(6, "w2", 121)), "done or not");
}

#[test]
fn a_key_that_is_gone_or_went_back_is_never_begun_again() {
    let gone = counter(0).step((None, true), (10, 0), || String::from("w1"));
    assert_eq!(gone, Err(CounterLoss::Gone));
    let mut with_state = counter(101);
    let back = stored(9, 100, "w0");
    assert_eq!(step(&mut with_state, (&back, true), 0, "w1"), Err(CounterLoss::WentBack(100, 101)));
    assert_eq!(step(&mut with_state, (&back, false), 0, "w1"), Ok(Step::Verify), "the answer may be old");
    let mut running = counter(0);
    assert!(step(&mut running, (&stored(4, 101, "w0"), true), 0, "w1").is_ok());
    running.done();
    assert_eq!(
        running.check((Some(&stored(5, 110, "w0")), true)),
        Err(CounterLoss::WentBack(110, 111)),
        "below its last range"
    );
    let again = CounterKey::new("d", 500, "w9", "nobody").text();
    let again = running.check((Some(&Stored { version: Version(6), text: again }), true));
    assert_eq!(again, Err(CounterLoss::Replaced), "whatever its next number is");
    let garbage = Stored { version: Version(1), text: String::from("{}") };
    assert!(matches!(running.check((Some(&garbage), true)), Err(CounterLoss::Unreadable(_))));
}

#[test]
fn ranges_are_of_numbers_whatever_the_increments_are() {
    let mut even = Counter::new(TicketCounter::new("orders", 2, 2).unwrap().into(), 0);
    let taken = step(&mut even, (&stored(1, 101, "w0"), true), 0, "w1");
    let range = NumberRange { from: 101, to: 122 };
    assert_eq!(taken, Ok(Step::Write(Claim { expected: Version(1), write: String::from("w1"), range })));
}

#[test]
fn the_last_numbers_are_taken_and_none_beyond() {
    let end = 1 << 63;
    let mut counter = counter(0);
    for (next, from) in [(end - 3, end - 3), (end, end)] {
        let range = NumberRange { from, to: end };
        let Ok(Step::Write(claim)) = step(&mut counter, (&stored(1, next, "w0"), true), 0, "w1") else {
            panic!("it is written")
        };
        assert_eq!(claim.range, range);
    }
}
