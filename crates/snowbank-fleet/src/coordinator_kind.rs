//! The kinds of coordinators.

/// A kind of coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorKind {
    /// etcd, through its JSON gateway.
    Etcd,
    /// ZooKeeper.
    ZooKeeper,
}

impl CoordinatorKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Etcd, Self::ZooKeeper];

    /// Returns the kind's name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// Returns the default port of the kind's endpoints.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Etcd => 2379,
            Self::ZooKeeper => 2181,
        }
    }

    /// Returns the schemes of the kind's endpoints: the scheme without TLS, and the scheme with TLS.
    pub(super) fn schemes(self) -> [&'static str; 2] {
        match self {
            Self::Etcd => ["http", "https"],
            Self::ZooKeeper => ["zookeeper", "zookeepers"],
        }
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
