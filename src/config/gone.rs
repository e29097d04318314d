//! The settings that earlier versions had.

use super::setting::{Section, full_key};

/// A setting that an earlier version had.
pub(super) struct Gone {
    pub(super) section: Section,
    pub(super) key: &'static str,
    /// The setting or the rule in its place.
    instead: &'static str,
}

const FIRST_SOURCE: &str = "a request that names no source draws from the first one";
const ONE_ANY_KEY: &str = "set any_key at the top of the file, for all front ends";

/// Every setting that is gone.
pub(super) const GONE: [Gone; 11] = [
    gone(
        Section::Top,
        "unix_mode",
        "socket files have mode 0660; let systemd make one with another (SocketMode=)",
    ),
    gone(Section::Source, "worker_count", "set worker_id_from = \"coordinator:COUNT\""),
    gone(
        Section::SourceAlone,
        "numbers_from",
        "set kind = \"fleet-ticket\" for a counter at the coordinator",
    ),
    gone(
        Section::Table("fleet"),
        "peers_token_file",
        "peers get the first plain token of auth.token_file, over TLS or on this machine",
    ),
    gone(Section::Table("resp"), "source", FIRST_SOURCE),
    gone(Section::Table("memcached"), "source", FIRST_SOURCE),
    gone(Section::Table("noeqd"), "source", FIRST_SOURCE),
    gone(Section::Table("http"), "source", FIRST_SOURCE),
    gone(Section::Table("resp"), "any_key", ONE_ANY_KEY),
    gone(Section::Table("memcached"), "any_key", ONE_ANY_KEY),
    gone(Section::Table("http"), "any_key", ONE_ANY_KEY),
];

const fn gone(section: Section, key: &'static str, instead: &'static str) -> Gone {
    Gone { section, key, instead }
}

impl Gone {
    /// Returns the key with its section.
    pub(super) fn full_key(&self) -> String {
        full_key(self.section, self.key)
    }

    /// Returns the text of the mistake.
    pub(super) fn explain(&self) -> String {
        format!("no setting any more: {}", self.instead)
    }
}
