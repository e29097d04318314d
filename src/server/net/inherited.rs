//! Socket activation: takes over sockets that a service manager has opened. Clients can connect to
//! these sockets before the daemon runs and while it restarts. Requests wait until the daemon runs.
//!
//! The interface is sd_listen_fds(3). A socket's name (`FileDescriptorName=`) is the name of its
//! protocol, or `admin`. A socket that speaks TLS has the suffix `-tls`, as in `native-tls`.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use listenfd::ListenFd;
use socket2::Socket;

use super::listen::{self, Listener};
use super::listen_error::{ListenError, SOCKETS_MAX};
use crate::config::{Address, Purpose};
use crate::server::shared::start_error::StartError;

/// The number of the first inherited descriptor.
const FIRST_DESCRIPTOR: usize = 3;

/// The suffix of a protocol's name for sockets that speak TLS.
const OVER_TLS: &str = "-tls";

/// The listeners that a service manager has opened.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(Purpose, Listener)>,
}

impl Inherited {
    /// Takes over the sockets that the environment names. Must be called once, before there are
    /// threads.
    ///
    /// # Errors
    /// The number of sockets is wrong, or the daemon cannot serve one of them. Then the error names
    /// its descriptor.
    pub fn take() -> Result<Inherited, StartError> {
        // The variables may be meant for a parent process, whose sockets this process does not
        // have.
        if std::env::var("LISTEN_PID").unwrap_or_default().parse() != Ok(std::process::id()) {
            return Ok(Inherited::default());
        }
        check_count(&std::env::var("LISTEN_FDS").unwrap_or_default())?;
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut handed_over = ListenFd::from_env();
        let names = names.split(':').chain(std::iter::repeat(""));
        let mut sockets = Vec::new();
        for (index, name) in (0..handed_over.len()).zip(names) {
            let protocol = name.strip_suffix(OVER_TLS);
            let listener = take_listener(&mut handed_over, index, protocol.is_some()).map_err(|reason| {
                let descriptor = FIRST_DESCRIPTOR + index;
                ListenError::Inherited { descriptor, name: name.to_owned(), reason }
            })?;
            sockets.push((Purpose::from_socket(protocol.unwrap_or(name)), listener));
        }
        Ok(Inherited { sockets })
    }

    /// Returns the address and the purpose of each socket.
    pub fn addresses(&self) -> Vec<(Purpose, Address)> {
        self.sockets.iter().map(|(purpose, listener)| (*purpose, listener.address.clone())).collect()
    }

    /// Removes and returns the sockets with this purpose.
    pub(crate) fn listeners(&mut self, purpose: Purpose) -> Vec<Listener> {
        self.sockets.extract_if(.., |(of, _)| *of == purpose).map(|(_, listener)| listener).collect()
    }
}

/// Refuses a wrong number of sockets. If the daemon ignored the mistake, it would listen at other
/// addresses than those in its unit.
fn check_count(sockets: &str) -> Result<(), ListenError> {
    match sockets.parse() {
        Ok(0..=SOCKETS_MAX) => Ok(()),
        _ if sockets.is_empty() => Ok(()),
        _ => Err(ListenError::SocketCount(sockets.to_owned())),
    }
}

/// Takes over the socket with this index.
///
/// # Errors
/// Returns what was found, and what is allowed.
fn take_listener(handed_over: &mut ListenFd, index: usize, over_tls: bool) -> Result<Listener, &'static str> {
    const NO_STREAM: &str = "found something else, allowed: a TCP or Unix stream socket (ListenStream=)";
    // Each call takes only a socket of its own kind, and leaves a socket of any other kind in
    // place.
    let socket: Socket = if let Ok(Some(tcp)) = handed_over.take_tcp_listener(index) {
        tcp.into()
    } else if let Ok(Some(unix)) = handed_over.take_unix_listener(index) {
        unix.into()
    } else {
        return Err(NO_STREAM);
    };
    if !socket.is_listener().unwrap_or(false) {
        return Err("found a socket that does not listen, allowed: a listening one (Accept=no)");
    }
    let mut address = address_of(&socket).ok_or("found a socket without an address")?;
    if matches!(address, Address::Tcp { .. }) {
        // The socket gets the same options as sockets that the daemon opens itself.
        listen::tune(&socket).map_err(|_| NO_STREAM)?;
    }
    if over_tls {
        address = match address {
            Address::Tcp { host, port } => Address::Tls { host, port },
            _ => return Err("found a Unix socket, allowed: a TCP socket, because only TCP carries TLS"),
        };
    }
    socket.set_nonblocking(true).map_err(|_| "it cannot be made non-blocking")?;
    // The daemon does not remove the socket's file, because the service manager owns it.
    Ok(Listener { socket, address, _file: None })
}

fn address_of(socket: &Socket) -> Option<Address> {
    let bound = socket.local_addr().ok()?;
    if let Some(tcp) = bound.as_socket() {
        return Some(Address::Tcp { host: tcp.ip().to_string(), port: tcp.port() });
    }
    let abstract_name = bound.as_abstract_namespace().map(|name| {
        // An abstract name is shown in the notation of systemd and ss(8).
        PathBuf::from(format!("@{}", std::ffi::OsStr::from_bytes(name).to_string_lossy().escape_debug()))
    });
    bound.as_pathname().map(PathBuf::from).or(abstract_name).map(Address::Unix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_of_sockets_is_refused() {
        assert!(["", "0", "2", "256"].into_iter().all(|sockets| check_count(sockets).is_ok()));
        for sockets in ["-1", "two", "257", "4294967295", "99999999999999999999"] {
            let refusal = check_count(sockets).unwrap_err().to_string();
            assert!(refusal.contains(sockets) && refusal.contains("256"), "{refusal}");
        }
    }
}
