//! The comparison of the endpoints. All endpoints must belong to one cluster, because daemons at
//! two clusters could take the same number.

use super::Member;
use crate::{Cluster, Coordinator, KeyError};

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Makes the coordinator's client use this cluster only, so that the endpoints need no
    /// comparison.
    pub(super) fn stay_in(&mut self, cluster: Cluster) {
        self.coordinator.as_mut().stay_in(cluster);
        self.are_compared = true;
    }

    /// Checks that all endpoints that answer report one cluster. Also checks that a key's value has
    /// the same identity at each of these endpoints, or that the key is missing at each of them.
    /// The markers of two clusters have different identities. A value that cannot be read counts as
    /// an identity of its own. Does nothing once the client stays in one cluster.
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
        let mut found = found.map_err(|reason| format!("the endpoints belong to two clusters: {reason}"))?;
        for (_, text) in &mut found {
            *text = text.take().map(|text| identity(&text).unwrap_or(text));
        }
        let Some(pair) = found.windows(2).find(|pair| pair[0].1 != pair[1].1) else { return Ok(()) };
        let mut shown = Vec::new();
        for (endpoint, identity) in pair {
            let value = if identity.is_some() { "a value" } else { "no value" };
            shown.push(format!("{value} at {endpoint}"));
        }
        Err(format!(
            "the endpoints belong to two clusters: found {} (key {key}), allowed: members of one cluster; correct \
             fleet.endpoints",
            shown.join(" and ")
        ))
    }
}
