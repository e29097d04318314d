//! A machine whose saved state is resumed several times: the shipped daemon in a virtual machine
//! (qemu, emulated), a client beside it that keeps every ID, and copies of the machine that go on
//! from one moment under other VM generation IDs.
//!
//! - `guest`: the client, and a file system that has little but the daemon.
//! - `booted`: a Debian that systemd has booted, with the daemon as its packaged service.
//! - `fleet`: two copies of one machine at one coordinator.
//! - `life`: what a console shows.
//! - `qemu`: the machine from outside.
//!
//! Without arguments (as `cargo test` calls it) nothing is done. `tests/vm/run` fetches what they
//! are made of and calls this.

mod booted;
mod fleet;
mod guest;
mod life;
mod qemu;

use snowbank_testkit as support;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use life::{Draw, Life};
use qemu::{Machine, Vm};

/// Generations are any 128 bits.
const FIRST: &str = "11111111-1111-1111-1111-111111111111";
const SECOND: &str = "22222222-2222-2222-2222-222222222222";
const THIRD: &str = "33333333-3333-3333-3333-333333333333";
/// The time for which each copy is watched once its IDs flow. It may take longer, because the
/// machine is emulated.
const WATCHED: Duration = Duration::from_secs(4);
/// The longest wait: far more than an emulated machine needs on a busy one.
const LIMIT: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["draw", address, source, max_wait_ms] => {
            let number = |text: &str| text.parse().expect("a number");
            guest::draw(address, number(source), number(max_wait_ms));
        }
        ["booted", kernel, root] => return end(run(Path::new(kernel), Path::new(root))),
        ["fleet", kernel, busybox, modules] => {
            return end(fleet::run([kernel, busybox, modules].map(Path::new)));
        }
        // Other options that cargo passes to every test.
        _ => println!("a restored virtual machine takes minutes: tests/vm/run"),
    }
    ExitCode::SUCCESS
}

fn end(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("vm: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the Debian from a kernel and a root file system, and resumes it.
fn run(kernel: &Path, root: &Path) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let machine = booted::machine(kernel, root, directory.path())?;
    resume_twice(&machine, directory.path())
}

fn resume_twice(machine: &Machine, directory: &Path) -> Result<(), String> {
    let at = |name: &str| directory.join(name);
    let start =
        |name: &str, generation: &str, saved: Option<&Path>| Vm::start(machine, &at(name), generation, saved);

    let mut original = start("original", FIRST, None)?;
    watch(&mut original)?;
    let saved = at("saved");
    original.save(&saved)?;
    let before = lived(&original.console()?)?;
    check(before.noticed_us.is_none(), "the original was restored from nothing, and says that it was")?;
    check_grows(&before.draws, "the original")?;
    println!("the original: {} IDs; saved", ids(&before.draws).count());

    for (name, generation) in
        [("resumed under its own generation", FIRST), ("copy 2", SECOND), ("copy 3", THIRD)]
    {
        let mut copy = start(name, generation, Some(&saved))?;
        copy.await_read()?;
        copy.resume()?;
        watch(&mut copy)?;
        let console = copy.console()?;
        copy.quit();
        let after = lived(&console).map_err(|reason| format!("{name}: {reason}\n{console}"))?;
        let both: Vec<Draw> = before.draws.iter().chain(&after.draws).copied().collect();
        check_grows(&both, name)?;
        if generation == FIRST {
            check(after.noticed_us.is_none(), "the same generation is taken for another one")?;
            println!("{name}: {} IDs, nothing noticed, none twice in its life", ids(&after.draws).count());
        } else {
            check_notice(&after, name).map_err(|reason| format!("{reason}; its console:\n{console}"))?;
        }
    }
    Ok(())
}

/// Waits until the machine's client has had IDs for a while.
fn watch(vm: &mut Vm) -> Result<(), String> {
    await_lives(std::slice::from_mut(vm), |lives| lives[0].draws.len() > 10)?;
    thread::sleep(WATCHED);
    Ok(())
}

/// Waits until the consoles show enough.
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
            return Err(format!("not enough within {} s; the console:\n{all}", LIMIT.as_secs()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Reads the console of a machine whose client was always served.
fn lived(console: &str) -> Result<Life, String> {
    let life = Life::read(console)?;
    check(life.ends.is_empty(), "the client has ended")?;
    check(life.refusals.is_empty(), &format!("refused: {:?}", life.refusals))?;
    Ok(life)
}

fn check(holds: bool, reason: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason.to_owned()) }
}

fn ids(draws: &[Draw]) -> impl Iterator<Item = u64> + '_ {
    draws.iter().flat_map(|draw| draw.first..=draw.last)
}

/// One machine's life, saved and resumed as if nothing had happened: no ID twice, and on its
/// connection they increase.
fn check_grows(draws: &[Draw], name: &str) -> Result<(), String> {
    match draws.windows(2).find(|pair| pair[1].first <= pair[0].last) {
        Some(pair) => Err(format!("{name}: {:?} after {:?}", pair[1], pair[0])),
        None => Ok(()),
    }
}

/// The daemon logs that it was restored. IDs requested from then on come only after two syncs,
/// which the guest's disk makes slow, and the daemon logs the end of the syncs.
fn check_notice(life: &Life, name: &str) -> Result<(), String> {
    let noticed_us = life.noticed_us.ok_or_else(|| format!("{name}: another generation is not noticed"))?;
    let renewed_us = life.renewed_us.ok_or_else(|| format!("{name}: the ceilings are not renewed"))?;
    let after = life.draws.iter().filter(|draw| draw.asked_us >= noticed_us);
    let first = after.min_by_key(|draw| draw.answered_us);
    let first = first.ok_or_else(|| format!("{name}: no IDs after the notice"))?;
    // The notice is logged after the syncs have begun: subtract the time that the guest may need to
    // log it.
    let silence_us = 2 * guest::SYNC_US - guest::SYNC_US / 4;
    let waited_us = first.answered_us - noticed_us;
    check(waited_us >= silence_us, &format!("{name}: an ID {waited_us} us after the notice: {first:?}"))?;
    check(renewed_us - noticed_us >= silence_us, &format!("{name}: renewed without two syncs"))?;
    let late = life.draws.iter().filter(|draw| draw.asked_us < noticed_us);
    println!(
        "{name}: noticed; {} IDs asked for before that; then none for {} ms, until the ceiling was durable again; {} IDs in \
         all, none twice in its life",
        ids(&late.copied().collect::<Vec<_>>()).count(),
        waited_us / 1_000,
        ids(&life.draws).count()
    );
    Ok(())
}
