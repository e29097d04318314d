//! The rules within one source, and between sources: layouts, worker IDs, counters, and IDs that
//! two of them can make.

use super::daemon::rows;
use super::fields::{KindSettings, WorkerIds};
use super::findings::Findings;
use super::mistake::Origin;
use super::open_fields::OpenFields;
use super::source::SourceSettings;
use super::units::Plain;
use crate::numbering::LAST_ID;
use snowbank_client::layout::{Life, Numbering, UnixMicros, WorkerSet, concurrent_collision};

/// Completes and checks one source. Returns true if it has a layout and worker IDs that can be
/// used.
pub(super) fn settle_source(
    index: usize,
    source: &mut SourceSettings,
    now: UnixMicros,
    findings: &mut Findings,
) -> bool {
    let mut place = Place { index, findings };
    place.refuse_settings_of_another_kind(source);
    if source.own_layout().is_none() {
        if let Err(text) = source.numbering() {
            let key = if source.maximum < source.offset { "maximum" } else { "offset" };
            place.mistake(key, text);
        }
        return false;
    }
    if !place.is_layout_alive(source, now) || !place.fit_worker_ids(source) {
        return false;
    }
    let four_ticks = source.ticks(4);
    if !place.is_given("max_ahead") {
        source.max_ahead = source.max_ahead.max(four_ticks);
    }
    if !place.is_given("burst_window") {
        source.burst_window = source.burst_window.min(source.max_ahead);
    }
    let max_ahead = source.max_ahead;
    let burst_window = source.burst_window;
    if max_ahead < four_ticks {
        let found = Plain(max_ahead);
        let ticks = Plain(four_ticks);
        let text = format!("found \"{found}\", allowed: at least four ticks of the layout, \"{ticks}\"");
        place.mistake("max_ahead", text);
    } else if burst_window > max_ahead && place.of("max_ahead").is_some() {
        let found = Plain(burst_window);
        let max_ahead = Plain(max_ahead);
        place.mistake(
            "burst_window",
            format!("found \"{found}\", allowed: at most max_ahead, \"{max_ahead}\""),
        );
    }
    true
}

/// The place of the mistakes of one source.
pub(super) struct Place<'f> {
    pub(super) index: usize,
    pub(super) findings: &'f mut Findings,
}

impl Place<'_> {
    /// Returns the full key and the origin of a setting of this source.
    fn full(&self, key: &str) -> Option<(String, Origin)> {
        let row = rows().find(|row| row.is_of_source() && row.key == key)?;
        Some(self.findings.origins.place_of(row, Some(self.index)))
    }

    /// Returns the full key and the origin of a setting of this source; `None` if it was refused.
    fn of(&self, key: &str) -> Option<(String, Origin)> {
        self.full(key).filter(|(full, _)| !self.findings.is_refused(full))
    }

    /// Returns whether a setting was given, and not refused.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.of(key).is_some_and(|(full, _)| self.findings.origins.of(&full).is_some())
    }

    /// Reports a mistake of a setting, even if it was refused before.
    fn mistake_anyway(&mut self, key: &str, text: String) {
        if let Some((full, origin)) = self.full(key) {
            self.findings.mistake(origin, full, text);
        }
    }

    /// Reports a mistake of a setting, unless it was refused before.
    pub(super) fn mistake(&mut self, key: &str, text: String) {
        if let Some((full, origin)) = self.of(key) {
            self.findings.mistake(origin, full, text);
        }
    }

    /// Reports settings of this source that its kind does not have. Settings for all sources, at
    /// the top of the file, do not count.
    fn refuse_settings_of_another_kind(&mut self, source: &SourceSettings) {
        // Defaults of a counter pass: the reference shows them for every source.
        let has_default_counter = source.increment == 1 && source.offset == 1 && source.maximum == LAST_ID;
        if source.kind.follows_the_clock() && has_default_counter {
            return;
        }
        let KindSettings { kind: other, keys, instead } = KindSettings::of_others(source.kind);
        for key in keys {
            let own = format!("sources[{}].{key}", self.index);
            if let Some(origin) = self.findings.origins.of(&own).cloned() {
                let kind = source.kind.name();
                let other = other.name();
                let text = format!(
                    "found in a {kind} source, allowed: in one of kind {other:?}; a {kind} source has {instead}"
                );
                self.findings.mistake(origin, own, text);
            }
        }
    }

    /// Returns whether the layout has begun and not ended.
    fn is_layout_alive(&mut self, source: &SourceSettings, now: UnixMicros) -> bool {
        let layout = &source.layout;
        let text = match layout.life(now) {
            Life::Running { .. } | Life::LastYear { .. } => return self.of("layout").is_some(),
            Life::NotBegun => {
                let first = layout.rfc3339(layout.first());
                let now = layout.rfc3339(now);
                let text = format!(
                    "found an epoch of {first}, allowed: not after now, {now} (or the clock is wrong)"
                );
                if let Some((full, origin)) = self.of("layout") {
                    self.findings.clock_behind(origin, full, text);
                }
                return false;
            }
            Life::Ended { at } => format!(
                "found a layout that ended {}, allowed: one that has IDs left at {}: a later epoch, or more time",
                layout.rfc3339(at),
                layout.rfc3339(now)
            ),
        };
        self.mistake("layout", text);
        false
    }

    /// Returns whether the layout has the worker IDs. Those that were given by its fields become
    /// numbers.
    fn fit_worker_ids(&mut self, source: &mut SourceSettings) -> bool {
        if source.is_of_machine() {
            let fits = OpenFields::of(&source.layout, &source.worker_ids).fit(&source.worker_id_from);
            if let Err((key, text)) = fits {
                self.mistake(key, text);
                return false;
            }
            return self.of("worker_ids").is_some() && self.of("worker_id_from").is_some();
        }
        if source.is_assigned() && source.worker_ids.by_field.is_some() {
            let all = OpenFields::of(&source.layout, &source.worker_ids).with_all();
            source.worker_ids.by_field = Some(all);
        }
        let WorkerIds { set, by_field, .. } = &mut source.worker_ids;
        let found = match by_field.take() {
            Some(text) => WorkerSet::by_field(&text, &source.layout),
            None => Ok(set.clone()),
        };
        match found.and_then(|set| Numbering::new(source.layout.clone(), set)) {
            Ok(numbering) => {
                set.clone_from(numbering.workers());
                self.of("worker_ids").is_some()
            }
            Err(error) => {
                self.mistake("worker_ids", error.to_string());
                false
            }
        }
    }
}

/// Checks that no two sources can hand out the same ID at about the same time, whatever their
/// fields are called.
pub(super) fn check_overlaps(sources: &[(usize, &SourceSettings)], findings: &mut Findings) {
    for (at, &(index, source)) in sources.iter().enumerate() {
        for &(earlier_index, earlier) in &sources[..at] {
            let ids = (&earlier.layout, &earlier.worker_ids.set);
            let Some(workers) = concurrent_collision(ids, (&source.layout, &source.worker_ids.set)) else {
                continue;
            };
            let one = label(earlier_index, earlier);
            let two = label(index, source);
            let text = if earlier.layout.space() == source.layout.space() && workers.0 == workers.1 {
                let worker = workers.0;
                format!(
                    "{one} and {two} have the same layout and both use worker {worker}; give each worker IDs of its own"
                )
            } else {
                let apart =
                    apart(earlier, source).map_or_else(String::new, |apart| format!(", {apart} apart"));
                format!(
                    "{one}, worker {}, and {two}, worker {}, can make the same IDs{apart}: their layouts differ, but \
                     the IDs grow alike; give one of them other worker IDs",
                    workers.0, workers.1
                )
            };
            Place { index, findings }.mistake_anyway("worker_ids", text);
        }
    }
}

/// Checks that no two sources can hand out the same ID if worker IDs are picked, or if the daemon
/// belongs to a fleet: other daemons may get any number of either layout. So two different ID
/// spaces that run beside each other are refused, whatever their constants and worker IDs. Two
/// sources of one ID space pass: a coordinator gives each number once, and those from the machine
/// are compared when they are picked. A source whose `worker_ids` sets some of the fields and
/// leaves the others to the machine has its own check.
pub(super) fn check_open_overlaps(
    sources: &[(usize, &SourceSettings)],
    in_fleet: bool,
    findings: &mut Findings,
) {
    for (at, &(index, source)) in sources.iter().enumerate() {
        for &(earlier_index, earlier) in &sources[..at] {
            let is_open = in_fleet || source.may_get_any_number() || earlier.may_get_any_number();
            let space = source.layout.space();
            let other = earlier.layout.space();
            if !is_open || space == other || !space.runs_beside(&other) {
                continue;
            }
            let one = label(earlier_index, earlier);
            let two = label(index, source);
            let why =
                if in_fleet { "other daemons of the fleet may have" } else { "other machines may pick" };
            let text = format!(
                "{one} and {two} can make the same IDs: their layouts differ, but the IDs grow alike, and {why} other \
                 worker IDs; give both the same layout, or epochs that are at least a year apart"
            );
            let key = if in_fleet { "layout" } else { "worker_id_from" };
            Place { index, findings }.mistake_anyway(key, text);
        }
    }
}

/// Returns how far apart the epochs of two sources are, in words; `None` if they are the same.
pub(super) fn apart(left: &SourceSettings, right: &SourceSettings) -> Option<String> {
    match left.layout.epoch_unix_ms().abs_diff(right.layout.epoch_unix_ms()) {
        0 => None,
        apart_ms @ ..86_400_000 => Some(format!("{} s", apart_ms as f64 / 1000.0)),
        apart_ms => Some(format!("{} days", apart_ms / 86_400_000)),
    }
}

/// Returns a source as a message names it: by its index, and by its name if it has one.
pub(super) fn label(index: usize, source: &SourceSettings) -> String {
    match &*source.name {
        "" => format!("sources[{index}]"),
        name => format!("sources[{index}] ({name:?})"),
    }
}
