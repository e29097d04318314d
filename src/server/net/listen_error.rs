//! Why the daemon cannot listen, in words for its operator.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Address;
use crate::server::shared::start_error::StartError;
use snowbank_state::system_error::{may_pass, more_files};

/// The most sockets that are inherited. A larger number is an error in the environment.
pub(super) const SOCKETS_MAX: usize = 256;

/// The reason why the daemon cannot listen at an address, or on a socket that it has inherited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The host name leads nowhere.
    #[error("cannot resolve {address}: {error}; give an address of this machine")]
    Unresolved { address: Address, error: io::Error },
    /// The system does not let the daemon have this port.
    #[error("cannot listen on {at}: {error}{}", cure_of_port(.error))]
    Port { at: SocketAddr, error: io::Error },
    /// The system does not let the daemon make a socket there.
    #[error("cannot listen on unix:{}: {error}; {}", .path.display(), cure_of_path(.error))]
    Path { path: PathBuf, error: io::Error },
    /// Another file is at the path of a socket.
    #[error("cannot listen on unix:{}: a file that is no socket is there; choose another path", .0.display())]
    NoSocket(PathBuf),
    /// Another program has the path of a socket.
    #[error("cannot listen on unix:{}: another program listens there; choose another path", .0.display())]
    PathInUse(PathBuf),
    /// No program listens on the socket's file, but the file cannot be removed.
    #[error("cannot listen on unix:{}: a stale socket file cannot be removed: {error}", .path.display())]
    Stale { path: PathBuf, error: io::Error },
    /// The system does not say whether another program has the path of a socket.
    #[error("cannot listen on unix:{}: cannot tell whether it is in use: {error}", .path.display())]
    PathUnknown { path: PathBuf, error: io::Error },
    /// The listener has no place on a reactor.
    #[error(
        "cannot accept connections at {address}: {error}; allow more open files and memory, or set fewer listeners"
    )]
    NotRegistered { address: Address, error: io::Error },
    /// The number of inherited sockets is wrong.
    #[error("found LISTEN_FDS={0}, allowed: 0 to {SOCKETS_MAX} sockets; see Sockets= of the service's unit")]
    SocketCount(String),
    /// An inherited socket cannot be served.
    #[error(
        "cannot serve on the inherited descriptor {descriptor}{}: {reason}; check the socket's unit",
        if .name.is_empty() { String::new() } else { format!(" ({:?})", .name) }
    )]
    Inherited {
        descriptor: usize,
        /// The socket's name, if it has one.
        name: String,
        /// What was found, and what is allowed.
        reason: &'static str,
    },
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        let reason = error.to_string();
        match error {
            ListenError::Unresolved { .. }
            | ListenError::PathInUse(_)
            | ListenError::NotRegistered { .. } => StartError::MayPass(reason),
            ListenError::NoSocket(_) | ListenError::SocketCount(_) | ListenError::Inherited { .. } => {
                StartError::WrongSetting(reason)
            }
            ListenError::Port { error, .. }
            | ListenError::Path { error, .. }
            | ListenError::Stale { error, .. }
            | ListenError::PathUnknown { error, .. } => StartError::from_system(may_pass(&error), reason),
        }
    }
}

fn cure_of_port(error: &io::Error) -> String {
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program, perhaps a snowbank that is still stopping, has this port; choose another port, or stop that program"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => more_files(error).unwrap_or_default(),
    };
    if cure.is_empty() { String::new() } else { format!("; {cure}") }
}

fn cure_of_path(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room",
        io::ErrorKind::InvalidInput => "choose a shorter path",
        _ => more_files(error).unwrap_or("its directory must exist and be writable"),
    }
}
