//! Twenty daemons of one fleet are killed, stopped, paused, rebooted and cut off from the
//! coordinator for seconds. Meanwhile clients draw from all of them and keep every ID. There are
//! fewer worker IDs than daemons, so daemons take the worker IDs of other daemons.
//! `SNOWBANK_CHURN_S=60 cargo test --test daemon fleet_churn::` takes a minute, on all kinds of
//! coordinator at once.
//!
//! In the other test the coordinator is restored to older states, while some of the fleet's three
//! to six daemons are paused, cut off or killed. One daemon stays healthy, because a fleet does not
//! promise unique IDs after a restore that no daemon notices. `SNOWBANK_RESTORES=200 cargo test
//! --test daemon fleet_churn::a_coordinator -- --nocapture` takes over a quarter of an hour.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fleet::init;
use crate::support::coordinators::{Coordinator, Etcd, Proxy, each};
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::wire::{Run, Wire};
use crate::support::{Address, Ask, DEADLINE, Daemon, Random, Reply};
use rustix::process::Signal;

const DAEMONS: usize = 20;
/// A layout with 32 IDs in each tick. In every tick the first ID has sequence 0, so two daemons
/// with the same worker ID would soon repeat IDs.
const LAYOUT: &str = "layout = \"time:38,worker:5,sequence:5;tick=100ms;epoch=2025-01-01\"\n\
                      sequence_start = \"zero\"\nmax_ahead = \"400ms\"\nshards = 1\n";
/// The horizon, after which the worker ID of a killed daemon is free. A daemon may be paused for
/// longer than the horizon.
const HORIZON: &str = "14s";
/// The longest pause of a daemon, and the longest time for which it is cut off.
const FAULT_MS_MAX: u64 = 8_000;

/// The faults of a daemon's lives, one in each life, in this order.
const FAULTS: [Fault; 6] =
    [Fault::None, Fault::Pause, Fault::Cut, Fault::Hang, Fault::Swallow, Fault::CutThenPause];

#[derive(Clone, Copy)]
enum Fault {
    None,
    Pause,
    Cut,
    Hang,
    Swallow,
    CutThenPause,
}

/// The ends of a daemon's lives. For each life, one of them is picked at random.
const ENDS: [End; 4] = [End::Stop, End::KillAndBoot, End::Kill, End::Kill];

#[derive(Clone, Copy)]
enum End {
    Stop,
    KillAndBoot,
    Kill,
    /// The daemon runs until it ends by itself because it has lost its worker ID.
    Loss,
}

/// The state that all threads share.
struct Churn {
    is_over: AtomicBool,
    lives: AtomicUsize,
    runs: Mutex<Vec<Run>>,
}

/// A machine with its configuration and its proxy to the coordinator.
struct Site {
    machine: Machine,
    proxy: Proxy,
    toml: String,
}

impl Site {
    /// Makes a site. Four sites share two given worker IDs. To the other sites the fleet assigns
    /// worker IDs, of which there are too few.
    fn new(at: &dyn Coordinator, index: usize) -> Site {
        let worker_ids = match index {
            0..4 => format!("worker_ids = {}\n", index % 2),
            _ => String::from("worker_ids = \"2-15\"\nworker_id_from = \"coordinator\"\n"),
        };
        Site::of(at, &worker_ids, "")
    }

    /// Makes a site with these lines for the worker IDs and for the name of the fleet.
    fn of(at: &dyn Coordinator, worker_ids: &str, name: &str) -> Site {
        let proxy = at.proxy();
        let table = at.table(&[&proxy.url()]);
        let toml = format!("{LAYOUT}{worker_ids}{table}horizon = \"{HORIZON}\"\n{name}");
        Site { machine: Machine::new(), proxy, toml }
    }

    /// Runs one life of the daemon after another, with these faults and ends, until the churn is
    /// over.
    fn live(&self, churn: &Churn, index: usize, faults: &[Fault], ends: &[End]) {
        let mut rng = Random::seeded(index as u64);
        let mut round = index;
        while !churn.is_over.load(Ordering::SeqCst) {
            let listener = format!("unix:{}", self.socket().display());
            match self.machine.setup(&self.toml).option("--listen", listener).listeners(2).try_start() {
                Ok(daemon) => {
                    churn.lives.fetch_add(1, Ordering::SeqCst);
                    rest(&mut rng, 1_000);
                    self.suffer(&daemon, faults[round % faults.len()], &mut rng);
                    rest(&mut rng, 1_000);
                    self.end(daemon, rng.pick(ends));
                    round += 1;
                }
                // The start was refused. A daemon that lacks only a worker ID listens and waits.
                Err(_) => rest(&mut rng, 500),
            }
        }
    }

    fn suffer(&self, daemon: &Daemon, fault: Fault, rng: &mut Random) {
        match fault {
            Fault::None | Fault::Pause => {}
            Fault::Cut | Fault::CutThenPause => self.proxy.cut(),
            Fault::Hang => self.proxy.hang(),
            Fault::Swallow => self.proxy.swallow_answers_from_write(),
        }
        match fault {
            Fault::None | Fault::Hang => {}
            Fault::Cut | Fault::Swallow => rest(rng, FAULT_MS_MAX),
            Fault::Pause | Fault::CutThenPause => {
                daemon.signal(Signal::STOP);
                rest(rng, FAULT_MS_MAX);
                daemon.signal(Signal::CONT);
            }
        }
        self.proxy.pass();
    }

    fn end(&self, mut daemon: Daemon, end: End) {
        match end {
            End::Stop => {
                daemon.signal(Signal::TERM);
                let code = daemon.wait();
                assert!(matches!(code, Some(0 | 3)), "{code:?}: {}", daemon.log());
            }
            End::KillAndBoot => {
                daemon.kill();
                // A boot loses the locks. If the daemon still waited for its worker ID, there is no
                // lock yet.
                let _ = fs::remove_dir_all(self.machine.path("locks"));
            }
            End::Kill => daemon.kill(),
            End::Loss => _ = daemon.wait(),
        }
    }

    /// Returns the path of the daemon's socket. Clients use no TCP port, because another test could
    /// get the port after the daemon's end.
    fn socket(&self) -> PathBuf {
        self.machine.path("socket")
    }

    /// Draws from the daemon whenever it listens, until the churn is over.
    fn draw(&self, churn: &Churn) {
        let mut runs = Vec::new();
        let mut wire: Option<Wire> = None;
        while !churn.is_over.load(Ordering::SeqCst) {
            let drawn = wire.as_mut().and_then(|wire| {
                wire.try_send(&Ask::of(8).wait_ms(0).bytes()).ok()?;
                wire.try_reply().ok()?
            });
            match drawn {
                Some(Reply::Runs(_, more)) => runs.extend(more),
                Some(_) => {}
                None => wire = Wire::try_connect(&Address::Unix(self.socket())).ok(),
            }
            thread::sleep(Duration::from_millis(5));
        }
        churn.runs.lock().expect("no thread panics").extend(runs);
    }
}

fn rest(rng: &mut Random, at_most_ms: u64) {
    thread::sleep(Duration::from_millis(rng.below(at_most_ms)));
}

/// The number of restores of one fleet.
const RESTORES: usize = 5;
/// The longest time for which a daemon waits for the floor: the horizon and some reserve.
const UNTIL_FLOOR: Duration = Duration::from_secs(16);
/// The least age of a backup when it is restored. It is more than half of the horizon, so the
/// healthy daemon has raised its ceiling since the backup.
const BACKUP_TIME: Duration = Duration::from_secs(8);

/// Restores the coordinator of a fleet of three to six daemons several times.
fn restore(at: &mut dyn Coordinator, fleet: usize, restores: usize) -> u64 {
    let daemons = 3 + fleet % 4;
    let name = format!("name = \"restored-{fleet}\"\n");
    let mut sites = Vec::new();
    for index in 0..daemons {
        // Daemons 0 and 3 have given worker IDs. The other daemons share two worker IDs.
        let origin = match index {
            0 | 3 => format!("worker_ids = {}\n", index + 4),
            _ => String::from("worker_ids = \"0-1\"\nworker_id_from = \"coordinator\"\n"),
        };
        sites.push(Site::of(at, &origin, &name));
    }
    init(&sites[0].toml);
    let churn = Churn { is_over: AtomicBool::new(false), lives: AtomicUsize::new(0), runs: Mutex::default() };
    thread::scope(|scope| {
        for (index, site) in sites.iter().enumerate() {
            let churn = &churn;
            scope.spawn(move || {
                if index == 0 {
                    // This daemon is healthy. It ends when it notices a restore, and is then
                    // started again.
                    site.live(churn, fleet, &[Fault::None], &[End::Loss]);
                } else {
                    // These daemons are never stopped cleanly. After a clean stop, another daemon
                    // may take the worker ID. If a restore then loses this change of the holder,
                    // IDs may repeat.
                    site.live(churn, fleet + index, &FAULTS, &[End::Kill, End::KillAndBoot]);
                }
            });
            scope.spawn(move || site.draw(churn));
        }
        let mut rng = Random::seeded(fleet as u64);
        for _ in 0..restores {
            at.back_up();
            thread::sleep(BACKUP_TIME);
            rest(&mut rng, 2_000);
            at.restore();
            thread::sleep(UNTIL_FLOOR);
            rest(&mut rng, 2_000);
        }
        churn.is_over.store(true, Ordering::SeqCst);
        // The healthy daemon ends only when its key is lost.
        at.kill();
        at.lose_data();
        at.run();
    });
    let runs = churn.runs.into_inner().expect("no thread panics");
    let ids = runs.iter().map(|run| u64::from(run.count)).sum();
    assert!(ids > 0);
    assert_distinct(runs);
    ids
}

#[test]
fn a_coordinator_restored_beside_faulty_daemons_repeats_no_id() {
    let restores = std::env::var("SNOWBANK_RESTORES").ok();
    let restores: usize = restores.map_or(0, |text| text.parse().expect("SNOWBANK_RESTORES: a number"));
    if restores == 0 {
        if let Some(mut etcd) = Etcd::start() {
            restore(&mut etcd, 1, 1);
        }
        return;
    }
    // Half of the fleets use etcd, the other half ZooKeeper.
    let fleets = restores.div_ceil(2 * RESTORES);
    each(|at| {
        let ids: u64 = (0..fleets).map(|fleet| restore(at, fleet, RESTORES)).sum();
        println!("{}: {} restores of {fleets} fleets, {ids} IDs, 0 twice", at.name(), fleets * RESTORES);
    });
}

fn churn(at: &dyn Coordinator, lasts: Duration) {
    let sites: Vec<Site> = (0..DAEMONS).map(|index| Site::new(at, index)).collect();
    init(&sites[0].toml);
    let churn = Churn { is_over: AtomicBool::new(false), lives: AtomicUsize::new(0), runs: Mutex::default() };
    thread::scope(|scope| {
        for (index, site) in sites.iter().enumerate() {
            let churn = &churn;
            scope.spawn(move || site.live(churn, index, &FAULTS, &ENDS));
            scope.spawn(move || site.draw(churn));
        }
        // A slow machine gets more time, until there were as many lives as daemons.
        let began = Instant::now();
        while began.elapsed() < lasts
            || (churn.lives.load(Ordering::SeqCst) < DAEMONS && began.elapsed() < lasts + DEADLINE)
        {
            thread::sleep(Duration::from_millis(50));
        }
        churn.is_over.store(true, Ordering::SeqCst);
    });
    let mut runs = churn.runs.into_inner().expect("no thread panics");
    let lives = churn.lives.into_inner();
    // Once no more faults occur, the daemons serve again.
    for site in &sites[2..8] {
        let daemon = site.machine.start(&site.toml);
        daemon.assert_has_numbers();
        runs.extend(daemon.connect().next(Ask::of(8).wait_ms(9_000)).runs());
        daemon.stop();
    }
    let ids: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    println!("{lives} lives of {DAEMONS} daemons handed out {ids} IDs");
    assert!(ids > 0);
    assert_distinct(runs);
}

#[test]
fn twenty_daemons_killed_paused_and_cut_off_repeat_nothing() {
    let seconds = std::env::var("SNOWBANK_CHURN_S").ok();
    match seconds.map(|seconds| seconds.parse().expect("SNOWBANK_CHURN_S: a number of seconds")) {
        Some(seconds) => each(|at| churn(at, Duration::from_secs(seconds))),
        None => {
            if let Some(etcd) = Etcd::start() {
                churn(&etcd, Duration::from_secs(10));
            }
        }
    }
}
