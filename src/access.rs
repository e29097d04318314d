//! The identities of clients, and how much each may draw.
//!
//! A client shows a token, a certificate, both or neither. A token or certificate can have an
//! identity: a name, a rate, and the sources that clients of this identity may draw from. Requests
//! of clients without limits skip the checks of this module.
//!
//! - `pace`: a rate of IDs, measured by the boot clock.
//! - `usage`: the IDs that an identity drew, and how often it was denied or slowed.
//! - `access_rules`: the identities and tokens of one configuration.
//! - `session`: the identity of one connection. A reload that removes the token or the certificate
//!   ends the session.

mod access_rules;
mod pace;
mod session;
mod usage;

pub use access_rules::{Identity, Rules};
pub use pace::{Permit, TooFast};
pub use session::{Denial, NO_TOKEN, Session, Shown};
pub use usage::Usage;
