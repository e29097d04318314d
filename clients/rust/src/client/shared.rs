//! The state that the handles of one client share with its driver.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::Error;
use super::options::ClientOptions;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    /// The endpoints as text, in the options' order.
    pub(super) names: Vec<Arc<str>>,
    /// The reason why there is no connection, for callers whose deadline passes meanwhile.
    last_failure: Mutex<Option<Error>>,
}

impl Shared {
    pub(super) fn new(options: ClientOptions) -> Self {
        let names = options.endpoints.iter().map(|endpoint| endpoint.to_string().into()).collect();
        Self { options, names, last_failure: Mutex::new(None) }
    }

    pub(super) fn last_failure(&self) -> Option<Error> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_last_failure(&self, failure: Option<Error>) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Returns a random pause after that many failures in a row. Its limit is `min_backoff`, doubled for each
    /// failure but the first. The randomness spreads the clients of a daemon that comes back.
    pub(super) fn backoff(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let limit = self.options.min_backoff.saturating_mul(doubled).min(self.options.max_backoff);
        limit.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_limit_and_varies() {
        let ms = Duration::from_millis;
        let shared = Shared::new(ClientOptions::default().backoff(ms(50), ms(5_000)));
        let longest = |failures| (0..300).map(|_| shared.backoff(failures)).max().unwrap_or_default();
        for (failures, limit) in [(0, 50), (1, 50), (2, 100), (5, 800), (9, 5_000), (u32::MAX, 5_000)] {
            let longest = longest(failures);
            assert!(longest <= ms(limit) && longest > ms(limit) / 2, "{failures}: {longest:?}");
        }
        assert_ne!(shared.backoff(9), shared.backoff(9));
    }
}
