//! The contents of a small machine: the daemon, its clients, and a shell that starts them. Also the
//! events that a machine's console shows.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::Address;
use crate::support::failing_disk;
use crate::support::wire::{Ask, Reply as Came, Wire};
use crate::tickets::Ticket;

/// The time that each sync takes in the guest.
pub(crate) const SYNC_US: i64 = 200_000;

/// The sources of the Debian's daemon: IDs and tickets.
pub(crate) const SOURCES: &str =
    "[[sources]]\nname = \"ids\"\n[[sources]]\nname = \"orders\"\nkind = \"ticket\"";

/// Makes a file system with the daemon, its clients and a shell. The machine runs `script` first.
pub(crate) fn furnish(busybox: &Path, root: &Path, script: &str) -> Result<(), String> {
    for directory in ["bin", "proc", "sys", "dev", "tmp"] {
        let path = root.join(directory);
        fs::create_dir_all(&path).map_err(fault(&path))?;
    }
    let client = std::env::current_exe().map_err(|error| error.to_string())?;
    let daemon = Path::new(env!("CARGO_BIN_EXE_snowbank"));
    install(root, busybox, "bin/busybox")?;
    install(root, daemon, "bin/snowbank")?;
    install(root, &client, "bin/client")?;
    install(root, failing_disk::library(), "bin/failing_disk.so")?;
    ["bin/snowbank", "bin/client"].iter().for_each(|name| strip(&root.join(name)));
    let libraries: BTreeSet<PathBuf> = [daemon, &client].into_iter().flat_map(libraries).collect();
    for library in libraries {
        install(root, &library, &library.to_string_lossy())?;
    }
    let init = root.join("init");
    fs::write(&init, script).map_err(fault(&init))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(fault(&init))
}

/// Returns a function that adds the path to an error.
pub(crate) fn fault(path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Copies a program into a machine's file system.
pub(crate) fn install(root: &Path, from: &Path, to: &str) -> Result<(), String> {
    let to = root.join(to.trim_start_matches('/'));
    to.parent().map_or(Ok(()), fs::create_dir_all).map_err(fault(&to))?;
    fs::copy(from, &to).map_err(fault(from))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(fault(&to))
}

/// Strips a program if `strip` is installed. Most of a program's size is symbols.
pub(crate) fn strip(program: &Path) {
    let _ = Command::new("strip").arg(program).status();
}

/// Makes the archive that the kernel unpacks.
pub(crate) fn pack(root: &Path, initrd: &Path) -> Result<(), String> {
    let archive = fs::File::create(initrd).map_err(fault(initrd))?;
    let mut cpio = Command::new("sh");
    cpio.args(["-c", "find . | cpio --quiet -o -H newc"])
        .current_dir(root)
        .stdout(archive)
        .stdin(Stdio::null());
    match cpio.status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("cpio: {other:?}")),
    }
}

/// Returns the paths of a program's shared libraries on this machine.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Runs in the guest: requests IDs on one connection forever, and prints them.
pub(crate) fn client(address: &str) {
    let mut wire = connect(address);
    loop {
        let asked_us = wall_us();
        // Requests so many IDs that the shard claims ahead of demand.
        match wire.call(&Ask::of(200).wait_ms(10_000).bytes()) {
            Came::Runs(_, runs) => {
                for run in runs {
                    assert_eq!(run.stride, 1, "one worker's IDs are consecutive");
                    println!("CAME {asked_us} {} {} {}", wall_us(), run.first, run.last());
                }
            }
            other => println!("REFUSED {asked_us} {} {other:?}", wall_us()),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Connects once the daemon listens.
pub(crate) fn connect(address: &str) -> Wire {
    let address = Address::Tcp(address.parse().expect("an address"));
    loop {
        match Wire::try_connect(&address) {
            Ok(wire) => return wire,
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

pub(crate) fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// A run of IDs, with the guest's wall clock at the request and at the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) asked_us: i64,
    pub(crate) answered_us: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The events that a console shows.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) replies: Vec<Reply>,
    /// The events of the ticket source.
    pub(crate) tickets: Vec<Ticket>,
    /// The facts, without their prefix.
    pub(crate) facts: Vec<String>,
    /// The time when the daemon logged that the machine was restored.
    pub(crate) noticed_us: Option<i64>,
    /// The time when the daemon logged that the ceilings are durable again.
    pub(crate) renewed_us: Option<i64>,
}

impl Said {
    /// Reads a console. Its last line may be incomplete.
    pub(crate) fn read(console: &str) -> Result<Said, String> {
        let mut said = Said::default();
        let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
        // The first line of a copy's console may lack its beginning, because the original printed
        // that before the save.
        for line in whole.lines().map(str::trim_end) {
            if line.contains("REFUSED") || line.contains("panicked") || line.contains("has ended") {
                return Err(line.to_owned());
            }
            if let Some(fact) = line.strip_prefix("FACT ") {
                said.facts.push(fact.to_owned());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["CAME", numbers @ ..] = &words[..]
                && let Ok([asked_us, answered_us, first, last]) = <[i64; 4]>::try_from(
                    numbers.iter().filter_map(|number| number.parse().ok()).collect::<Vec<i64>>(),
                )
            {
                said.replies.push(Reply { asked_us, answered_us, first: first as u64, last: last as u64 });
            }
            said.tickets.extend(Ticket::read(line));
            let at = || {
                words
                    .first()
                    .and_then(|time| time.parse::<jiff::Timestamp>().ok())
                    .map(|time| time.as_microsecond())
            };
            if line.contains("restored from a snapshot: what was claimed ahead is dropped") {
                said.noticed_us = at();
            }
            if line.contains("the ceilings were made durable") {
                said.renewed_us = at();
            }
        }
        Ok(said)
    }
}
