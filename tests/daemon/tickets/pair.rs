//! A pair of ticket sources, odd and even numbers, under kills, and a client that takes turns over
//! both.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{rounds, set_half};
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::wire::Run;
use crate::support::{Daemon, Port, Random, poll};
use snowbank_client::{Client, ClientOptions};

/// The tasks of the client. Each sends one request after another.
const TASKS: usize = 4;

/// One daemon of the pair, which is started again on its port with its state.
struct Half {
    machine: Arc<Machine>,
    toml: String,
    port: Port,
    state: PathBuf,
}

impl Half {
    fn new(machine: &Arc<Machine>, offset: u64) -> Half {
        let (state, toml) = set_half(machine, "orders", "0", offset);
        Half { machine: Arc::clone(machine), toml, port: Port::take(), state }
    }

    fn address(&self) -> String {
        self.port.address().to_string()
    }

    fn start(&self) -> Daemon {
        let setup = self.machine.setup(&self.toml).option("--state-dir", &self.state).listeners(2);
        setup.option("--listen", self.address()).start()
    }
}

/// Draws until `ends`. Returns the runs in the order of their arrival, each with its endpoint.
async fn draw(client: Client, size: u32, drawn: Arc<AtomicU64>, ends: Arc<AtomicBool>) -> Vec<(String, Run)> {
    let mut runs = Vec::new();
    while !ends.load(Ordering::Acquire) {
        // While a daemon is down, the other one has its turn. A reply that a kill cut off is an
        // error.
        let Ok(batch) = client.batch(size).source("orders").await else { continue };
        let endpoint = batch.endpoint().to_owned();
        runs.extend(batch.runs().map(|run| {
            let first = run.first;
            let count = run.count;
            let stride = run.stride.try_into().expect("1 or 2");
            (endpoint.clone(), Run { first, count, stride })
        }));
        drawn.fetch_add(1, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    runs
}

#[test]
fn a_client_of_a_pair_under_kills_gets_distinct_rising_numbers() {
    let machine = Arc::new(Machine::new());
    let halves = [1, 2].map(|offset| Half::new(&machine, offset));
    let mut daemons = [halves[0].start(), halves[1].start()];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let drawn = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    let options = || {
        let options = ClientOptions::new(halves.each_ref().map(Half::address)).expect("addresses");
        options.take_turns(true).backoff(Duration::from_millis(1), Duration::from_millis(50))
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = runtime.block_on(async { Client::new(options()) }).expect("a client");
            let size = [1, 3, 1_500, 40][task];
            runtime.spawn(draw(client, size, Arc::clone(&drawn), Arc::clone(&ends)))
        })
        .collect();
    let mut random = Random::seeded(3);
    for _ in 0..rounds() {
        let killed = random.below(2) as usize;
        let until = drawn.load(Ordering::Acquire) + 20 + random.below(200);
        poll("numbers from both", || (drawn.load(Ordering::Acquire) >= until).then_some(()));
        daemons[killed].kill();
        let until = drawn.load(Ordering::Acquire) + 20;
        poll("numbers from the other", || (drawn.load(Ordering::Acquire) >= until).then_some(()));
        daemons[killed] = halves[killed].start();
    }
    ends.store(true, Ordering::Release);
    let mut all = Vec::new();
    for task in tasks {
        let runs = runtime.block_on(task).expect("it ends");
        let mut last: HashMap<&str, u64> = HashMap::new();
        for (endpoint, run) in &runs {
            let before = last.insert(endpoint, run.last()).unwrap_or(0);
            assert!(run.first > before, "{run:?} after {before} from {endpoint}");
            let half = halves.iter().position(|half| half.address() == *endpoint).expect("one of both");
            assert_eq!(
                (run.first % 2, run.count == 1 || run.stride == 2),
                (1 - half as u64, true),
                "{run:?}"
            );
        }
        assert_eq!(last.len(), 2, "it took turns");
        all.extend(runs.into_iter().map(|(_, run)| run));
    }
    assert_distinct(all);
    daemons.into_iter().for_each(|daemon| drop(daemon.stop()));
}
