//! How a running daemon is, asked by whoever watches over it.

use std::sync::Arc;
use std::time::Duration;

use super::in_force::Supply;
use super::worker::Common;
use crate::clock::{self, Now};
use crate::source::Bound;

/// A daemon's life signs, asked for from outside its threads.
#[derive(Clone)]
pub struct Vitals {
    common: Arc<Common>,
}

/// How the daemon was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VitalSigns {
    /// How long until IDs of every source can be had; zero: now.
    pub ready_in: Duration,
    /// The time until the first source would meet its ceiling, if ceilings rose no more.
    pub headroom: Duration,
}

impl Vitals {
    pub(super) fn new(common: Arc<Common>) -> Self {
        Vitals { common }
    }

    /// How long until IDs of every source can be had, as far as clocks decide that; zero: now.
    pub fn ready_in(&self) -> Duration {
        let now = self.now();
        let standing = |supply: &Supply| match supply.source.window(now).bound {
            Bound::Standing(ready_in) => Some(ready_in),
            Bound::Clock | Bound::Ceiling | Bound::Ended | Bound::Sealed => None,
        };
        self.common.in_force.borrow().supplies.iter().filter_map(standing).max().unwrap_or_default()
    }

    /// How the daemon is now.
    pub fn signs(&self) -> VitalSigns {
        let now = self.now();
        let headroom = |supply: &Supply| supply.source.reaches_in(now, supply.source.grant().ceiling());
        let headroom = self.common.in_force.borrow().supplies.iter().map(headroom).min().unwrap_or_default();
        VitalSigns { ready_in: self.ready_in(), headroom }
    }

    /// Completes when every thread has shown that it makes progress; never, if one is blocked.
    pub async fn all_beat(&self) {
        self.common.pulse.all_beat(&self.common.bells).await;
    }

    fn now(&self) -> Now {
        self.common.wall.believe(clock::os::read())
    }
}
