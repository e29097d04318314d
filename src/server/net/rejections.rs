//! Log lines about peers whose connections were closed, or whose requests were refused, because of
//! the peer's error. A peer can repeat its error without end, so each reason is rate-limited. Peers
//! that did not authorize themselves are rate-limited one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::health::rate_limited_log::RateLimited;

/// The number of reasons that are limited one by one. Well-meaning peers cause fewer. A hostile
/// peer can cause a new text with each connection, so all further reasons share one limit.
const REASONS_MAX: usize = 32;

/// The number of pairs of an address and a reason that are limited one by one. All further ones
/// share one limit, so that an attack from a whole network fills neither memory nor log.
const ADDRESSES_MAX: usize = 256;

/// Ends the address in a name like `address reason`.
const ORIGIN_END: char = ' ';

static REASONS: Mutex<Rejections> = Mutex::new(Rejections::new(REASONS_MAX));
static ADDRESSES: Mutex<Rejections> = Mutex::new(Rejections::new(ADDRESSES_MAX));

/// The reasons or addresses that were logged lately.
struct Rejections {
    by_name: BTreeMap<String, RateLimited>,
    /// The number of names that are limited one by one.
    names_max: usize,
    others: RateLimited,
}

impl Rejections {
    const fn new(names_max: usize) -> Self {
        Rejections { by_name: BTreeMap::new(), names_max, others: RateLimited::new() }
    }

    /// Counts a rejection. If it must be logged, returns how many there were since the last log
    /// line, this one included.
    fn count(&mut self, name: &str, now: Instant) -> Option<u64> {
        if let Some(limit) = self.by_name.get_mut(name) {
            return limit.count(now);
        }
        if self.by_name.len() == self.names_max {
            self.by_name.retain(|_, limit| limit.is_recent(now));
        }
        if self.by_name.len() == self.names_max {
            return self.others.count(now);
        }
        self.by_name.entry(name.to_owned()).or_default().count(now)
    }
}

/// Logs that a connection was closed because of an error of its peer.
pub(crate) fn log(peer: impl fmt::Display, text: &str) {
    let count = count(&REASONS, text);
    log_closed(count, peer, text);
}

/// Logs that a connection was closed because its peer did not authorize itself. `origin` is the
/// peer's address without port.
pub(crate) fn log_unauthorized(peer: impl fmt::Display, origin: &str, text: &str) {
    let count = count(&ADDRESSES, &format!("{origin}{ORIGIN_END}{text}"));
    log_closed(count, peer, text);
}

/// Logs that a request was refused because its peer has not authorized itself. The connection stays
/// open.
pub(crate) fn log_refused(peer: impl fmt::Display, origin: &str, text: &str) {
    match count(&ADDRESSES, &format!("{origin}{ORIGIN_END}{text}")) {
        Some(1) => tracing::warn!(%peer, "refused a request: {text}"),
        Some(count) => tracing::warn!(%peer, count, "refused requests, this one the last: {text}"),
        None => {}
    }
}

/// Returns the number of addresses whose connections or requests were refused as unauthorized in
/// the last minute; at most [`ADDRESSES_MAX`].
pub(crate) fn unauthorized_addresses() -> usize {
    let addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let recent = addresses.by_name.iter().filter(|(_, limit)| limit.is_recent(now));
    let mut origins: Vec<_> = recent.filter_map(|(name, _)| name.split(ORIGIN_END).next()).collect();
    // Names are sorted, so equal origins are adjacent.
    origins.dedup();
    origins.len()
}

fn count(rejections: &Mutex<Rejections>, name: &str) -> Option<u64> {
    rejections.lock().unwrap_or_else(PoisonError::into_inner).count(name, Instant::now())
}

fn log_closed(count: Option<u64>, peer: impl fmt::Display, text: &str) {
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

    #[test]
    fn a_peer_with_a_new_error_each_time_is_rate_limited_as_well() {
        let mut rejections = Rejections::new(REASONS_MAX);
        let start = Instant::now();
        let logged_at = |rejections: &mut Rejections, second, range: std::ops::Range<u64>| {
            let now = start + Duration::from_secs(second);
            range.filter_map(|text| rejections.count(&format!("text {text}"), now)).collect::<Vec<_>>()
        };
        let logged = logged_at(&mut rejections, 0, 0..1_000);
        assert_eq!(logged, [1; REASONS_MAX + 1]);
        assert!(logged_at(&mut rejections, 59, 1_000..2_000).is_empty());
        // The reasons of a minute ago are forgotten.
        let logged = logged_at(&mut rejections, 60, 2_000..3_000);
        assert_eq!((logged.len(), logged[REASONS_MAX]), (REASONS_MAX + 1, 1_968));
        assert_eq!(rejections.by_name.len(), REASONS_MAX);
    }
}
