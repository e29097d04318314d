//! The simulated wire: addresses, and the daemons behind the addresses with their faults.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{duplex, split};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::daemon;
use crate::client::endpoint::{ChosenAddress, Streams};
use crate::layout::Run;
use snowbank_wire::ErrorCode;
use snowbank_wire::address::Address;

/// The number of IDs that a daemon has for each ms, as in Twitter's layout.
pub(super) const PER_MS: u64 = 4_096;

/// The daemons' clocks at the start, in ms. A clock that is hours behind is still above 0.
const BASE_MS: i64 = 1_000_000_000;

/// The age that an ID may have, in ms.
const BURST_WINDOW_MS: u64 = 10;

thread_local! {
    /// The wire of the test that runs on this thread.
    static WIRE: RefCell<Option<Wire>> = const { RefCell::new(None) };
}

/// A handle to the simulated wire.
#[derive(Clone)]
pub(super) struct Wire {
    world: Arc<Mutex<World>>,
}

/// The state of the wire.
pub(super) struct World {
    pub(super) rng: fastrand::Rng,
    began: Instant,
    pub(super) daemons: Vec<Daemon>,
    /// True if each address is a name, and each daemon of the name has an IP address. False if each
    /// address is a load balancer.
    pub(super) has_ips: bool,
    /// The address of each daemon that ever ran, by worker ID.
    pub(super) address_of: HashMap<u64, usize>,
    /// One reply in this many is lost. 0 means that no reply is lost.
    pub(super) loses_one_in: u32,
    pub(super) connects: u64,
    /// The number of IDs that daemons handed out.
    pub(super) claimed: u64,
}

/// A daemon. Several can be at one address: see [`World::has_ips`].
pub(super) struct Daemon {
    pub(super) address: usize,
    pub(super) mode: Mode,
    pub(super) worker: u64,
    /// The instance in INFO. No other daemon has the same instance.
    pub(super) instance: u64,
    pub(super) clock_ms: i64,
    /// The first position (tick * [`PER_MS`] + sequence) that is not handed out yet.
    cursor: u64,
    /// Changes when the daemon's connections are cut.
    pub(super) life: watch::Sender<u32>,
}

/// The behaviour of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Serves,
    Down,
    /// Accepts connections, and never sends anything.
    Silent,
    /// Greets, and never answers a request for IDs.
    Stalls,
    /// Is a web server.
    Http,
    Refuses(ErrorCode, Duration),
}

impl Wire {
    /// Creates a wire with this many daemons at each address, for this thread.
    pub(super) fn lay(seed: u64, daemons: &[usize]) -> Self {
        fastrand::seed(seed);
        let mut world = World {
            rng: fastrand::Rng::with_seed(seed),
            began: Instant::now(),
            daemons: Vec::new(),
            has_ips: false,
            address_of: HashMap::new(),
            loses_one_in: 0,
            connects: 0,
            claimed: 0,
        };
        for (address, count) in daemons.iter().enumerate() {
            (0..*count).for_each(|_| world.add(address));
        }
        let wire = Self { world: Arc::new(Mutex::new(world)) };
        WIRE.set(Some(wire.clone()));
        wire
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no panic")
    }

    async fn dial(self, address: usize, number: usize) -> io::Result<(Streams, ChosenAddress)> {
        let delay = self.world().rng.u64(0..3);
        sleep(Duration::from_millis(delay)).await;
        let (near, far) = duplex(1 << 16);
        let mut world = self.world();
        world.connects += 1;
        let Some((index, chosen)) = world.choose(address, number) else {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "Connection refused"));
        };
        let life = world.daemons[index].life.subscribe();
        drop(world);
        tokio::spawn(daemon::serve(self, index, life, far));
        let (reader, writer) = split(near);
        Ok((Streams::new(reader, writer), chosen))
    }
}

type Dialed = Pin<Box<dyn Future<Output = io::Result<(Streams, ChosenAddress)>> + Send>>;

/// Dials an address of this thread's simulated wire. Returns `None` if there is no such wire.
pub(in crate::client) fn dial(endpoint: &Address, number: usize) -> Option<Dialed> {
    let wire = WIRE.with_borrow(Clone::clone)?;
    let Address::Tcp { port, .. } = endpoint else { panic!("{endpoint} is not on the simulated wire") };
    Some(Box::pin(wire.dial(usize::from(*port) - 1, number)))
}

impl World {
    /// Chooses one of the daemons at that address that are up: behind a load balancer a random one,
    /// otherwise the first one from `number` on.
    fn choose(&mut self, address: usize, number: usize) -> Option<(usize, ChosenAddress)> {
        let is_up = |index: &usize| self.daemons[*index].mode != Mode::Down;
        let here: Vec<usize> =
            (0..self.daemons.len()).filter(|index| self.daemons[*index].address == address).collect();
        if !self.has_ips {
            let index = self.rng.choice(here.into_iter().filter(is_up).collect::<Vec<_>>())?;
            return Some((index, ChosenAddress { ip: None, number }));
        }
        let mut numbers = (0..here.len()).map(|step| number.wrapping_add(step));
        let number = numbers.find(|number| is_up(&here[number % here.len()]))?;
        let index = here[number % here.len()];
        Some((index, ChosenAddress { ip: Some(IpAddr::from([127, 0, 0, index as u8])), number }))
    }

    fn add(&mut self, address: usize) {
        let life = watch::Sender::new(0);
        let daemon =
            Daemon { address, mode: Mode::Serves, worker: 0, instance: 0, clock_ms: 0, cursor: 0, life };
        self.daemons.push(daemon);
        self.replace(self.daemons.len() - 1, 0);
    }

    /// Replaces this daemon by another one, whose clock is `clock_ms` ahead of the simulated time.
    pub(super) fn replace(&mut self, index: usize, clock_ms: i64) {
        let worker = self.address_of.len() as u64;
        self.address_of.insert(worker, self.daemons[index].address);
        let daemon = &mut self.daemons[index];
        (daemon.worker, daemon.instance) = (worker, worker);
        (daemon.clock_ms, daemon.cursor) = (clock_ms, 0);
        self.set(index, Mode::Serves);
    }

    /// Changes a daemon's behaviour, and cuts its connections.
    pub(super) fn set(&mut self, index: usize, mode: Mode) {
        let daemon = &mut self.daemons[index];
        daemon.mode = mode;
        daemon.life.send_modify(|life| *life += 1);
    }

    /// Claims up to `count` IDs, or returns the time after which they are available.
    pub(super) fn claim(&mut self, index: usize, count: u32, partial: bool) -> Result<Vec<Run>, Duration> {
        let now = BASE_MS + self.began.elapsed().as_millis() as i64;
        let daemon = &mut self.daemons[index];
        let tick = (now + daemon.clock_ms) as u64;
        let from = daemon.cursor.max((tick - BURST_WINDOW_MS) * PER_MS);
        let available = ((tick + 1) * PER_MS).saturating_sub(from);
        if available == 0 || available < u64::from(count) && !partial {
            let missing = from + u64::from(count) - (tick + 1) * PER_MS;
            return Err(Duration::from_millis(missing / PER_MS + 1));
        }
        let end = from + available.min(u64::from(count));
        daemon.cursor = end;
        self.claimed += end - from;
        let mut runs = Vec::new();
        let mut at = from;
        while at < end {
            let count = (PER_MS - at % PER_MS).min(end - at);
            let first = (at / PER_MS) << 22 | daemon.worker << 12 | (at % PER_MS);
            runs.push(Run { first, count: count as u32, stride: 1 });
            at += count;
        }
        Ok(runs)
    }

    /// Returns the address that an ID came from.
    pub(super) fn origin(&self, id: u64) -> usize {
        self.address_of[&(id >> 12 & 1_023)]
    }
}
