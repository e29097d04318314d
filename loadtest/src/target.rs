//! Connections to a target.

mod stream;
mod token;

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use snowbank_wire::Address as Endpoint;
use snowbank_wire::ErrorCode;

pub(crate) use stream::Stream;
pub(crate) use token::Token;

use crate::failure::{Blame, Failure};

/// The time in which a target has to accept a connection and give all its answers before the load.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the failure of a connection that cannot be made.
pub(crate) fn unreachable(endpoint: &Endpoint, reason: &io::Error) -> Failure {
    let limits = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    let is_limit_here = reason.raw_os_error().is_some_and(|code| limits.contains(&code));
    let blame = if is_limit_here { Blame::Machine } else { Blame::User };
    Failure { blame, reason: format!("cannot connect to {endpoint}: {reason}") }
}

/// The code under which refusals without an error code of Snowbank are counted. Snowbank's codes
/// begin at 1.
pub(crate) const OTHER_ERROR: u16 = 0;

/// Returns the name of an error code, or its number if version 1 of the protocol has no name for
/// it.
pub(crate) fn code_name(code: u16) -> String {
    if code == OTHER_ERROR {
        return "error".to_owned();
    }
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}
