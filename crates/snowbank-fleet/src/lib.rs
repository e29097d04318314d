//! A fleet: daemons on many machines that share worker IDs through a coordinator.
//!
//! Each worker ID has a key at the coordinator. The key's value names the holder and a *bound*: the
//! holder hands out only IDs below the bound. The bound is the fleet's ceiling, written as an ID. A
//! daemon changes a key only by compare-and-swap. There are no leases. A daemon that wakes up late
//! has only the IDs below its bound, and the next holder starts there.
//!
//! - *Number*: a worker ID together with the constants of its layout, as one number. No two daemons
//!   of an ID space may have the same number.
//! - *Term*: the time for which one daemon's state holds a number. A number belongs to the state,
//!   and not to one process, so a restarted daemon can continue its term.
//! - The coordinator *goes back* if it is restored to an older state: it loses acknowledged writes.
//! - A start *asks* the coordinator for its numbers, or it *goes on without asking*. In the second
//!   case, it has only IDs below the bound that the coordinator acknowledged to an earlier process.
//!
//! The modules:
//!
//! - `key`: the values at the coordinator. `rules`: who may take a number, and what each answer of
//!   the coordinator means. Both modules are pure.
//! - `counter`: the key and the rules of a shared ticket counter. This module is pure too.
//! - `Coordinator`: the trait of a coordinator. `line` implements it over a connection to one of
//!   the coordinator's members. `etcd` and `zookeeper` speak the members' protocols, which
//!   `coordinator_kind` lists.
//! - `endpoint`: the addresses of the members. `cluster`: the check that each new connection leads
//!   to the same cluster.
//! - `member`: a daemon at its coordinator. It takes numbers, raises their bounds, checks their
//!   keys, and releases the numbers.
//! - `notice`: how often daemons poll, how soon they notice a coordinator that went back, and how
//!   long they pause before they use a new number.
//! - `operator`: an operator's commands.
//! - `peers`: other daemons. With or without a coordinator, a daemon asks them which worker IDs
//!   they use.
//! - `notes`: the file in the state directory by which a restarted daemon recognises its own
//!   writes.

#![forbid(unsafe_code)]

mod cluster;
mod coordinator_kind;
mod counter;
mod endpoint;
mod etcd;
mod key;
mod line;
mod member;
mod notes;
mod notice;
mod operator;
pub mod peers;
pub mod rules;
mod zookeeper;

use std::fmt;
use std::io;

use snowbank_core::clock::BootMicros;

pub use cluster::Cluster;
pub use coordinator_kind::CoordinatorKind;
pub use counter::{CounterKey, NumberRange, Rest};
pub use endpoint::{Endpoint, WrongEndpoint};
pub use key::{FleetLimits, HORIZON_MAX, KeyError, Marker, NumberKey, Paths};
use line::Line;
pub use line::{Access, User};
pub use member::{Bound, Clocks, Counted, Free, Member, Names, Pause, Pool, Taken, Want};
pub use notes::{Note, NoteStore, Notes};
pub use notice::{CONNECTING, HORIZON_MIN, MESSAGES, POLL_PERIOD, SWAP, noticed_within};
pub use operator::{Begins, Entry, Freeing, Operator, Prepared, Preparing, above};

/// A key to compare, and perhaps to write. [`Coordinator::swap`] takes several, and writes only if
/// all keys are as expected.
///
/// The swap compares the whole text of a value. That text contains the identity of the write. A
/// coordinator's own version numbers are not enough: after a restore, other writes get the same
/// versions again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The key.
    pub key: String,
    /// The value that the key must have; `None`: the key must not exist.
    pub expected: Option<String>,
    /// The new value; `None`: the key is only compared.
    pub text: Option<String>,
}

impl Swap {
    /// Returns a write of a key.
    pub fn write(key: String, expected: Option<String>, text: String) -> Self {
        Swap { key, expected, text: Some(text) }
    }

    /// Returns a comparison: the key must have this value, and keeps it.
    pub fn compare(key: String, expected: Option<String>) -> Self {
        Swap { key, expected, text: None }
    }
}

/// The answer to a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// All keys had their expected values. The keys with a new value were written.
    Done,
    /// The last try wrote nothing: the keys have these values, in the order of the swaps. An
    /// earlier try, whose answer was lost, may have written them.
    Refused(Vec<Option<String>>),
}

/// The reason why a coordinator, or one of its endpoints, gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// The reason, in one line.
    pub reason: String,
    /// True if only an operator can remove the cause, such as a wrong password.
    pub is_lasting: bool,
    /// True if the endpoint belongs to another cluster than the earlier connections did. In an
    /// error for all endpoints: true if every endpoint belongs to another cluster.
    pub is_foreign: bool,
}

impl NoAnswer {
    /// Returns the error for a cause that may pass by itself.
    pub fn passing(reason: impl Into<String>) -> Self {
        NoAnswer { reason: reason.into(), is_lasting: false, is_foreign: false }
    }

    /// Returns the error for a cause that only an operator can change.
    pub fn lasting(reason: impl Into<String>) -> Self {
        NoAnswer { is_lasting: true, ..NoAnswer::passing(reason) }
    }

    /// Returns the error for an endpoint that leads to another cluster.
    pub fn foreign(reason: impl Into<String>) -> Self {
        NoAnswer { is_foreign: true, ..NoAnswer::lasting(reason) }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The reason why a daemon cannot take or keep its numbers, or why an operator's command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The coordinator gave no answer that the call can use. If the call was a write, it may have
    /// been done.
    #[error("the coordinator does not answer: {0}")]
    NoAnswer(NoAnswer),
    /// Only an operator can remove the cause.
    #[error("{0}")]
    Refused(String),
    /// A number or a counter is lost, or another daemon has it or may have it. Another case: this
    /// state or a copy of it has the number, and nothing proves that this state is the newest.
    #[error("{0}")]
    Held(String),
    /// A number is lost because the coordinator went back. The daemon has raised the floor. If that
    /// failed, the floor may be unchanged.
    #[error("{0}")]
    WentBack(String),
    /// A value at the coordinator cannot be read, or cannot be true.
    #[error("{0}")]
    Unreadable(String),
}

impl FleetError {
    /// Returns the error for a fleet whose marker is missing at this key.
    fn no_marker(key: &str) -> Self {
        FleetError::Refused(format!(
            "the coordinator has no fleet of this name (key {key}): if the fleet is new, run `snowbank fleet init --new`; if \
             the coordinator lost its data, stop all daemons of the fleet first, and see docs/fleet.md"
        ))
    }

    /// Returns true if a running daemon must end, because a number or a counter is lost.
    pub fn is_loss(&self) -> bool {
        !matches!(self, FleetError::NoAnswer(_))
    }

    /// Returns true for a loss that does not show that the coordinator went back. Other keys may
    /// still show that.
    fn is_of_one_key(&self) -> bool {
        self.is_loss() && !matches!(self, FleetError::WentBack(_))
    }

    /// Returns the reason in one line.
    pub fn reason(self) -> String {
        match self {
            FleetError::NoAnswer(answer) => answer.reason,
            FleetError::Refused(reason)
            | FleetError::Held(reason)
            | FleetError::WentBack(reason)
            | FleetError::Unreadable(reason) => reason,
        }
    }
}

impl From<NoAnswer> for FleetError {
    fn from(answer: NoAnswer) -> Self {
        FleetError::NoAnswer(answer)
    }
}

/// A store that all daemons of a fleet share. Its calls block, each for a bounded time.
///
/// A write without an answer may have been done, or may be done later. A read may return an older
/// value. A swap always compares the newest values.
///
/// The methods that are given here are those of a coordinator with one endpoint and one connection,
/// which only simulations have.
pub trait Coordinator: Send {
    /// Makes later calls abandon a connection whose answer is late, and ask again on another
    /// connection. So the daemon soon learns that it has lost a number, even if a connection hangs.
    fn hurry(&mut self) {}

    /// Returns how many connections were opened so far. Two copies of one process's memory cannot
    /// share a connection, so at least one copy soon opens a new connection.
    fn connections(&self) -> u64 {
        0
    }

    /// Returns the boot clock's time. In a simulation, time may stand still.
    fn now(&self) -> BootMicros;

    /// Reads keys, and returns their values in the same order.
    ///
    /// # Errors
    /// The coordinator did not answer.
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer>;

    /// Reads one key.
    ///
    /// # Errors
    /// The coordinator did not answer.
    fn read_one(&mut self, key: &str) -> Result<Option<String>, NoAnswer> {
        Ok(self.read(&[key.to_owned()])?.into_iter().next().flatten())
    }

    /// Reads a key at each endpoint, and returns the answers with the endpoints' names. Leaves out
    /// endpoints that do not answer soon. If there is only one endpoint, asks nothing, and returns
    /// no answer.
    ///
    /// # Errors
    /// Two endpoints report different clusters. The error is foreign.
    fn read_at_each(&mut self, _key: &str) -> Result<Vec<(String, Option<String>)>, NoAnswer> {
        Ok(Vec::new())
    }

    /// Makes later calls use a new connection only if it leads to this cluster. The caller has
    /// checked the open connection. Once a cluster is set, another changes nothing. `None` makes
    /// later calls accept connections to any cluster again.
    fn set_cluster(&mut self, _cluster: Option<Cluster>) {}

    /// Reads all keys that begin with a prefix.
    ///
    /// # Errors
    /// The coordinator did not answer.
    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer>;

    /// Compares these keys: at most [`NUMBERS_MAX`], and the marker. If all keys have their expected
    /// values, writes the keys that get a new value. Otherwise writes nothing.
    ///
    /// # Errors
    /// The coordinator did not answer. It may have written the keys, or may write them later.
    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer>;
}

/// Makes a client of a coordinator. The client connects at its first call.
///
/// # Errors
/// The system allows no more open files.
pub fn open(access: Access) -> io::Result<Box<dyn Coordinator>> {
    Ok(match access.kind {
        CoordinatorKind::Etcd => Box::new(Line::<etcd::Session>::new(access)?),
        CoordinatorKind::ZooKeeper => Box::new(Line::<zookeeper::Session>::new(access)?),
    })
}

/// The most worker IDs of a daemon in a fleet: one message reads or writes all their keys and the
/// marker. By default, etcd accepts 128 operations in a transaction.
pub const NUMBERS_MAX: usize = 100;
