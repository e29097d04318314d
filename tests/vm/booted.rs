//! The contents of a Debian that boots with systemd: the installed package with its service, a
//! client, and a disk with slow syncs. Units print facts about the service's sandbox on the
//! console.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::guest::{self, SYNC_US, fault, install};
use crate::qemu::Machine;
use crate::support::failing_disk;

/// The operator's files. The instance `snowbank@plain` has no access to the kernel's log, as
/// docs/systemd.md explains.
const FILES: &[(&str, &str)] = &[
    (
        "etc/default/snowbank",
        "LD_PRELOAD=/usr/lib/vm/failing_disk.so\nFAILING_DISK_DIR=/var/lib/snowbank\n\
         FAILING_DISK_CONTROL=/usr/lib/vm/orders\n",
    ),
    (
        "etc/systemd/system/vm-counter.service",
        "[Unit]\nBefore=snowbank.service\nAfter=systemd-tmpfiles-setup.service\n\
         [Service]\nType=oneshot\n\
         ExecStart=/usr/bin/snowbank ticket set orders 0 --state-dir /var/lib/snowbank\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
    ("etc/snowbank/plain.toml", "listen = [\"127.0.0.1:7670\"]\nworker_ids = 1\n"),
    ("etc/systemd/system/snowbank@plain.service.d/10-kernel-log.conf", ""),
    ("etc/hostname", "restored\n"),
    ("usr/lib/vm/facts", FACTS),
    (
        "etc/systemd/system/vm-facts.service",
        "[Unit]\nAfter=snowbank.service snowbank@plain.service\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh /usr/lib/vm/facts\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
    (
        "etc/systemd/system/vm-journal.service",
        "[Service]\nExecStart=journalctl --follow --lines=all --unit=snowbank --output=short-iso-precise --utc\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
    (
        "etc/systemd/system/vm-client.service",
        "[Unit]\nAfter=vm-facts.service\n\
         [Service]\nExecStart=/usr/lib/vm/client client 127.0.0.1:7660\n\
         ExecStopPost=sh -c '[ -e /run/highest ] || echo the client has ended'\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
    ("usr/lib/vm/tickets", TICKETS),
    (
        "etc/systemd/system/vm-tickets.service",
        "[Unit]\nAfter=vm-facts.service\n\
         [Service]\nExecStart=/bin/sh /usr/lib/vm/tickets\n\
         StandardOutput=file:/dev/ttyS0\nStandardError=inherit\n",
    ),
];

const ENABLED: &[(&str, &str)] = &[
    ("snowbank.socket", "/usr/lib/systemd/system/snowbank.socket"),
    ("snowbank.service", "/usr/lib/systemd/system/snowbank.service"),
    ("snowbank@plain.service", "/usr/lib/systemd/system/snowbank@.service"),
    ("vm-facts.service", "/etc/systemd/system/vm-facts.service"),
    ("vm-journal.service", "/etc/systemd/system/vm-journal.service"),
    ("vm-client.service", "/etc/systemd/system/vm-client.service"),
    ("vm-counter.service", "/etc/systemd/system/vm-counter.service"),
    ("vm-tickets.service", "/etc/systemd/system/vm-tickets.service"),
];

/// Draws tickets. The first command ends only on a machine that was restored.
const TICKETS: &str = r#"
/usr/lib/vm/client tickets 127.0.0.1:7660 /run/highest
ended() { echo "TICKETS the daemon ended with $(systemctl show -P ExecMainStatus snowbank)"; }
systemctl stop vm-client.service snowbank.socket snowbank.service
ended
systemctl start snowbank.service
ended
snowbank ticket set orders "$(cat /run/highest)" --state-dir /var/lib/snowbank
systemctl start snowbank.service
exec /usr/lib/vm/client tickets 127.0.0.1:7660 /run/unused
"#;

/// Prints facts once both services run.
const FACTS: &str = r#"
fact() { printf 'FACT %s\n' "$*"; }
for unit in snowbank snowbank@plain; do
    process=$(systemctl show -P MainPID "$unit")
    fact "$unit: $(systemctl is-active "$unit"), user $(stat -c %U "/proc/$process")"
    fact "$unit: drop-ins: $(systemctl show -P DropInPaths "$unit")"
    fact "$unit: standard input: $(readlink "/proc/$process/fd/0")"
    fact "$unit: capabilities: $(sed -n 's/^CapBnd:[[:space:]]*//p' "/proc/$process/status")"
    fact "$unit: its /dev/kmsg: $(nsenter -t "$process" -m sh -c 'test -e /dev/kmsg && echo there || echo none')"
    fact "$unit: $(systemd-analyze security --no-pager --threshold=15 "$unit.service" | grep -o 'exposure level.*OK')"
    systemctl reload "$unit" && fact "$unit: reloaded"
    fact "$unit: $(journalctl --no-pager -o cat -u "$unit" | grep "the kernel's log" | cut -d: -f1)"
done
fact "dmesg_restrict: $(cat /proc/sys/kernel/dmesg_restrict)"
"#;

/// The facts that the console must show: both services have the same sandbox, and only one of them
/// reads the kernel's log.
const EXPECTED: &[&str] = &[
    "snowbank: active, user snowbank",
    "snowbank: drop-ins: /run/systemd/generator/snowbank.service.d/10-kernel-log.conf",
    "snowbank: standard input: /dev/kmsg",
    "snowbank: capabilities: 0000000000000000",
    "snowbank: its /dev/kmsg: none",
    "snowbank: exposure level for snowbank.service: 1.1 OK",
    "snowbank: reloaded",
    "snowbank: reads the kernel's log (standard input)",
    "snowbank@plain: active, user snowbank",
    "snowbank@plain: drop-ins: /etc/systemd/system/snowbank@plain.service.d/10-kernel-log.conf",
    "snowbank@plain: standard input: /dev/null",
    "snowbank@plain: capabilities: 0000000000000000",
    "snowbank@plain: its /dev/kmsg: none",
    "snowbank@plain: exposure level for snowbank@plain.service: 1.1 OK",
    "snowbank@plain: reloaded",
    "snowbank@plain: cannot read the kernel's log (/dev/kmsg",
    "dmesg_restrict: 1",
];

/// Adds the files of the test to the Debian in `root`, which has the package installed. Packs that
/// Debian into an archive, and returns a machine that boots from the archive.
pub(crate) fn machine(kernel: &Path, root: &Path, directory: &Path) -> Result<Machine, String> {
    let client = std::env::current_exe().map_err(|error| error.to_string())?;
    install(root, &client, "usr/lib/vm/client")?;
    install(root, failing_disk::library(), "usr/lib/vm/failing_disk.so")?;
    guest::strip(&root.join("usr/lib/vm/client"));
    let orders = format!("sync stall {}", SYNC_US / 1_000);
    let config = format!("[admin]\nlisten = 9660\n{}\n", guest::SOURCES);
    let made = [("usr/lib/vm/orders", &*orders), ("etc/snowbank/snowbank.toml", &*config)];
    for (name, text) in FILES.iter().chain(&made) {
        let path = root.join(name);
        let parent = path.parent().unwrap_or(root);
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).map_err(fault(&path))?;
    }
    let system = root.join("etc/systemd/system");
    let wants = system.join("multi-user.target.wants");
    fs::create_dir_all(&wants).map_err(fault(&wants))?;
    let enabled = ENABLED.iter().map(|(name, unit)| (wants.join(name), *unit));
    // The last link turns off the login prompt on the console, because the console belongs to the
    // test.
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
        facts: EXPECTED,
    })
}
