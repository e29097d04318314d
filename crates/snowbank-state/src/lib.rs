//! The state of a daemon in files: the store that makes ceilings durable, and the locks and marks
//! of worker IDs.
//!
//! - [`store`]: the records of sources in the state directory, and the rules of a start.
//! - `lock`: one locked file for each worker ID of a machine, with a [`Mark`]: the bound up to
//!   which its IDs were granted.
//! - `source_kind`: the names of locks and the keys of records, for each kind of source.
//! - [`form`]: which formats of a durable text a program may read, and write again; `sealed`: the
//!   header line of a file.
//! - `writers`, `holder`: which files are trusted, and which process holds a lock.
//! - [`survey()`]: the holders and the marks of worker IDs, for commands that only show them.
//! - [`system_error`]: which errors of the operating system may pass by themselves.

#![forbid(unsafe_code)]

mod container;
mod errors;
pub mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod holder;
mod identity;
mod lock;
mod lock_names;
mod locked_file;
mod mark;
mod neighbours;
pub mod sealed;
mod source_kind;
pub mod store;
mod survey;
pub mod system_error;
mod writers;

pub use container::lock_dir_is_a_containers;
pub use errors::{Cause, StateError};
pub use identity::{HostIdentity, Owner, new_identity};
pub use lock::{WorkerLocks, check_lock_dir, lock_all, lock_records, lock_workers, lock_workers_at_once};
pub use mark::{Fate, Mark, Marked, beyond, compare, instant_of, latest_grant};
pub use survey::{Seen, readable_marks, survey};
pub use writers::{lets_write, socket_is_replaceable};
