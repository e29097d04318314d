//! Two copies of one saved machine at one coordinator: a real etcd on this machine's loopback. In
//! the guest, a shell runs a daemon of a fleet, which hands out IDs and tickets of a shared
//! counter. The shell starts the daemon again whenever the daemon ends.
//!
//! One copy keeps its worker ID. The daemon of the other copy ends, and its next start takes
//! another worker ID. Once a copy has noticed the restore, it hands out no ID and no ticket that
//! was handed out before the save. It hands out none of the other copy's, either. If neither copy
//! notices the restore, this holds from the moment when one of the two daemons ends.

mod life;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use self::life::{Draw, ENOUGH, IDS, Life, TICKETS, repeated};
use crate::guest::{self, connect, install, wall_us};
use crate::qemu::{Machine, Vm};
use crate::support::coordinators::{Coordinator, Etcd};
use crate::support::ids::twitter_worker;
use crate::support::wire::{Ask, NO_CEILING, Reply};
use crate::{FIRST, SECOND, THIRD, WATCHED, check};

/// The exit code of a daemon whose next start may succeed.
const LOST: i32 = 3;
/// The longest wait for events. An emulated machine on a busy host needs far less.
const LIMIT: Duration = Duration::from_secs(180);

/// The time within which the daemon of one copy ends, if the copies notice nothing. A poll of the
/// coordinator ends it. The next raise of a ceiling, after half of the horizon, would come far
/// later.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// Drivers that Debian's kernel has as modules, in the order in which they must be loaded.
const DRIVERS: [&str; 3] =
    ["net/core/failover.ko", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko"];

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for driver in failover net_failover virtio_net; do insmod /drivers/$driver.ko; done
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
mkdir /tmp/state /tmp/locks
cat > /tmp/snowbank.toml <<"END"
CONFIG
END
export SNOWBANK_STATE_DIR=/tmp/state SNOWBANK_LOCK_DIR=/tmp/locks
serve() {
    while :; do
        snowbank serve --config /tmp/snowbank.toml --listen 127.0.0.1:7660
        echo "ENDED $?"
        sleep 1
    done
}
serve 2>&1 | cat &
STEP
client draw 127.0.0.1:7660 ids &
client draw 127.0.0.1:7660 orders &
sleep 1000
"#;

/// Sets the guest's clock, as the time service of a restored machine does. The script first waits
/// until its connection to the host ends, because no connection outlives a restore.
const STEP: &str = r#"{
    while sleep 0.1; do echo; done | nc 10.0.2.2 PORT
    now=$(($(date +%s) + 30))
    date -s @$now
    echo "STEPPED $now"
} &"#;

/// The sign by which the copies notice the restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// The kernels of the copies report other generation IDs.
    Generation,
    /// The clocks of the copies are set.
    Clock,
    /// No sign. Still, one copy finds at the coordinator that the other copy holds the key of their
    /// worker ID.
    Nothing,
}

/// One pair of copies.
struct Round {
    name: &'static str,
    notice: Notice,
    /// True if the coordinator is out of reach when the copies continue.
    is_cut: bool,
}

const ROUNDS: [Round; 4] = [
    Round { name: "reported", notice: Notice::Generation, is_cut: false },
    Round { name: "cut", notice: Notice::Generation, is_cut: true },
    Round { name: "clock", notice: Notice::Clock, is_cut: false },
    Round { name: "unnoticed", notice: Notice::Nothing, is_cut: false },
];

/// Resumes several pairs of copies. Each pair is made from a machine of its own.
pub(crate) fn run([kernel, busybox, modules]: [&Path; 3]) -> Result<(), String> {
    let etcd = Etcd::start().ok_or("etcd is missing: install etcd-server")?;
    ROUNDS.iter().try_for_each(|round| {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let result = round.run(&etcd, [kernel, busybox, modules], directory.path());
        result.map_err(|reason| format!("{}: {reason}", round.name))
    })
}

/// Runs in the guest: draws from a source forever, and prints the replies.
pub(crate) fn draw(address: &str, source: &str) {
    let (count, pause_ms) = if source == IDS { (200, 10) } else { (3, 50) };
    let ask = Ask::of(count).source(source).wait_ms(500).bytes();
    loop {
        let mut wire = connect(address);
        loop {
            let asked_us = wall_us();
            let Ok(Some(reply)) = wire.try_send(&ask).and_then(|()| wire.try_reply()) else { break };
            match reply {
                Reply::Runs(_, runs) => {
                    for run in runs {
                        assert_eq!(run.stride, 1, "one worker's numbers are consecutive");
                        println!("DREW {source} {asked_us} {} {}", run.first, run.last());
                    }
                }
                Reply::Error { code, .. } => println!("REFUSED {asked_us} {code}"),
                other => panic!("{other:?}"),
            }
            thread::sleep(Duration::from_millis(pause_ms));
        }
    }
}

impl Round {
    fn run(&self, etcd: &Etcd, made_of: [&Path; 3], directory: &Path) -> Result<(), String> {
        let proxy = etcd.proxy();
        let port = proxy.url().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap_or_default();
        self.prepare(&format!("127.0.0.1:{port}"), directory)?;
        // The kernel accepts the guest's connection to this listener. Nobody reads from the
        // connection.
        let held = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let held_port = held.local_addr().map_err(|error| error.to_string())?.port().to_string();
        let step = if self.notice == Notice::Clock { STEP } else { "" }.replace("PORT", &held_port);
        let script = INIT.replace("CONFIG", &self.config(&format!("10.0.2.2:{port}"))).replace("STEP", &step);
        let machine = machine(made_of, &script, directory)?;

        let mut original = [Vm::start(&machine, &directory.join("original"), FIRST, None)?];
        await_lives(&mut original, |lives| lives[0].serves(0))?;
        let saved = directory.join("saved");
        original[0].save(&saved)?;
        let before = Life::read(&original[0].console()?)?;
        check(
            before.ends.is_empty() && before.noticed_us.is_none(),
            "the original's daemon ended, or logged a restore",
        )?;

        if self.is_cut {
            proxy.cut();
        }
        let mut copies = Vec::new();
        let generations = if self.notice == Notice::Generation { [SECOND, THIRD] } else { [FIRST, FIRST] };
        for (name, generation) in ["copy 1", "copy 2"].into_iter().zip(generations) {
            copies.push(Vm::start(&machine, &directory.join(name), generation, Some(&saved))?);
        }
        copies.iter_mut().try_for_each(Vm::await_read)?;
        copies.iter_mut().try_for_each(Vm::resume)?;
        let resumed = Instant::now();
        if self.is_cut {
            check_silence(&mut copies)?;
            proxy.pass();
        }
        if !self.is_noticed() {
            await_lives(&mut copies, |lives| lives.iter().any(|life| !life.ends.is_empty()))?;
            let after = resumed.elapsed();
            check(after < ENDED_WITHIN, &format!("the first daemon ended only after {after:?}"))?;
            println!("{}: one copy's daemon ended after {:.1} s", self.name, after.as_secs_f64());
        }
        await_lives(&mut copies, |lives| self.is_settled(lives))?;
        thread::sleep(WATCHED);
        let lives = await_lives(&mut copies, |_| true)?;
        self.check(&before, &lives)
    }

    fn config(&self, endpoint: &str) -> String {
        format!(
            "max_ahead = \"2s\"\nworker_id_from = \"coordinator\"\n\
             [fleet]\ncoordinator = \"etcd\"\nendpoints = [\"http://{endpoint}\"]\nname = \"{}\"\nhorizon = \"5m\"\n\
             [[sources]]\nname = \"ids\"\n\
             [[sources]]\nname = \"orders\"\nkind = \"fleet-ticket\"",
            self.name
        )
    }

    fn prepare(&self, endpoint: &str, directory: &Path) -> Result<(), String> {
        let config = directory.join("snowbank.toml");
        fs::write(&config, self.config(endpoint)).map_err(|error| error.to_string())?;
        for words in [&["fleet", "init", "--new"][..], &["ticket", "set", "orders", "0"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
            let output = command.args(words).arg("--config").arg(&config).output();
            let output = output.map_err(|error| error.to_string())?;
            let errors = String::from_utf8_lossy(&output.stderr);
            check(output.status.success(), &format!("{words:?}: {errors}"))?;
        }
        Ok(())
    }

    /// Returns true once both copies serve after their notice. Without a notice, returns true once
    /// the copy whose daemon has ended serves under another worker ID.
    fn is_settled(&self, lives: &[Life]) -> bool {
        if self.is_noticed() {
            lives.iter().all(|life| life.noticed_us.is_some_and(|since_us| life.serves(since_us)))
        } else {
            lives.iter().any(|life| !life.ends.is_empty() && life.serves(life.moved_us()))
        }
    }

    fn is_noticed(&self) -> bool {
        self.notice != Notice::Nothing
    }

    fn check(&self, before: &Life, lives: &[Life]) -> Result<(), String> {
        let (mut stayed, mut moved): (Vec<&Life>, Vec<&Life>) =
            lives.iter().partition(|life| life.ends.is_empty());
        let (Some(stayed), Some(moved), true) = (stayed.pop(), moved.pop(), lives.len() == 2) else {
            let ends: Vec<_> = lives.iter().map(|life| &life.ends).collect();
            let late = lives.iter().flat_map(|life| life.drawn(IDS, life.noticed_us.unwrap_or_default()));
            let twice = repeated(late.collect());
            return Err(format!(
                "exactly one daemon must end; exit codes of the ends: {ends:?}; {twice} IDs came twice"
            ));
        };
        let worker = before.drawn(IDS, 0).map(|draw| twitter_worker(draw.first)).next();
        let since_us = |life: &Life| match life.noticed_us {
            Some(noticed_us) => noticed_us,
            None if life.ends.is_empty() => 0,
            None => life.moved_us(),
        };
        check(
            lives.iter().all(|life| life.noticed_us.is_some() == self.is_noticed()),
            "a copy noticed a restore without a sign, or missed a restore with a sign",
        )?;
        let has_number = |draw: &Draw| Some(twitter_worker(draw.first)) == worker;
        let other = stayed.drawn(IDS, since_us(stayed)).find(|draw| !has_number(draw));
        check(other.is_none(), &format!("the copy whose daemon goes on has another worker ID: {other:?}"))?;
        let late = moved.drawn(IDS, since_us(moved)).find(has_number);
        check(late.is_none(), &format!("the copy whose daemon ended uses its earlier worker ID: {late:?}"))?;
        let reason = moved.reason.as_deref().unwrap_or_default();
        check(
            moved.ends == [LOST] && reason.contains("another copy of this daemon"),
            &format!("ended with {:?}: {reason:?}", moved.ends),
        )?;
        check(stayed.reason.is_none(), "the copy whose daemon goes on lost its worker ID")?;

        for (source, words) in [(IDS, "IDs"), (TICKETS, "tickets")] {
            let new = |life: &Life| life.drawn(source, since_us(life)).collect::<Vec<_>>();
            let numbers = [before.drawn(source, 0).collect(), new(stayed), new(moved)];
            let counts = numbers.each_ref().map(|draws| draws.iter().map(Draw::count).sum::<u64>());
            let twice = repeated(numbers.concat());
            check(twice == 0, &format!("{twice} {words} were handed out twice: {counts:?}"))?;
            let all = lives.iter().flat_map(|life| life.drawn(source, 0)).collect();
            println!(
                "{}: {} {words} before the save, {} of the copy whose daemon goes on, {} of the other one, none \
                 twice; with requests from before the notice, {} came twice",
                self.name,
                counts[0],
                counts[1],
                counts[2],
                repeated(all)
            );
        }
        println!("{}: {reason}", self.name);
        Ok(())
    }
}

/// Returns true once the copy has refused enough requests after its notice.
fn is_refused(life: &Life) -> bool {
    let noticed_us = life.noticed_us.unwrap_or(i64::MAX);
    let late = life.refusals.iter().filter(|(asked_us, _)| *asked_us >= noticed_us);
    late.filter(|(_, code)| *code == NO_CEILING).count() >= ENOUGH
}

/// Checks that, while the coordinator is out of reach, no daemon ends, and each copy refuses every
/// request after it has noticed the restore.
fn check_silence(copies: &mut [Vm]) -> Result<(), String> {
    await_lives(copies, |lives| lives.iter().all(is_refused))?;
    thread::sleep(WATCHED);
    for life in await_lives(copies, |_| true)? {
        let noticed_us = life.noticed_us.unwrap_or_default();
        let late = life.draws.iter().find(|draw| draw.asked_us >= noticed_us);
        check(
            late.is_none(),
            &format!("{late:?} came after the notice at {noticed_us}, while the coordinator is away"),
        )?;
        check(life.ends.is_empty(), "a daemon ended while the coordinator is away")?;
    }
    Ok(())
}

/// Waits until the consoles show enough events.
fn await_lives(machines: &mut [Vm], is_enough: impl Fn(&[Life]) -> bool) -> Result<Vec<Life>, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let consoles = machines.iter().map(Vm::console).collect::<Result<Vec<_>, _>>()?;
        let lives = consoles.iter().map(|text| Life::read(text)).collect::<Result<Vec<_>, _>>()?;
        if is_enough(&lives) {
            return Ok(lives);
        }
        if Instant::now() > deadline || !machines.iter_mut().all(Vm::is_running) {
            let all = consoles.join("\n== the next machine's console\n");
            return Err(format!("too few events within {LIMIT:?}; the consoles:\n{all}"));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Makes a small machine that can reach the coordinator.
fn machine(
    [kernel, busybox, modules]: [&Path; 3],
    script: &str,
    directory: &Path,
) -> Result<Machine, String> {
    let root = directory.join("root");
    let initrd = directory.join("initrd");
    guest::furnish(busybox, &root, script)?;
    for driver in DRIVERS {
        let packed = modules.join("kernel").join(format!("{driver}.xz"));
        let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(&packed).output();
        let output = output.map_err(|error| format!("xz: {error}"))?;
        check(output.status.success(), &String::from_utf8_lossy(&output.stderr))?;
        let unpacked: PathBuf = directory.join("driver.ko");
        fs::write(&unpacked, output.stdout).map_err(|error| error.to_string())?;
        let name = Path::new(driver).file_name().unwrap_or_default();
        install(&root, &unpacked, &format!("drivers/{}", name.to_string_lossy()))?;
    }
    guest::pack(&root, &initrd)?;
    Ok(Machine {
        kernel: kernel.to_owned(),
        initrd,
        memory_mib: 384,
        has_network: true,
        arguments: "console=ttyS0 quiet panic=-1",
        facts: &[],
    })
}
