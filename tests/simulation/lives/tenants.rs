//! Tenants of one source who together request more than it yields. Greedy tenants always wait for
//! more. Large tenants are promised all that they request. Modest tenants want no more than their
//! share. Pipelining tenants send many requests at once. The shard then claims once for all
//! requests of the turn. The wake-ups at ticks are late by a random time.
//!
//! No ID is lost or handed out twice. An admitted request gets its IDs. The shares of greedy
//! tenants differ by at most one position. A request for at most a share waits for a limited number
//! of ticks, whatever the other tenants request.

use std::sync::Arc;
use std::time::Duration;

use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::grant::Grant;
use snowbank_core::shard::{Order, Shard, Taken};
use snowbank_core::source::wait_queue::{Finished, WaitId, WaitRequest};
use snowbank_core::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_id::layout::{Layout, Position, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

use super::checks::{count_of, intervals};
use super::{BURST_WINDOW, MAX_AHEAD, MS, SECOND, SHARDS, shards};

/// The length of a life. The greedy tenants' waits end with the life.
const LIFE_US: i64 = 300 * MS;
/// The most by which a wake-up is late. The burst window is longer, so no ID is lost.
const LATE_US: u64 = 3_000;

const LAYOUTS: [&str; 5] = [
    "twitter",
    "time:41,worker:5,sequence:=40",
    "time:41,worker:5,sequence:=10",
    "time:40,worker:5,sequence:=70;tick=2ms",
    "time:36,worker:5,sequence:=300;tick=10ms",
];
/// The most requests that a tenant sends at once.
const SENT_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appetite {
    /// Always waits for more than it can get.
    Greedy,
    /// Sometimes requests as many IDs as several ticks have, and accepts no fewer.
    Large,
    /// Sometimes requests no more than its share of a tick.
    Modest,
    /// Sometimes sends many modest requests at once.
    Pipelining,
}

/// A request.
struct Ask {
    count: u64,
    wait: Duration,
    /// True if the request accepts fewer IDs.
    partial: bool,
}

struct Tenant {
    appetite: Appetite,
    /// The requests that the tenant has sent and that the shard has not read yet, the last one
    /// first.
    sent: Vec<Ask>,
    waiting: Option<Waiting>,
    /// The number of positions claimed for the tenant while it waited.
    waited_for: u64,
}

struct Waiting {
    id: WaitId,
    count: u64,
    taken: Taken,
    /// The number of wake-ups since the request was admitted.
    wake_ups: usize,
    /// True if a large request waited at the same time.
    is_beside_promise: bool,
}

struct House {
    seed: u64,
    rng: fastrand::Rng,
    numbering: Numbering,
    source: Arc<Source>,
    shards: Vec<Shard>,
    tenants: Vec<Tenant>,
    now: Now,
    end: BootMicros,
    handed_out: Vec<(u64, u64)>,
}

impl House {
    fn new(seed: u64) -> House {
        let mut rng = fastrand::Rng::with_seed(seed);
        let layout = LAYOUTS[rng.usize(..LAYOUTS.len())];
        let workers: WorkerSet = ["0", "0-3"][rng.usize(..2)].parse().expect("worker IDs");
        let numbering = Numbering::new(Layout::resolve(layout).expect("a layout"), workers)
            .expect("the worker IDs exist");
        let rules = Rules {
            burst_window: BURST_WINDOW,
            max_ahead: MAX_AHEAD,
            on_step_back: OnStepBack::Ride,
            sequence_start: SequenceStart::Zero,
        };
        let wall = UnixMicros(1_800_000_000 * SECOND + rng.i64(0..SECOND));
        let now = Now { wall, boot: BootMicros(500 * SECOND), jumped: false };
        let start = numbering.first_of(numbering.tick_at(wall));
        let grant = Grant::new(numbering.end());
        let source =
            Arc::new(Source::new(String::from("shared"), numbering.clone(), rules, grant, start, now));
        // In strict order shards claim nothing ahead, so each position can be accounted for.
        let shards = shards(SHARDS, &[Arc::clone(&source)], Order::Strict, seed, now);
        let tenants = tenants(&mut rng);
        let end = now.boot.after(Duration::from_micros(LIFE_US as u64));
        let handed_out = Vec::new();
        House { seed, rng, numbering, source, shards, tenants, now, end, handed_out }
    }

    /// Sends requests of a tenant if it has all replies to its earlier requests.
    fn send(&mut self, index: usize, mut asks: Vec<Ask>) {
        let tenant = &mut self.tenants[index];
        if tenant.waiting.is_none() {
            asks.reverse();
            tenant.sent = asks;
            self.take_turn(index);
        }
    }

    /// Serves the requests that a tenant has sent, until one of them must wait.
    fn take_turn(&mut self, index: usize) {
        let shard = index % SHARDS;
        self.shards[shard].wake(self.now);
        while self.tenants[index].waiting.is_none()
            && let Some(ask) = self.tenants[index].sent.pop()
        {
            self.draw(index, ask);
        }
        self.shards[shard].top_up();
    }

    fn draw(&mut self, index: usize, ask: Ask) {
        let Ask { count, wait, partial } = ask;
        let due = self.now.boot.after(wait);
        let shard = index % SHARDS;
        let later = || self.tenants[index].sent.iter().map(|ask| ask.count).sum();
        let mut runs = Vec::new();
        let (lane, rng) = self.shards[shard].lane(0);
        match lane.take(count, later, rng, &mut runs) {
            Ok(()) => self.hand_out(index, count, &runs),
            Err(missing) => {
                let request = WaitRequest { count: missing, due, wait, partial, shard };
                let window = lane.window();
                let admitted = lane.source().admit(&window, request);
                match admitted {
                    Ok(id) => {
                        let taken = lane.keep(runs);
                        let waiting = Waiting { id, count, taken, wake_ups: 0, is_beside_promise: false };
                        self.tenants[index].waiting = Some(waiting);
                    }
                    // IDs of a refused request would be lost. The request has none, because in
                    // strict order the shard keeps no block from which it could have taken some.
                    Err(_) => assert!(runs.is_empty(), "seed {}: a refused request had IDs", self.seed),
                }
            }
        }
    }

    fn hand_out(&mut self, index: usize, count: u64, runs: &[Run]) {
        assert_eq!(count_of(runs), count, "seed {}: tenant {index}", self.seed);
        self.handed_out.extend(runs.iter().flat_map(|run| intervals(&self.numbering, run)));
    }

    /// Runs a tick's wake-up. Returns the time until the next one.
    fn advance(&mut self) -> Option<Duration> {
        let next = self.source.advance(self.now, &mut self.rng).next_in;
        let is_large = |tenant: &Tenant| tenant.appetite == Appetite::Large && tenant.waiting.is_some();
        let some_promised = self.tenants.iter().any(is_large);
        for waiting in self.tenants.iter_mut().filter_map(|tenant| tenant.waiting.as_mut()) {
            waiting.wake_ups += 1;
            waiting.is_beside_promise |= some_promised;
        }
        for shard in 0..SHARDS {
            for finished in self.source.collect(shard) {
                self.finish(shard, &finished);
            }
        }
        next
    }

    fn finish(&mut self, shard: usize, finished: &Finished) {
        let is_it =
            |tenant: &Tenant| tenant.waiting.as_ref().is_some_and(|waiting| waiting.id == finished.id);
        let index = self.tenants.iter().position(is_it).expect("a tenant made the request");
        let Waiting { count, taken, wake_ups, is_beside_promise, .. } =
            self.tenants[index].waiting.take().expect("the tenant waits");
        let claimed: u64 = finished.spans.iter().map(|span| span.count).sum();
        self.tenants[index].waited_for += claimed;
        let mut runs = Vec::new();
        self.shards[shard].wake(self.now);
        let ended = self.shards[shard].lane(0).0.end_wait(taken, finished, &mut runs);
        let refusal = ended.expect("nothing takes the grant away");
        let seed = self.seed;
        let appetite = self.tenants[index].appetite;
        assert!(
            refusal.is_none(),
            "seed {seed}: {appetite:?}: admitted for {count} IDs, then refused: {refusal:?}"
        );
        match appetite {
            Appetite::Greedy => self.hand_out(index, count_of(&runs), &runs),
            Appetite::Large => self.hand_out(index, count, &runs),
            Appetite::Modest | Appetite::Pipelining => {
                // A promise to a large request leaves a sixteenth of a tick to other requests.
                let least_part = if is_beside_promise { 16 } else { 1 };
                let rotation = 2 * self.tenants.len() / self.numbering.ids_per_tick() as usize;
                let most = 1 + least_part + rotation;
                assert!(
                    wake_ups <= most,
                    "seed {seed}: a request for {count} IDs waited for {wake_ups} ticks, allowed: {most}"
                );
                self.hand_out(index, count, &runs);
            }
        }
        self.take_turn(index);
    }

    /// Lets a random tenant send requests.
    fn ask_at_random(&mut self) {
        let index = self.rng.usize(..self.tenants.len());
        let per_tick = self.numbering.ids_per_tick();
        let share = (per_tick / self.tenants.len() as u64).max(1);
        let rng = &mut self.rng;
        let wait = Duration::from_secs(1);
        let asks = match self.tenants[index].appetite {
            Appetite::Greedy => return,
            Appetite::Modest => vec![Ask { count: rng.u64(1..=share), wait, partial: false }],
            Appetite::Pipelining => {
                let requests = rng.usize(1..=SENT_MAX);
                (0..requests).map(|_| Ask { count: rng.u64(1..=share), wait, partial: false }).collect()
            }
            Appetite::Large => {
                let count = rng.u64(per_tick..20 * per_tick);
                let wait = Duration::from_millis(rng.u64(10..200));
                vec![Ask { count, wait, partial: false }]
            }
        };
        self.send(index, asks);
    }

    fn live(&mut self) {
        let begun = self.source.cursor().expect("not sealed");
        // First the burst window is used up, so that the greedy tenants start together.
        self.shards[0].wake(self.now);
        let at_hand = self.source.left(&self.source.window(self.now));
        if at_hand > 0 {
            self.send(0, vec![Ask { count: at_hand, wait: Duration::ZERO, partial: false }]);
        }
        let wait = self.end.since(self.now.boot);
        for index in 0..self.tenants.len() {
            if self.tenants[index].appetite == Appetite::Greedy {
                self.send(index, vec![Ask { count: 100_000_000, wait, partial: true }]);
            }
        }
        while let Some(next) = self.advance() {
            let late = Duration::from_micros(self.rng.u64(..LATE_US));
            let wakes_at = self.now.boot.after(next + late);
            while self.now.boot < wakes_at {
                let step = Duration::from_micros(self.rng.u64(1..2_000)).min(wakes_at.since(self.now.boot));
                self.now = self.now.after(step);
                if self.now.boot < self.end {
                    self.ask_at_random();
                }
            }
        }
        self.check(begun);
    }

    fn check(&mut self, begun: Position) {
        let seed = self.seed;
        self.handed_out.sort_unstable();
        assert!(
            self.handed_out.is_sorted_by(|one, next| one.1 <= next.0),
            "seed {seed}: IDs are handed out twice"
        );
        let total: u64 = self.handed_out.iter().map(|(from, to)| to - from).sum();
        let ended = self.source.cursor().expect("not sealed");
        assert_eq!(total, ended.0 - begun.0, "seed {seed}: claimed positions were lost");
        // All positions up to the end of the greedy tenants' waits are claimed.
        let end_wall = UnixMicros(self.now.wall.0 - self.now.boot.since(self.end).as_micros() as i64);
        let whole = self.numbering.first_of(self.numbering.tick_at(end_wall));
        assert!(ended >= whole, "seed {seed}: {} positions were not claimed", whole.0 - ended.0);
        let greedy = self.tenants.iter().filter(|tenant| tenant.appetite == Appetite::Greedy);
        let shares: Vec<u64> = greedy.map(|tenant| tenant.waited_for).collect();
        let least = shares.iter().min();
        let most = shares.iter().max();
        let differ = most.zip(least).map_or(0, |(most, least)| most - least);
        assert!(differ <= 1, "seed {seed}: shares of greedy tenants: {shares:?}");
    }
}

/// Makes some tenants of each appetite.
fn tenants(rng: &mut fastrand::Rng) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let appetites =
        [(Appetite::Greedy, 30), (Appetite::Large, 4), (Appetite::Modest, 8), (Appetite::Pipelining, 6)];
    for (appetite, most) in appetites {
        for _ in 0..rng.usize(1..=most) {
            tenants.push(Tenant { appetite, sent: Vec::new(), waiting: None, waited_for: 0 });
        }
    }
    tenants
}

pub(crate) fn share(seed: u64) {
    House::new(seed).live();
}
