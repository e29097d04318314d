//! Notices that the machine was restored from a snapshot, where its kernel says so: a changed VM generation.
//!
//! Linux announces it as a kernel event (`NEW_VMGENID=1`, since 6.10) on the netlink socket that device managers listen on. A
//! thread sleeps there. When the event comes it takes all grants away, so that what was claimed ahead is dropped, and wakes
//! the keeper, which makes the ceilings durable anew before it grants again. Where the socket or the event is not to be had,
//! a jump of wall − boot time is what is left to notice by.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};
use tokio::time::Instant;

use super::seldom::Seldom;
use super::worker::Common;
use crate::source::line::Signals;

/// The multicast group of the kernel's own events.
const KERNEL_EVENTS: u32 = 1;
/// Longer than any event: the kernel builds them in 2 KiB.
const EVENT_SIZE: usize = 8_192;
const NEW_GENERATION: &[u8] = b"NEW_VMGENID=1";

/// Watches from a thread of its own, for as long as the process runs.
pub(super) fn watch(common: Arc<Common>) {
    let Ok(events) = subscribe() else {
        tracing::debug!(
            "the kernel's events cannot be had: a restored machine is noticed by its clocks alone"
        );
        return;
    };
    // If there can be no thread, the clocks have to do here as well.
    let _ = thread::Builder::new().name(String::from("restored")).spawn(move || {
        let mut restorations = Seldom::default();
        while await_new_generation(&events) {
            common.in_force.borrow().supplies.iter().for_each(|supply| supply.source.grant().revoke());
            common.bells.ceiling_reached();
            if let Some(count) = restorations.count(Instant::now()) {
                tracing::warn!(
                    count, "the machine was, or may have been, restored from a snapshot: what was claimed ahead is dropped"
                );
            }
        }
    });
}

fn subscribe() -> rustix::io::Result<OwnedFd> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_EVENTS))?;
    Ok(socket)
}

/// False when no more events can be had.
fn await_new_generation(events: &OwnedFd) -> bool {
    let mut event = [0; EVENT_SIZE];
    loop {
        match recvfrom(events, &mut event, RecvFlags::empty()) {
            Ok((size, _, Some(sender))) => {
                let from_kernel = SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0);
                if from_kernel && is_new_generation(&event[..size]) {
                    return true;
                }
            }
            // Events were lost because there were too many: perhaps that one. Better once too often.
            Err(rustix::io::Errno::NOBUFS) => return true,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// An event is a headline and properties, each ended by a zero byte.
fn is_new_generation(event: &[u8]) -> bool {
    event.split(|&byte| byte == 0).any(|property| property == NEW_GENERATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_announcement_is_known_and_nothing_else() {
        let event = b"change@/devices/LNXSYSTM:00/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=acpi\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(is_new_generation(event));
        for other in [
            &b"change@/devices/virtual/net/lo\0ACTION=change\0SEQNUM=8\0"[..],
            // What a person writes into a device's `uevent` file comes under another name.
            b"change@/devices/virtual/net/lo\0SYNTH_ARG_NEW_VMGENID=1\0",
            b"NEW_VMGENID=10\0",
            b"",
        ] {
            assert!(!is_new_generation(other));
        }
    }
}
