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

use super::{KeyError, NoAnswer};

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
            Some(Ok(_)) => "found another cluster",
            Some(Err(_)) => "found another cluster, or the key cannot be read",
            None => "found another cluster, or the key is gone from the coordinator",
        };
        Err(NoAnswer::foreign(format!(
            "{found} (key {}), allowed: members of the cluster that this daemon belongs to; correct fleet.endpoints",
            self.key
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FleetLimits, Marker};

    #[test]
    fn only_the_same_identity_is_the_same_cluster() {
        let marker = |identity: &str, space: &str| {
            Marker::new(identity, vec![space.to_owned()], FleetLimits::default()).text()
        };
        let cluster = Cluster::of("/marker", &marker("1f", "a"), Marker::identity_in).unwrap();
        assert_eq!(cluster.check(Some(&marker("1f", "b"))), Ok(()), "another space was added");
        for other in [None, Some(""), Some("{\"format\":9}"), Some(&marker("2e", "a")[..])] {
            assert!(cluster.check(other).is_err(), "{other:?}");
        }
        assert!(Cluster::of("/marker", "garbage", Marker::identity_in).is_err());
    }
}
