//! Types that several modules of the server use. They import no other module of the server.
//!
//! - `live_config`: the configuration that a reload replaces.
//! - `instance`: the number of this start.
//! - `wake_ups`: how threads wake each other.
//! - `note`: lines for the operator about a start.
//! - `start_error`: the reasons why the daemon does not start.

pub(crate) mod instance;
pub(crate) mod live_config;
pub(crate) mod note;
pub(crate) mod start_error;
pub(crate) mod wake_ups;
