//! Restores of a virtual machine (qemu, emulated). The shipped daemon runs in the machine, beside a
//! client that prints every ID. The machine is saved once and resumed several times, under the same
//! VM generation ID and under others.
//!
//! - `guest`: the client, the events that a console shows, and the contents of a small machine.
//! - `booted`: a Debian that systemd boots, with the daemon as its packaged service.
//! - `tickets`: the ticket source, which a restored machine refuses until the counter is set.
//! - `fleet`: two copies of one machine at one coordinator.
//! - `qemu`: the virtual machine, seen from outside.
//!
//! Without arguments this program does nothing. `tests/vm/run` fetches the parts of the machines
//! and calls this program.

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

/// A generation ID may be any 128 bits.
const FIRST: &str = "11111111-1111-1111-1111-111111111111";
const SECOND: &str = "22222222-2222-2222-2222-222222222222";
const THIRD: &str = "33333333-3333-3333-3333-333333333333";
/// The shortest time for which a machine is watched once its IDs flow.
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
        // No arguments, or the options that cargo passes to every test.
        _ => println!("this test takes minutes; run tests/vm/run"),
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

/// Makes the Debian from a kernel and a root file system, saves it, and resumes it.
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
    check(before.noticed_us.is_none(), "the original logs a restore, although it was never restored")?;
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
            check(after.noticed_us.is_none(), "the daemon logs a restore under the same generation ID")?;
            tickets::check_counts(&[&before.tickets[..], &after.tickets].concat(), name)?;
            println!("{name}: {} IDs, none twice; no restore is logged", ids(&after.replies).count());
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

/// Checks the facts that the machine prints.
fn check_facts(said: &Said, machine: &Machine) -> Result<(), String> {
    for fact in &said.facts {
        println!("the original: {fact}");
    }
    let facts = machine.facts.join("\n");
    check(said.facts.join("\n") == facts, &format!("the original must print these facts:\n{facts}"))
}

/// Waits until the machine's client has had IDs for a while, and the machine's console shows enough
/// events.
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
            return Err(format!("{name}: too few events within {LIMIT:?}; its console:\n{console}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn ids(replies: &[Reply]) -> impl Iterator<Item = u64> + '_ {
    replies.iter().flat_map(|reply| reply.first..=reply.last)
}

/// Checks that the IDs on the connection of a machine increase, even across a save and a resume. So
/// no ID comes twice.
fn check_grows(replies: &[Reply], name: &str) -> Result<(), String> {
    match replies.windows(2).find(|pair| pair[1].first <= pair[0].last) {
        Some(pair) => Err(format!("{name}: {:?} came after {:?}", pair[1], pair[0])),
        None => Ok(()),
    }
}

/// Checks that the daemon logs the restore and then the end of two syncs, which are slow on the
/// guest's disk. IDs requested after the first log line must come after both syncs.
fn check_notice(said: &Said, name: &str) -> Result<(), String> {
    let noticed_us = said.noticed_us.ok_or_else(|| format!("{name}: the daemon logs no restore"))?;
    let renewed_us = said.renewed_us.ok_or_else(|| format!("{name}: the daemon logs no durable ceilings"))?;
    let first = said
        .replies
        .iter()
        .filter(|reply| reply.asked_us >= noticed_us)
        .min_by_key(|reply| reply.answered_us);
    let first = first.ok_or_else(|| format!("{name}: no IDs came after the notice"))?;
    // The daemon begins the syncs before it logs the notice. The log line may be late by a quarter
    // of a sync.
    let silence_us = 2 * guest::SYNC_US - guest::SYNC_US / 4;
    let waited_us = first.answered_us - noticed_us;
    check(
        waited_us >= silence_us,
        &format!("{name}: IDs came {waited_us} us after the notice, before two syncs: {first:?}"),
    )?;
    check(renewed_us - noticed_us >= silence_us, &format!("{name}: ceilings renewed without two syncs"))?;
    let late = said.replies.iter().filter(|reply| reply.asked_us < noticed_us);
    println!(
        "{name}: {} IDs were requested before the notice; then none came for {} ms, until the ceiling was durable \
         again; {} IDs in all, none twice",
        ids(&late.copied().collect::<Vec<_>>()).count(),
        waited_us / 1_000,
        ids(&said.replies).count()
    );
    Ok(())
}
