//! Opens the sockets that the daemon listens on.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::listen_error::ListenError;
use crate::config::Address;
use snowbank_state::lets_write;

/// The most bytes that the kernel queues for a client that reads nothing, besides the bytes in
/// flight. All TCP connections of the machine share one pool of memory (`net.ipv4.tcp_mem`). Once
/// this pool is used up, the kernel drops packets of every program. With a limit of 128 KiB, 9,000
/// clients that never read used 1.5 GB of the pool. Single IDs for other clients took 200 ms. A
/// limit of 16 KiB does not make a long reply slower.
const UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// The most bytes of requests that the kernel keeps for the daemon on a connection: some 1,000
/// requests. In the pool, these bytes count double, because of each packet's overhead. Further
/// requests wait in the client's memory.
const RECEIVED_BYTES_MAX: usize = 16 * 1024;

/// The kernel asks a silent peer after this time whether it is still there. A machine that vanishes
/// without a FIN would otherwise hold its connection for ever. Many firewalls forget a silent
/// connection after five minutes or more.
const KEEPALIVE_TIME: Duration = Duration::from_secs(300);
/// The kernel asks again after this time, and closes the connection after
/// [`KEEPALIVE_RETRIES`] questions without an answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;

/// The number of new connections that the kernel keeps until the acceptor accepts them. The kernel
/// lowers this number to `net.core.somaxconn`, which an operator can set.
const BACKLOG: i32 = 4_096;

/// The permissions of Unix socket files. Only the daemon's user and group may connect. If other
/// users must connect, systemd can make the socket instead.
const SOCKET_MODE: u32 = 0o660;
/// The permissions of the socket at which the daemon's user asks for a reload.
const RELOAD_SOCKET_MODE: u32 = 0o600;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    /// The address, with the port that the system chose.
    pub(crate) address: Address,
    /// Removes the file of a Unix socket when dropped.
    pub(crate) _file: Option<SocketFile>,
}

/// Returns the port of an address that is, or may resolve to, an IPv4 address.
pub(crate) fn ipv4_port(address: &Address) -> Option<u16> {
    match address {
        Address::Unix(_) => None,
        Address::Tcp { host, port } | Address::Tls { host, port } => {
            host.parse::<Ipv6Addr>().is_err().then_some(*port)
        }
    }
}

/// Opens the sockets of an address. A host name may resolve to several addresses, each with a
/// socket. `[::]` accepts IPv4, too, as people expect, unless its port is among `ipv4_ports`, which
/// other listeners have.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn open(address: &Address, ipv4_ports: &[u16]) -> Result<Vec<Listener>, ListenError> {
    match address {
        Address::Unix(path) => open_unix(path, SOCKET_MODE).map(|listener| vec![listener]),
        Address::Tcp { host, port } | Address::Tls { host, port } => {
            let is_for_ipv4 = *port == 0 || !ipv4_ports.contains(port);
            at_each(address, host, *port, |at| open_tcp(at, address.is_tls(), is_for_ipv4))
        }
    }
}

/// Opens the socket at which only the daemon's user can ask for a reload.
///
/// # Errors
/// The path cannot be had.
pub(crate) fn open_reload_socket(path: &Path) -> Result<Listener, ListenError> {
    open_unix(path, RELOAD_SOCKET_MODE)
}

/// Checks that a start could listen at this address, but for another program that does. Makes no
/// file, and listens nowhere.
///
/// # Errors
/// As those of [`open`].
pub(crate) fn check_place(address: &Address) -> Result<(), ListenError> {
    match address {
        Address::Unix(path) => {
            check_file(path)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let checked = match lets_write(parent.unwrap_or(Path::new("."))) {
                Ok(None) => Err(io::ErrorKind::NotFound.into()),
                checked => checked.map(drop),
            };
            checked.map_err(|error| ListenError::Path { path: path.clone(), error })
        }
        Address::Tcp { host, port } | Address::Tls { host, port } => {
            let check = |at| match bind(at, true) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
                bound => bound.map(drop),
            };
            at_each(address, host, *port, check).map(drop)
        }
    }
}

/// Opens something at each address that a host name resolves to.
fn at_each<T>(
    address: &Address,
    host: &str,
    port: u16,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<T>, ListenError> {
    let resolved: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| ListenError::Unresolved { address: address.clone(), error })?
        .collect();
    let mut opened = Vec::new();
    let mut unavailable = None;
    for (index, &at) in resolved.iter().enumerate() {
        // Each line of /etc/hosts with the name may have the same address.
        if resolved[..index].contains(&at) {
            continue;
        }
        match open(at) {
            Ok(one) => opened.push(one),
            // `localhost` also resolves to ::1, even on a machine without IPv6. So one unavailable
            // address is no error.
            Err(error) if is_unavailable(&error) => unavailable = Some(ListenError::Port { at, error }),
            Err(error) => return Err(ListenError::Port { at, error }),
        }
    }
    match unavailable {
        Some(reason) if opened.is_empty() => Err(reason),
        _ => Ok(opened),
    }
}

fn is_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

fn open_tcp(at: SocketAddr, is_tls: bool, is_for_ipv4: bool) -> io::Result<Listener> {
    let is_both = is_for_ipv4 && at.ip() == Ipv6Addr::UNSPECIFIED;
    let listen = |is_only_ipv6| -> io::Result<Socket> {
        let socket = bind(at, is_only_ipv6)?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let socket = match listen(!is_both) {
        Err(error) if is_both && error.kind() == io::ErrorKind::AddrInUse => {
            let socket = listen(true)?;
            tracing::warn!("{at} is for IPv6 alone, because another program has the port for IPv4");
            socket
        }
        socket => socket?,
    };
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(at);
    let host = bound.ip().to_string();
    let port = bound.port();
    let address = if is_tls { Address::Tls { host, port } } else { Address::Tcp { host, port } };
    Ok(Listener { socket, address, _file: None })
}

fn bind(at: SocketAddr, is_only_ipv6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.is_ipv6() {
        socket.set_only_v6(is_only_ipv6)?;
    }
    socket.set_reuse_address(true)?;
    tune(&socket)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Sets the options that accepted TCP connections inherit from their listener.
pub(super) fn tune(socket: &Socket) -> io::Result<()> {
    // Without TCP_NODELAY, a request can take 40 ms.
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_recv_buffer_size(RECEIVED_BYTES_MAX)
}

fn open_unix(path: &Path, mode: u32) -> Result<Listener, ListenError> {
    remove_stale(path)?;
    let socket = bind_unix(path, mode).map_err(|error| ListenError::Path { path: path.to_owned(), error })?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path) };
    Ok(Listener { socket, address: Address::Unix(path.to_owned()), _file: Some(file) })
}

fn bind_unix(path: &Path, mode: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // No client can connect before `listen`, so the mode applies to every connection.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns whether a socket file is at this path.
///
/// # Errors
/// Another file is there.
fn check_file(path: &Path) -> Result<bool, ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(_) => Ok(false),
        Ok(metadata) if metadata.file_type().is_socket() => Ok(true),
        Ok(_) => Err(ListenError::NoSocket(path.to_owned())),
    }
}

/// Removes a socket file on which no process listens any more.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    if !check_file(path)? {
        return Ok(());
    }
    let path = path.to_owned();
    match find_program(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(&path).map_err(|error| ListenError::Stale { path, error })
        }
        Ok(()) => Err(ListenError::PathInUse(path)),
        Err(error) => Err(ListenError::PathUnknown { path, error }),
    }
}

/// Asks whether a program has a Unix socket, and makes no connection. A socket of the other type
/// cannot connect, and the kernel says why. A program that is stopped needs not answer.
fn find_program(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTOTYPE) => Ok(()),
        found => found,
    }
}

/// Returns the device and the inode of the file at this path. They show later whether the path
/// still leads to the same file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The file of a Unix socket. Dropping this value removes the file, unless another program has
/// replaced the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // If removing fails, the next start removes the stale file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection would ask a daemon to reload.
    #[test]
    fn a_program_is_found_without_a_connection_and_a_stale_file_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let listener = open_unix(&path, 0o600).unwrap();
        assert!(matches!(open_unix(&path, 0o600), Err(ListenError::PathInUse(_))));
        let asked = listener.socket.accept().map(drop);
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let stale = directory.path().join("stale.sock");
        drop(bind_unix(&stale, 0o600).unwrap());
        assert!(open_unix(&stale, 0o600).is_ok());
    }
}
