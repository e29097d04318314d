//! Connections to a target, and its INFO.

mod access;
mod metrics;
mod stream;

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use snowbank_client::Endpoint;
use snowbank_client::protocol::collect::{InfoCollector, Progress};
use snowbank_client::protocol::{ErrorCode, Info, request};

use crate::machine::owner::Owner;
use crate::units::printable;
pub(crate) use access::{Access, Conversation, Token};
pub(crate) use metrics::{Metrics, Used};
pub(crate) use stream::Stream;

/// The time limit of a connection, and of the answer to INFO after it.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why there is no target to load, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub(crate) struct NoTarget {
    line: String,
    is_limit_here: bool,
}

impl NoTarget {
    /// Returns true if this machine has no more open files or local ports: the target is not at
    /// fault.
    pub(crate) fn is_limit_here(&self) -> bool {
        self.is_limit_here
    }

    fn new(line: String) -> Self {
        Self { line, is_limit_here: false }
    }

    fn unreachable(endpoint: &Endpoint, reason: &io::Error) -> Self {
        let limits = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
        let is_limit_here = reason.raw_os_error().is_some_and(|code| limits.contains(&code));
        Self { line: format!("cannot connect to {endpoint}: {reason}"), is_limit_here }
    }
}

/// Asks a target for its INFO on a connection of its own. Returns it with the process that
/// answered.
///
/// # Errors
/// [`NoTarget`] if there is none that speaks the protocol.
pub(crate) fn greet(access: &Access) -> Result<(Info, Owner), NoTarget> {
    let mut conversation = Conversation::begin(access, GREETING_TIMEOUT)?;
    conversation.send(|out| request::encode_info(out, 0))?;
    let mut collector = InfoCollector::default();
    while conversation.next_reply(|reply| collector.add(reply))? == Progress::More {}
    let mut info = collector.finish().map_err(|bad| conversation.other(&bad.to_string()))?;
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
