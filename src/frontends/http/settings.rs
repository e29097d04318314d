//! The settings of the front end.

use crate::config::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

settings! {
    /// The front end for clients of HTTP.
    pub struct HttpSettings at (front_ends http) {
        /// The addresses where clients of HTTP draw IDs, as in listen: GET /v1/ids, and the paths of katsubushi and Leaf.
        /// Empty: none.
        listen: Vec<Address> = r#""""# in Table("http"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// The source of requests that name none. Empty: the first.
        source: Option<String> = r#""""# in Table("http"), Reload, |value| value.source();

        /// The source that every other key of Leaf's paths draws from. Empty: a key that is no source's name is refused, as
        /// it always is in /v1/ids.
        any_key: Option<String> = r#""""# in Table("http"), Reload, |value| value.source();
    }
}
