//! Lines about peers that do something wrong, for the operator of either side. A peer can repeat itself without end, so
//! the same complaint is said seldom.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::health::rate_limited_log::Seldom;

/// Different complaints that are remembered. More than peers make that mean well; one that does not may cause a text of its
/// own with each connection, so those that find no place count as one.
const REMEMBERED: usize = 32;

static COMPLAINTS: Mutex<Complaints> = Mutex::new(Complaints { by_text: Vec::new(), others: Seldom::new() });

/// Complaints that were made lately.
struct Complaints {
    by_text: Vec<(String, Seldom)>,
    others: Seldom,
}

impl Complaints {
    /// How often it has been made since it was said, this time included, if it is to be said.
    fn count(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some((_, seldom)) = self.by_text.iter_mut().find(|(known, _)| known == text) {
            return seldom.count(now);
        }
        if self.by_text.len() == REMEMBERED {
            self.by_text.retain(|(_, seldom)| seldom.is_recent(now));
        }
        if self.by_text.len() == REMEMBERED {
            return self.others.count(now);
        }
        let mut seldom = Seldom::new();
        let count = seldom.count(now);
        self.by_text.push((text.to_owned(), seldom));
        count
    }
}

/// Says that a connection was closed for what its peer did.
pub(crate) fn say(peer: impl fmt::Display, text: &str) {
    let count = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).count(text, Instant::now());
    match count {
        Some(1) => tracing::warn!(%peer, "closed a connection: {text}"),
        Some(count) => tracing::warn!(%peer, count, "closed connections, this one the last: {text}"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn none() -> Complaints {
        Complaints { by_text: Vec::new(), others: Seldom::new() }
    }

    #[test]
    fn complaints_are_counted_by_their_text() {
        let (mut complaints, now) = (none(), Instant::now());
        assert_eq!(complaints.count("a", now), Some(1));
        assert_eq!(complaints.count("a", now), None);
        assert_eq!(complaints.count("b", now), Some(1));
        assert_eq!(complaints.count("a", now), None);
    }

    #[test]
    fn who_never_says_the_same_twice_is_said_seldom_as_well() {
        let (mut complaints, start) = (none(), Instant::now());
        let said_at = |complaints: &mut Complaints, second, range: std::ops::Range<u64>| {
            let now = start + Duration::from_secs(second);
            range.filter_map(|text| complaints.count(&format!("text {text}"), now)).collect::<Vec<_>>()
        };
        let said = said_at(&mut complaints, 0, 0..1_000);
        assert_eq!(said, [1; REMEMBERED + 1]);
        assert!(said_at(&mut complaints, 59, 1_000..2_000).is_empty());
        // The places of a minute ago are free again.
        let said = said_at(&mut complaints, 60, 2_000..3_000);
        assert_eq!((said.len(), said[REMEMBERED]), (REMEMBERED + 1, 1_968));
        assert_eq!(complaints.by_text.len(), REMEMBERED);
    }
}
