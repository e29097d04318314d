//! The state that the handles of one client share with a driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::Error;
use super::options::ClientOptions;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    /// The endpoints as text, in the options' order.
    pub(super) names: Vec<Arc<str>>,
    progress: Mutex<Progress>,
}

/// The progress of the driver and of the check for equal worker IDs.
#[derive(Debug)]
struct Progress {
    /// The endpoint that serves. If its name has several IP addresses, the daemon's IP address
    /// follows.
    serving: Option<Arc<str>>,
    /// The index of the endpoint that the driver is connecting to, and the step that this endpoint
    /// has not done yet.
    awaited: Option<(usize, Arc<str>)>,
    /// The error of each endpoint that has failed since it last greeted.
    failures: Vec<Option<Error>>,
    /// For each endpoint, the number of the address that is tried first. A [failure](Shared::fail)
    /// can raise this number.
    address_numbers: Vec<usize>,
    /// The error of every call while two endpoints hand out the same IDs.
    collision: Option<Error>,
}

impl Shared {
    pub(super) fn new(options: ClientOptions) -> Self {
        let names: Vec<_> = options.endpoints.iter().map(|endpoint| endpoint.to_string().into()).collect();
        // Random first numbers spread the clients over the addresses of a name.
        let address_numbers =
            names.iter().map(|_| if options.prefer_first { 0 } else { fastrand::usize(..) }).collect();
        let failures = vec![None; names.len()];
        let progress = Progress { serving: None, awaited: None, failures, address_numbers, collision: None };
        Self { options, names, progress: Mutex::new(progress) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that two endpoints hand out the same IDs, or (`None`) that no two do.
    pub(super) fn set_collision(&self, collision: Option<Error>) {
        self.progress().collision = collision;
    }

    /// Returns an error if two endpoints hand out the same IDs.
    pub(super) fn check_collision(&self) -> Result<(), Error> {
        self.progress().collision.clone().map_or(Ok(()), Err)
    }

    /// Records the step that the endpoint has not done yet while the driver connects to it.
    pub(super) fn awaits(&self, index: usize, unfinished: String) {
        self.progress().awaited = Some((index, unfinished.into()));
    }

    /// Records that an endpoint serves, and forgets its failure. `name` may include an IP address.
    /// If the options prefer the first address, the next connection begins with that address again.
    pub(super) fn serves(&self, index: usize, name: &Arc<str>) {
        let mut progress = self.progress();
        progress.failures[index] = None;
        if self.options.prefer_first {
            progress.address_numbers[index] = 0;
        }
        progress.serving = Some(Arc::clone(name));
        progress.awaited = None;
    }

    /// Records that an endpoint failed. From now on the next address of its name is tried first.
    /// There is one exception: if the options prefer the first address and the endpoint was
    /// serving, the first address is tried again.
    pub(super) fn fail(&self, index: usize, failure: Error) {
        let mut progress = self.progress();
        let has_served = progress.serving.take().is_some();
        progress.awaited = None;
        progress.failures[index] = Some(failure);
        if !(has_served && self.options.prefer_first) {
            progress.bump(index);
        }
    }

    /// Records that an endpoint failed while another endpoint serves.
    pub(super) fn fail_in_background(&self, index: usize, failure: Error) {
        let mut progress = self.progress();
        progress.failures[index] = Some(failure);
        progress.bump(index);
    }

    /// Returns the number of the address that is tried first. The index of that address is this
    /// number modulo the count of the name's addresses.
    pub(super) fn address_number(&self, index: usize) -> usize {
        self.progress().address_numbers[index]
    }

    /// Records the number of the address that accepted the connection.
    pub(super) fn set_address_number(&self, index: usize, number: usize) {
        self.progress().address_numbers[index] = number;
    }

    /// Returns the error of each endpoint that has failed since it last greeted.
    pub(super) fn failures(&self) -> Vec<Error> {
        self.progress().failures.iter().flatten().cloned().collect()
    }

    /// Returns the endpoint that serves, or else the reasons why no endpoint serves.
    pub(super) fn endpoint_or_failure(&self) -> Result<Arc<str>, Error> {
        let progress = self.progress();
        if let Some(endpoint) = &progress.serving {
            return Ok(Arc::clone(endpoint));
        }
        let mut failures = Vec::new();
        for (index, failure) in progress.failures.iter().enumerate() {
            let unfinished = match &progress.awaited {
                Some((awaited, unfinished)) if *awaited == index => Arc::clone(unfinished),
                _ => "the client had no time to connect".into(),
            };
            failures.push(failure.clone().unwrap_or_else(|| Error::Unreachable {
                endpoint: Arc::clone(&self.names[index]),
                reason: unfinished,
            }));
        }
        Err(Error::join(failures))
    }

    /// Returns a random pause for an endpoint that has failed this often in a row. The longest
    /// pause is `min_backoff` after the first failure, doubles with each further failure, and never
    /// exceeds `max_backoff`. Because the pauses are random, the clients of a daemon that comes
    /// back do not all connect at once.
    pub(super) fn backoff(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let limit = self.options.min_backoff.saturating_mul(doubled).min(self.options.max_backoff);
        limit.mul_f64(fastrand::f64())
    }
}

impl Progress {
    fn bump(&mut self, index: usize) {
        self.address_numbers[index] = self.address_numbers[index].wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_limit_and_varies() {
        let ms = Duration::from_millis;
        let shared = Shared::new(ClientOptions::default().backoff(ms(50), ms(5_000)));
        for (failures, limit) in [(0, 50), (1, 50), (2, 100), (5, 800), (9, 5_000), (u32::MAX, 5_000)] {
            let longest = (0..300).map(|_| shared.backoff(failures)).max().unwrap_or_default();
            assert!(longest <= ms(limit) && longest > ms(limit) / 2, "{failures}: {longest:?}");
        }
        assert_ne!(shared.backoff(9), shared.backoff(9));
    }

    #[test]
    fn only_prefer_first_starts_at_the_first_address_of_a_name() {
        let first =
            |prefers: bool| Shared::new(ClientOptions::default().prefer_first(prefers)).address_number(0);
        assert_ne!(first(false), first(false));
        assert_eq!(first(true), 0);
    }

    #[test]
    fn a_preferred_address_that_served_is_tried_first_again() {
        let shared = Shared::new(ClientOptions::default().prefer_first(true));
        let fail = || {
            shared.fail(0, Error::Lost { endpoint: "ids:7660".into(), reason: "it ended".into() });
            shared.address_number(0)
        };
        shared.awaits(0, "it has not accepted the connection".to_owned());
        assert_eq!(fail(), 1, "the first address did not serve");
        shared.serves(0, &"ids:7660 (10.0.0.1)".into());
        let serving = shared.endpoint_or_failure().expect("an endpoint serves");
        assert_eq!(
            &*serving, "ids:7660 (10.0.0.1)",
            "an error of a passed deadline names the address in use"
        );
        assert_eq!(fail(), 0);
    }

    #[test]
    fn a_client_that_had_no_time_to_connect_names_its_endpoints() {
        let endpoints = ["ids-1:7660", "ids-2:7660"].map(|endpoint| endpoint.parse().expect("an endpoint"));
        let shared = Shared::new(ClientOptions::to(endpoints));
        let failure = |shared: &Shared| shared.endpoint_or_failure().expect_err("a failure").to_string();
        let untried = "cannot reach ids-2:7660: the client had no time to connect";
        assert_eq!(failure(&shared), format!("{}; {untried}", untried.replace('2', "1")));
        let number = shared.address_number(0);
        shared.fail(0, Error::Lost { endpoint: "ids-1:7660".into(), reason: "it ended".into() });
        assert_eq!(failure(&shared), format!("lost the connection to ids-1:7660: it ended; {untried}"));
        assert_eq!(shared.address_number(0), number.wrapping_add(1), "the name's next address comes first");
    }
}
