//! The settings of the front end.

use crate::config::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

settings! {
    /// The front end for clients of noeqd.
    pub struct NoeqdSettings at (front_ends noeqd) {
        /// The addresses where clients of noeqd connect, as in listen. A request is one byte, the number of IDs.
        /// Empty: none.
        listen: Vec<Address> = r#""""# in Table("noeqd"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// The source of all requests. Empty: the first.
        source: Option<String> = r#""""# in Table("noeqd"), Reload, |value| value.source();
    }
}
