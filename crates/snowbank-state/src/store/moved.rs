//! Moves ceilings to another machine, and forgets those of unused worker IDs. An export first marks
//! the ceilings as released on this machine. An import never lowers a ceiling. What is forgotten
//! leaves one bound behind.

use serde::Deserialize;
use serde_json::Value;
use snowbank_id::layout::UnixMicros;

use super::copies::Document;
use super::file::StateFile;
use super::record::Record;
use super::{StateDir, StateError};
use crate::form::{Form, FormError};
use crate::{Cause, HostIdentity, Owner};

/// The form of an export. The state file has one of its own.
const FORM: Form = Form { format: 1, least_reader: 1 };

/// Reads the records of an export, which another machine may continue.
///
/// # Errors
/// The text is not an export, or a newer program wrote it.
pub fn parse_export(text: &str) -> Result<Vec<Record>, StateError> {
    #[derive(Deserialize)]
    struct Head {
        snowbank_state_format: u64,
        least_reader: Option<u64>,
    }
    let unusable = |error: FormError| StateError::new(Cause::Damaged, format!("the export: {error}"));
    let found: Value = serde_json::from_str(text).map_err(not_an_export)?;
    // The file may be one of secrets, so a message repeats none of its values.
    let of_other_form = |_| not_an_export("it is JSON of another form");
    // The form is read first, because this program may not be able to read the rest.
    let head = Head::deserialize(&found).map_err(of_other_form)?;
    let format = head.snowbank_state_format;
    let least_reader = head.least_reader.unwrap_or(format);
    FORM.may_read(Form { format, least_reader }).map_err(unusable)?;
    // An import leaves the export as it is, so it may have fields that this program does not know.
    // This is the way back to an older program.
    let Document { records } = Document::deserialize(&found).map_err(of_other_form)?;
    if records.is_empty() { Err(not_an_export("it holds no source")) } else { Ok(records) }
}

/// Returns the text of an export: one line.
pub(super) fn export_text(records: &[Record]) -> String {
    let Form { format, least_reader } = FORM;
    let records = serde_json::to_string(records).expect("a record is made of texts and numbers");
    format!("{{\"snowbank_state_format\":{format},\"least_reader\":{least_reader},\"records\":{records}}}\n")
}

fn not_an_export(found: impl std::fmt::Display) -> StateError {
    let advice = "give the file that `snowbank state export` wrote";
    StateError::new(Cause::Damaged, format!("not an export of snowbank: {found}; {advice}"))
}

/// Drops the records of worker IDs that no source has any more and whose IDs the clock has passed.
/// Returns them. Another record that can make the same IDs gets their bound. Of those that can make the same IDs, the one with the highest bound stays, and
/// stands for the others. This bound may be ahead of the clock if it also stands for worker IDs that
/// a fleet assigned.
pub fn forget(records: &mut Vec<Record>, now: UnixMicros) -> Vec<Record> {
    let forgotten: Vec<Record> = records.extract_if(.., |record| record.may_be_forgotten(now)).collect();
    for record in records.iter_mut().filter(|record| !record.released) {
        let same_ids = forgotten.iter().filter(|other| other.numbering.shares_ids_with(&record.numbering));
        record.id_bound = same_ids.map(|other| other.id_bound).fold(record.id_bound, u64::max);
    }
    let standing = forgotten.iter().map(|record| Record { forgotten: true, ..record.clone() });
    records.extend(standing);
    keep_highest_forgotten(records);
    forgotten
}

/// Of the forgotten records of each ID space, keeps the highest. A start is above those of all
/// layouts that can make the same IDs. A record that also stood for worker IDs that a fleet assigned
/// keeps one bound for all.
fn keep_highest_forgotten(records: &mut Vec<Record>) {
    let all = records.extract_if(.., |record| record.forgotten && !record.released);
    let mut all: Vec<Record> = all
        .map(|record| Record {
            id_bound: record.bound_of_dropped().unwrap_or(record.id_bound),
            assigned: false,
            assigned_bound: None,
            ..record
        })
        .collect();
    all.sort_by_key(|record| std::cmp::Reverse(record.id_bound));
    let mut kept: Vec<Record> = Vec::new();
    for record in all {
        if !kept.iter().any(|higher| higher.numbering.is_of_space(&record.numbering)) {
            kept.push(record);
        }
    }
    records.append(&mut kept);
}

/// Raises these records to the highest bound of worker IDs whose records were dropped. A record that
/// comes from elsewhere may be an older one of a worker ID that was dropped here, and the other way
/// round.
fn raise_to_dropped(records: &mut [Record], standing: &[Record]) {
    for record in records.iter_mut().filter(|record| !record.assigned) {
        let same_ids = standing.iter().filter(|other| other.numbering.runs_beside(&record.numbering));
        let bound = same_ids.filter_map(Record::bound_of_dropped).max().unwrap_or(0);
        record.id_bound = record.id_bound.max(bound);
    }
}

/// Marks all records as released, durably, and returns the text of the export for another machine.
/// Exporting the same records again returns the same text.
///
/// # Errors
/// The release could not be made durable: nothing was exported.
pub fn export(directory: &StateDir, records: Vec<Record>) -> Result<String, StateError> {
    let records: Vec<Record> =
        records.into_iter().map(|record| Record { released: true, ..record }).collect();
    write(directory, &records)?;
    Ok(export_text(&records))
}

/// Returns the records of a directory after an import of `records`. No stored record with a worker
/// ID of the import may be ahead of it.
///
/// # Errors
/// Since the export, this machine has granted IDs that would be handed out again after the import.
pub fn merge(
    stored: Vec<Record>,
    mut records: Vec<Record>,
    owner: &Owner,
    here: &HostIdentity,
) -> Result<Vec<Record>, StateError> {
    let all = stored.iter().chain(&records);
    let standing: Vec<Record> =
        all.clone().filter(|record| record.bound_of_dropped().is_some()).cloned().collect();
    let all_of_this_boot = all.filter(|record| here.boot.is_some() && record.boot == here.boot);
    // A `wall_minus_boot_us` of another machine or an earlier boot says nothing about this boot,
    // and would look like a step of the clock.
    let last = all_of_this_boot.max_by_key(|record| record.instant());
    let offset_us = last.map(|record| record.wall_minus_boot_us);
    raise_to_dropped(&mut records, &standing);
    if let Some(ahead) = stored.iter().find_map(|record| lower_than(&records, record)) {
        return Err(ahead);
    }
    let mut merged = stored;
    raise_to_dropped(&mut merged, &standing);
    // If several records have the same name and worker IDs, the record with the highest bound comes
    // last and stays.
    records.sort_by_key(|record| record.id_bound);
    for arriving in records {
        let arrived = Record {
            owner: owner.clone(),
            boot: here.boot.clone().filter(|_| offset_us.is_some()),
            wall_minus_boot_us: offset_us.unwrap_or(0),
            id_minus_boot_us: None,
            machine: here.machine.clone(),
            life: here.life.clone().filter(|_| arriving.numbering.ticket().is_some()),
            released: false,
            ..arriving
        };
        let stays = |record: &&mut Record| record.id_bound > arrived.id_bound || has_left(record, &arrived);
        let mut staying = merged.iter_mut().filter(stays);
        if !arrived.is_movable()
            && let Some(stored) = staying.find(|record| record.key() == arrived.key())
        {
            stored.id_bound = stored.id_bound.max(arrived.id_bound);
            stored.assigned_bound = stored.assigned_bound.max(arrived.assigned_bound);
            stored.restored |= arrived.restored;
            continue;
        }
        // A record with another name stays, so that a source with that name starts above it. The
        // order of two imports then makes no difference. A released record is replaced, whatever
        // its name, unless its worker IDs were moved away and come back as a bound: another daemon may
        // have them there.
        let replaces = |record: &mut Record| {
            record.forgotten == arrived.forgotten
                && arrived.says_all_of(record)
                && if record.released { !has_left(record, &arrived) } else { record.name == arrived.name }
        };
        let replaced: Vec<Record> = merged.extract_if(.., replaces).collect();
        // What a replaced record says beyond its bound stays.
        let mut arrived = arrived;
        for record in replaced {
            arrived.assigned_bound = arrived.assigned_bound.max(record.assigned_bound);
            arrived.restored |= record.restored;
            arrived.retired &= record.retired || record.released;
        }
        merged.push(arrived);
    }
    keep_highest_forgotten(&mut merged);
    Ok(merged)
}

/// Returns true if an export moved the stored record's worker IDs away, and the arriving record neither
/// moves them back nor says that a fleet has them.
fn has_left(stored: &Record, arriving: &Record) -> bool {
    stored.released && stored.is_movable() && !arriving.is_movable() && !arriving.assigned
}

/// Returns an error if the export and a stored record have the same worker ID, and the bound in the
/// export is lower. If several records of the export have this worker ID, only the record with the
/// highest bound counts. Worker IDs that the export does not move are left out: other daemons may have
/// used them since, and the higher bound stays.
fn lower_than(export: &[Record], stored: &Record) -> Option<StateError> {
    let in_space =
        export.iter().filter(|record| !record.assigned && record.numbering.is_of_space(&stored.numbering));
    let in_space: Vec<(&Record, Vec<u64>)> =
        in_space.map(|record| (record, record.numbering.numbers_in_space())).collect();
    let mut numbers = stored.numbering.numbers_in_space().into_iter();
    let lower = numbers.find_map(|number| {
        let with_it = in_space.iter().filter(|(_, numbers)| numbers.contains(&number));
        let with_it = with_it.map(|(record, _)| *record);
        if !with_it.clone().any(Record::is_movable) {
            return None;
        }
        let furthest = with_it.max_by_key(|record| record.id_bound)?;
        (furthest.id_bound < stored.id_bound).then_some(furthest)
    })?;
    let (name, end) = (&lower.name, lower.id_bound);
    let (other, bound) = (&stored.name, stored.id_bound);
    let reason = if stored.released {
        format!(
            "source {name:?}: the export ends at ID {end}, but worker IDs that it shares with source {other:?} were moved away \
             from here at ID {bound}; import the export of the machine that used them last"
        )
    } else {
        format!(
            "source {name:?}: the export ends at ID {end}, but this machine has since granted worker IDs that it shares with \
             source {other:?} up to ID {bound}; if another machine used them later, import its export; else this state is the \
             newest, and goes on without an import; to get the other sources of the export, export here, import that where \
             this export was made, and import here what you then export there"
        )
    };
    Some(StateError::new(Cause::Damaged, reason))
}

/// Replaces the records of the directory.
///
/// # Errors
/// The records may not be durable.
pub fn write(directory: &StateDir, records: &[Record]) -> Result<(), StateError> {
    StateFile::of(directory.path()).write(records)?;
    directory.await_names()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::tests::{Configured, WALL, any_source, claimant, numbering, record};
    use super::super::{Start, plan};
    use super::*;

    /// Draws a record for an export or a state. There are so few different bounds that many records
    /// have the same one.
    fn any_record() -> impl Strategy<Value = Record> {
        let drawn = (any_source(), 0_i64..4, any::<bool>());
        drawn.prop_map(|(Configured(name, layout, workers), second, retired)| Record {
            owner: owner(),
            retired,
            ..record(name, layout, &workers, second * 1_000)
        })
    }

    fn any_export() -> impl Strategy<Value = Vec<Record>> {
        prop::collection::vec(any_record(), 1..3)
    }

    /// Returns where each of these sources would start if it were alone. The outer `Option` is
    /// `None` if the start is refused. The inner `Option` is `None` if no record binds the source.
    fn starts(records: &[Record], sources: &[Configured]) -> Vec<Option<Option<Start>>> {
        let start = |Configured(name, layout, workers): &Configured| {
            let numbering = numbering(layout, workers);
            Some(plan(records, &[claimant(name, &numbering)], WALL).ok()?.starts[0])
        };
        sources.iter().map(start).collect()
    }

    /// Returns the highest bound that these records have for each worker ID of each ID space.
    fn bounds<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeMap<(String, u64), u64> {
        let mut bounds = BTreeMap::new();
        for record in records {
            let (layout, _) = record.numbering.snowflake().expect("a record of a layout");
            for number in record.numbering.numbers_in_space() {
                let bound = bounds.entry((layout.space().to_string(), number)).or_insert(0);
                *bound = record.id_bound.max(*bound);
            }
        }
        bounds
    }

    fn owner() -> Owner {
        Owner { instance: String::new(), pid: 1, state: String::new() }
    }

    fn import(stored: &[Record], export: &[Record]) -> Result<Vec<Record>, StateError> {
        merge(stored.to_vec(), export.to_vec(), &owner(), &HostIdentity::default())
    }

    /// It is the way back to an older program.
    #[test]
    fn an_export_of_a_later_format_is_read_by_its_least_reader() {
        let directory = tempfile::tempdir().unwrap();
        let directory = StateDir::lock(directory.path()).unwrap();
        let exported = vec![Record { released: true, ..left_in("this boot", 0, 5) }];
        let text = export(&directory, exported.clone()).unwrap();
        let head = "\"snowbank_state_format\":1,\"least_reader\":1,";
        assert!(text.starts_with(&format!("{{{head}")), "{text}");
        let before = text.replacen("\"least_reader\":1,", "", 1);
        assert_eq!(parse_export(&before).as_ref(), Ok(&exported), "one of before 0.1.0");
        let later = text.replacen(head, "\"snowbank_state_format\":2,\"least_reader\":1,", 1);
        let later = later.replacen("\"clean\"", "\"since\":\"a later release\",\"clean\"", 1);
        assert_eq!(parse_export(&later), Ok(exported));
        let newer = later.replacen("\"least_reader\":1", "\"least_reader\":2", 1);
        let refused = parse_export(&newer).unwrap_err().to_string();
        assert!(refused.contains("for programs that know format 2, allowed: up to 1"), "{refused}");
    }

    /// Returns a record of source "default" with one worker ID, as a daemon left it in the boot
    /// with this name.
    fn left_in(boot: &str, worker: u64, wall_minus_boot_us: i64) -> Record {
        let record = record("default", "twitter", &worker.to_string(), 0);
        Record { owner: owner(), boot: Some(String::from(boot)), wall_minus_boot_us, ..record }
    }

    #[test]
    fn an_import_drops_the_clock_offsets_of_other_boots() {
        let here = HostIdentity { boot: Some(String::from("this boot")), ..HostIdentity::default() };
        let import = |stored: &[Record], arriving: Record| {
            let merged = merge(stored.to_vec(), vec![arriving], &owner(), &here);
            let merged = merged.expect("no stored record is ahead");
            let arrived = merged.last().expect("the import has a record");
            (arrived.boot.clone(), arrived.wall_minus_boot_us)
        };
        let this_boot = |offset_us| (here.boot.clone(), offset_us);
        assert_eq!(import(&[], left_in("another", 0, 5)), (None, 0));
        assert_eq!(import(&[left_in("an earlier one", 0, 3)], left_in("another", 0, 5)), (None, 0));
        assert_eq!(import(&[], left_in("this boot", 0, 5)), this_boot(5), "moved within one machine");
        // The stored record has the offset of this boot.
        assert_eq!(import(&[left_in("this boot", 0, 3)], left_in("another", 0, 5)), this_boot(3));
        assert_eq!(import(&[left_in("this boot", 7, 3)], left_in("another", 0, 5)), this_boot(3));
    }

    #[test]
    fn an_import_of_assigned_worker_ids_lowers_no_bound() {
        let assigned = |ahead_ms| Record { assigned: true, ..record("orders", "twitter", "7", ahead_ms) };
        let merged = |stored: i64, arriving: i64| {
            let export = [Record { released: true, ..assigned(arriving) }];
            let merged = import(&[assigned(stored)], &export).unwrap();
            (merged.len(), merged[0].id_bound == assigned(stored.max(arriving)).id_bound)
        };
        assert_eq!(merged(3, 5), (1, true));
        assert_eq!(merged(5, 3), (1, true), "since then, the fleet has assigned them here again");
    }

    #[test]
    fn an_import_keeps_the_highest_bound_of_assigned_ids() {
        let own = |ahead_ms, assigned_bound| Record {
            assigned_bound,
            ..record("orders", "twitter", "7", ahead_ms)
        };
        let assigned = |ahead_ms, assigned_bound| Record { assigned: true, ..own(ahead_ms, assigned_bound) };
        let bound_after = |stored: Record, arriving: Record| {
            let merged = import(&[stored], &[arriving]).expect("the export is not lower");
            assert_eq!(merged.len(), 1);
            merged[0].assigned_bound
        };
        assert_eq!(bound_after(own(3, Some(9)), own(5, None)), Some(9));
        assert_eq!(bound_after(own(3, Some(9)), own(5, Some(8))), Some(9));
        assert_eq!(bound_after(own(3, None), own(5, Some(8))), Some(8));
        assert_eq!(
            bound_after(assigned(5, Some(0)), assigned(3, Some(8))),
            Some(8),
            "the stored record stays"
        );
    }

    /// The fleet assigned worker IDs whose records are gone, and the record of another worker ID has
    /// a higher bound of its own.
    #[test]
    fn dropped_worker_ids_of_a_fleet_keep_their_bound() {
        let bound = |ahead_ms| record("orders", "twitter", "7", ahead_ms).id_bound;
        let orders = Record {
            assigned_bound: Some(bound(9_000)),
            retired: true,
            ..record("orders", "twitter", "7", 1_000)
        };
        let users = Record { retired: true, ..record("users", "twitter", "8", 5_000) };
        let older = [record("carts", "twitter", "3", 2_000)];
        let start = |records: &[Record]| {
            starts(records, &[Configured("carts", "twitter", String::from("3"))])[0]
                .unwrap()
                .unwrap()
                .id_bound
        };
        let mut records = vec![orders.clone(), users];
        forget(&mut records, UnixMicros(i64::MAX));
        assert_eq!((records.len(), start(&records)), (1, bound(9_000)));
        // An import has a record of a worker ID that may be one of those.
        for stored in [records, vec![orders]] {
            assert!(start(&import(&stored, &older).unwrap()) >= bound(9_000));
        }
    }

    /// Another daemon of the machine may have the worker ID by now. Its higher bound stays.
    #[test]
    fn what_no_source_had_any_more_arrives_as_a_bound() {
        let retired = |name, ahead_ms| Record { retired: true, ..record(name, "twitter", "7", ahead_ms) };
        let used = |name, ahead_ms| record(name, "twitter", "7", ahead_ms);
        let merged = |stored: Record, arriving: Record| import(&[stored], &[arriving]);
        for name in ["orders", "users"] {
            for (stored, arriving) in [(3, 5), (5, 3), (5, 5)] {
                let records = merged(used("orders", stored), retired(name, arriving)).unwrap();
                let highest = starts(&records, &[Configured("carts", "twitter", String::from("7"))])[0];
                assert_eq!(highest.unwrap().unwrap().id_bound, used(name, 5).id_bound);
                let movable: Vec<&str> =
                    records.iter().filter(|it| it.is_movable()).map(|it| &*it.name).collect();
                assert_eq!(
                    movable,
                    ["orders"],
                    "the worker ID that is used here is still moved by an export"
                );
            }
        }
        assert!(merged(retired("orders", 5), used("orders", 3)).is_err(), "it was used here since");
        // It was moved away from here, and another daemon of that machine may have it.
        for name in ["orders", "users"] {
            let away = Record { released: true, ..used("orders", 3) };
            let back = merged(away, retired(name, 5)).unwrap();
            assert_eq!(
                starts(&back, &[Configured("orders", "twitter", String::from("7"))]),
                [None],
                "{name}"
            );
            let moved = import(&back, &[used("orders", 6)]).unwrap();
            let start = starts(&moved, &[Configured("orders", "twitter", String::from("7"))])[0];
            assert_eq!(start.unwrap().unwrap().id_bound, used("orders", 6).id_bound, "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// An older export may come before or after the one that carries a forgotten bound. No worker
        /// ID of either starts below that bound, and a second import changes nothing.
        #[test]
        fn an_import_never_starts_below_what_was_forgotten(
            older in any_export(),
            records in prop::collection::vec(any_record(), 1..3),
            sources in prop::collection::vec(any_source(), 1..8),
        ) {
            let mut carrying: Vec<Record> = records.into_iter().map(|it| Record { retired: true, ..it }).collect();
            let dropped = forget(&mut carrying, UnixMicros(i64::MAX));
            for exports in [[&older, &carrying], [&carrying, &older]] {
                let Ok(first) = import(&[], exports[0]) else { continue };
                let Ok(both) = import(&first, exports[1]) else { continue };
                for (Configured(name, layout, workers), start) in sources.iter().zip(starts(&both, &sources)) {
                    let of_space = numbering(layout, workers);
                    let same = dropped.iter().filter(|record| record.numbering.is_of_space(&of_space));
                    let bound = same.map(|record| record.id_bound).max().unwrap_or(0);
                    let start = start.map(|start| start.map_or(0, |start| start.id_bound));
                    prop_assert!(start.is_none_or(|start| start >= bound), "{name}, {workers} of {layout}: {start:?}");
                }
                let again = import(&both, exports[1]).expect("the stored records are as high");
                prop_assert_eq!(starts(&again, &sources), starts(&both, &sources));
            }
        }

        /// After an import, each worker ID has its stored bound or its imported bound, whichever is
        /// higher. Importing the same export again changes no bound and no start. If two exports
        /// can be imported in either order, both orders lead to the same starts.
        #[test]
        fn imports_lower_no_bound_and_may_come_in_any_order(
            stored in prop::collection::vec(any_record(), 0..3),
            released: bool,
            exports in (any_export(), any_export()),
            sources in prop::collection::vec(any_source(), 1..8),
        ) {
            let stored: Vec<Record> = stored.into_iter().map(|record| Record { released, ..record }).collect();
            let mut ends = Vec::new();
            for (first, second) in [(&exports.0, &exports.1), (&exports.1, &exports.0)] {
                let Ok(once) = import(&stored, first) else { continue };
                prop_assert_eq!(bounds(&once), bounds(stored.iter().chain(first)));
                let again = import(&once, first).expect("the stored records are as high");
                prop_assert_eq!(bounds(&again), bounds(&once));
                prop_assert_eq!(starts(&again, &sources), starts(&once, &sources));
                match import(&once, second) {
                    Ok(both) => {
                        prop_assert_eq!(bounds(&both), bounds(once.iter().chain(second)));
                        ends.push(both);
                    }
                    // The import is refused because this machine already has higher bounds for some
                    // of its worker IDs.
                    Err(error) => prop_assert!(error.to_string().contains("the export ends at ID"), "{error}"),
                }
            }
            if let [one, other] = &ends[..] {
                prop_assert_eq!(starts(one, &sources), starts(other, &sources), "{:?} and {:?}", one, other);
            }
        }
    }
}
