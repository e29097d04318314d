use super::*;
use snowbank_id::numbering::TicketCounter;

fn counter(floor: u64) -> Counter {
    Counter::new(TicketCounter::new("orders", 1, 1).unwrap().into(), floor)
}

fn stored(next: u64, write: &str) -> String {
    CounterKey::new("c", NumberRange { from: next, to: next }, write, "host-a (process 7)").text()
}

fn step(counter: &mut Counter, found: &String, generation: u64, write: &str) -> Result<Step, CounterLoss> {
    counter.step(Some(found), 10, generation, || write.to_owned())
}

/// Returns the claim of a range that begins at `from`.
fn claim(write: &str, from: u64) -> Claim {
    Claim { write: write.to_owned(), range: NumberRange { from, to: from + 10 } }
}

fn writes(write: &str, from: u64) -> Result<Step, CounterLoss> {
    Ok(Step::Write(claim(write, from)))
}

#[test]
fn a_range_begins_at_the_next_free_number() {
    let mut counter = counter(0);
    let found = stored(101, "w0");
    assert_eq!(step(&mut counter, &found, 0, "w1"), writes("w1", 101));
    assert_eq!(counter.done(claim("w1", 101), String::new(), 0), NumberRange { from: 101, to: 111 });
}

#[test]
fn a_start_that_takes_no_number_checks_the_key() {
    let check = |floor, next| counter(floor).step(Some(&stored(next, "w0")), 0, 0, || unreachable!());
    assert_eq!(check(0, 101), Ok(Step::Ours(NumberRange { from: 101, to: 101 })));
    assert_eq!(check(102, 101), Ok(Step::Verify));
    assert_eq!(counter(0).step(None, 0, 0, || unreachable!()), Err(CounterLoss::Gone));
}

#[test]
#[should_panic(expected = "a range begins above all numbers that this daemon had")]
fn no_range_begins_below_one_that_was_done() {
    let mut counter = counter(0);
    counter.done(claim("w1", 101), String::new(), 0);
    counter.done(claim("w2", 110), String::new(), 0);
}

#[test]
fn a_claims_text_names_the_counter_the_range_and_the_write() {
    let mut counter = counter(0);
    assert_eq!(step(&mut counter, &stored(101, "w0"), 0, "w1"), writes("w1", 101));
    let text = counter.text(&claim("w1", 101), "host-b");
    let range = NumberRange { from: 101, to: 111 };
    assert_eq!(CounterKey::parse(&text), Ok(CounterKey::new("c", range, "w1", "host-b")));
    assert_eq!(CounterKey::identity_in(&text), Ok(String::from("c")));
}

#[test]
fn an_unanswered_write_counts_only_in_its_own_generation() {
    let tried = || {
        let mut counter = counter(0);
        assert!(step(&mut counter, &stored(101, "w0"), 0, "w1").is_ok());
        counter
    };
    let found = stored(111, "w1");
    let ours = Step::Ours(NumberRange { from: 101, to: 111 });
    assert_eq!(step(&mut tried(), &found, 0, "w2"), Ok(ours));
    assert_eq!(step(&mut tried(), &found, 1, "w2"), writes("w2", 111), "a copy may have the range of w1");
    let not_done = stored(101, "w0");
    assert_eq!(step(&mut tried(), &not_done, 0, "w2"), writes("w2", 101));
    let by_another = stored(121, "x1");
    assert_eq!(step(&mut tried(), &by_another, 0, "w2"), writes("w2", 121), "the range of w1 is abandoned");
}

#[test]
fn a_counter_that_is_gone_or_went_back_is_never_made_again() {
    let gone = counter(0).step(None, 10, 0, || String::from("w1"));
    assert_eq!(gone, Err(CounterLoss::Gone));
    let mut with_state = counter(101);
    let back = stored(100, "w0");
    assert_eq!(step(&mut with_state, &back, 0, "w1"), Ok(Step::Verify), "the answer may be old");
    assert_eq!(with_state.went_back(&back), CounterLoss::WentBack(100, 101));
    let mut running = counter(0);
    assert!(step(&mut running, &stored(101, "w0"), 0, "w1").is_ok());
    running.done(claim("w1", 101), String::new(), 0);
    assert_eq!(running.check(Some(&stored(110, "w0"))), Ok(None), "the key is below the last range");
    let again = CounterKey::new("d", NumberRange { from: 500, to: 500 }, "w9", "nobody").text();
    assert_eq!(running.check(Some(&again)), Err(CounterLoss::Replaced), "even if its next number is higher");
    let garbage = String::from("{}");
    assert!(matches!(running.check(Some(&garbage)), Err(CounterLoss::Unreadable(_))));
}

/// The daemon's own record stays unchanged, so an operator can correct the key.
#[test]
fn no_range_is_taken_from_a_counter_that_leaps() {
    let key = |from, to| CounterKey::new("c", NumberRange { from, to }, "w0", "host-b (process 9)").text();
    let mut counter = counter(101);
    for (from, to) in [(101, (1 << 63) - 1), (101, 101 + RANGE_IDS_MAX + 1), (201, 200), (u64::MAX, u64::MAX)]
    {
        let refused = step(&mut counter, &key(from, to), 0, "w1").unwrap_err();
        assert!(refused.is_of_others(), "{from}..{to}: {refused}");
        let text = refused.to_string();
        assert!(text.contains(&to.to_string()) && text.contains("host-b (process 9)"), "{text}");
    }
    for (from, to) in [(101, 101 + RANGE_IDS_MAX), (1 << 62, 1 << 62), (1 << 63, 1 << 63)] {
        assert!(
            step(&mut counter, &key(from, to), 0, "w1").is_ok(),
            "{from}..{to}: an operator may raise the key"
        );
    }
    let found = stored(101, "w0");
    assert_eq!(step(&mut counter, &found, 0, "w1"), writes("w1", 101));
}

/// The counters differ in increment, offset and maximum.
#[test]
fn a_range_counts_numbers_and_ends_at_the_maximum() {
    let counter = |(increment, offset, maximum)| {
        let numbering = TicketCounter::new("orders", increment, offset).unwrap();
        Counter::new(numbering.up_to(maximum).unwrap().into(), 0)
    };
    let last = (1 << 63) - 1;
    for (of, next, to) in [
        ((2, 2, last), 101, 122),
        ((1, 1, last), last - 2, last + 1),
        ((1, 1, 105), 101, 106),
        ((10, 3, 105), 101, 106),
    ] {
        let taken = step(&mut counter(of), &stored(next, "w0"), 0, "w1");
        let range = NumberRange { from: next, to };
        assert!(matches!(&taken, Ok(Step::Write(claim)) if claim.range == range), "{of:?}: {taken:?}");
    }
    // Another daemon's source with a higher maximum may have taken these numbers.
    for (of, next) in [
        ((1, 1, last), last + 1),
        ((1, 1, 105), 106),
        ((1, 1, 105), 107),
        ((1, 1, 105), 1 << 62),
        ((10, 3, 105), 104),
    ] {
        let none = Step::Ours(NumberRange { from: next, to: next });
        assert_eq!(step(&mut counter(of), &stored(next, "w0"), 0, "w1"), Ok(none), "nothing is written");
    }
    let leap = CounterKey::new("c", NumberRange { from: 101, to: 1 << 62 }, "w0", "nobody").text();
    assert!(matches!(step(&mut counter((1, 1, 105)), &leap, 0, "w2"), Err(CounterLoss::Leaps(_))));
}

/// Takes a range that begins at `from`, in this generation, where the key has the value `found`.
/// Returns the value that the key has then.
fn take(counter: &mut Counter, found: &String, from: u64, generation: u64) -> String {
    let write = format!("w{from}");
    assert_eq!(step(counter, found, generation, &write), writes(&write, from));
    let claim = claim(&write, from);
    let text = counter.text(&claim, "host-a");
    counter.done(claim, text.clone(), generation);
    text
}

#[test]
fn only_unused_ranges_of_the_present_generation_go_back() {
    let back = |counter: &Counter, next, generation| {
        let (expected, text) = counter.give_back(Rest { source: 0, next, generation }, "back", "host-a")?;
        let [expected, text] = [expected, text].map(|text| CounterKey::parse(&text).unwrap());
        assert_eq!((text.from, &text.write[..]), (text.next, "back"));
        Some((expected.write, text.next))
    };
    let last = |write: &str, next| Some((write.to_owned(), next));
    let mut counter = counter(0);
    assert_eq!(back(&counter, 1, 0), None, "the daemon has no range");
    let first = take(&mut counter, &stored(101, "w0"), 101, 0);
    assert_eq!(back(&counter, 104, 0), last("w101", 104));
    assert_eq!(back(&counter, 1, 0), last("w101", 101), "numbers below are not this daemon's");
    assert_eq!((back(&counter, 111, 0), back(&counter, 104, 1)), (None, None));
    let mut after_another = counter.clone();
    take(&mut after_another, &stored(111, "w0"), 111, 0);
    assert_eq!(back(&after_another, 104, 0), last("w111", 111), "another daemon gave a whole range back");
    let second = take(&mut counter, &first, 111, 0);
    assert_eq!(back(&counter, 104, 0), last("w111", 104), "both ranges, between which nobody wrote");
    take(&mut counter, &second, 121, 1);
    assert_eq!(back(&counter, 104, 1), last("w121", 121), "another copy may use the two before");
    take(&mut counter, &stored(201, "w0"), 201, 1);
    assert_eq!(back(&counter, 104, 1), last("w201", 201), "another daemon has the numbers in between");
}
