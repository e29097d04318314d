//! The contents of the machine: the daemon, its clients, a shell that starts them, and a disk whose
//! syncs take long.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::life::IDS;
use crate::support::daemon::Address;
use crate::support::failing_disk;
use crate::support::wire::{Ask, Reply, Wire};

/// The time that each sync takes in the guest.
pub(crate) const SYNC_US: i64 = 200_000;

/// Makes a file system of the daemon, its clients and a shell, which begins with this script.
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

/// Strips a program if `strip` is available: symbols are most of its size.
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

/// The shared libraries of a program, by their paths here.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// In the guest: draws from a source until the connection ends, and writes down what comes.
pub(crate) fn draw(address: &str, source: u16, max_wait_ms: u16) {
    // Enough that IDs are claimed ahead.
    let (count, pause_ms) = if source == IDS { (200, 10) } else { (3, 50) };
    let ask = Ask::of(count).source(source).wait_ms(max_wait_ms).bytes();
    let mut wire = connect(address);
    loop {
        let asked_us = wall_us();
        let Ok(Some(reply)) = wire.try_send(&ask).and_then(|()| wire.try_reply()) else { return };
        match reply {
            Reply::Runs(_, runs) => {
                for run in runs {
                    assert_eq!(run.stride, 1, "one worker's numbers are consecutive");
                    println!("DREW {source} {asked_us} {} {} {}", wall_us(), run.first, run.last());
                }
            }
            Reply::Error { code, .. } => println!("REFUSED {asked_us} {code}"),
            other => panic!("{other:?}"),
        }
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// Connects as soon as the daemon listens.
fn connect(address: &str) -> Wire {
    let address = Address::Tcp(address.parse().expect("an address"));
    loop {
        match Wire::try_connect(&address) {
            Ok(wire) => return wire,
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
