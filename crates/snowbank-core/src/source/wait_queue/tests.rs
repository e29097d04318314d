use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::grant::Grant;
use crate::source::tests::{RULES, START, TWITTER, drain, numbering, rng, source};

fn after_ms(ms: u64) -> Now {
    START.after(Duration::from_millis(ms))
}

fn request(count: u64, now: Now, wait_ms: u64, partial: bool) -> WaitRequest {
    WaitRequest { count, due: now.boot.after(Duration::from_millis(wait_ms)), partial, shard: 0 }
}

/// A connection that asks again as soon as it has its answer.
struct Client {
    count: u64,
    wait_ms: u64,
    partial: bool,
    /// The pause between an answer and the next request.
    pause_ms: u64,
    next_ms: u64,
    asked_ms: u64,
    waits: Option<WaitId>,
    /// The time that each of its requests took, in ms; `None` if it was refused.
    took_ms: Vec<Option<u64>>,
    ids: u64,
}

impl Client {
    fn new(count: u64, wait_ms: u64) -> Self {
        Client {
            count,
            wait_ms,
            partial: false,
            pause_ms: 0,
            next_ms: 0,
            asked_ms: 0,
            waits: None,
            took_ms: Vec::new(),
            ids: 0,
        }
    }

    fn partial(count: u64, wait_ms: u64) -> Self {
        Client { partial: true, ..Client::new(count, wait_ms) }
    }

    fn every(self, pause_ms: u64) -> Self {
        Client { pause_ms, ..self }
    }

    fn ask(&mut self, source: &Source, ms: u64) {
        if self.waits.is_some() || ms < self.next_ms {
            return;
        }
        let now = after_ms(ms);
        let window = source.window(now);
        self.asked_ms = ms;
        if source.claim(&window, self.count, &mut rng()).is_some() {
            self.answer(Some(self.count), ms);
            return;
        }
        match source.admit(&window, request(self.count, now, self.wait_ms, self.partial)) {
            Ok(id) => {
                self.waits = Some(id);
                // At once, as the daemon's ticker does: at the next tick the oldest one is out of
                // reach.
                source.advance(now, &mut rng(), &());
            }
            Err(_) => self.answer(None, ms),
        }
    }

    fn answer(&mut self, ids: Option<u64>, ms: u64) {
        self.waits = None;
        self.took_ms.push(ids.map(|_| ms - self.asked_ms));
        self.ids += ids.unwrap_or(0);
        self.next_ms = (self.asked_ms + self.pause_ms).max(ms + u64::from(ids.is_none()));
    }

    /// The share of its requests that had their IDs within this time.
    fn served_within(&self, ms: u64) -> f64 {
        let served = self.took_ms.iter().flatten().filter(|&&took| took <= ms).count();
        served as f64 / self.took_ms.len() as f64
    }
}

/// Lets clients ask for this long, with a wake-up at each millisecond. Demands that every promise
/// is kept.
fn run(source: &Source, clients: &mut [Client], to_ms: u64) {
    for ms in 0..to_ms {
        source.advance(after_ms(ms), &mut rng(), &());
        let mut finished: HashMap<WaitId, Finished> =
            source.collect(0).into_iter().map(|finished| (finished.id, finished)).collect();
        // No client is always the first to ask.
        let first = ms as usize % clients.len();
        let (late, early) = clients.split_at_mut(first);
        for client in early.iter_mut().chain(late) {
            if let Some(finished) = client.waits.and_then(|id| finished.remove(&id)) {
                assert_eq!(
                    finished.refusal, None,
                    "at {ms} ms, of {} for {} ms",
                    client.count, client.wait_ms
                );
                client.answer(Some(finished.spans.iter().map(|span| span.count).sum()), ms);
            }
            client.ask(source, ms);
        }
    }
}

fn total_ids(clients: &[Client]) -> u64 {
    clients.iter().map(|client| client.ids).sum()
}

/// The IDs of this many ticks of the twitter layout.
fn ids_of_ticks(ticks: u64) -> u64 {
    ticks * 4_096
}

#[test]
fn beside_greedy_connections_a_modest_one_waits_a_few_ticks() {
    for greedy in [1, 8, 16] {
        let source = source(TWITTER, RULES);
        let mut clients: Vec<Client> = (0..greedy).map(|_| Client::partial(1_000_000, 10_000)).collect();
        clients.push(Client::new(1_000, 1_000).every(10));
        run(&source, &mut clients, 4_000);
        let modest = &clients[greedy];
        assert!(modest.took_ms.len() > 390, "{} requests", modest.took_ms.len());
        assert_eq!(modest.served_within(10), 1.0, "beside {greedy}: {:?}", modest.took_ms);
        // Requests that were still in flight have not been checked: let them end.
        run(&source, &mut clients, 14_000);
    }
}

#[test]
fn large_and_middling_requests_leave_single_ids_to_others() {
    let source = source(TWITTER, RULES);
    let mut clients: Vec<Client> = (0..45).map(|_| Client::new(1_000_000, 1_000)).collect();
    clients.extend((0..64).map(|_| Client::new(256, 1_000)));
    clients.push(Client::new(1, 1_000).every(1));
    run(&source, &mut clients, 5_000);
    let single = clients.last().expect("the single one");
    assert!(single.took_ms.len() > 2_000, "{} requests", single.took_ms.len());
    assert!(single.served_within(10) >= 0.99, "{} within 10 ms", single.served_within(10));
    assert!(single.took_ms.iter().all(Option::is_some), "some were refused");
    let share = total_ids(&clients) as f64 / ids_of_ticks(5_000) as f64;
    assert!(share > 0.9, "{share} of the full rate reached clients, and requests of a million are in flight");
}

/// Refused requests must not close the bypass to requests that wait.
#[test]
fn requests_that_are_refused_keep_nobody_from_passing() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    source.admit(&window, request(4_096 * 8, START, 10, false)).expect("there is time enough");
    for _ in 0..100 {
        let refused = source.admit(&window, request(1, START, 0, false));
        assert!(matches!(refused, Err(Refusal::Exhausted(_))), "{refused:?}");
    }
    assert_eq!(source.wait_queue.admitted_ids(), 4_096 * 8);
    source.advance(after_ms(1), &mut rng(), &());
    source.claim(&source.window(after_ms(1)), 1, &mut rng()).expect("it passes");
}

/// Between the bypass of a request and its claim, which fails, another thread shares out a tick.
#[test]
fn what_is_given_back_late_does_not_widen_the_next_ticks_bypass() {
    let queue = WaitQueue::new(4_096, RULES.burst_window, Duration::from_millis(1));
    queue.count(1);
    queue.passing_ids_max.store(100, Ordering::Relaxed);
    queue.set_passing(100);
    let Bypass::Counted(look) = queue.bypass(80) else { panic!("it passes") };
    queue.set_passing(30);
    queue.uncount_bypass(look, 80);
    assert_eq!(queue.bypass(31), Bypass::Closed);
    let Bypass::Counted(look) = queue.bypass(30) else { panic!("it passes") };
    queue.uncount_bypass(look, 30);
    assert!(matches!(queue.bypass(30), Bypass::Counted(_)), "given back in time");
}

/// Passing requests can reach a tick before the wake-up that shares it out.
#[test]
fn passing_before_a_ticks_wake_up_breaks_no_promise() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    // Exactly the hundred ticks to come.
    source.admit(&window, request(ids_of_ticks(100), START, 100, false)).expect("just available");
    for ms in 1..=100 {
        let now = after_ms(ms);
        let window = source.window(now);
        while source.claim(&window, 1, &mut rng()).is_some() {}
        source.advance(now, &mut rng(), &());
    }
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].refusal), (1, None));
}

#[test]
fn a_request_larger_than_a_share_does_not_pass() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    for _ in 0..99 {
        source.admit(&source.window(START), request(1_000, START, 10_000, true)).expect("some are welcome");
    }
    let now = after_ms(1);
    source.advance(now, &mut rng(), &());
    let window = source.window(now);
    assert_eq!(source.claim(&window, 41, &mut rng()), None, "a share of a tick is 40");
    for _ in 0..6 {
        source.claim(&window, 40, &mut rng()).expect("256 are left for those that pass");
    }
    assert_eq!(source.claim(&window, 40, &mut rng()), None, "no more than a sixteenth of a tick");
}

const FEW_IDS: &str = "time:41,worker:10,sequence:=10";
const TWO_IDS: &str = "time:41,worker:10,sequence:=2";
const LONG_TICKS: &str = "time:36,worker:10,sequence:=50;tick=10ms";

/// A source whose start is this far ahead of the clock, so that its ID clock runs at half speed.
fn ahead(layout: &str, ahead_ms: u64) -> Source {
    let numbering = numbering(layout);
    let start = numbering.first_of(numbering.tick_at(after_ms(ahead_ms).wall));
    Source::new(String::new(), numbering.clone(), RULES, Grant::new(numbering.end()), start, START)
}

fn any_client() -> impl Strategy<Value = (u64, u64, bool, u64, u64)> {
    let count = prop_oneof![3 => 1_u64..300, 2 => 1_u64..20_000, 1 => 1_u64..200_000];
    (count, 0_u64..300, any::<bool>(), 0_u64..30, 0_u64..200)
}

proptest! {
    /// For any requests of clients, each admitted request has its IDs by its deadline. Nothing
    /// stays counted.
    #[test]
    fn promises_are_kept(
        layout in prop::sample::select(vec![TWITTER, FEW_IDS, TWO_IDS, LONG_TICKS]),
        ahead_ms in prop::sample::select(vec![0, 0, 100]),
        clients in prop::collection::vec(any_client(), 1..60),
    ) {
        let source = ahead(layout, ahead_ms);
        let ids_per_tick = source.numbering().ids_per_tick();
        let mut clients: Vec<Client> = clients
            .into_iter()
            .map(|(count, wait_ms, partial, pause_ms, next_ms)| Client {
                partial,
                next_ms,
                ..Client::new((count * ids_per_tick / 4_096).max(1), wait_ms).every(pause_ms)
            })
            .collect();
        run(&source, &mut clients, 400);
        source.advance(after_ms(1_000), &mut rng(), &());
        prop_assert_eq!(source.wait_queue.admitted_ids(), 0);
    }
}
