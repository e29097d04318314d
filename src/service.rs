//! The daemon as a service of its machine: messages to the service manager, and the log.
//!
//! - `notify`: the messages of sd_notify(3).
//! - `reload_socket`: requests to reload, for `systemctl reload`.
//! - `logs`: formats the events of the log. `log_thread`: writes them.

mod log_thread;
mod logs;
mod notify;
mod reload_socket;

pub use logs::{Logs, end_log, log_failure};
pub use notify::Notifier;
pub use reload_socket::{answer_reload, reload_result, reload_socket, runtime_directory};
