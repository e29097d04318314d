//! Lines about peers that do something wrong, for the operator of either side. A peer can repeat itself without end, so
//! the same complaint is said seldom.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::seldom::Seldom;

/// Different complaints that are remembered. More than there are kinds; past it the oldest may be said again sooner.
const REMEMBERED: usize = 32;

static COMPLAINTS: Mutex<Complaints> = Mutex::new(Complaints(Vec::new()));

/// Complaints by their text, in the order in which they came up first.
struct Complaints(Vec<(String, Seldom)>);

impl Complaints {
    /// How often it has been made since it was said, this time included, if it is to be said.
    fn count(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some((_, seldom)) = self.0.iter_mut().find(|(known, _)| known == text) {
            return seldom.count(now);
        }
        if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        let mut seldom = Seldom::default();
        let count = seldom.count(now);
        self.0.push((text.to_owned(), seldom));
        count
    }
}

/// Says that a connection was closed for what its peer did.
pub(super) fn say(peer: impl fmt::Display, text: &str) {
    let count = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).count(text, Instant::now());
    match count {
        Some(1) => tracing::warn!(%peer, "closed a connection: {text}"),
        Some(count) => tracing::warn!(%peer, count, "closed connections, this one the last: {text}"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_counted_by_their_text() {
        let (mut complaints, now) = (Complaints(Vec::new()), Instant::now());
        assert_eq!(complaints.count("a", now), Some(1));
        assert_eq!(complaints.count("a", now), None);
        assert_eq!(complaints.count("b", now), Some(1));
        assert_eq!(complaints.count("a", now), None);
        for other in 0..2 * REMEMBERED {
            assert_eq!(complaints.count(&format!("other {other}"), now), Some(1));
        }
        assert_eq!(complaints.0.len(), REMEMBERED);
    }
}
