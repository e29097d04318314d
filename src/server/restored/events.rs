//! The kernel's own events. Some vendors' kernels send one for a changed VM generation.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

use super::{ANNOUNCEMENT_BYTES, Heard};

/// The multicast group of the kernel's own events.
const KERNEL_EVENTS: u32 = 1;
const NEW_GENERATION: &[u8] = b"NEW_VMGENID=1";

pub(super) fn subscribe() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_EVENTS))?;
    Ok(socket)
}

/// Reads one event.
pub(super) fn hear_event(events: BorrowedFd<'_>) -> Heard {
    let mut event = [0; ANNOUNCEMENT_BYTES];
    match recvfrom(events, &mut event, RecvFlags::empty()) {
        Ok((size, _, Some(sender))) => {
            let from_kernel = SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0);
            match from_kernel && says_new_generation(&event[..size]) {
                true => Heard::NewGeneration,
                false => Heard::Other,
            }
        }
        Ok(_) | Err(Errno::INTR) => Heard::Other,
        Err(Errno::AGAIN) => Heard::Nothing,
        // Events were lost. One of them may have been the announcement.
        Err(Errno::NOBUFS) => Heard::NewGeneration,
        Err(_) => Heard::End,
    }
}

/// Returns whether an event is the announcement. An event is a headline and properties, each ended by a zero byte.
fn says_new_generation(event: &[u8]) -> bool {
    event.split(|&byte| byte == 0).any(|property| property == NEW_GENERATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_announcement_is_known_and_nothing_else() {
        let event = b"change@/devices/LNXSYSTM:00/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=acpi\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(says_new_generation(event));
        for other in [
            &b"change@/devices/virtual/net/lo\0ACTION=change\0SEQNUM=8\0"[..],
            // Text that a person writes into a device's `uevent` file arrives under another name.
            b"change@/devices/virtual/net/lo\0SYNTH_ARG_NEW_VMGENID=1\0",
            b"NEW_VMGENID=10\0",
            b"",
        ] {
            assert!(!says_new_generation(other));
        }
    }
}
