//! The reasons why a state directory or a worker ID cannot be used. Each variant is one cause, and prints as one line.

use std::io;
use std::path::PathBuf;

use snowbank_id::layout::{Layout, Space};
use snowbank_id::numbering::TicketCounter;

/// The reason why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error(
        "the state directory {} is in use{holder}; stop that daemon, or use another directory (--state-dir DIR)",
        directory.display()
    )]
    InUse {
        /// The state directory.
        directory: PathBuf,
        /// ` (process 123)`, or empty.
        holder: String,
    },
    /// Its name leads to a link, or to another user's directory.
    #[error(
        "cannot use the state directory {}: {found}; another user could put another in its place and make IDs repeat: name a \
         directory of this user's (--state-dir DIR)",
        directory.display()
    )]
    NotOurs {
        /// The state directory.
        directory: PathBuf,
        /// The finding, and what is allowed.
        found: io::Error,
    },
    /// Every user can write it.
    #[error(
        "every user can write the state directory {} (mode {mode:o}), and so make IDs repeat; allowed is writing by its \
         owner and its group: `chmod o-w` it, or name a directory below it, which is made private",
        directory.display()
    )]
    OpenToAll {
        /// The state directory.
        directory: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its name, or one above it in the path, is that of something that is no directory.
    #[error(
        "cannot use the state directory {}: {found}; choose another (--state-dir DIR), or do without (--state-dir none)",
        directory.display()
    )]
    NoDirectory {
        /// The state directory.
        directory: PathBuf,
        /// The finding.
        found: io::Error,
    },
    /// The system refuses to make it.
    #[error(
        "cannot create the state directory or make its name durable: {}: {error}; make it writable, make room if it is \
         full, choose another (--state-dir DIR), or do without (--state-dir none)",
        directory.display()
    )]
    NotMade {
        /// The state directory.
        directory: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system refuses the lock.
    #[error(
        "cannot lock the state directory {}: {error}; make it writable, make room if it is full, choose another \
         (--state-dir DIR), or do without (--state-dir none)",
        directory.display()
    )]
    NotLocked {
        /// The state directory.
        directory: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system refuses to read the state file.
    #[error("cannot read the state file {}: {error}; allowed is a regular file that this user can read", path.display())]
    NotRead {
        /// The state file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// No copy in the state file is whole.
    #[error(
        "the state file {} is corrupt: {reason}; put no older one in its place; once the clock is right and every ID handed \
         out lies in the past, move it away: a start without it begins above now",
        path.display()
    )]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// The damage of each copy.
        reason: String,
    },
    /// A newer program wrote the state file.
    #[error("the state file {} cannot be used: {reason}", path.display())]
    Newer {
        /// The state file.
        path: PathBuf,
        /// Its format, and the newest that this program reads.
        reason: String,
    },
    /// A program older than `ceilings` wrote the state.
    #[error(
        "{} was written by an older program, and this one does not read it: run `snowbank state export` of the program \
         that wrote it, move the file away, and then run `snowbank state import` of this one",
        .0.display()
    )]
    Older(PathBuf),
}

/// The reason why worker IDs cannot be locked, or their marks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has a worker ID.
    #[error(
        "worker ID {worker} of layout {layout} is held by another daemon of this machine{holder}; give this one another \
         worker ID, or stop that one"
    )]
    Held {
        /// The worker ID.
        worker: u64,
        /// Its layout.
        layout: Box<Layout>,
        /// ` (process 123)`, or empty.
        holder: String,
    },
    /// Another process has a worker ID of another layout that can make the same IDs.
    #[error(
        "worker ID {worker} of layout {layout} can make the same IDs as number {} of {}, which is held by another daemon of \
         this machine{holder}; give this one another worker ID, or stop that one",
        colliding.0, colliding.1
    )]
    CollidingHeld {
        /// The worker ID.
        worker: u64,
        /// Its layout.
        layout: Box<Layout>,
        /// The number that the other process has, and its ID space.
        colliding: (u64, Box<Space>),
        /// ` (process 123)`, or empty.
        holder: String,
    },
    /// A lock is held, and its file does not name the IDs: another release wrote it.
    #[error(
        "{} is held by another daemon of this machine{holder}, and names that daemon's IDs in a form that this release \
         does not know; stop that daemon, or run the same release",
        path.display()
    )]
    UnknownHeld {
        /// The lock's file.
        path: PathBuf,
        /// ` (process 123)`, or empty.
        holder: String,
    },
    /// Another user's file, or something that is no file, has the lock's name.
    #[error(
        "cannot lock worker IDs at {}: {error}; without the lock two daemons of this machine could hand out the same IDs: \
         find out who put it there and remove it, or set lock_dir to a directory that all daemons of this machine share",
        path.display()
    )]
    Obstructed {
        /// The lock's file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A link or a file of this user's has the lock directory's name.
    #[error(
        "cannot lock worker IDs at {}: {error}; set lock_dir to a directory that all daemons of this machine share",
        path.display()
    )]
    NoDirectory {
        /// The lock directory.
        path: PathBuf,
        /// The finding, and what is allowed.
        error: io::Error,
    },
    /// Every user can write the lock directory.
    #[error(
        "every user can write the lock directory {} (mode {mode:o}), and so make IDs repeat; allowed is writing by its owner \
         and its group: stop the daemons that use it and `chmod o-w` it, or set lock_dir to a directory below it, which is \
         made private",
        path.display()
    )]
    OpenToAll {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The system refuses the lock.
    #[error(
        "cannot lock worker IDs at {}: {error}; without the lock two daemons of this machine could hand out the same IDs: \
         run as a member of its group, make room if it is full, or set lock_dir to a directory that all daemons of this \
         machine share",
        path.display()
    )]
    NotLocked {
        /// The lock's file or its directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A mark cannot be read, so it is unknown how far IDs were granted.
    #[error(
        "{} does not say how far the IDs of its worker ID were granted: {error}; find out who wrote it, and once every ID \
         handed out lies in the past, remove it",
        path.display()
    )]
    MarkDamaged {
        /// The lock's file.
        path: PathBuf,
        /// The damage.
        error: io::Error,
    },
    /// Another process has a ticket counter that can hand out the same numbers.
    #[error(
        "the {own} can hand out the same numbers as the {held}, which is held by another daemon of this machine{holder}; stop \
         that one, or give both the same increment and an offset each"
    )]
    CounterHeld {
        /// The counter.
        own: Box<TicketCounter>,
        /// The other process's.
        held: Box<TicketCounter>,
        /// ` (process 123)`, or empty.
        holder: String,
    },
}
