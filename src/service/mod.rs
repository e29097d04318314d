//! The daemon as a service of its machine: what the service manager is told, and what goes into the journal.
//!
//! - `notify`: the words of sd_notify(3). `attend`: when which of them is said. `outbox`: how they are sent; nobody waits.
//! - `logs`: where events go and how they look. `journal`: journald's own protocol.

mod attend;
mod journal;
mod logs;
mod notify;
mod outbox;

pub use attend::attend;
pub use logs::{Logs, say_refusal};
pub use notify::{Extending, Notifier};
