//! The reasons why a command has no result.

/// The party at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The user: wrong use, or no target that speaks the protocol.
    User,
    Target,
    /// This machine: it can open no more files, or has no free local port.
    Machine,
    /// An interrupt before a measurement began.
    Interrupt,
}

/// The reason why there is no result, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) blame: Blame,
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) fn usage(reason: impl ToString) -> Self {
        Self { blame: Blame::User, reason: reason.to_string() }
    }

    pub(crate) fn from_target(reason: impl ToString) -> Self {
        Self { blame: Blame::Target, reason: reason.to_string() }
    }

    /// Returns 1 if the target is at fault, 2 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.blame == Blame::Target { 1 } else { 2 }
    }
}
