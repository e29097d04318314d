//! Loom models: every interleaving of threads that draw numbers while the source moves from one
//! range to the next.
//!
//! Run with `RUSTFLAGS="--cfg snowbank_loom"` and `cargo test --release --package snowbank-core
//! --lib models`.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::clock::{BootMicros, Now};
use crate::grant::Grant;
use crate::source::Rules;
use crate::sync::check_model;
use snowbank_id::layout::UnixMicros;
use snowbank_id::numbering::TicketCounter;

const NOW: Now = Now { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(0), jumped: false };

/// The first numbers of three ranges of two numbers each. Other daemons have the numbers in
/// between.
const RANGES: [u64; 3] = [10, 20, 30];

fn range(index: usize, generation: u64) -> Range {
    Range { from: Position(RANGES[index]), to: Position(RANGES[index] + 2), generation }
}

/// Returns a shared counter in the first of its ranges.
fn source() -> Arc<Source> {
    let counter = TicketCounter::new("orders", 1, 1).expect("a counter");
    let name = String::from("orders");
    let grant = Grant::new(Position(0));
    let source = Source::new(name, counter.into(), Rules::TICKETS, grant, Position(0), NOW);
    let source = source.with_shared_counter();
    source.add_range(range(0, 0));
    Arc::new(source)
}

/// Draws consecutive numbers, as the wait queue does: from the present range, or else from the next
/// one. Returns the first number and the generation.
fn draw(source: &Source, count: u64) -> Option<(u64, u64)> {
    let claim = || {
        let (window, generation) = source.window_and_generation(NOW);
        let from = source.claim(&window, count, &mut fastrand::Rng::with_seed(1))?;
        Some((from.0, generation))
    };
    claim().or_else(|| source.use_next_range(count).then(claim)?)
}

/// Starts a thread that draws numbers with requests of these sizes. The thread returns all numbers
/// that it drew, each with its generation.
fn drawer(source: &Arc<Source>, requests: &'static [u64]) -> thread::JoinHandle<Vec<(u64, u64)>> {
    let source = Arc::clone(source);
    thread::spawn(move || {
        let mut numbers = Vec::new();
        for &count in requests {
            if let Some((from, generation)) = draw(&source, count) {
                numbers.extend((from..from + count).map(|number| (number, generation)));
            }
        }
        numbers
    })
}

/// Checks that each number is from these ranges and occurs once. Returns how many numbers there
/// are.
#[track_caller]
fn assert_own(mut numbers: Vec<(u64, u64)>, ranges: &[usize]) -> usize {
    for (number, _) in &numbers {
        let is_own = ranges.iter().any(|&at| (RANGES[at]..RANGES[at] + 2).contains(number));
        assert!(is_own, "outside the ranges: {numbers:?}");
    }
    let drawn = numbers.len();
    numbers.sort_unstable();
    numbers.dedup_by_key(|(number, _)| *number);
    assert_eq!(numbers.len(), drawn, "a number was drawn twice: {numbers:?}");
    drawn
}

#[test]
fn drawn_numbers_are_distinct_and_within_the_ranges() {
    check_model(|| {
        let source = source();
        let drawers = [drawer(&source, &[1, 1]), drawer(&source, &[1, 2])];
        source.add_range(range(1, 0));
        let mut numbers: Vec<_> = drawers.into_iter().flat_map(|one| one.join().expect("no panic")).collect();
        while let Some(more) = draw(&source, 1) {
            numbers.push(more);
        }
        // A request for two numbers skips a single number at the end of a range.
        assert!(assert_own(numbers, &[0, 1]) >= 3);
    });
}

/// The second range was asked for before the loss of the grant, the third one after the loss.
#[test]
fn a_range_asked_for_before_a_loss_is_not_used_after_it() {
    check_model(|| {
        let source = source();
        source.add_range(range(1, 0));
        let drawer = drawer(&source, &[2, 2]);
        source.grant().revoke();
        assert_eq!(draw(&source, 1), None, "the grant is still lost");
        source.add_range(range(1, 0));
        assert_eq!(draw(&source, 1), None, "the range was asked for before the loss");
        source.add_range(range(2, 1));
        let mut numbers = drawer.join().expect("no panic");
        while let Some(more) = draw(&source, 1) {
            numbers.push(more);
        }
        // A shard drops numbers that it claimed under an earlier generation.
        numbers.retain(|&(_, generation)| generation == 1);
        assert_own(numbers, &[2]);
    });
}
