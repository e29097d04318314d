//! A machine whose saved state is resumed several times: the shipped daemon in a virtual machine
//! (qemu, emulated), a client beside it that keeps every ID, and copies of the machine that go on
//! from one moment under other VM generation IDs.
//!
//! - `guest`: the client, what its console shows, and a file system that has little but the daemon.
//! - `booted`: a Debian that systemd has booted, with the daemon as its packaged service.
//! - `tickets`: the ticket source, which stops for good in a restored machine.
//! - `fleet`: two copies of one machine at one coordinator.
//! - `qemu`: the machine from outside.
//!
//! Without arguments this program does nothing. `tests/vm/run` fetches the parts of the machines
//! and calls it.

mod booted;
mod fleet;
mod guest;
mod qemu;
mod tickets;

use snowbank_testkit as support;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use guest::{Reply, Said};
use qemu::{Machine, Vm};

/// Generations are any 128 bits.
const FIRST: &str = "11111111-1111-1111-1111-111111111111";
const SECOND: &str = "22222222-2222-2222-2222-222222222222";
const THIRD: &str = "33333333-3333-3333-3333-333333333333";
/// The time for which each copy is watched once its IDs flow. Watching may take longer, because the
/// machine is emulated.
const WATCHED: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["client", address] => guest::client(address),
        ["tickets", address, highest_file] => tickets::client(address, highest_file),
        ["draw", address, source] => fleet::draw(address, source),
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
    watch(&mut original, "the original", |_| true)?;
    let saved = at("saved");
    original.save(&saved)?;
    let before = Said::read(&original.console()?)?;
    check(before.noticed_us.is_none(), "the original was restored from nothing, and says that it was")?;
    check_grows(&before.replies, "the original")?;
    tickets::check_counts(&before.tickets, "the original")?;
    check_facts(&before, machine)?;
    println!("the original: {} IDs; saved", ids(&before.replies).count());

    for (name, generation) in
        [("resumed under its own generation", FIRST), ("copy 2", SECOND), ("copy 3", THIRD)]
    {
        let mut copy = start(name, generation, Some(&saved))?;
        copy.await_read()?;
        copy.resume()?;
        watch(&mut copy, name, |said| generation == FIRST || tickets::goes_on(&said.tickets))?;
        let console = copy.console()?;
        copy.quit();
        let after = Said::read(&console).map_err(|reason| format!("{name}: {reason}\n{console}"))?;
        let lived: Vec<Reply> = before.replies.iter().chain(&after.replies).copied().collect();
        check_grows(&lived, name)?;
        if generation == FIRST {
            check(after.noticed_us.is_none(), "the same generation is taken for another one")?;
            tickets::check_counts(&[&before.tickets[..], &after.tickets].concat(), name)?;
            println!("{name}: {} IDs, nothing noticed, none twice in its life", ids(&after.replies).count());
        } else {
            check_notice(&after, name)
                .and_then(|()| tickets::check_stops(&before.tickets, &after, name))
                .map_err(|reason| format!("{reason}; its console:\n{console}"))?;
        }
    }
    Ok(())
}

fn check(holds: bool, reason: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason.to_owned()) }
}

/// Checks that the machine is as expected.
fn check_facts(said: &Said, machine: &Machine) -> Result<(), String> {
    for fact in &said.facts {
        println!("the original: {fact}");
    }
    match said.facts.iter().map(String::as_str).eq(machine.facts.iter().copied()) {
        true => Ok(()),
        false => Err(format!("the original is not what it is to be:\n{}", machine.facts.join("\n"))),
    }
}

/// Waits until the machine's client has had IDs for a while, and its console shows enough.
fn watch(vm: &mut Vm, name: &str, is_enough: impl Fn(&Said) -> bool) -> Result<(), String> {
    const LIMIT: Duration = Duration::from_secs(120);
    let deadline = Instant::now() + LIMIT;
    let mut flowing_since = None;
    loop {
        let console = vm.console()?;
        let said = Said::read(&console)?;
        if said.replies.len() > 10 {
            let since = *flowing_since.get_or_insert_with(Instant::now);
            if since.elapsed() > WATCHED && is_enough(&said) {
                return Ok(());
            }
        }
        if Instant::now() > deadline || !vm.is_running() {
            return Err(format!("{name}: not enough within {} s; its console:\n{console}", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn ids(replies: &[Reply]) -> impl Iterator<Item = u64> + '_ {
    replies.iter().flat_map(|reply| reply.first..=reply.last)
}

/// Checks that the IDs of one machine's life, saved and resumed as if nothing had happened,
/// increase on its connection, so none comes twice.
fn check_grows(replies: &[Reply], name: &str) -> Result<(), String> {
    match replies.windows(2).find(|pair| pair[1].first <= pair[0].last) {
        Some(pair) => Err(format!("{name}: {:?} after {:?}", pair[1], pair[0])),
        None => Ok(()),
    }
}

/// Checks that the daemon logs the restore. IDs requested from then on come only after two syncs,
/// which the guest's disk makes slow, and the daemon logs the end of the syncs.
fn check_notice(said: &Said, name: &str) -> Result<(), String> {
    let noticed_us = said.noticed_us.ok_or_else(|| format!("{name}: another generation is not noticed"))?;
    let renewed_us = said.renewed_us.ok_or_else(|| format!("{name}: the ceilings are not renewed"))?;
    let first = said
        .replies
        .iter()
        .filter(|reply| reply.asked_us >= noticed_us)
        .min_by_key(|reply| reply.answered_us);
    let first = first.ok_or_else(|| format!("{name}: no IDs after the notice"))?;
    // The notice is logged after the syncs have begun: subtract the time that the guest may need to
    // log it.
    let silence_us = 2 * guest::SYNC_US - guest::SYNC_US / 4;
    let waited_us = first.answered_us - noticed_us;
    check(waited_us >= silence_us, &format!("{name}: an ID {waited_us} us after the notice: {first:?}"))?;
    check(renewed_us - noticed_us >= silence_us, &format!("{name}: renewed without two syncs"))?;
    let late = said.replies.iter().filter(|reply| reply.asked_us < noticed_us);
    println!(
        "{name}: noticed; {} IDs asked for before that; then none for {} ms, until the ceiling was durable again; {} IDs in \
         all, none twice in its life",
        ids(&late.copied().collect::<Vec<_>>()).count(),
        waited_us / 1_000,
        ids(&said.replies).count()
    );
    Ok(())
}
