//! The process at the other end of a local connection.

use std::fs;
use std::net::SocketAddr;

/// The state of an established connection in /proc/net/tcp.
const ESTABLISHED: &str = "01";

/// The process that a target runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Remote,
    /// The target runs on this machine, but its process cannot be seen.
    Unknown,
    Process(u32),
}

impl Owner {
    /// Returns the owner of the other end of a TCP connection on this machine, by the connection's
    /// two addresses.
    pub(crate) fn from_tcp(ours: SocketAddr, theirs: SocketAddr) -> Self {
        let inode = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|path| {
            let table = fs::read_to_string(path).ok()?;
            inode_in(&table, theirs.port(), ours.port())
        });
        inode.and_then(holder_of).map_or(Self::Unknown, Self::Process)
    }

    /// Returns the owner of a Unix socket, by the process that listens on it. Process 1 may listen
    /// on behalf of a service that it starts, so process 1 counts as unknown.
    pub(crate) fn from_listener(process: Option<u32>) -> Self {
        process.filter(|&process| process > 1).map_or(Self::Unknown, Self::Process)
    }

    /// Returns the name of the target's process, if the process is known.
    pub(crate) fn name(self) -> Option<String> {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.process()?)).ok()?;
        Some(name.trim_end().to_owned())
    }

    /// Returns the number of the target's process, if the process is known.
    pub(crate) fn process(self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process),
            Self::Remote | Self::Unknown => None,
        }
    }
}

/// Finds the inode of a connection's socket in the kernel's table. If two connections of this
/// machine have the same two ports, the first of them is taken.
fn inode_in(table: &str, local_port: u16, remote_port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, ..] = words[..] else { return None };
        let is_it = state == ESTABLISHED && port_of(local)? == local_port && port_of(remote)? == remote_port;
        // The inode is 0 until the connection is accepted.
        words.get(9).filter(|_| is_it)?.parse().ok().filter(|&inode| inode > 0)
    })
}

/// Returns the port of an address in the kernel's table, where it is hexadecimal.
fn port_of(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit(':').next()?, 16).ok()
}

/// Finds the process that holds a socket.
fn holder_of(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|process| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| link.as_os_str() == wanted.as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_process_at_the_other_end_of_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let theirs = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(theirs).expect("a connection");
        let ours = stream.local_addr().expect("an address");
        assert_eq!(Owner::from_tcp(ours, theirs), Owner::Unknown, "nobody has accepted the connection");
        let _accepted = listener.accept().expect("a connection");
        assert_eq!(Owner::from_tcp(ours, theirs), Owner::Process(std::process::id()));
    }

    #[test]
    fn a_service_manager_that_listens_is_not_the_target() {
        let owners = [None, Some(1), Some(7)].map(Owner::from_listener);
        assert_eq!(owners, [Owner::Unknown, Owner::Unknown, Owner::Process(7)]);
    }
}
