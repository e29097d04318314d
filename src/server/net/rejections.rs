//! Log lines about connections that were closed, or requests that were refused, because of the
//! peer's error. A peer can repeat its error without end, so the lines with the same reason have a
//! rate limit for each listener. For peers that did not authorize themselves, each address has a rate
//! limit of its own for each reason. What is logged as closed is counted here, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::ends::Ends;
use crate::server::health::metrics::CloseReason;
use crate::server::health::rate_limited_log::RateLimited;

/// The most pairs of a listener and a reason that have a limit of their own. Peers cause fewer; all
/// further ones share one limit.
const REASONS_MAX: usize = 128;

/// The most pairs of an address and a reason that have a limit of their own. All further pairs
/// share one limit, so that an attack from a whole network fills neither memory nor log.
const ADDRESSES_MAX: usize = 256;

/// The connections that a daemon has closed by itself, and the rejections that were logged lately.
#[derive(Debug)]
pub(crate) struct Rejections {
    closed: [AtomicU64; CloseReason::ALL.len()],
    reasons: Mutex<RateLimits>,
    addresses: Mutex<RateLimits>,
}

/// The rate limits of rejections.
#[derive(Debug)]
struct RateLimits {
    /// The limits by address and reason. For `reasons`, the address is that of the listener.
    limits: BTreeMap<(String, String), RateLimited>,
    limits_max: usize,
    /// The limit that all further rejections share.
    others: RateLimited,
}

impl RateLimits {
    fn new(limits_max: usize) -> Self {
        RateLimits { limits: BTreeMap::new(), limits_max, others: RateLimited::default() }
    }

    /// Counts a rejection. If it must be logged, returns the number of rejections since the last
    /// log line, this rejection included.
    fn count(&mut self, origin: &str, reason: &str, now: Instant) -> Option<u64> {
        let key = (origin.to_owned(), kind_of(reason));
        if let Some(limit) = self.limits.get_mut(&key) {
            return limit.count(now);
        }
        if self.limits.len() == self.limits_max {
            self.limits.retain(|_, limit| limit.is_recent(now));
        }
        if self.limits.len() == self.limits_max {
            return self.others.count(now);
        }
        self.limits.entry(key).or_default().count(now)
    }
}

impl Default for Rejections {
    fn default() -> Self {
        let [reasons, addresses] = [REASONS_MAX, ADDRESSES_MAX].map(|max| Mutex::new(RateLimits::new(max)));
        Rejections { closed: Default::default(), reasons, addresses }
    }
}

impl Rejections {
    /// Counts that the daemon closes a connection by itself, and logs why.
    pub(crate) fn close(&self, reason: CloseReason, ends: &Ends, text: &str) {
        let count = match reason {
            CloseReason::Unauthorized => count(&self.addresses, &ends.origin, text),
            _ => count(&self.reasons, &ends.listener, text),
        };
        self.record(reason, ends, text, count);
    }

    /// Does the same for a client that a reload has revoked. One reload may revoke all clients, so
    /// their addresses have no limits of their own.
    pub(crate) fn close_revoked(&self, ends: &Ends, text: &str) {
        self.record(CloseReason::Unauthorized, ends, text, count(&self.reasons, &ends.listener, text));
    }

    fn record(
        &self,
        reason: CloseReason,
        Ends { peer, listener, .. }: &Ends,
        text: &str,
        count: Option<u64>,
    ) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
        match count {
            // This is no fault, so the line is no warning.
            Some(count) if reason == CloseReason::Idle => {
                tracing::info!(%peer, %listener, count, "closed an idle connection: {text}");
            }
            Some(1) => tracing::warn!(%peer, %listener, "closed a connection: {text}"),
            Some(count) => {
                tracing::warn!(%peer, %listener, count, "closed connections, this one the last: {text}");
            }
            None => {}
        }
    }

    /// Returns the number of connections that the daemon closed for each reason.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |reason: CloseReason| self.closed[reason as usize].load(Ordering::Relaxed);
        CloseReason::ALL.into_iter().map(move |reason| (reason.name(), count(reason)))
    }

    /// Logs that a request was refused because its peer has not authorized itself. The connection
    /// stays open.
    pub(crate) fn log_refused(&self, ends: &Ends, reason: &str) {
        let Ends { peer, origin, listener } = ends;
        match count(&self.addresses, origin, reason) {
            Some(1) => tracing::warn!(%peer, %listener, "refused a request: {reason}"),
            Some(count) => {
                tracing::warn!(%peer, %listener, count, "refused requests, this one the last: {reason}");
            }
            None => {}
        }
    }

    /// Returns the number of addresses with a log line of the last minute about an unauthorized
    /// connection or request; at most [`ADDRESSES_MAX`].
    pub(crate) fn unauthorized_addresses(&self) -> usize {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let recent = addresses.limits.iter().filter(|(_, limit)| limit.is_recent(now));
        let mut origins: Vec<&str> = recent.map(|((origin, _), _)| origin.as_str()).collect();
        // The keys are sorted, so equal origins are adjacent.
        origins.dedup();
        origins.len()
    }
}

/// Returns a reason without what the peer has sent, so that no peer can cause many. It leaves out
/// digits, and what stands between the first quote and the last.
fn kind_of(reason: &str) -> String {
    let quotes = ['"', '\''];
    let kept = match (reason.find(quotes), reason.rfind(quotes)) {
        (Some(first), Some(last)) => [&reason[..first], &reason[last..]].concat(),
        _ => reason.to_owned(),
    };
    kept.chars().filter(|char| !char.is_ascii_digit()).collect()
}

fn count(limits: &Mutex<RateLimits>, origin: &str, reason: &str) -> Option<u64> {
    limits.lock().unwrap_or_else(PoisonError::into_inner).count(origin, reason, Instant::now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_words_of_a_peer_make_no_new_reason() {
        for words in ["b", "a\\\"b", "7"] {
            let reason = format!("found the host \"{words}\" and 12 bytes, allowed: a name");
            assert_eq!(kind_of(&reason), "found the host \" and  bytes, allowed: a name");
        }
        assert_eq!(kind_of("one of Snowbank's own"), "one of Snowbank's own");
    }

    #[test]
    fn new_reasons_beyond_the_limit_share_a_log_line() {
        let mut rejections = RateLimits::new(REASONS_MAX);
        let start = Instant::now();
        let logged_at = |rejections: &mut RateLimits, second, range: std::ops::Range<u64>| {
            let now = start + Duration::from_secs(second);
            range
                .filter_map(|number| rejections.count("", &"x".repeat(number as usize), now))
                .collect::<Vec<_>>()
        };
        let logged = logged_at(&mut rejections, 0, 0..1_000);
        assert_eq!(logged, [1; REASONS_MAX + 1]);
        assert!(logged_at(&mut rejections, 59, 1_000..2_000).is_empty());
        // After a minute, the earlier reasons are forgotten.
        let logged = logged_at(&mut rejections, 60, 2_000..3_000);
        assert_eq!((logged.len(), logged[REASONS_MAX]), (REASONS_MAX + 1, 1_872));
        assert_eq!(rejections.limits.len(), REASONS_MAX);
    }
}
