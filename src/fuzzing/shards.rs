//! Fuzzing of shards of one source: requests, ticks, clock steps, late readings and losses of the
//! grant in any order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Choices;
use crate::ceiling::Grant;
use crate::clock::{BootMicros, Now};
use crate::numbering::Numbering;
use crate::shard::{Lane, Order, Ring, Rings, Shard, Taken};
use crate::source::wait_queue::{Finished, WaitId, WaitRequest};
use crate::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Layout, Position, Run, Tick, UnixMicros, WorkerSet};

/// 2027-01-15, a start of a tick.
const START: Now =
    Now { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(500_000_000), jumped: false };

/// Scarce and plenty, groups of one worker and of several, long ticks, a life that ends 3 ms after
/// the start.
const LAYOUTS: [(&str, &str); 5] = [
    ("twitter", "0"),
    ("time:41,sequence:=10,worker:5", "0,2,3"),
    ("time:41,worker:5,sequence:=10", "0,7"),
    ("time:31,worker:2,sequence:20;tick=1s", "1"),
    ("time:=1800000000003,worker:2,sequence:=100", "0"),
];

const CONNECTIONS: usize = 4;
const STEPS_MAX: usize = 2_000;

/// Runs one event for each choice, and checks the promises.
///
/// No position is handed out twice, at or above a ceiling, or after the grant of its claim was
/// lost. Each connection's IDs increase, and in strict order the whole daemon's.
pub fn shards(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut daemon = Daemon::new(&mut choices);
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            return;
        }
        daemon.step(&mut choices);
    }
}

/// One client, which sends its next request when it has its answer.
#[derive(Default)]
struct Connection {
    waiting: Option<Waiting>,
    last_id: Option<u64>,
}

struct Waiting {
    id: WaitId,
    taken: Taken,
    count: u64,
    partial: bool,
    /// The highest ID of all connections when the request was sent.
    above: Option<u64>,
}

struct Daemon {
    numbering: Numbering,
    source: Arc<Source>,
    order: Order,
    shards: Vec<Shard>,
    connections: [Connection; CONNECTIONS],
    now: Now,
    rng: fastrand::Rng,
    /// The ranges of positions handed out: from the first position to the end.
    handed_out: BTreeMap<u64, u64>,
    highest_id: Option<u64>,
    highest_ceiling: Position,
    /// The cursor when the grant was lost.
    lost_below: Position,
}

impl Daemon {
    fn new(choices: &mut Choices<'_>) -> Self {
        let (layout, workers) = choices.pick(&LAYOUTS);
        let layout = Layout::resolve(layout).expect("a layout");
        let workers: WorkerSet = workers.parse().expect("worker IDs");
        let numbering = Numbering::new(layout, workers).expect("they exist");
        let rules = Rules {
            burst_window: Duration::from_millis(choices.pick(&[10, 0, 3, 1_000])),
            max_ahead: Duration::from_secs(10),
            on_step_back: choices.pick(&[OnStepBack::Ride, OnStepBack::Wait]),
            sequence_start: choices.pick(&[SequenceStart::Spread, SequenceStart::Zero]),
        };
        let order = choices.pick(&[Order::Relaxed, Order::Strict]);
        let ahead = Duration::from_secs(choices.below(4));
        let start = numbering.first_of(numbering.tick_at(START.after(ahead).wall));
        let highest_ceiling = ceiling_after(&numbering, START, ahead + Duration::from_millis(50));
        let grant = Grant::new(highest_ceiling);
        let source =
            Arc::new(Source::new(String::from("fuzz"), numbering.clone(), rules, grant, start, START));
        let count = 1 + choices.below(3) as usize;
        let rings: Rings = (0..count).map(|_| Ring::default()).collect();
        let shard = |index| {
            let lane = Lane::new(Arc::clone(&source), Arc::clone(&rings), index, order, START);
            Shard::new(index, vec![lane], index as u64, START)
        };
        let shards = (0..count).map(shard).collect();
        Daemon {
            numbering,
            order,
            shards,
            connections: Default::default(),
            now: START,
            rng: fastrand::Rng::with_seed(1),
            handed_out: BTreeMap::new(),
            highest_id: None,
            highest_ceiling,
            lost_below: Position(0),
            source,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 16 {
            0..6 => self.wake_up(choices),
            6..9 => self.now = self.now.after(Duration::from_micros(choices.below(3_000))),
            9..11 => self.advance(),
            11 => self.raise(choices),
            12 => self.step_clock(choices),
            13 => self.cancel(choices),
            14 => self.lose_grant(choices),
            _ => match choices.byte() {
                // Rare, because nothing happens after it.
                0xff => _ = self.source.seal(),
                _ => self.now = self.now.after(Duration::from_millis(choices.below(20_000))),
            },
        }
    }

    /// Runs one wake-up of a shard, with a reading of now or of a moment ago and a few requests of
    /// its connections.
    fn wake_up(&mut self, choices: &mut Choices<'_>) {
        let shard = choices.below(self.shards.len() as u64) as usize;
        let late = Duration::from_micros(choices.pick(&[0, 0, 0, 400, 5_000]));
        let late_us = late.as_micros() as i64;
        let now = Now {
            wall: UnixMicros(self.now.wall.0 - late_us),
            boot: BootMicros(self.now.boot.0 - late_us),
            jumped: choices.byte() == 0xff,
        };
        self.shards[shard].wake(now);
        for _ in 0..=choices.below(4) {
            // Each connection stays on its shard.
            let connection =
                choices.below(CONNECTIONS as u64) as usize / self.shards.len() * self.shards.len() + shard;
            if connection < CONNECTIONS && self.connections[connection].waiting.is_none() {
                self.ask(shard, connection, now, choices);
            }
        }
        self.shards[shard].top_up();
    }

    fn ask(&mut self, shard: usize, connection: usize, now: Now, choices: &mut Choices<'_>) {
        let count = match choices.byte() % 4 {
            0 => 1,
            1 => 1 + choices.below(16),
            2 => 1 + choices.below(300),
            // Up to more than the default burst window holds.
            _ => 1 + choices.below(16 * self.numbering.ids_per_tick()),
        };
        let ahead = choices.below(8);
        let partial = choices.bool();
        let above = self.highest_id;
        let mut runs = Vec::new();
        let (lane, rng) = self.shards[shard].lane(0);
        let missing = match lane.take(count, || ahead, rng, &mut runs) {
            Ok(()) => 0,
            Err(missing) => missing,
        };
        assert_eq!(ids(&runs) + missing, count);
        if missing == 0 {
            return self.hand_out(connection, &runs, above);
        }
        let due = now.boot.after(Duration::from_millis(choices.below(256)));
        let request = WaitRequest { count: missing, due, partial, shard };
        let window = lane.window();
        match lane.source().admit(&window, request) {
            Ok(id) => {
                let taken = lane.keep(runs);
                self.connections[connection].waiting = Some(Waiting { id, taken, count, partial, above });
            }
            Err(_) if partial && !runs.is_empty() => self.hand_out(connection, &runs, above),
            Err(_) => {}
        }
    }

    fn advance(&mut self) {
        self.source.advance(self.now, &mut self.rng, &());
        for shard in 0..self.shards.len() {
            for finished in self.source.collect(shard) {
                self.finish(shard, &finished);
            }
        }
    }

    fn finish(&mut self, shard: usize, finished: &Finished) {
        let is_its = |connection: &Connection| {
            connection.waiting.as_ref().is_some_and(|waiting| waiting.id == finished.id)
        };
        let connection = self.connections.iter().position(is_its).expect("a connection waits for it");
        let Some(waiting) = self.connections[connection].waiting.take() else {
            return;
        };
        let mut runs = Vec::new();
        let ended = self.shards[shard].lane(0).0.end_wait(waiting.taken, finished, &mut runs);
        let Ok(refusal) = ended else { return assert_eq!(runs, []) };
        let found = ids(&runs);
        let is_answered = refusal.is_none() || waiting.partial && found > 0;
        assert!(!is_answered || found == waiting.count || waiting.partial && found > 0);
        if is_answered {
            self.hand_out(connection, &runs, waiting.above);
        }
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        let connection = choices.below(CONNECTIONS as u64) as usize;
        if let Some(waiting) = self.connections[connection].waiting.take() {
            self.source.cancel(waiting.id);
        }
    }

    fn raise(&mut self, choices: &mut Choices<'_>) {
        let ceiling = ceiling_after(&self.numbering, self.now, Duration::from_millis(choices.below(4_000)));
        self.highest_ceiling = self.highest_ceiling.max(ceiling);
        self.source.grant().raise(ceiling);
    }

    /// Loses the grant. IDs claimed before must not be handed out after, also to waiting requests.
    fn lose_grant(&mut self, choices: &mut Choices<'_>) {
        if choices.below(4) == 0 {
            self.source.grant().revoke();
            self.lost_below = self.source.cursor().unwrap_or(self.lost_below);
        }
    }

    fn step_clock(&mut self, choices: &mut Choices<'_>) {
        let size_ms = choices.pick(&[1, 5, 1_000, 9_000, 60_000, 3_600_000]);
        let sign = if choices.bool() { 1 } else { -1 };
        self.now.wall = UnixMicros(self.now.wall.0 + sign * size_ms * 1_000);
    }

    fn hand_out(&mut self, connection: usize, runs: &[Run], above: Option<u64>) {
        if self.order == Order::Strict {
            assert!(above < runs.first().map(|run| run.first), "{runs:?} after {above:?} was handed out");
        }
        for run in runs {
            let last_id = &mut self.connections[connection].last_id;
            assert!(*last_id < Some(run.first), "{run:?} after {last_id:?} on one connection");
            *last_id = Some(run.last());
            self.highest_id = self.highest_id.max(*last_id);

            let position = |id| self.numbering.position_of(id).expect("an ID of the layout").0;
            let from = position(run.first);
            let end = position(run.last()) + 1;
            assert_eq!(end - from, u64::from(run.count), "{run:?} is consecutive");
            assert!(end <= self.highest_ceiling.0, "{run:?} is above every ceiling");
            assert!(from >= self.lost_below.0, "{run:?} is of a grant that was lost");
            let before = self.handed_out.range(..end).next_back();
            assert!(before.is_none_or(|(_, &end)| end <= from), "{run:?} again, after {before:?}");
            self.handed_out.insert(from, end);
        }
    }
}

fn ids(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

fn ceiling_after(numbering: &Numbering, now: Now, duration: Duration) -> Position {
    numbering.first_of(Tick(numbering.tick_at(now.after(duration).wall).0 + 1))
}
