//! Tests daemons that share a ticket counter. Their rules, keeper and source are the real ones;
//! only the coordinator is fake. The coordinator loses answers, returns old values and does writes
//! late or twice. Daemons crash, or stop and give the rest of their ranges back. Copies of a daemon's
//! memory are resumed beside the daemon.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use snowbank_core::clock::{BootMicros, Reading, Remembered, StepRule, Wall};
use snowbank_core::grant::{CeilingRule, Grant};
use snowbank_core::keeper::{Keeper, ManagedSource, Outcome, Reach, WantedRange, Write};
use snowbank_core::source::wait_queue::{Refusal, WaitRequest};
use snowbank_core::source::{Bound, Rules, Source};
use snowbank_fleet::{
    Clocks, Coordinator, CounterKey, FleetError, FleetLimits, Member, Names, NoAnswer, Notes, NumberRange,
    Rest, Swap, Swapped,
};
use snowbank_id::layout::{Position, UnixMicros};
use snowbank_id::numbering::{LAST_ID, Numbering, TicketCounter};

const NAMES: Names<'_> = Names { fleet: "f", state: "state", holder: "holder" };
const KEY: &str = "/snowbank/f/ticket-orders";
const HORIZON: Duration = Duration::from_secs(300);
const START: Reading = Reading { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(500_000_000) };

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// A read returns the value that was there before the last write.
    OldRead,
    /// A write is done, but its answer is lost.
    LostDone,
    /// A write is not done.
    Lost,
    /// A write is done later, at [`Event::LateWrite`], and its answer is lost.
    Late,
    /// A write is done, and done again later, at [`Event::LateWrite`].
    Doubled,
    /// The coordinator is out of reach.
    Away,
}

#[derive(Default)]
struct Keys {
    values: Vec<String>,
    late: Vec<Swap>,
    fault: Fault,
}

impl Keys {
    fn newest(&self) -> Option<String> {
        self.values.last().cloned()
    }

    fn swap(&mut self, swap: Swap) -> Swapped {
        let newest = self.newest();
        if newest != swap.expected {
            return Swapped::Refused(vec![newest]);
        }
        self.values.extend(swap.text);
        Swapped::Done
    }
}

#[derive(Clone, Default)]
struct Store(Arc<Mutex<Keys>>);

impl Store {
    fn at(next: u64) -> Store {
        let store = Store::default();
        let text = CounterKey::new("counter", NumberRange { from: next, to: next }, "first", "nobody").text();
        store.0.lock().unwrap().values.push(text);
        store
    }

    fn fault(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }
}

impl AsMut<dyn Coordinator> for Store {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Store {
    fn now(&self) -> BootMicros {
        BootMicros(0)
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        assert_eq!(keys, [KEY]);
        let keys = self.0.lock().unwrap();
        let old = keys.values.iter().rev().nth(1).cloned();
        match keys.fault {
            Fault::Away => Err(NoAnswer::passing("away")),
            Fault::OldRead if old.is_some() => Ok(vec![old]),
            _ => Ok(vec![keys.newest()]),
        }
    }

    fn list(&mut self, _: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        unreachable!("no numbers are listed")
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut keys = self.0.lock().unwrap();
        let swap = swaps[0].clone();
        match keys.fault {
            Fault::None | Fault::OldRead => return Ok(keys.swap(swap)),
            Fault::LostDone => _ = keys.swap(swap),
            Fault::Doubled => {
                keys.late.push(swap.clone());
                return Ok(keys.swap(swap));
            }
            Fault::Late => keys.late.push(swap),
            Fault::Lost | Fault::Away => {}
        }
        Err(NoAnswer::passing("no answer"))
    }
}

/// A range that the keeper wanted, and the range that the coordinator gave.
type Answer = (WantedRange, Option<NumberRange>);

fn counter(increment: u64, offset: u64) -> TicketCounter {
    TicketCounter::new("orders", increment, offset).unwrap()
}

/// A daemon of the fleet.
struct Daemon {
    member: Member<Store>,
    keeper: Keeper,
    source: Arc<Source>,
    wall: Arc<Wall>,
    /// The answer that has not reached the keeper yet.
    answer: Option<Answer>,
    /// The numbers that the daemon handed out, in order.
    numbers: Vec<u64>,
}

impl Daemon {
    /// Starts a daemon without a state.
    fn start(store: &Store, counter: TicketCounter) -> Daemon {
        Daemon::above(0, store, counter)
    }

    /// Starts a daemon whose state says that all numbers below `floor` may have been handed out.
    fn above(floor: u64, store: &Store, counter: TicketCounter) -> Daemon {
        let new_identity = || fastrand::u64(..).to_string();
        let mut member =
            Member::new(store.clone(), NAMES, FleetLimits::default(), Notes::default(), new_identity);
        let numbering = Numbering::from(counter);
        member.add_counter(0, "orders", &numbering, floor);
        let grant = Grant::new(Position(0));
        let name = String::from("orders");
        let start = numbering.position_from(floor);
        let source = Source::new(name, numbering, Rules::TICKETS, grant, start, wall().believe(START));
        Daemon::of(member, source.with_shared_counter())
    }

    fn of(member: Member<Store>, source: Source) -> Daemon {
        let wall = wall();
        let source = Arc::new(source);
        let rule = CeilingRule { horizon: HORIZON, max_ahead: Duration::from_secs(10), tick: Duration::ZERO };
        // A copy starts with the durable ceiling of the daemon it was copied from.
        let start = source.cursor().unwrap().max(source.grant().ceiling());
        let managed = ManagedSource::new(Arc::clone(&source), rule, start, wall.believe(START));
        let managed = managed.reserving(1_000);
        let keeper =
            Keeper::new(vec![managed], &[Reach::Local, Reach::Fleet(HORIZON)], Arc::clone(&wall), START);
        Daemon { member, keeper, source, wall, answer: None, numbers: Vec::new() }
    }

    /// Resumes a copy of the daemon's memory beside the daemon. Both daemons notice the restore.
    fn resume_twice(&self) -> Daemon {
        let copy = self.source.as_restored(self.wall.believe(START)).expect("the daemon has numbers");
        let daemon = Daemon { answer: self.answer, ..Daemon::of(self.member.clone(), copy) };
        [&self.source, &daemon.source].into_iter().for_each(|source| source.record_restored());
        daemon
    }

    /// Stops the daemon, which gives the rest of its ranges back, and starts it again with the state
    /// that it stored before.
    fn restart(&mut self, store: &Store) {
        let Numbering::Ticket(counter) = self.source.numbering().clone() else { unreachable!() };
        let Some(cursor) = self.source.seal() else { unreachable!("a daemon stops once") };
        let next = self.source.numbering().id_bound(cursor);
        let rest = Rest { source: 0, next, generation: self.source.grant().generation() };
        let _ = self.member.give_back_ranges(&[rest], &|| true);
        self.member.leave(&[0]);
        let numbers = std::mem::take(&mut self.numbers);
        *self = Daemon { numbers, ..Daemon::above(next, store, counter) };
    }

    /// Polls the keeper, and takes the ranges that the keeper wants. The keeper's writes are
    /// durable at once.
    fn ask(&mut self, reading: Reading) {
        let polled = self.keeper.poll(reading);
        for Write { writer, number, .. } in polled.writes {
            let outcome = Outcome { writer, number, failure: None };
            self.keeper.written(outcome, self.wall.believe(reading), |_, _| {});
        }
        for wanted in polled.ranges {
            let taken = self.member.take_range(wanted.source, wanted.count, wanted.generation);
            let range = match taken {
                Ok(range) => Some(range),
                Err(FleetError::NoAnswer(_)) => None,
                Err(loss) => panic!("{loss}"),
            };
            self.answer = Some((wanted, range));
        }
    }

    fn hear(&mut self, reading: Reading) {
        if let Some((wanted, range)) = self.answer.take() {
            self.keeper.ranged(wanted, range, self.wall.believe(reading));
        }
    }

    /// Serves a request that must not wait. Returns the request's numbers, or none if the daemon
    /// has too few.
    fn serve(&mut self, count: u64, reading: Reading) -> Vec<u64> {
        let now = self.wall.believe(reading);
        let mut rng = fastrand::Rng::with_seed(1);
        let window = self.source.window(now);
        let claimed = self.source.claim(&window, count, &mut rng);
        let from = claimed.or_else(|| {
            let request =
                WaitRequest { count, due: now.boot, wait: Duration::ZERO, partial: false, shard: 0 };
            self.source.admit(&window, request).ok()?;
            self.source.advance(now, &mut rng);
            let finished = self.source.collect(0).pop()?;
            assert!(finished.spans.len() <= 1, "the numbers are consecutive");
            finished.spans.first().map(|span| span.from)
        });
        let Some(Position(from)) = from else { return Vec::new() };
        let numbers = (from..from + count).map(|at| self.source.numbering().id_at(Position(at)));
        let numbers: Vec<u64> = numbers.collect();
        self.numbers.extend(&numbers);
        numbers
    }

    /// Checks that the daemon serves new numbers, within ten seconds.
    fn assert_serves(&mut self, reading: &mut Reading, all: &mut HashSet<u64>) {
        let mut served = 0;
        for _ in 0..20 {
            *reading = later(*reading, 500_000);
            self.hear(*reading);
            self.ask(*reading);
            self.hear(*reading);
            let numbers = self.serve(1_000, *reading);
            served += numbers.len();
            assert!(self.numbers.is_sorted() && numbers.into_iter().all(|number| all.insert(number)));
        }
        assert!(served >= 10_000, "{served}");
    }
}

fn wall() -> Arc<Wall> {
    let rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
    Arc::new(Wall::new(rule, START, Remembered::Nothing))
}

fn later(reading: Reading, us: i64) -> Reading {
    Reading { wall: UnixMicros(reading.wall.0 + us), boot: BootMicros(reading.boot.0 + us) }
}

/// Something that happens to a daemon.
#[derive(Clone, Copy, Debug)]
enum Event {
    Serve(u64),
    Ask(Fault),
    Hear,
    /// The daemon is killed, and starts without a state.
    Crash,
    /// The daemon stops, and starts with its state. A write that gives its range back has this fault.
    Restart(Fault),
    ResumeTwice,
    /// The last delayed write is done.
    LateWrite,
    Wait(i64),
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let fault = prop_oneof![
        4 => Just(Fault::None),
        1 => Just(Fault::OldRead),
        1 => Just(Fault::LostDone),
        1 => Just(Fault::Lost),
        1 => Just(Fault::Late),
        1 => Just(Fault::Doubled),
        1 => Just(Fault::Away),
    ];
    let fault = fault.boxed();
    let event = prop_oneof![
        6 => (1_u64..1_500).prop_map(Event::Serve),
        6 => fault.clone().prop_map(Event::Ask),
        3 => fault.prop_map(Event::Restart),
        5 => Just(Event::Hear),
        1 => Just(Event::Crash),
        1 => Just(Event::ResumeTwice),
        2 => Just(Event::LateWrite),
        2 => (1_i64..1_500).prop_map(Event::Wait),
    ];
    prop::collection::vec((0_usize..4, event), 1..120)
}

proptest! {
    #[test]
    fn no_number_comes_twice_and_each_daemons_numbers_rise(
        events in events(),
        counters in prop::sample::select(vec![[[1, 1], [1, 1]], [[2, 1], [2, 1]], [[1, 1], [3, 2]]]),
        first in 1_u64..5_000,
    ) {
        let store = Store::at(first);
        let mut daemons = Vec::from(counters.map(|[increment, offset]| Daemon::start(&store, counter(increment, offset))));
        let mut all = HashSet::new();
        let mut reading = START;
        for (at, event) in events {
            let at = at % daemons.len();
            let count = daemons.len();
            let daemon = &mut daemons[at];
            match event {
                Event::Serve(count) => {
                    for number in daemon.serve(count, reading) {
                        prop_assert!(number >= first && all.insert(number), "{number} is below the first number, or comes twice");
                    }
                }
                Event::Ask(fault) => {
                    store.fault(fault);
                    daemon.ask(reading);
                    store.fault(Fault::None);
                }
                Event::Hear => daemon.hear(reading),
                Event::Crash => {
                    let Numbering::Ticket(counter) = daemon.source.numbering() else { unreachable!() };
                    let restarted = Daemon::start(&store, counter.clone());
                    *daemon = Daemon { numbers: std::mem::take(&mut daemon.numbers), ..restarted };
                }
                Event::Restart(fault) => {
                    store.fault(fault);
                    daemon.restart(&store);
                    store.fault(Fault::None);
                }
                Event::ResumeTwice if count < 4 => {
                    let copy = daemon.resume_twice();
                    daemons.push(copy);
                }
                Event::ResumeTwice => {}
                Event::LateWrite => {
                    let mut keys = store.0.lock().unwrap();
                    if let Some(swap) = keys.late.pop() {
                        keys.swap(swap);
                    }
                }
                Event::Wait(ms) => reading = later(reading, ms * 1_000),
            }
            for daemon in &daemons {
                prop_assert!(daemon.numbers.is_sorted(), "a daemon's numbers rise");
            }
        }
        // Once the coordinator answers, each daemon has numbers again.
        for daemon in &mut daemons {
            daemon.assert_serves(&mut reading, &mut all);
        }
    }
}

#[test]
fn a_daemon_serves_its_range_after_the_counter_has_ended() {
    let store = Store::at(LAST_ID - 2_000);
    let mut daemons = [(); 2].map(|()| Daemon::start(&store, counter(1, 1)));
    for daemon in &mut daemons {
        daemon.ask(START);
        daemon.hear(START);
        assert_eq!(daemon.serve(500, START).len(), 500);
    }
    // The first daemon takes the last number.
    daemons[0].ask(START);
    daemons[0].hear(START);
    let writes = store.0.lock().unwrap().values.len();
    let last = &mut daemons[1];
    for second in 0..100_i64 {
        let reading = later(START, second * 1_000_000);
        last.ask(reading);
        assert_eq!(last.answer.is_some(), second % 10 == 0, "the daemon asks each ten seconds");
        last.hear(reading);
    }
    assert_eq!(store.0.lock().unwrap().values.len(), writes, "nothing is written");
    assert_eq!((last.source.left_of_counter(), last.serve(500, START).len()), (500, 500));
    let window = last.source.window(last.wall.believe(START));
    let request = WaitRequest { count: 1, due: START.boot, wait: Duration::ZERO, partial: false, shard: 0 };
    assert_eq!((last.source.left_of_counter(), window.bound), (0, Bound::Ended));
    assert_eq!(last.source.admit(&window, request).err(), Some(Refusal::CounterEnded));
}

#[test]
fn a_daemon_alone_skips_no_number_between_ranges() {
    let mut daemon = Daemon::start(&Store::at(1), counter(1, 1));
    for _ in 0..200 {
        daemon.ask(START);
        daemon.hear(START);
        assert_eq!(daemon.serve(50, START).len(), 50);
    }
    assert!(daemon.numbers.iter().copied().eq(1..=10_000));
}

/// Asks for a range, and hears the answer.
fn take_a_range(daemon: &mut Daemon) {
    daemon.ask(START);
    daemon.hear(START);
}

#[test]
fn clean_restarts_skip_no_number_of_the_last_range() {
    let store = Store::at(1);
    let mut daemon = Daemon::start(&store, counter(1, 1));
    for count in [3, 1, 32, 500, 1, 0, 7, 0, 1] {
        for _ in 0..2 {
            take_a_range(&mut daemon);
        }
        assert_eq!(daemon.serve(count, START).len() as u64, count);
        store.fault(Fault::Doubled);
        daemon.restart(&store);
        store.fault(Fault::None);
        let late = std::mem::take(&mut store.0.lock().unwrap().late);
        late.into_iter().for_each(|swap| drop(store.0.lock().unwrap().swap(swap)));
    }
    assert!(daemon.numbers.iter().copied().eq(1..=545), "{:?}", daemon.numbers);
}

/// A daemon gives its whole range back, and its state says that all numbers below were handed out.
/// Another daemon has numbers below, and takes the same range next.
#[test]
fn a_daemon_gives_back_no_number_below_the_state_of_another() {
    let store = Store::at(1);
    let mut daemons = [(); 2].map(|()| Daemon::start(&store, counter(1, 1)));
    take_a_range(&mut daemons[1]);
    take_a_range(&mut daemons[0]);
    assert_eq!(daemons[1].serve(375, START).len(), 375);
    daemons[0].restart(&store);
    take_a_range(&mut daemons[1]);
    daemons[1].restart(&store);
    take_a_range(&mut daemons[0]);
    assert_eq!(daemons[0].serve(1, START), [1_001]);
}

/// As after a reload that removes the source, whether or not its rest was given back.
#[test]
fn a_removed_counter_gives_back_no_number_that_was_handed_out() {
    let store = Store::at(1);
    let mut daemon = Daemon::start(&store, counter(1, 1));
    let all = daemon.member.take_range(0, 10, 0).unwrap();
    assert_eq!((all.from, all.to), (1, 11));
    daemon.member.leave(&[0]);
    let next = Daemon::start(&store, counter(1, 1)).member.take_range(0, 1, 0).unwrap();
    assert_eq!(next.from, 11);

    // Another copy of the machine's memory may use the rest. It is noticed right before the write.
    let mut daemon = Daemon::start(&store, counter(1, 1));
    daemon.member.take_range(0, 10, 0).unwrap();
    let rest = Rest { source: 0, next: 15, generation: 0 };
    daemon.member.give_back_ranges(&[rest], &|| false).unwrap_err();
    let next = Daemon::start(&store, counter(1, 1)).member.take_range(0, 1, 0).unwrap();
    assert_eq!(next.from, 22);

    // A daemon that goes on is not lost, although the key has a lower number than it had taken.
    let mut daemon = Daemon::start(&store, counter(1, 1));
    daemon.member.take_range(0, 10, 0).unwrap();
    daemon.member.give_back_ranges(&[Rest { source: 0, next: 25, generation: 0 }], &|| true).unwrap();
    assert_eq!(daemon.member.check(Clocks::at(START.wall, START)), Ok(()));
    let next = Daemon::start(&store, counter(1, 1)).member.take_range(0, 1, 0).unwrap();
    assert_eq!(next.from, 25);
}

/// The write of a daemon that stopped is done after another daemon took and gave back a range, so
/// that the counter has the same number again.
#[test]
fn a_late_give_back_lowers_nothing_that_another_daemon_took() {
    let store = Store::at(1);
    let mut daemons = [(); 2].map(|()| Daemon::start(&store, counter(1, 1)));
    take_a_range(&mut daemons[0]);
    assert_eq!(daemons[0].serve(3, START), [1, 2, 3]);
    store.fault(Fault::Late);
    daemons[0].restart(&store);
    store.fault(Fault::None);
    let next = |store: &Store| CounterKey::parse(&store.0.lock().unwrap().newest().unwrap()).unwrap().next;
    let before = next(&store);
    take_a_range(&mut daemons[1]);
    assert_eq!(daemons[1].serve(2, START), [before, before + 1]);
    daemons[1].restart(&store);
    assert_eq!(next(&store), before + 2, "the rest of the other daemon's range went back");
    let late = store.0.lock().unwrap().late.pop().expect("the late write");
    store.0.lock().unwrap().swap(late);
    assert_eq!(next(&store), before + 2);
    take_a_range(&mut daemons[0]);
    assert_eq!(daemons[0].serve(1, START), [before + 2]);
}
