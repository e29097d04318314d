//! The comparison of the endpoints: all must be of one cluster, because daemons at two clusters could have the same number.

use super::Member;
use super::want::JoinError;
use crate::fleet::{Coordinator, Marker, Stored};

impl<C: Coordinator> Member<C> {
    /// Checks once that all endpoints that answer have the same marker, or none. Two clusters that were prepared have markers
    /// with different identities.
    ///
    /// # Errors
    /// Two endpoints differ.
    pub(super) fn compare_endpoints(&mut self) -> Result<(), JoinError> {
        if self.are_compared {
            return Ok(());
        }
        let key = self.paths.marker();
        let found = self.coordinator.read_at_each(&key);
        let markers: Vec<_> = found.iter().map(|(endpoint, it)| (endpoint, identity(it.as_ref()))).collect();
        if let Some(pair) = markers.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            let words = |(endpoint, marker): &(&String, Option<String>)| match marker {
                Some(_) => format!("a fleet at {endpoint}"),
                None => format!("none at {endpoint}"),
            };
            return Err(JoinError::Refused(format!(
                "the endpoints are of two clusters: found {} and {} (key {key}), allowed: members of one cluster; correct \
                 fleet.endpoints",
                words(&pair[0]),
                words(&pair[1])
            )));
        }
        self.are_compared = true;
        Ok(())
    }
}

/// Returns the identity in a marker. What cannot be read is an identity of its own.
fn identity(stored: Option<&Stored>) -> Option<String> {
    let text = &stored?.text;
    Some(Marker::parse(text).map_or_else(|_| text.clone(), |marker| marker.identity))
}
