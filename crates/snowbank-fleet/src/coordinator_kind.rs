//! The list of the kinds of coordinators. Each kind is described in its own file.

use std::fmt;
use std::io;

use super::{Access, Coordinator, etcd, zookeeper};

/// All kinds.
const KINDS: [&CoordinatorKind; 2] = [&etcd::KIND, &zookeeper::KIND];

/// A kind of coordinator.
pub struct CoordinatorKind {
    /// The kind's name in a configuration.
    pub name: &'static str,
    /// The default port of the kind's endpoints.
    pub(super) port: u16,
    /// The schemes of the kind's endpoints: the scheme without TLS, and the scheme with TLS.
    pub(super) schemes: [&'static str; 2],
    /// Makes a client of such a coordinator. The client connects at its first call. Fails if the
    /// system allows no more open files.
    pub(super) open: fn(Access) -> io::Result<Box<dyn Coordinator>>,
}

impl PartialEq for CoordinatorKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CoordinatorKind {}

impl fmt::Debug for CoordinatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl CoordinatorKind {
    /// Returns all kinds.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        KINDS.into_iter()
    }

    /// Returns the kind whose endpoints have this scheme.
    pub(super) fn with_scheme(scheme: &str) -> Option<&'static Self> {
        Self::all().find(|kind| kind.schemes.contains(&scheme))
    }

    /// Returns the names of all kinds, for people.
    pub fn names() -> String {
        let names: Vec<String> = Self::all().map(|kind| format!("{:?}", kind.name)).collect();
        names.join(" or ")
    }

    /// Returns the form of the kind's endpoints, for people.
    pub fn allowed(&self) -> String {
        let [plain, tls] = self.schemes;
        format!("\"{plain}://HOST:PORT\" or \"{tls}://HOST:PORT\"")
    }
}
