//! The cluster that a daemon belongs to. An operator may configure endpoints of two clusters by
//! mistake. A start can compare only the endpoints that answer. So the daemon checks that each new
//! connection leads to its own cluster.
//!
//! No write reaches another cluster while one endpoint may still lead to the daemon's own cluster.
//! If all endpoints lead to another cluster, the daemon raises that cluster's floor and ends
//! (`Member::leave_cluster`).
//! - The marker and each counter each have an identity, which is made with them. These identities
//!   identify the cluster, because only a copy of the cluster has the same ones.
//! - The daemon reads the identity before its first write, and writes on the same connection.
//! - On each later connection, the daemon reads the identity first. A server of etcd or ZooKeeper
//!   stays a member of one cluster for as long as it runs.
//! - The read sees the newest value: etcd's reads are linearizable, and a ZooKeeper server first
//!   catches up with its leader (SYNC).
//!
//! Each answer of etcd also has a cluster ID. But that ID is a hash of the members' addresses and
//! of `--initial-cluster-token`, so two clusters can have the same ID.

use super::{Coordinator, FleetError, KeyError, NoAnswer};

/// A cluster, known by the identity in the value of a key.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(super) key: String,
    identity: String,
    /// The function that reads the identity in a value.
    read: fn(&str) -> Result<String, KeyError>,
}

impl Cluster {
    /// Returns the cluster whose key has this value. `read` reads the identity in a value.
    ///
    /// # Errors
    /// The value cannot be read.
    pub(super) fn of(
        key: &str,
        text: &str,
        read: fn(&str) -> Result<String, KeyError>,
    ) -> Result<Self, KeyError> {
        Ok(Cluster { key: key.to_owned(), identity: read(text)?, read })
    }

    /// Checks the key's value on a new connection. If the value is missing or cannot be read, the
    /// cluster counts as another cluster.
    ///
    /// # Errors
    /// The connection leads to another cluster.
    pub(super) fn check(&self, text: Option<&str>) -> Result<(), NoAnswer> {
        let found = match text.map(self.read) {
            Some(Ok(identity)) if identity == self.identity => return Ok(()),
            Some(Ok(_)) => {
                "found another fleet than this daemon's: correct fleet.endpoints; or, if the fleet was prepared again, or \
                 restored, start the daemon again"
            }
            Some(Err(_)) => {
                "found a value that cannot be read: correct fleet.endpoints, or find out who wrote it"
            }
            None => {
                "it is gone from the coordinator: correct fleet.endpoints; or, if the coordinator lost its data, see \
                 docs/fleet.md"
            }
        };
        Err(NoAnswer::foreign(format!("key {}: {found}", self.key)))
    }
}

/// Checks that all endpoints that answer report one cluster, because daemons at two clusters could
/// take the same number. Also checks that a key's value has the same identity at each endpoint, or
/// that the key is missing at each. The markers of two clusters have different identities. A value
/// that cannot be read counts as an identity of its own.
///
/// # Errors
/// Two endpoints differ: [`FleetError::Refused`].
pub(super) fn compare(
    coordinator: &mut dyn Coordinator,
    key: &str,
    identity: impl Fn(&str) -> Result<String, KeyError>,
) -> Result<(), FleetError> {
    let found = coordinator.read_at_each(key);
    let mut found = found
        .map_err(|fault| FleetError::Refused(format!("the endpoints belong to two clusters: {fault}")))?;
    for (_, text) in &mut found {
        *text = text.take().map(|text| identity(&text).unwrap_or(text));
    }
    let Some(pair) = found.windows(2).find(|pair| pair[0].1 != pair[1].1) else { return Ok(()) };
    let mut shown = Vec::new();
    for (endpoint, identity) in pair {
        let value = if identity.is_some() { "a value" } else { "no value" };
        shown.push(format!("{value} at {endpoint}"));
    }
    Err(FleetError::Refused(format!(
        "the endpoints belong to two clusters: found {} (key {key}), allowed: members of one cluster; correct \
         fleet.endpoints",
        shown.join(" and ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::{FleetLimits, Marker};

    #[test]
    fn only_the_same_identity_is_the_same_cluster() {
        let marker = |identity: &str, space: &str| {
            let limits = FleetLimits::new(Duration::from_secs(60), Duration::from_secs(10));
            Marker::new(identity, vec![space.to_owned()], limits).text()
        };
        let cluster = Cluster::of("/marker", &marker("1f", "a"), Marker::identity_in).unwrap();
        assert_eq!(cluster.check(Some(&marker("1f", "b"))), Ok(()), "another space was added");
        for other in [None, Some(""), Some("{\"format\":9}"), Some(&marker("2e", "a")[..])] {
            assert!(cluster.check(other).is_err(), "{other:?}");
        }
        assert!(Cluster::of("/marker", "garbage", Marker::identity_in).is_err());
    }
}
