//! The comparison of the endpoints: all must be of one cluster, because daemons at two clusters
//! could have the same number.

use super::Member;
use crate::{Cluster, Coordinator, KeyError};

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Uses only connections to this cluster from now on. So the endpoints need no further
    /// comparison.
    pub(super) fn stay_in(&mut self, cluster: Cluster) {
        self.coordinator.as_mut().stay_in(cluster);
        self.are_compared = true;
    }

    /// Checks that all endpoints that answer report one cluster, and that a key's value has the
    /// same identity at all of them, or is missing at all of them. Does nothing if they were
    /// compared before. Two clusters that were prepared have markers with different identities. A
    /// value that cannot be read is an identity of its own.
    ///
    /// # Errors
    /// Returns a message if two endpoints differ.
    pub(super) fn compare_at(
        &mut self,
        key: &str,
        identity: impl Fn(&str) -> Result<String, KeyError>,
    ) -> Result<(), String> {
        if self.are_compared {
            return Ok(());
        }
        let found = self.coordinator.as_mut().read_at_each(key);
        let mut found = found.map_err(|reason| format!("the endpoints are of two clusters: {reason}"))?;
        for (_, text) in &mut found {
            *text = text.take().map(|text| identity(&text).unwrap_or(text));
        }
        let Some(pair) = found.windows(2).find(|pair| pair[0].1 != pair[1].1) else { return Ok(()) };
        let mut shown = Vec::new();
        for (endpoint, identity) in pair {
            let value = if identity.is_some() { "a value" } else { "none" };
            shown.push(format!("{value} at {endpoint}"));
        }
        Err(format!(
            "the endpoints are of two clusters: found {} (key {key}), allowed: members of one cluster; correct \
             fleet.endpoints",
            shown.join(" and ")
        ))
    }
}
