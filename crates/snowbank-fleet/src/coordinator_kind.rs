//! The kinds of coordinators, one row each.

/// A kind of coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorKind {
    /// etcd, through its JSON gateway.
    Etcd,
    /// ZooKeeper.
    ZooKeeper,
}

/// The facts of a kind.
struct Facts {
    name: &'static str,
    port: u16,
    schemes: [&'static str; 2],
}

impl CoordinatorKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Etcd, Self::ZooKeeper];

    const fn facts(self) -> Facts {
        match self {
            Self::Etcd => Facts { name: "etcd", port: 2379, schemes: ["http", "https"] },
            Self::ZooKeeper => Facts { name: "zookeeper", port: 2181, schemes: ["zookeeper", "zookeepers"] },
        }
    }

    /// Returns the kind's name in a configuration.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the default port of the kind's endpoints.
    pub(super) fn port(self) -> u16 {
        self.facts().port
    }

    /// Returns the schemes of the kind's endpoints: the scheme without TLS, and the scheme with TLS.
    pub(super) fn schemes(self) -> [&'static str; 2] {
        self.facts().schemes
    }

    /// Returns the names of all kinds, for people.
    pub fn names() -> String {
        Self::ALL.map(|kind| format!("{:?}", kind.name())).join(" or ")
    }

    /// Returns the form of the kind's endpoints, for people.
    pub fn allowed(self) -> String {
        let [plain, tls] = self.schemes();
        format!("\"{plain}://HOST:PORT\" or \"{tls}://HOST:PORT\"")
    }
}
