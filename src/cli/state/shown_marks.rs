//! The marks of worker IDs as `snowbank state show` shows them.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::config::SourceSettings;
use snowbank_core::grant::CeilingRule;
use snowbank_id::layout::{UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{Record, above_records};
use snowbank_state::{Fate, Mark, Marked, Seen, beyond, compare, instant_of, latest_grant};

/// A mark, and the worker IDs that have it. IDs are strings, because JavaScript's numbers are exact
/// only up to 2^53.
#[derive(Serialize)]
pub(super) struct MarkShown {
    /// `None` for a ticket counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_ids: Option<String>,
    /// The fate of the worker IDs; `none` without a mark, `unreadable` if the mark cannot be read.
    status: &'static str,
    /// The lowest ID that was never granted on this machine, and its time. A ticket counter has no
    /// time.
    id: Option<String>,
    time: Option<String>,
    /// The identity of the state that granted the IDs below `id`. `None` without a mark.
    state: Option<String>,
    /// True if that state is the one in this directory. `None` without a mark.
    this_state: Option<bool>,
    /// The effect of the mark on a start with this state and these worker IDs.
    next_start: NextStart,
    /// The process that holds the lock.
    holder: Option<String>,
    /// The reason why the mark cannot be read.
    error: Option<String>,
    /// The worker IDs, or the counter, for people.
    #[serde(skip)]
    words: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum NextStart {
    AtCeiling,
    AboveMark,
    RefusedOlderCopy,
    RefusedReleased,
    RefusedUnknown,
    RefusedTooFar,
    NotKnown,
}

/// Returns the rule of a source's ceilings with the default settings. The state does not store the
/// configured settings.
fn default_rule(numbering: &Numbering) -> CeilingRule {
    let mut settings = SourceSettings::default();
    let tick = Duration::from_millis(numbering.tick_ms());
    if let Some((layout, _)) = numbering.snowflake() {
        settings.layout = layout.clone();
        settings.max_ahead = settings.max_ahead.max(4 * tick);
    }
    CeilingRule { horizon: settings.horizon(), max_ahead: settings.max_ahead, tick }
}

/// Groups a record's neighbouring worker IDs that have equal marks and holders. `records` are all
/// records of the state.
pub(super) fn of(record: &Record, seen: &[Seen], records: &[Record], now: UnixMicros) -> Vec<MarkShown> {
    let numbering = &record.numbering;
    let latest = latest_grant(&default_rule(numbering), now);
    // Errors are never equal, because each names its file. So a worker ID whose mark cannot be read
    // has a group of its own.
    let mut stretches = Vec::new();
    for seen in seen.chunk_by(|left, right| left.holder == right.holder && left.mark == right.mark) {
        let next_start = match &seen[0].mark {
            Ok(None) => NextStart::AtCeiling,
            Ok(Some(mark)) => next_start(mark, numbering, record, records, latest),
            Err(_) => NextStart::NotKnown,
        };
        stretches.push(shown(record, seen, next_start));
    }
    stretches
}

/// Returns the entry for a group of worker IDs.
fn shown(record: &Record, seen: &[Seen], next_start: NextStart) -> MarkShown {
    // This never fails, because the worker IDs come from a set.
    let workers = WorkerSet::from_list(seen.iter().map(|seen| seen.worker)).ok();
    let workers = workers.filter(|_| record.numbering.snowflake().is_some());
    let holder = seen[0].holder.as_ref().map(|holder| match holder.trim_matches([' ', '(', ')']) {
        "" => String::from("another process"),
        process => process.to_owned(),
    });
    let mark = seen[0].mark.as_ref().ok().and_then(Option::as_ref);
    let error = seen[0].mark.as_ref().err().map(ToString::to_string);
    let layout = record.numbering.snowflake().map(|(layout, _)| layout);
    MarkShown {
        worker_ids: workers.as_ref().map(WorkerSet::to_string),
        words: workers.as_ref().map_or_else(|| String::from("counter"), WorkerSet::in_words),
        status: match (mark, &error) {
            (Some(mark), _) => mark.fate.word(),
            (None, Some(_)) => "unreadable",
            (None, None) => "none",
        },
        id: mark.map(|mark| mark.id_bound.to_string()),
        time: mark.and_then(|mark| Some(layout?.rfc3339(instant_of(&record.numbering, mark.id_bound)))),
        state: mark.map(|mark| mark.state.clone()),
        this_state: mark.map(|mark| mark.state == record.owner.state),
        next_start,
        holder,
        error,
    }
}

/// Returns the effect of a mark on a start, by the rules that a start follows.
fn next_start(
    mark: &Mark,
    numbering: &Numbering,
    record: &Record,
    records: &[Record],
    latest: UnixMicros,
) -> NextStart {
    // After worker IDs were changed, several records have bounds for the same IDs. A start is above
    // all these bounds.
    let start = above_records(records, numbering);
    let is_beyond = numbering.position_from(mark.id_bound) > record.ceiling();
    let mark = std::slice::from_ref(mark);
    if beyond(mark, numbering, start, latest).is_some() {
        return NextStart::RefusedTooFar;
    }
    match compare(mark, numbering, start, records) {
        Marked::Below if is_beyond => NextStart::AboveMark,
        Marked::Below => NextStart::AtCeiling,
        Marked::ByAnother(_) => NextStart::AboveMark,
        // For worker IDs that a fleet assigned, the coordinator has the bounds.
        Marked::SinceThisCopy(_) if record.assigned => NextStart::AboveMark,
        Marked::SinceThisCopy(_) => NextStart::RefusedOlderCopy,
        Marked::Released => NextStart::RefusedReleased,
        Marked::Unknown => NextStart::RefusedUnknown,
    }
}

impl MarkShown {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let holder = self.holder.as_ref().map(|holder| format!(", locked by {holder}")).unwrap_or_default();
        let indent = "              ";
        write!(out, "{indent}{}: ", self.words)?;
        let (Some(id), Some(state)) = (&self.id, &self.state) else {
            return match &self.error {
                Some(error) => writeln!(
                    out,
                    "not known{holder}: {error}\n{indent}  a daemon that cannot read the mark does not start"
                ),
                None => writeln!(out, "none{holder}: no mark of an ID granted since the machine's boot"),
            };
        };
        let whose = match self.this_state {
            Some(true) => String::from("this state"),
            Some(false) => format!("another state ({state})"),
            None => format!("state {state}"),
        };
        let what = if self.status == Fate::Released.word() { "released" } else { "granted" };
        let is_returned = self.status == Fate::Returned.word();
        let since = if is_returned { "; in a fleet, another daemon may have it" } else { "" };
        let time = self.time.as_ref().map(|time| format!(" ({time})")).unwrap_or_default();
        writeln!(out, "{what} below ID {id}{time} by {whose}{since}{holder}")?;
        let meaning = match self.next_start {
            NextStart::AboveMark => "beyond the ceiling: a start begins above this mark",
            NextStart::RefusedOlderCopy => {
                // A counter does not follow a clock, so there is nothing to wait for.
                let when = self.time.as_ref().map_or("", |_| " when the clock is past the mark's time");
                return writeln!(
                    out,
                    "{indent}  beyond the ceiling: this state is an older copy, and a start is refused; put the newest \
                     copy back, or, if that is lost, start once with --adopt-state{when}"
                );
            }
            NextStart::RefusedTooFar => {
                "beyond the ceiling and further ahead of the clock than a daemon grants by default: a start is refused; set \
                 the clock right, or use other worker IDs"
            }
            NextStart::RefusedUnknown => {
                "another copy of this machine, or a fleet, may have counted on: a start is refused until `snowbank ticket set`"
            }
            NextStart::RefusedReleased => "moved away by `snowbank state export`: a start is refused",
            NextStart::AtCeiling | NextStart::NotKnown => return Ok(()),
        };
        writeln!(out, "{indent}  {meaning}")
    }
}
