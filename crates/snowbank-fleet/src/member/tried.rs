//! What a start remembers of its tries to take numbers. While a start waits for a number, it tries
//! again and again, each time with a new member.

use super::Member;
use crate::Notes;

/// The most writes that are remembered. One try makes a few writes.
const WRITES_MAX: usize = 100;

/// The facts that a process remembers from one try to the next try.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The identities of the writes by which the process tried to take numbers. If an answer was
    /// lost, the write may have been done. Then the process may take the number even if its state
    /// is an older copy, because it has handed out nothing since that write.
    writes: Vec<String>,
    /// True if this process has waited after an earlier try.
    pub(super) has_waited: bool,
    /// The notes as the last try left them.
    notes: Notes,
}

impl Tried {
    /// Returns the notes of the last try, for a daemon that keeps no state.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    pub(super) fn add(&mut self, write: &str) {
        self.writes.push(write.to_owned());
        let spare = self.writes.len().saturating_sub(WRITES_MAX);
        self.writes.drain(..spare);
    }

    pub(super) fn has(&self, write: &str) -> bool {
        self.writes.iter().any(|tried| tried == write)
    }
}

impl<C> Member<C> {
    /// Gives the member the facts from earlier tries of this process.
    pub fn after(self, tried: Tried) -> Self {
        Member { tried, ..self }
    }

    /// Returns the facts for the next try. They say that the process has waited.
    pub fn into_tried(self) -> Tried {
        Tried { has_waited: true, notes: self.notes, ..self.tried }
    }
}
