//! The settings of the front end.

use crate::config::setting::{Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

settings! {
    /// The front end for clients of noeqd.
    pub struct NoeqdSettings at |settings, _index| (settings.front_ends.noeqd) {
        /// The addresses where clients of noeqd connect, as in listen. A request is one byte, the
        /// number of IDs, which are from the first source. Empty: none.
        listen: Vec<Address> = r#""""# in Table("noeqd"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();
    }
}
