//! The rules within one source, and between sources: layouts, worker IDs, counters, and IDs that
//! two sources can make.

use super::conflict::Conflict;
use super::fields::{WorkerIds, keys_of_others};
use super::input::Findings;
use super::open_fields::OpenFields;
use super::source::SourceSettings;
use snowbank_core::keeper::RESERVE;
use snowbank_core::source::Kind;
use snowbank_id::layout::{LayoutNumbering, Life, UnixMicros, WorkerSet};
use snowbank_id::numbering::LAST_ID;

/// Completes and checks one source. Returns true if its layout and worker IDs can be compared with
/// those of other sources.
pub(super) fn settle_source(
    index: usize,
    source: &mut SourceSettings,
    now: UnixMicros,
    findings: &mut Findings,
) -> bool {
    refuse_settings_of_another_kind(index, source, findings);
    if source.own_layout().is_none() {
        if let Err(error) = source.numbering() {
            let key = if source.maximum < source.offset { "maximum" } else { "offset" };
            findings.mistake_of_source(index, key, error);
        }
        return false;
    }
    if !is_layout_alive(index, source, now, findings) {
        return false;
    }
    if let Err(conflict) = fit_worker_ids(source) {
        let is_origin = matches!(conflict, Conflict::NoNodeField(_) | Conflict::NotBitsOfAddress { .. });
        let key = if is_origin { "worker_id_from" } else { "worker_ids" };
        findings.mistake_of_source(index, key, conflict);
        return false;
    }
    let four_ticks = source.ticks(4);
    if !findings.is_given_to(index, "max_ahead") {
        source.max_ahead = source.max_ahead.max(four_ticks);
    }
    if !findings.is_given_to(index, "burst_window") {
        source.burst_window = source.burst_window.min(source.max_ahead);
    }
    let SourceSettings { max_ahead, burst_window, .. } = *source;
    if max_ahead < four_ticks {
        findings.mistake_of_source(index, "max_ahead", Conflict::ShortMaxAhead { max_ahead, four_ticks });
    } else if burst_window > max_ahead {
        let conflict = Conflict::LongBurstWindow { burst_window, max_ahead };
        findings.mistake_of_source(index, "burst_window", conflict);
    }
    true
}

/// Reports settings in a source's own entry that a source of its kind does not have. Settings for
/// all sources, at the top of the file, do not count.
fn refuse_settings_of_another_kind(index: usize, source: &SourceSettings, findings: &mut Findings) {
    // The default values of a counter are not refused, because the reference states them for every
    // source.
    let has_default_counter =
        source.increment == 1 && source.offset == 1 && source.maximum == LAST_ID && source.reserve == RESERVE;
    if source.kind.follows_the_clock() && has_default_counter {
        return;
    }
    for key in keys_of_others(source.kind) {
        let own = format!("sources[{index}].{key}");
        if findings.origins.is_given(&own) {
            let kind = source.kind.name();
            let other = if source.kind.follows_the_clock() { Kind::Ticket } else { Kind::Snowflake };
            findings.mistake_of(&own, Conflict::SettingOfOtherKind { kind, other: other.name() });
        }
    }
}

/// Returns true if the layout has begun and has not ended. Otherwise reports a mistake.
fn is_layout_alive(index: usize, source: &SourceSettings, now: UnixMicros, findings: &mut Findings) -> bool {
    let layout = &source.layout;
    match layout.life(now) {
        Life::Running { .. } | Life::LastYear { .. } => return true,
        Life::NotBegun => {
            let (first, now) = (layout.rfc3339(layout.first()), layout.rfc3339(now));
            findings.clock_behind(index, Conflict::NotBegun { first, now });
        }
        Life::Ended { at } => {
            let (end, now) = (layout.rfc3339(at), layout.rfc3339(now));
            findings.mistake_of_source(index, "layout", Conflict::Ended { end, now });
        }
    }
    false
}

/// Checks that the layout has the worker IDs. Worker IDs that the configuration gives field by
/// field become numbers.
///
/// # Errors
/// Why the settings do not fit each other.
fn fit_worker_ids(source: &mut SourceSettings) -> Result<(), Conflict<'_>> {
    if source.is_of_machine() {
        return OpenFields::of(&source.layout, &source.worker_ids).fit(&source.worker_id_from);
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
    let numbering = found.and_then(|set| LayoutNumbering::new(source.layout.clone(), set));
    set.clone_from(numbering?.workers());
    Ok(())
}

/// Checks that no two sources that grow alike can hand out the same ID at about the same time.
pub(super) fn check_overlaps(sources: &[(usize, &SourceSettings)], findings: &mut Findings) {
    for (at, &(index, source)) in sources.iter().enumerate() {
        for &(earlier_index, earlier) in &sources[..at] {
            let found = earlier.layout.concurrent_collision(
                &earlier.worker_ids.set,
                &source.layout,
                &source.worker_ids.set,
            );
            let Some(workers) = found else { continue };
            let one = label(earlier_index, earlier);
            let two = label(index, source);
            let conflict = if earlier.layout.space() == source.layout.space() && workers.0 == workers.1 {
                Conflict::SameWorkerId { one, two, worker: workers.0 }
            } else {
                Conflict::SameIds { one, two, workers, apart: apart(earlier, source) }
            };
            findings.mistake_of_source(index, "worker_ids", conflict);
        }
    }
}

/// Refuses two different ID spaces that can make the same IDs at about the same time. Applies if
/// worker IDs are picked, or if the daemon belongs to a fleet. Other daemons may then get any
/// worker ID of either layout, so constants and worker IDs do not count.
///
/// Two sources with the same ID space are not refused. A coordinator gives each worker ID once, and
/// worker IDs from the machine are compared when they are picked. Outside a fleet, this comparison
/// is also enough if `worker_ids` gives some node fields, and the machine only the others.
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
            let key = if in_fleet { "layout" } else { "worker_id_from" };
            findings.mistake_of_source(index, key, Conflict::OpenSpaces { one, two, in_fleet });
        }
    }
}

/// Returns words for the time between the epochs of two sources, or `None` if the epochs are equal.
pub(super) fn apart(left: &SourceSettings, right: &SourceSettings) -> Option<String> {
    match left.layout.epoch_unix_ms().abs_diff(right.layout.epoch_unix_ms()) {
        0 => None,
        apart_ms @ ..86_400_000 => Some(format!("{} s", apart_ms as f64 / 1000.0)),
        apart_ms => Some(format!("{} days", apart_ms / 86_400_000)),
    }
}

/// Returns the words by which messages name a source.
pub(super) fn label(index: usize, source: &SourceSettings) -> String {
    format!("sources[{index}] ({:?})", source.name)
}
