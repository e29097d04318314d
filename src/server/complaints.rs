//! Lines about peers that do something wrong, for the operator of either side. A peer can repeat itself without end, so
//! the same complaint is one line in a while.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, BootMicros};

/// For how long a complaint that was said is not said again.
const QUIET: Duration = Duration::from_secs(10);

/// Different complaints that are remembered. More than there are kinds; past it the oldest may be said again sooner.
const REMEMBERED: usize = 32;

static SAID: Mutex<Said> = Mutex::new(Said(Vec::new()));

/// Complaints by their text, the latest last.
struct Said(Vec<Complaint>);

struct Complaint {
    text: String,
    at: BootMicros,
    /// How often it was left unsaid since.
    unsaid: u64,
}

impl Said {
    /// Whether to say it now, and how often it was left unsaid before.
    fn admit(&mut self, text: &str, now: BootMicros) -> Option<u64> {
        let mut unsaid = 0;
        if let Some(index) = self.0.iter().position(|complaint| complaint.text == text) {
            let complaint = &mut self.0[index];
            if now.since(complaint.at) < QUIET {
                complaint.unsaid += 1;
                return None;
            }
            unsaid = self.0.remove(index).unsaid;
        } else if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        self.0.push(Complaint { text: text.to_owned(), at: now, unsaid: 0 });
        Some(unsaid)
    }
}

/// Says that a connection was closed for what its peer did.
pub(super) fn say(peer: impl fmt::Display, text: &str) {
    let admitted = SAID.lock().unwrap_or_else(PoisonError::into_inner).admit(text, clock::os::boot());
    match admitted {
        Some(0) => tracing::warn!(%peer, "closed a connection: {text}"),
        Some(unsaid) => tracing::warn!(%peer, unsaid, "closed a connection: {text}"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_complaint_is_said_once_in_a_while_and_others_beside_it() {
        let mut said = Said(Vec::new());
        let at = |seconds: i64| BootMicros(seconds * 1_000_000);
        assert_eq!(said.admit("a", at(0)), Some(0));
        assert_eq!(said.admit("a", at(1)), None);
        assert_eq!(said.admit("b", at(2)), Some(0));
        assert_eq!(said.admit("a", at(9)), None);
        assert_eq!(said.admit("a", at(10)), Some(2));
        assert_eq!(said.admit("a", at(11)), None);
        for other in 0..2 * REMEMBERED {
            assert_eq!(said.admit(&format!("other {other}"), at(12)), Some(0));
        }
        assert_eq!(said.0.len(), REMEMBERED);
    }
}
