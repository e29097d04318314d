//! The reasons why the daemon does not start, or stops after a loss.

use std::io;

use crate::config::Unpicked;
use snowbank_fleet::FleetError;
use snowbank_id::layout::LayoutError;
use snowbank_state::system_error::may_pass;
use snowbank_state::{Cause, StateError};

/// The reason why the daemon does not start, or stops after a loss, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum StartError {
    /// A setting, an option, a path, a permission or an inherited socket is wrong.
    WrongSetting(String),
    /// The state is an older copy of the state that was last used on this machine.
    OlderState(String),
    /// The state or a mark is damaged, or comes from another machine or another release. Or a
    /// worker ID was moved away.
    UnusableState(String),
    /// Another daemon of this machine, or a peer, has a worker ID or a counter that this daemon
    /// needs.
    WorkerIdHeld(String),
    /// The clock has not reached an instant that it must have passed.
    ClockBehind(String),
    /// The clock jumped ahead, and is not believed yet.
    ClockStepped(String),
    /// The fleet's coordinator does not answer.
    CoordinatorSilent(String),
    /// Another daemon of the fleet holds a worker ID, a counter or the state that this daemon
    /// needs. Or it took one of these while this daemon ran. Or, during the start, the coordinator
    /// went back, or all endpoints began to lead to another cluster.
    HeldInFleet(String),
    /// Another problem that may pass by itself. Examples: the state directory or an address is in
    /// use; storage or memory is short; a worker ID is not known yet.
    MayPass(String),
}

/// The exit code of an error that lasts until an operator changes something.
const EXIT_CHANGE: u8 = 2;
/// The exit code of an error that may pass by itself. Service managers start the daemon again after
/// this code.
const EXIT_AGAIN: u8 = 3;

impl StartError {
    /// Returns the exit code for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::WrongSetting(_) | StartError::OlderState(_) | StartError::UnusableState(_) => {
                EXIT_CHANGE
            }
            StartError::WorkerIdHeld(_)
            | StartError::ClockBehind(_)
            | StartError::ClockStepped(_)
            | StartError::CoordinatorSilent(_)
            | StartError::HeldInFleet(_)
            | StartError::MayPass(_) => EXIT_AGAIN,
        }
    }

    /// Returns true if the start failed only because the daemon has no worker ID from its fleet, or
    /// cannot tell yet whether its worker IDs are free. The daemon then waits, and tries again.
    pub fn waits(&self) -> bool {
        matches!(
            self,
            StartError::CoordinatorSilent(_) | StartError::HeldInFleet(_) | StartError::ClockStepped(_)
        )
    }

    /// Returns the error for an operation that the system refused, with the text `reason`.
    pub(crate) fn from_system(may_pass: bool, reason: String) -> Self {
        if may_pass { StartError::MayPass(reason) } else { StartError::WrongSetting(reason) }
    }

    /// Returns the error for a state or a lock that cannot be used, with the text `reason`.
    pub(crate) fn from_state(cause: Cause, reason: String) -> Self {
        match cause {
            Cause::InUse | Cause::Full => StartError::MayPass(reason),
            Cause::WorkerIdHeld => StartError::WorkerIdHeld(reason),
            Cause::Released | Cause::Damaged => StartError::UnusableState(reason),
            Cause::ClockBehind => StartError::ClockBehind(reason),
            Cause::Setting => StartError::WrongSetting(reason),
            Cause::System { may_pass } => Self::from_system(may_pass, reason),
        }
    }

    /// Returns the error for a thread or a reactor that cannot be made.
    pub(crate) fn no_thread(error: &io::Error) -> Self {
        let reason = format!(
            "cannot make a thread or its reactor: {error}; allow more open files and threads, or set fewer shards"
        );
        Self::from_system(may_pass(error), reason)
    }
}

impl From<StateError> for StartError {
    fn from(error: StateError) -> Self {
        Self::from_state(error.cause(), error.to_string())
    }
}

impl From<LayoutError> for StartError {
    fn from(error: LayoutError) -> Self {
        StartError::WrongSetting(error.to_string())
    }
}

impl From<Unpicked> for StartError {
    fn from(error: Unpicked) -> Self {
        let reason = error.to_string();
        match error {
            Unpicked::NoNumber { may_pass: true, .. } => StartError::MayPass(reason),
            Unpicked::NoNumber { may_pass: false, .. } | Unpicked::Mistakes(_) => {
                StartError::WrongSetting(reason)
            }
        }
    }
}

impl From<FleetError> for StartError {
    fn from(error: FleetError) -> Self {
        let reason = error.to_string();
        match error {
            FleetError::NoAnswer(answer) if !answer.is_lasting => StartError::CoordinatorSilent(reason),
            // All endpoints now lead to a different cluster than when the start began. The next try
            // joins the new cluster.
            FleetError::NoAnswer(answer) if answer.is_foreign => StartError::HeldInFleet(reason),
            FleetError::NoAnswer(_) | FleetError::Refused(_) => StartError::WrongSetting(reason),
            FleetError::Held(_) | FleetError::WentBack(_) => StartError::HeldInFleet(reason),
            FleetError::Unreadable(_) => StartError::MayPass(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowbank_fleet::NoAnswer;

    #[test]
    fn only_errors_that_may_pass_let_a_start_wait() {
        let error = |answer| StartError::from(FleetError::NoAnswer(answer));
        for (answer, exit_code) in [
            (NoAnswer::passing("away"), EXIT_AGAIN),
            (NoAnswer::foreign("another cluster"), EXIT_AGAIN),
            (NoAnswer::lasting("wrong password"), EXIT_CHANGE),
        ] {
            let error = error(answer);
            assert_eq!((error.exit_code(), error.waits()), (exit_code, exit_code == EXIT_AGAIN));
        }
    }
}
