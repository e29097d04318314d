//! The settings of the front end.

use crate::config::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

settings! {
    /// The front end for clients of memcached.
    pub struct MemcachedSettings at |settings, _index| (settings.front_ends.memcached) {
        /// The addresses where clients of memcached and katsubushi connect, as in listen: each key
        /// of a get draws an ID, from the source of that name, or of the name before a colon, or
        /// else from any_key, or the first. Empty: none.
        listen: Vec<Address> = r#""""# in Table("memcached"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// Requires tokens here too if auth.token_file is set. The protocol cannot carry a token,
        /// so the daemon then refuses to start with this front end. With false it starts, and
        /// everyone who can connect draws IDs.
        tokens: bool = "true" in Table("memcached"), Reload, |value| value.boolean();
    }
}
