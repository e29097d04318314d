//! Types that several modules of the server use. Of these files, only `common` imports other
//! modules of the server.
//!
//! - `common`: the state that all threads share.
//! - `live_config`: the configuration that a reload replaces.
//! - `instance`: the number of this start.
//! - `wake_ups`: how threads wake each other.
//! - `note`: lines for the operator about a start.
//! - `start_error`: the reasons why the daemon does not start.

pub(crate) mod common;
pub(crate) mod instance;
pub(crate) mod live_config;
pub(crate) mod note;
pub(crate) mod start_error;
pub(crate) mod wake_ups;
