//! The contents of a Debian that boots with systemd: the package as installed, its service as
//! shipped, a client, and a disk whose syncs take long.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::guest::{self, SYNC_US, fault, install};
use crate::qemu::Machine;
use crate::support::failing_disk;

/// The operator's own files.
const FILES: &[(&str, &str)] = &[
    (
        "etc/default/snowbank",
        "LD_PRELOAD=/usr/lib/vm/failing_disk.so\nFAILING_DISK_DIR=/var/lib/snowbank\n\
         FAILING_DISK_CONTROL=/usr/lib/vm/orders\n",
    ),
    ("etc/hostname", "restored\n"),
    (
        "etc/systemd/system/vm-journal.service",
        "[Service]\nExecStart=journalctl --follow --lines=all --unit=snowbank --output=short-iso-precise --utc\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
    (
        "etc/systemd/system/vm-client.service",
        "[Unit]\nAfter=snowbank.service\n\
         [Service]\nExecStart=/usr/lib/vm/client draw 127.0.0.1:7660 0 10000\n\
         ExecStopPost=echo ENDED 0\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
];

const ENABLED: &[(&str, &str)] = &[
    ("snowbank.socket", "/usr/lib/systemd/system/snowbank.socket"),
    ("snowbank.service", "/usr/lib/systemd/system/snowbank.service"),
    ("vm-journal.service", "/etc/systemd/system/vm-journal.service"),
    ("vm-client.service", "/etc/systemd/system/vm-client.service"),
];

/// Adds to a Debian what the test needs, and packs it. `root` has the package installed.
pub(crate) fn machine(kernel: &Path, root: &Path, directory: &Path) -> Result<Machine, String> {
    let client = std::env::current_exe().map_err(|error| error.to_string())?;
    install(root, &client, "usr/lib/vm/client")?;
    install(root, failing_disk::library(), "usr/lib/vm/failing_disk.so")?;
    guest::strip(&root.join("usr/lib/vm/client"));
    let orders = format!("sync stall {}", SYNC_US / 1_000);
    for (name, text) in FILES.iter().chain(&[("usr/lib/vm/orders", &*orders)]) {
        let path = root.join(name);
        let parent = path.parent().unwrap_or(root);
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).map_err(fault(&path))?;
    }
    let system = root.join("etc/systemd/system");
    let wants = system.join("multi-user.target.wants");
    fs::create_dir_all(&wants).map_err(fault(&wants))?;
    let enabled = ENABLED.iter().map(|(name, unit)| (wants.join(name), *unit));
    // The console belongs to the test.
    for (link, unit) in enabled.chain([(system.join("serial-getty@ttyS0.service"), "/dev/null")]) {
        symlink(unit, &link).map_err(fault(&link))?;
    }
    let initrd = directory.join("initrd");
    guest::pack(root, &initrd)?;
    Ok(Machine {
        kernel: kernel.to_owned(),
        initrd,
        memory_mib: 1_024,
        has_network: false,
        arguments: "console=ttyS0 quiet panic=-1 rdinit=/lib/systemd/systemd systemd.show_status=0",
    })
}
