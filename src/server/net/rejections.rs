//! Lines about peers that do something wrong, for the operator of either side. A peer can repeat itself without end, so
//! the same complaint is said seldom.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::health::rate_limited_log::RateLimited;

/// Different rejections that are remembered. More than peers make that mean well; one that does not may cause a text of its
/// own with each connection, so those that find no place count as one.
const REMEMBERED: usize = 32;

static REJECTIONS: Mutex<Rejections> =
    Mutex::new(Rejections { by_text: Vec::new(), others: RateLimited::new() });

/// Rejections that were made lately.
struct Rejections {
    by_text: Vec<(String, RateLimited)>,
    others: RateLimited,
}

impl Rejections {
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
        let mut seldom = RateLimited::new();
        let count = seldom.count(now);
        self.by_text.push((text.to_owned(), seldom));
        count
    }
}

/// Says that a connection was closed for what its peer did.
pub(crate) fn log(peer: impl fmt::Display, text: &str) {
    let count = REJECTIONS.lock().unwrap_or_else(PoisonError::into_inner).count(text, Instant::now());
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

    fn none() -> Rejections {
        Rejections { by_text: Vec::new(), others: RateLimited::new() }
    }

    #[test]
    fn complaints_are_counted_by_their_text() {
        let (mut rejections, now) = (none(), Instant::now());
        assert_eq!(rejections.count("a", now), Some(1));
        assert_eq!(rejections.count("a", now), None);
        assert_eq!(rejections.count("b", now), Some(1));
        assert_eq!(rejections.count("a", now), None);
    }

    #[test]
    fn who_never_says_the_same_twice_is_said_seldom_as_well() {
        let (mut rejections, start) = (none(), Instant::now());
        let said_at = |rejections: &mut Rejections, second, range: std::ops::Range<u64>| {
            let now = start + Duration::from_secs(second);
            range.filter_map(|text| rejections.count(&format!("text {text}"), now)).collect::<Vec<_>>()
        };
        let said = said_at(&mut rejections, 0, 0..1_000);
        assert_eq!(said, [1; REMEMBERED + 1]);
        assert!(said_at(&mut rejections, 59, 1_000..2_000).is_empty());
        // The places of a minute ago are free again.
        let said = said_at(&mut rejections, 60, 2_000..3_000);
        assert_eq!((said.len(), said[REMEMBERED]), (REMEMBERED + 1, 1_968));
        assert_eq!(rejections.by_text.len(), REMEMBERED);
    }
}
