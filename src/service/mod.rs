//! The daemon as a service of its machine: messages to the service manager, and events to the journal.
//!
//! - `notify`: the messages of sd_notify(3). `attend`: when each is sent. `outbox`: sends them without waiting.
//! - `retry`: slower and slower starts, after causes that may pass by themselves.
//! - `reload_report`: the result of a reload, for `systemctl reload`.
//! - `logs`: the destination and the format of events. `journal`: journald's own protocol. `log_thread`: writes them.

mod attend;
mod journal;
mod log_thread;
mod logs;
mod notify;
mod outbox;
mod reload_report;
mod retry;

pub use attend::attend;
pub use logs::{Logs, end_log, log_failure};
pub use notify::{Extending, Notifier};
pub use reload_report::{ReloadResult, reload_begins, reload_ended, runtime_directory};
pub use retry::Retries;
