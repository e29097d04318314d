//! The settings of the front end.

use crate::config::setting::{Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

settings! {
    /// The front end for clients of HTTP.
    pub struct HttpSettings at |settings, _index| (settings.front_ends.http) {
        /// The addresses where clients of HTTP draw IDs, as in listen: GET /v1/ids, and the paths
        /// of katsubushi and Leaf. A request that names no source draws from the first. Empty:
        /// none.
        listen: Vec<Address> = r#""""# in Table("http"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();
    }
}
