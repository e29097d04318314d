//! The types of settings that are more than a number, a path or a text.

use std::fmt;
use std::num::NonZeroUsize;

use tracing::level_filters::LevelFilter;

use snowbank_core::source::Kind;
use snowbank_id::layout::WorkerSet;

/// The most shards of a daemon: more than common machines have cores, and few enough that a shard's
/// number fits a byte.
pub const SHARDS_MAX: usize = 256;

/// The number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(pub(super) Option<NonZeroUsize>);

impl Shards {
    /// Resolves `shards = "auto"`: one shard for each core.
    pub(super) fn or_cores(self, cores: NonZeroUsize) -> Self {
        Shards(self.0.or(NonZeroUsize::new(cores.get().min(SHARDS_MAX))))
    }

    /// Returns the number, 1 to [`SHARDS_MAX`].
    pub fn get(self) -> usize {
        self.0.map_or(1, NonZeroUsize::get)
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The settings that only sources with a layout have.
const LAYOUT_KEYS: [&str; 7] =
    ["layout", "worker_ids", "worker_id_from", "burst_window", "max_ahead", "on_step_back", "sequence_start"];
/// The settings that only ticket sources have.
const COUNTER_KEYS: [&str; 4] = ["increment", "offset", "maximum", "reserve"];

/// Returns the settings that only sources of other kinds have.
pub(super) fn keys_of_others(kind: Kind) -> &'static [&'static str] {
    if kind.follows_the_clock() { &COUNTER_KEYS } else { &LAYOUT_KEYS }
}

/// The worker IDs that a source uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIds {
    /// The worker IDs.
    pub set: WorkerSet,
    /// True if the worker IDs are configured, or were picked. False for the default, worker 0.
    pub are_given: bool,
    /// The text of worker IDs that the configuration gives field by field, as in "datacenter=1".
    /// `settle` turns it into `set` once the layout is known. The text is kept if the machine gives
    /// the numbers of the layout's other fields.
    pub(super) by_field: Option<String>,
    /// True once the daemon has picked the worker IDs from the machine.
    pub(super) are_picked: bool,
}

impl WorkerIds {
    pub(super) fn of(given: Option<WorkerSet>) -> Self {
        let are_given = given.is_some();
        let set = given.unwrap_or_else(|| WorkerSet::single(0));
        WorkerIds { set, are_given, by_field: None, are_picked: false }
    }

    pub(super) fn from_fields(text: String) -> Self {
        WorkerIds { are_given: true, by_field: Some(text), ..WorkerIds::of(None) }
    }
}

/// The form of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// As `Journald` if standard error leads to the journal, else as `Text`.
    Auto,
    /// Lines for people, with colours on a terminal.
    Text,
    /// Lines that start with the priority, as journald reads them from a service.
    Journald,
    /// A JSON object on each line.
    Json,
}

/// The names of the levels. Each level logs what the level before it logs, and more.
pub(super) const LEVELS: [(&str, LevelFilter); 5] = [
    // Faults that keep the daemon from handing out IDs.
    ("error", LevelFilter::ERROR),
    // Also faults that may soon do so.
    ("warn", LevelFilter::WARN),
    // Also changes.
    ("info", LevelFilter::INFO),
    // Also details that help to find a cause.
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
