//! Connections to a target, and its INFO.

mod access;
mod metrics;
mod stream;

use std::io::{self, ErrorKind};
use std::time::Duration;

use snowbank_client::protocol::collect::{InfoCollector, Progress};
use snowbank_client::protocol::{ErrorCode, Info, request};
use snowbank_client::tls;

use crate::machine::owner::Owner;
use crate::units::printable;
pub(crate) use access::{Access, Conversation, Token};
pub(crate) use metrics::{Metrics, MetricsUrl, Used};
pub(crate) use stream::Stream;

/// The time limit of a connection, and of the answer to INFO after it.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why there is no target to load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTarget {
    /// Nothing listens there.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable { address: String, reason: io::Error },
    /// It ended the connection before it answered.
    #[error(
        "{address} closed the connection without an answer: another protocol, a token that it asks for, or a \
         connection limit"
    )]
    Closed { address: String },
    /// It did not answer.
    #[error("{address} did not answer within {GREETING_TIMEOUT:?}: another protocol, or it hangs")]
    Silent { address: String },
    /// It answered something else.
    #[error("{address} does not speak snowbank's protocol, version 1: {reason}")]
    OtherProtocol { address: String, reason: String },
    /// It answers, but not so that it can be loaded.
    #[error("{address}: {reason}")]
    Unusable { address: String, reason: String },
    /// It wants a token, and has seen none or a wrong one.
    #[error("{address} refused: {message}; {advice}")]
    Unauthorized { address: String, message: String, advice: &'static str },
    /// It refused.
    #[error("{address} refused: {name}: {message}")]
    Refused { address: String, name: String, message: String },
}

impl NoTarget {
    /// Returns true if this machine has no more open files or local ports: the target is not at fault.
    pub(crate) fn is_limit_here(&self) -> bool {
        use rustix::io::Errno;
        let limits = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
        let Self::Unreachable { reason, .. } = self else { return false };
        reason.raw_os_error().is_some_and(|code| limits.contains(&code))
    }

    fn no_answer(address: &str, error: &io::Error) -> Self {
        let address = address.to_owned();
        if let Some(reason) = tls::explain(error) {
            return Self::Unusable { address, reason };
        }
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent { address },
            _ => Self::Closed { address },
        }
    }
}

/// Asks a target for its INFO on a connection of its own. Returns it with the process that answered.
///
/// # Errors
/// [`NoTarget`] if there is none that speaks the protocol.
pub(crate) fn greet(access: &Access) -> Result<(Info, Owner), NoTarget> {
    let mut conversation = Conversation::begin(access, GREETING_TIMEOUT)?;
    conversation.send(|out| request::encode_info(out, 0))?;
    let mut collector = InfoCollector::default();
    let address = access.endpoint.to_string();
    let other = |reason: String| NoTarget::OtherProtocol { address: address.clone(), reason };
    while conversation.next_reply(|reply| collector.add(&reply).map_err(|bad| other(bad.to_string())))?
        == Progress::More
    {}
    let mut info = collector.finish().map_err(|bad| other(bad.to_string()))?;
    info.version = info.version.map(|version| printable(&version));
    Ok((info, conversation.owner()))
}

/// The number under which refusals without an error code of Snowbank are counted; those begin at 1.
pub(crate) const OTHER_ERROR: u16 = 0;

/// Returns the name of an error code, or its number where version 1 has none.
pub(crate) fn code_name(code: u16) -> String {
    if code == OTHER_ERROR {
        return "error".to_owned();
    }
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}
