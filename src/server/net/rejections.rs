//! Log lines about connections that were closed, or requests that were refused, because of the
//! peer's error. A peer can repeat its error without end, so the lines with the same reason have a
//! rate limit. For peers that did not authorize themselves, each address has a rate limit of its
//! own for each reason.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::server::health::rate_limited_log::RateLimited;

/// The most reasons that have a limit of their own. Peers cause fewer reasons; all further reasons
/// share one limit.
const REASONS_MAX: usize = 32;

/// The most pairs of an address and a reason that have a limit of their own. All further pairs
/// share one limit, so that an attack from a whole network fills neither memory nor log.
const ADDRESSES_MAX: usize = 256;

/// The rejections of a daemon that were logged lately.
#[derive(Debug)]
pub(crate) struct Rejections {
    reasons: Mutex<RateLimits>,
    addresses: Mutex<RateLimits>,
}

/// The rate limits of rejections.
#[derive(Debug)]
struct RateLimits {
    /// The limits by address and reason. For `reasons`, the address is always empty.
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
        Rejections { reasons, addresses }
    }
}

impl Rejections {
    /// Logs that a connection was closed because of an error of its peer.
    pub(crate) fn log(&self, peer: impl fmt::Display, reason: &str) {
        log_closed(&self.reasons, "", peer, reason);
    }

    /// Logs that a connection was closed because its peer sent nothing for `idle_timeout`. This is
    /// no fault, so the line is no warning.
    pub(crate) fn log_idle(&self, peer: impl fmt::Display, idle_timeout: Duration) {
        let reason = format!("it sent nothing for {idle_timeout:?} (limits.idle_timeout)");
        if let Some(count) = count(&self.reasons, "", &reason) {
            tracing::info!(%peer, count, "closed an idle connection: {reason}");
        }
    }

    /// Logs that a connection was closed because the peer did not authorize itself. `origin` is the
    /// peer's address without the port.
    pub(crate) fn log_unauthorized(&self, peer: impl fmt::Display, origin: &str, reason: &str) {
        log_closed(&self.addresses, origin, peer, reason);
    }

    /// Logs that a request was refused because its peer has not authorized itself. The connection
    /// stays open.
    pub(crate) fn log_refused(&self, peer: impl fmt::Display, origin: &str, reason: &str) {
        match count(&self.addresses, origin, reason) {
            Some(1) => tracing::warn!(%peer, "refused a request: {reason}"),
            Some(count) => tracing::warn!(%peer, count, "refused requests, this one the last: {reason}"),
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

/// Returns a reason without what the peer has sent, so that no peer can cause many: without what
/// stands between the first quote and the last, and without digits.
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

fn log_closed(limits: &Mutex<RateLimits>, origin: &str, peer: impl fmt::Display, reason: &str) {
    match count(limits, origin, reason) {
        Some(1) => tracing::warn!(%peer, "closed a connection: {reason}"),
        Some(count) => tracing::warn!(%peer, count, "closed connections, this one the last: {reason}"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((logged.len(), logged[REASONS_MAX]), (REASONS_MAX + 1, 1_968));
        assert_eq!(rejections.limits.len(), REASONS_MAX);
    }
}
