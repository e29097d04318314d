//! A well-behaved client during an attack by hostile peers, on the daemon and on Redis.
//!
//! - [`victim`]: the servers, the client at 1,000 requests a second that connects again now and
//!   then, and probes.
//! - [`peers`]: what the hostile peers do. [`cores`]: where they run.

mod cores;
mod peers;
mod victim;

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;

use crate::Effort;
use peers::Attack;
use victim::{Kind, Seen, Victim};

/// The open files of 10,000 peers, of clients and of the programs.
const FILES: u64 = 20_000;
/// The time that the allocator and the kernel have after the peers are gone.
const AFTER: Duration = Duration::from_millis(1_500);
/// The time that the peers have to take their places before the client is timed.
const BEFORE: Duration = Duration::from_secs(2);
/// The peers' nice value, where they cannot be made idle.
const LOWEST_PRIORITY: i32 = 19;

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    allow_files()?;
    let stretch = effort.stretch(Duration::from_secs(4), Duration::from_secs(2));
    println!("\n## Hostile peers\n");
    println!(
        "One client asks for single IDs at 1,000/s for {} s. Where all peers ask for 1,000,000, it asks for \
         1,000 IDs at 100/s instead. \
         After every 250 requests it connects again with its token; that has a column of its own. Admin listener: probes at 10/s. Redis (INCRBY) has \
         `maxclients 10000`, `client-output-buffer-limit normal 256kb 256kb 0`, `maxmemory-clients 128mb`. Lost: not answered \
         within a second, refused, or no connection. {} Waited: how long \
         the server's threads waited for that core, per second.\n",
        stretch.as_secs_f64(),
        match cores::of_machine()? {
            Some(_) =>
                "The server, with one shard, has a core alone; peers and client share the others, and the peers run when the client does not.",
            None => "All share one core.",
        }
    );
    println!(
        "| peers | server | p50 ms | p99 ms | longest ms | to connect ms | lost of all | waited ms/s | MiB before | most | after |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let wants = |attack: &Attack| effort.peers.as_ref().is_none_or(|part| attack.name().contains(part));
    for attack in Attack::ALL.into_iter().filter(wants) {
        for kind in [Kind::Snowbank, Kind::Redis] {
            let name = if kind == Kind::Snowbank { attack.name() } else { String::new() };
            match row(attack, kind, stretch) {
                Ok(Some(cells)) => println!("| {name} | {} | {cells} |", kind.name()),
                Ok(None) => {}
                Err(error) => println!("| {name} | {} | {error} |", kind.name()),
            }
        }
    }
    Ok(())
}

/// Allows this process and the servers that it starts as many files as 10,000 peers need.
fn allow_files() -> io::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|files| files >= FILES) {
        return Ok(());
    }
    let maximum = limits.maximum.map(|most| most.max(FILES));
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).map_err(|error| {
        io::Error::other(format!("cannot open {FILES} files: {error}; run `ulimit -n {FILES}` as root first"))
    })
}

/// Measures one attack on one server. Returns `None` where the server has nothing that could be
/// attacked so.
fn row(attack: Attack, kind: Kind, stretch: Duration) -> io::Result<Option<String>> {
    match cores::of_machine()? {
        Some((server, others)) => {
            let Some(victim) = cores::on(&server, || Victim::start(kind, attack))?? else { return Ok(None) };
            cores::on(&others, || measure(attack, &victim, stretch))?.map(Some)
        }
        None => match Victim::start(kind, attack)? {
            Some(victim) => measure(attack, &victim, stretch).map(Some),
            None => Ok(None),
        },
    }
}

/// Lets this thread, and those that it starts, run only when nothing else wants their core. The
/// client beside them would wait for the end of their time slice otherwise, also at the lowest
/// priority.
fn give_way() {
    let thread = gettid().as_raw_nonzero().to_string();
    let made_idle = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
    if !made_idle.is_ok_and(|status| status.success()) {
        let _ = setpriority_process(None, LOWEST_PRIORITY);
    }
}

fn measure(attack: Attack, victim: &Victim, stretch: Duration) -> io::Result<String> {
    let before = victim.memory_mib()?;
    let stop = AtomicBool::new(false);
    let (seen, waited, most) = thread::scope(|scope| {
        scope.spawn(|| {
            give_way();
            attack.run(victim, &stop);
        });
        let measured = scope.spawn(|| {
            thread::sleep(BEFORE);
            let waited = victim.waited()?;
            let seen = match attack {
                Attack::Admin => victim.probe(stretch),
                _ => victim.ask(stretch),
            };
            let waited = victim.waited()?.saturating_sub(waited);
            seen.map(|seen| (seen, waited))
        });
        let mut most = before;
        while !measured.is_finished() {
            most = victim.memory_mib().unwrap_or(most).max(most);
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let measured = measured.join().map_err(|_| io::Error::other("the client's thread failed"));
        let (seen, waited) = measured??;
        Ok::<_, io::Error>((seen, waited, most))
    })?;
    // The allocator gives memory back with the requests that follow.
    victim.ask(AFTER)?;
    let after = victim.memory_mib()?;
    let Seen { latency, to_connect, lost, all } = seen;
    let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
    let to_connect = match to_connect.is_empty() {
        true => String::from("–"),
        false => format!("{:.1}", to_connect.value_at_quantile(0.5) as f64 / 1e6),
    };
    Ok(format!(
        "{:.2} | {:.2} | {:.1} | {to_connect} | {lost} of {all} | {:.0} | {before:.0} | {most:.0} | {after:.0}",
        ms(0.5),
        ms(0.99),
        ms(1.0),
        waited.as_secs_f64() * 1e3 / stretch.as_secs_f64(),
    ))
}
