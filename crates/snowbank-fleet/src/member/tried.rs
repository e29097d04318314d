//! The tries of a start to take numbers. A start that waits tries again and again, each time with
//! another member.

use super::Member;
use crate::Notes;

/// The most writes that are remembered. A try makes a few.
const WRITES_MAX: usize = 100;

/// What the tries of a process leave to its next try.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The identities of the writes by which the process tried to take numbers. A write whose
    /// answer was lost may have been done. Nothing was handed out under such a write, so the
    /// process may take the number, even if its state is an older copy.
    writes: Vec<String>,
    /// True if an earlier try got no number.
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
    /// Goes on where earlier tries of this process ended.
    pub fn after(self, tried: Tried) -> Self {
        Member { tried, ..self }
    }

    /// Returns what this try leaves to the next one, which then counts as one that has waited.
    pub fn into_tried(self) -> Tried {
        Tried { has_waited: true, notes: self.notes, ..self.tried }
    }
}
