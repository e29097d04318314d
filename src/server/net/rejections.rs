//! Log lines about peers whose connections were closed for an error of theirs. A peer can repeat its error without end, so
//! each reason is rate-limited.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::health::rate_limited_log::RateLimited;

/// The number of reasons that are limited one by one. Well-meaning peers cause fewer. A hostile peer can cause a new text with
/// each connection, so all further reasons share one limit.
const REMEMBERED: usize = 32;

static REJECTIONS: Mutex<Rejections> =
    Mutex::new(Rejections { by_text: Vec::new(), others: RateLimited::new() });

/// The reasons that were logged lately.
struct Rejections {
    by_text: Vec<(String, RateLimited)>,
    others: RateLimited,
}

impl Rejections {
    /// Counts a rejection. If it must be logged, returns how many there were since the last log line, this one included.
    fn count(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some((_, limit)) = self.by_text.iter_mut().find(|(known, _)| known == text) {
            return limit.count(now);
        }
        if self.by_text.len() == REMEMBERED {
            self.by_text.retain(|(_, limit)| limit.is_recent(now));
        }
        if self.by_text.len() == REMEMBERED {
            return self.others.count(now);
        }
        let mut limit = RateLimited::new();
        let count = limit.count(now);
        self.by_text.push((text.to_owned(), limit));
        count
    }
}

/// Logs that a connection was closed for an error of its peer.
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
    fn rejections_are_counted_by_their_text() {
        let (mut rejections, now) = (none(), Instant::now());
        assert_eq!(rejections.count("a", now), Some(1));
        assert_eq!(rejections.count("a", now), None);
        assert_eq!(rejections.count("b", now), Some(1));
        assert_eq!(rejections.count("a", now), None);
    }

    #[test]
    fn a_peer_with_a_new_error_each_time_is_rate_limited_as_well() {
        let (mut rejections, start) = (none(), Instant::now());
        let logged_at = |rejections: &mut Rejections, second, range: std::ops::Range<u64>| {
            let now = start + Duration::from_secs(second);
            range.filter_map(|text| rejections.count(&format!("text {text}"), now)).collect::<Vec<_>>()
        };
        let logged = logged_at(&mut rejections, 0, 0..1_000);
        assert_eq!(logged, [1; REMEMBERED + 1]);
        assert!(logged_at(&mut rejections, 59, 1_000..2_000).is_empty());
        // The reasons of a minute ago are forgotten.
        let logged = logged_at(&mut rejections, 60, 2_000..3_000);
        assert_eq!((logged.len(), logged[REMEMBERED]), (REMEMBERED + 1, 1_968));
        assert_eq!(rejections.by_text.len(), REMEMBERED);
    }
}
