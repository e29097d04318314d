//! The instance of a daemon: a number that each start chooses again.

use std::fmt;

/// A number of this start. It tells whether two addresses lead to one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance(pub(crate) u64);

impl Instance {
    /// Chooses the number of a start.
    pub(crate) fn choose() -> Instance {
        Instance(fastrand::u64(..))
    }
}

impl fmt::Display for Instance {
    /// Writes the machine's name and the number, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = rustix::system::uname();
        write!(f, "{}-{:016x}", system.nodename().to_string_lossy(), self.0)
    }
}
