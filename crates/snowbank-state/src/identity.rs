//! Identities of the machine, its boot, the state, and the process that keeps ceilings. A start
//! compares the machine and the boot with the state file, and the state with the marks.

use std::fmt;
use std::fs;
use std::io::Read;

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// This application's ID. It is hashed with the machine ID as the key, as machine-id(5) asks, so
/// that no file discloses the machine ID. `systemd-id128 machine-id
/// --app-specific=62b9a5f0-3d0c-4c5f-9c0e-5a1f8e7d2b41` prints the hash.
const APPLICATION: [u8; 16] = 0x62b9_a5f0_3d0c_4c5f_9c0e_5a1f_8e7d_2b41_u128.to_be_bytes();

/// A process that kept ceilings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The identity of the process: 128 random bits in hexadecimal. A process ID would not identify
    /// the process, because the system uses process IDs again.
    pub instance: String,
    /// The process ID, for people who read the file.
    pub pid: u32,
    /// The identity of the state that the process kept: 128 bits in hexadecimal. It is made for
    /// the first state file, and every later state file keeps it.
    pub state: String,
}

impl Owner {
    /// Returns this process, with a new instance and a new state.
    pub fn new() -> Self {
        Owner { instance: new_identity(), pid: std::process::id(), state: new_identity() }
    }

    /// Returns this process as the next owner of the state that these other owners kept.
    pub fn after<'a>(others: impl IntoIterator<Item = &'a Owner>) -> Self {
        let this = Owner::new();
        match others.into_iter().next() {
            Some(other) => Owner { state: other.state.clone(), ..this },
            None => this,
        }
    }
}

/// Makes 128 random bits, in hexadecimal.
///
/// The bits come from the system's random device, so that machines made from one image get
/// different bits. If there is no such device, the bits come from the clock and the thread. If two
/// states had the same identity, a start would take them for copies of each other, and refuse the
/// older one.
pub fn new_identity() -> String {
    let mut bits = [0; 16];
    let read = fs::File::open("/dev/urandom").and_then(|mut device| device.read_exact(&mut bits));
    with_clocks(read.map_or_else(|_| fastrand::u128(..), |()| u128::from_be_bytes(bits)))
}

/// Hashes random bits together with the clocks. The kernel's random generator is part of a snapshot
/// of the machine. Until the generator is seeded again, which may take a minute, two copies of the
/// machine get the same bits. In a fleet, the daemon on each copy would then take the other
/// daemon's write for its own, and both daemons would hand out the same IDs. With the clocks in the
/// hash, two copies get the same identity only if they also read the same nanoseconds from three
/// clocks.
fn with_clocks(random: u128) -> String {
    let mut hash = hmac_sha256::Hash::new();
    hash.update(random.to_be_bytes());
    nanos().iter().for_each(|nanos| hash.update(nanos.to_be_bytes()));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Returns the wall clock, the boot clock and the process's processor time, in nanoseconds. Two
/// copies of one machine are unlikely to read the same values, because each copy has run for a
/// different time since the snapshot.
fn nanos() -> [i64; 3] {
    [ClockId::Realtime, ClockId::Boottime, ClockId::ProcessCPUTime].map(|clock| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        tv_sec.saturating_mul(1_000_000_000).saturating_add(tv_nsec)
    })
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.instance)
    }
}

/// The machine on which a process runs, and the current boot of that machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostIdentity {
    /// The machine: 32 hexadecimal digits, derived from `/etc/machine-id`. `None` if that file has
    /// no machine ID.
    pub machine: Option<String>,
    /// The boot of that machine, from the kernel. `None` if the kernel does not report it.
    pub boot: Option<String>,
    /// A name for the time since that boot, or since the last restore from a snapshot that the
    /// kernel has reported in it. `None` if that is not known.
    pub life: Option<String>,
}

impl HostIdentity {
    /// Returns the identities of this machine and this boot.
    pub fn here() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let machine = fs::read_to_string("/etc/machine-id").ok();
        HostIdentity {
            machine: machine.and_then(|id| machine_of(&id)),
            boot: boot.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
            life: None,
        }
    }
}

/// Returns the machine's identity for this application, as `sd_id128_get_machine_app_specific(3)`
/// derives it. `None` for text that is not a machine ID: in an image that was never booted,
/// `/etc/machine-id` is empty or contains `uninitialized`.
fn machine_of(machine_id: &str) -> Option<String> {
    let id = u128::from_str_radix(machine_id.trim(), 16).ok().filter(|&id| id != 0)?;
    let mac = hmac_sha256::HMAC::mac(APPLICATION, id.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&mac[..16]);
    // These bits make the identity a UUID of version 4.
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_identity_is_the_one_systemd_derives() {
        // `systemd-id128 machine-id --app-specific=…` prints this identity on a machine with this
        // machine ID.
        let named = machine_of("0123456789abcdef0123456789abcdef\n");
        assert_eq!(named.as_deref(), Some("204a2e2c836d41898fdf7c85b1f67197"));
    }

    #[test]
    fn text_that_is_no_machine_id_gives_no_machine() {
        for none in ["", "\n", "uninitialized\n", "00000000000000000000000000000000"] {
            assert_eq!(machine_of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_state_keeps_its_identity_from_owner_to_owner() {
        let first = Owner::new();
        let next = Owner::after([&first]);
        assert_eq!(next.state, first.state);
        assert_ne!(next.instance, first.instance);
        assert_ne!(Owner::new().state, Owner::new().state);
    }

    #[test]
    fn the_same_random_bits_make_another_identity_a_moment_later() {
        let first = with_clocks(7);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let second = with_clocks(7);
        assert_eq!((first.len(), second.len()), (32, 32));
        assert_ne!(first, second);
    }
}
