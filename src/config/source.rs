//! The settings of one source of IDs.
//!
//! What depends on a layout or on how one supply of IDs is used is set per source: a tick of 10 s needs other horizons
//! than one of 1 ms. What depends on the machine (its wall clock, its directories, its connections) or is told to
//! clients as one fact of the daemon (`order`) is set once, in [`daemon`](super::daemon).

use std::time::Duration;

use super::setting::{Change, Draft, Section, Setting};
use super::units::{duration, quoted};
use crate::source::{OnStepBack, SequenceStart};
use snowbank_client::layout::{Layout, WorkerSet};

/// The most sources of a daemon: a client that asks INFO reads all of them, and each keeps its own cursor on each
/// shard.
pub const SOURCES_MAX: usize = 64;

/// One source, checked: its worker IDs fit its layout, its layout lives, its durations fit each other and its tick.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// Its name, distinct from the other sources'.
    pub name: String,
    /// How its IDs are made.
    pub layout: Layout,
    /// The worker IDs that this daemon uses of the layout.
    pub worker_ids: WorkerSet,
    /// Whether `worker_ids` was given, rather than worker 0 by default.
    pub worker_ids_given: bool,
    /// How old the IDs of the reserve may be from which bursts are answered at once; at most `max_ahead`.
    pub burst_window: Duration,
    /// How far the ID clock may ride ahead of the wall clock; at least four ticks.
    pub max_ahead: Duration,
    /// What happens when the wall clock steps back.
    pub on_step_back: OnStepBack,
    /// Where sequences start.
    pub sequence_start: SequenceStart,
    /// How far ahead of the wall clock the durable ceiling is kept; from two ticks to two less than `max_ahead`.
    pub horizon: Duration,
    /// How far above the current tick a start without a stored ceiling begins; `None`: one tick. At most `max_ahead`.
    pub first_start_guard: Option<Duration>,
}

/// What the table below fills for one source; `None` where a default depends on other settings.
#[derive(Clone, Debug)]
pub(super) struct SourceDraft {
    pub(super) name: String,
    /// `None`: `twitter`.
    pub(super) layout: Option<Layout>,
    /// `None`: worker 0, on local addresses only.
    pub(super) worker_ids: Option<WorkerSet>,
    pub(super) burst_window: Option<Duration>,
    pub(super) max_ahead: Option<Duration>,
    pub(super) on_step_back: OnStepBack,
    pub(super) sequence_start: SequenceStart,
    pub(super) horizon: Option<Duration>,
    pub(super) first_start_guard: Option<Duration>,
}

impl SourceDraft {
    /// The name of the layout that serves where none is given.
    pub(super) const DEFAULT_LAYOUT: &'static str = "twitter";

    /// `burst_window` where none is given.
    pub(super) const BURST_WINDOW: Duration = Duration::from_millis(10);
    /// `max_ahead` where none is given, unless four ticks are longer.
    pub(super) const MAX_AHEAD: Duration = Duration::from_secs(10);
    /// `horizon` where none is given, unless two ticks are longer.
    pub(super) const HORIZON: Duration = Duration::from_secs(3);
}

impl Default for SourceDraft {
    fn default() -> Self {
        Self {
            name: "default".into(),
            layout: None,
            worker_ids: None,
            burst_window: None,
            max_ahead: None,
            on_step_back: OnStepBack::default(),
            sequence_start: SequenceStart::default(),
            horizon: None,
            first_start_guard: None,
        }
    }
}

impl Draft for SourceDraft {
    type Settled = SourceSettings;
}

/// Why the name of a running source stays, and a source its index.
pub(super) const PLACE: &str =
    "a source keeps its place and its name while the daemon runs; add others after the last";
/// Why what a running source's IDs are made of stays.
const MADE_OF: &str = "its cursor and its ceiling are counted by it";
/// Why the rules by which a running source claims stay.
const CLAIMS: &str = "a running source claims by it on every core";

const MS: Duration = Duration::from_millis(1);
/// The most that any of a source's durations can be: four of the longest ticks, a day each.
const DURATION_MAX: Duration = Duration::from_secs(4 * 86_400);

/// Every setting of a source.
pub(super) const SOURCE: &[Setting<SourceDraft>] = &[
    Setting {
        section: Section::SourceAlone,
        key: "name",
        default: r#""default""#,
        doc: "The name by which clients find this source: 1 to 64 of the characters a-z 0-9 . _ -, not all digits, \
              and another one for each source. A file with [[sources]] must name each of them.",
        change: Change::Restart(PLACE),
        read: |source, value| value.name().map(|name| source.name = name),
        show: |source| quoted(&source.name),
    },
    Setting {
        section: Section::Source,
        key: "layout",
        default: r#""twitter""#,
        doc: "How an ID is divided into fields: the name of a preset (`snowbank layout` lists them), a text such as \
              \"time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657\", or the same as a table.\n\
              twitter is what most libraries and tools can read.",
        change: Change::Restart(MADE_OF),
        read: |source, value| value.layout().map(|layout| source.layout = Some(layout)),
        show: |source| quoted(&source.layout),
    },
    Setting {
        section: Section::Source,
        key: "worker_ids",
        default: r#""""#,
        doc: "The worker IDs that this daemon alone uses: one (3), a range (\"0-3\"), a list (\"0-3,8\" or [0, 8]). \
              No other daemon, on any machine, may use one of them with the same layout, and no two sources either.\n\
              Empty, worker 0 is used, and the daemon listens on loopback and Unix sockets alone: two machines must \
              never both be worker 0 by default.",
        change: Change::Restart(MADE_OF),
        read: |source, value| value.worker_ids().map(|worker_ids| source.worker_ids = worker_ids),
        show: |source| quoted(&source.worker_ids),
    },
    Setting {
        section: Section::Source,
        key: "burst_window",
        default: r#""10ms""#,
        doc: "How old an ID may be: unused ticks of this window answer bursts at once, and IDs of different \
              connections are out of order by at most as much. \"0\": the current tick alone. At most max_ahead.\n\
              Ten milliseconds hold 40,000 IDs of the twitter layout, and are less than clocks of different machines \
              are apart anyway. With ticks of 1ms, less than 3ms loses ticks at full load, because a thread can be \
              woken too late for them: about half at \"0\", and no more than that half is promised to requests that wait.",
        change: Change::Restart(CLAIMS),
        read: |source, value| {
            value.duration(Duration::ZERO..=DURATION_MAX).map(|duration| source.burst_window = Some(duration))
        },
        show: |source| duration(source.burst_window),
    },
    Setting {
        section: Section::Source,
        key: "max_ahead",
        default: r#""10s""#,
        doc: "How far IDs may be ahead of the wall clock, after it stepped back or after a crash; beyond it requests \
              are refused with the time to wait. At least four ticks of the layout (the default grows with \
              them).\n\
              Ten seconds are more than time servers step a clock that they keep, and little enough that an ID's \
              time still means something.",
        change: Change::Restart(CLAIMS),
        read: |source, value| {
            value.duration(MS..=DURATION_MAX).map(|duration| source.max_ahead = Some(duration))
        },
        show: |source| duration(source.max_ahead),
    },
    Setting {
        section: Section::Source,
        key: "on_step_back",
        default: r#""ride""#,
        doc: "When the wall clock steps back: \"ride\" goes on at half speed until it has caught up, \"wait\" refuses \
              until then. Ride by default: a clock that is put right should not stop an application.",
        change: Change::Restart(CLAIMS),
        read: |source, value| {
            let names = [OnStepBack::Ride, OnStepBack::Wait].map(|choice| (choice.name(), choice));
            value.choice(&names).map(|choice| source.on_step_back = choice)
        },
        show: |source| quoted(source.on_step_back.name()),
    },
    Setting {
        section: Section::Source,
        key: "sequence_start",
        default: r#""spread""#,
        doc: "Where the sequence starts after an idle tick: \"spread\" at a random place, \"zero\" at 0. Spread by \
              default: from 0, IDs at low load are all even, and tables sharded by them fill unevenly.",
        change: Change::Restart(CLAIMS),
        read: |source, value| {
            let names = [SequenceStart::Spread, SequenceStart::Zero].map(|choice| (choice.name(), choice));
            value.choice(&names).map(|choice| source.sequence_start = choice)
        },
        show: |source| quoted(source.sequence_start.name()),
    },
    Setting {
        section: Section::Source,
        key: "horizon",
        default: r#""3s""#,
        doc: "How far ahead of the wall clock the ceiling is made durable below which IDs may be used: two ticks of \
              the layout to two less than max_ahead (the default keeps within these), so that after a crash the first \
              ID comes at once. A crash skips at most as much and the rest of a tick.\n\
              The ceiling is raised each second while in use, so three leave time for two syncs that fail or are \
              slow before a request has to wait for one.",
        change: Change::Reload,
        read: |source, value| {
            value.duration(MS..=DURATION_MAX).map(|duration| source.horizon = Some(duration))
        },
        show: |source| duration(source.horizon),
    },
    Setting {
        section: Section::Source,
        key: "first_start_guard",
        default: r#""auto""#,
        doc: "How far above the current tick a source starts that has no stored ceiling, at most max_ahead. \
              \"auto\" is one tick: enough if nothing used its worker IDs before, and the first ID need not wait. Set \
              it to how far the clocks of two machines may differ if worker IDs move between them without their state.",
        change: Change::Reload,
        read: |source, value| {
            source.first_start_guard =
                value.or_word("auto", |value| value.duration(Duration::ZERO..=DURATION_MAX))?;
            Ok(())
        },
        show: |source| source.first_start_guard.map_or_else(|| quoted("auto"), duration),
    },
];
