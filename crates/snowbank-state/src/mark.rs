//! Marks: how far the IDs of a worker ID were granted, and by which state. The machine remembers
//! them until its next boot.
//!
//! A mark is in the lock file of its worker ID. Lock files are not in the state directory, so a
//! restored state directory brings no older marks back. A raise writes the mark when the ceiling is
//! durable, and before anything below the ceiling is claimed. A clean stop lowers the mark before
//! the ceiling. So a daemon leaves no mark above the ceiling in the newest copy of the state. If a
//! start lies below the mark, its records are an older copy of the state, or belong to another
//! state. Then IDs above that start may have been handed out.

use std::fmt;

use super::form::{Form, FormError};
use super::store::Record;
use snowbank_core::clock::{self, STEP_BELIEVED_AT_ONCE};
use snowbank_core::grant::CeilingRule;
use snowbank_id::layout::UnixMicros;
use snowbank_id::numbering::Numbering;

const FORM: Form = Form { format: 1, least_reader: 1 };

/// The reason why a text gives no mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MarkError {
    /// Snowbank did not write it.
    #[error("its second line is no mark that snowbank writes")]
    Foreign,
    /// A newer program wrote it.
    #[error(transparent)]
    Form(#[from] FormError),
}

/// The bound up to which the IDs of one worker ID were granted on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The lowest ID that was not granted.
    pub id_bound: u64,
    /// The identity of the state that granted the IDs: [`Owner::state`](super::Owner).
    pub state: String,
    /// Who may have the worker ID now.
    pub fate: Fate,
}

/// The fate of a worker ID, as its mark shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The state that granted the IDs has the worker ID, or had it last.
    Granted,
    /// As [`Granted`](Fate::Granted), but the next start must ask the coordinator: the daemon asked it, or
    /// served beside, and has not been granted the worker ID since; or it has lost it.
    Lost,
    /// A clean stop returned the worker ID to the fleet, or a command set the bound: any daemon of the
    /// fleet may have the worker ID.
    Returned,
    /// `snowbank state export` moved the worker ID away: another machine may have it.
    Released,
    /// Numbers of this counter beyond the bound may have been handed out: by another copy of the
    /// machine, or by daemons of a fleet.
    Unknown,
}

impl Fate {
    /// The word of each fate in a mark, padded to the same length.
    const WORDS: [(Fate, &str); 5] = [
        (Fate::Granted, "granted "),
        (Fate::Lost, "lost    "),
        (Fate::Returned, "returned"),
        (Fate::Released, "released"),
        (Fate::Unknown, "unknown "),
    ];

    fn padded_word(self) -> &'static str {
        Fate::WORDS.into_iter().find(|(of, _)| *of == self).map_or("", |(_, word)| word)
    }

    /// Returns the word of this fate without padding.
    pub fn word(self) -> &'static str {
        self.padded_word().trim_end()
    }
}

/// The number of digits of an ID bound in a mark. All marks have the same length, so that a new
/// mark overwrites the whole old one.
const BOUND_DIGITS: usize = 20;
/// The number of hexadecimal digits of a state's identity.
const STATE_DIGITS: usize = 32;

impl Mark {
    /// Returns the mark of a worker ID that the state with this identity has.
    pub fn granted(id_bound: u64, state: &str) -> Mark {
        Mark { id_bound, state: state.to_owned(), fate: Fate::Granted }
    }

    /// Returns true if `snowbank state export` moved the worker ID away from this machine.
    pub fn is_released(&self) -> bool {
        self.fate == Fate::Released
    }

    /// Returns true if a start is refused until a command or an import brings the worker ID back.
    pub(super) fn forbids(&self) -> bool {
        matches!(self.fate, Fate::Released | Fate::Unknown)
    }

    /// Reads a mark. Every reader of a mark may have to write it again, so text behind a mark of a
    /// later format is refused.
    ///
    /// # Errors
    /// The text is not a mark, or a newer program wrote it.
    pub(super) fn parse(text: &str) -> Result<Mark, MarkError> {
        let (form, known) = form_of(text).ok_or(MarkError::Foreign)?;
        FORM.may_read(form)?;
        let mark = Mark::parse_known(known).ok_or(MarkError::Foreign)?;
        match known.strip_prefix(&mark.known()) {
            Some("\n") => Ok(mark),
            Some(more) if form.format > FORM.format && more.ends_with('\n') => {
                Err(FormError::Unknown(more.trim().to_owned()).into())
            }
            _ => Err(MarkError::Foreign),
        }
    }

    fn parse_known(text: &str) -> Option<Mark> {
        let mut words = Fate::WORDS.into_iter();
        let (fate, rest) = words.find_map(|(fate, word)| Some((fate, text.strip_prefix(word)?)))?;
        let (bound, rest) = rest.strip_prefix(" below ID ")?.split_once(" by state ")?;
        let state = rest.get(..STATE_DIGITS)?;
        let is_identity = state.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_identity.then_some(Mark { id_bound: bound.parse().ok()?, state: state.to_owned(), fate })
    }

    /// Returns the text of the mark behind its two numbers.
    fn known(&self) -> String {
        let Mark { id_bound, state, fate } = self;
        format!("{} below ID {id_bound:0BOUND_DIGITS$} by state {state}", fate.padded_word())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Form { format, least_reader } = FORM;
        writeln!(f, "format {format}, least reader {least_reader}: {}", self.known())
    }
}

/// Returns the two numbers of a mark's text, and the text behind them.
fn form_of(text: &str) -> Option<(Form, &str)> {
    let (format, rest) = text.strip_prefix("format ")?.split_once(", least reader ")?;
    let (least_reader, rest) = rest.split_once(": ")?;
    Some((Form { format: format.parse().ok()?, least_reader: least_reader.parse().ok()? }, rest))
}

/// The meaning of marks for a source that is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// Nothing was granted at or above the source's start.
    Below,
    /// Another state granted IDs at or above the source's start. The source may start at this
    /// bound.
    ByAnother(u64),
    /// The source's own state granted IDs that the records do not cover: the records are an older
    /// copy. All granted IDs are below this bound.
    SinceThisCopy(u64),
    /// A worker ID of the source, or its counter, was moved away.
    Released,
    /// The marks do not show how far the source's counter was granted.
    Unknown,
}

/// Compares a source's start, an ID bound, with the marks of its worker IDs. `records` are the
/// records of the source's state.
pub fn compare(marks: &[Mark], numbering: &Numbering, start: u64, records: &[Record]) -> Marked {
    if marks.iter().any(Mark::is_released) {
        return Marked::Released;
    }
    if marks.iter().any(|mark| mark.fate == Fate::Unknown) {
        return Marked::Unknown;
    }
    let mut above = above(marks, numbering, start).peekable();
    if above.peek().is_none() {
        return Marked::Below;
    }
    let highest = marks.iter().map(|mark| mark.id_bound).max().unwrap_or(start);
    if above.any(|mark| records.iter().any(|record| record.owner.state == mark.state)) {
        return Marked::SinceThisCopy(highest);
    }
    Marked::ByAnother(highest)
}

/// Returns the marks with IDs of this numbering between `start` and the mark.
fn above<'a>(marks: &'a [Mark], numbering: &'a Numbering, start: u64) -> impl Iterator<Item = &'a Mark> {
    let start = numbering.position_from(start);
    marks.iter().filter(move |mark| numbering.position_from(mark.id_bound) > start)
}

/// Returns the latest instant up to which a daemon can have granted IDs if the wall clock is now
/// right. This is the furthest ceiling that the rule allows, plus the largest step that a daemon
/// believes at once. The clock may have made such a step forward and been set back since.
pub fn latest_grant(rule: &CeilingRule, wall: UnixMicros) -> UnixMicros {
    let ahead = rule.furthest().saturating_add(STEP_BELIEVED_AT_ONCE);
    UnixMicros(wall.0.saturating_add(clock::micros(ahead)))
}

/// Returns the bound of the highest mark if it is beyond both the source's start and the instant
/// `latest`. A start with such a mark is refused.
pub fn beyond(marks: &[Mark], numbering: &Numbering, start: u64, latest: UnixMicros) -> Option<u64> {
    let highest = above(marks, numbering, start).map(|mark| mark.id_bound).max()?;
    (instant_of(numbering, highest) > latest).then_some(highest)
}

/// Returns the start of the tick of the first position at or above an ID bound. For a ticket
/// counter, this instant is earlier than any time that a clock can show.
pub fn instant_of(numbering: &Numbering, id_bound: u64) -> UnixMicros {
    numbering.start_of(numbering.tick_of(numbering.position_from(id_bound)))
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::{numbering, record};
    use snowbank_core::clock::{BootMicros, Now};
    use snowbank_id::layout::{Position, Tick};

    const OURS: &str = "0123456789abcdef0123456789abcdef";
    const THEIRS: &str = "fedcba9876543210fedcba9876543210";

    fn mark(at: Position, state: &str) -> Mark {
        Mark::granted(numbering("twitter", "1").id_bound(at), state)
    }

    #[test]
    fn a_mark_reads_back_and_a_damaged_one_does_not() {
        for id_bound in [0, 1, u64::MAX] {
            for (fate, _) in Fate::WORDS {
                let mark = Mark { id_bound, state: OURS.to_owned(), fate };
                let text = mark.to_string();
                assert_eq!(text.len(), Mark::granted(7, OURS).to_string().len());
                assert_eq!(text.split(' ').nth(5), Some(fate.word()));
                assert_eq!(Mark::parse(&text), Ok(mark));
                for cut in 0..text.len() {
                    assert_eq!(Mark::parse(&text[..cut]), Err(MarkError::Foreign));
                    let mut noise = text.clone().into_bytes();
                    noise[cut] = b'\0';
                    let noise = String::from_utf8(noise).unwrap();
                    assert_eq!(Mark::parse(&noise), Err(MarkError::Foreign));
                }
                assert_eq!(Mark::parse(&format!("{text}\n")), Err(MarkError::Foreign));
            }
        }
    }

    #[test]
    fn a_mark_of_a_later_format_is_read_unless_it_says_more() {
        let text = Mark::granted(7, OURS).to_string();
        let later = |form: &str| text.replace("format 1, least reader 1", form);
        assert_eq!(Mark::parse(&later("format 2, least reader 1")), Ok(Mark::granted(7, OURS)));
        let more = later("format 2, least reader 1").replace('\n', ", more\n");
        assert_eq!(Mark::parse(&more), Err(FormError::Unknown(String::from(", more")).into()));
        let form = Form { format: 3, least_reader: 2 };
        let newer = FormError::Newer { found: form, known: 1 };
        assert_eq!(Mark::parse("format 3, least reader 2: anything"), Err(newer.into()));
    }

    #[test]
    fn a_start_below_a_mark_is_told_which_state_made_it() {
        let numbering = numbering("twitter", "1");
        let own = record("orders", "twitter", "1", 0);
        let ours = |at| mark(Position(at), &own.owner.state);
        let theirs = |at| mark(Position(at), THEIRS);
        let bound = |at| numbering.id_bound(Position(at));
        let found = |marks: &[Mark]| compare(marks, &numbering, bound(500), slice::from_ref(&own));
        assert_eq!(found(&[theirs(500), ours(500)]), Marked::Below);
        assert_eq!(found(&[theirs(501), ours(500)]), Marked::ByAnother(bound(501)));
        assert_eq!(found(&[theirs(501), ours(499)]), Marked::ByAnother(bound(501)));
        assert_eq!(found(&[theirs(700), ours(501)]), Marked::SinceThisCopy(bound(700)));
        let moved = Mark { fate: Fate::Released, ..theirs(1) };
        assert_eq!(found(&[ours(501), moved]), Marked::Released);
    }

    #[test]
    fn a_mark_beyond_what_a_daemon_can_grant_is_not_believed() {
        let numbering = numbering("twitter", "1");
        let now = numbering.start_of(Tick(500_000));
        let seconds = Duration::from_secs;
        let rule =
            CeilingRule { horizon: seconds(3), max_ahead: seconds(10), tick: Duration::from_millis(1) };
        let latest = latest_grant(&rule, now);
        assert_eq!(latest.0 - now.0, 71_500_000, "max_ahead, the reserve above it, and a step of a minute");
        let bound = |tick| numbering.id_bound(numbering.first_of(Tick(tick)));
        let [near, far, start] = [571_500, 571_501, 500_001].map(bound);
        let beyond = |at, start| beyond(&[Mark::granted(at, THEIRS)], &numbering, start, latest);
        assert_eq!(beyond(near, start), None);
        assert_eq!(beyond(far, start), Some(far));
        assert_eq!(beyond(far, far), None, "the source starts at the mark");
    }

    proptest! {
        /// After a kill, the next start must believe the mark of the last ceiling. This must hold
        /// during a catch-up too, and with ticks of any length.
        #[test]
        fn a_mark_of_any_ceiling_that_the_rule_allows_is_believed(
            tick in prop::sample::select(vec!["1ms", "10ms", "1s", "3600s", "86400s"]),
            phase_us in 0_i64..86_400_000_000,
            ahead_share in 0_i64..=1_000,
            uptime_s in 0_u64..1_000_000,
            horizon_share in 0_u32..=100,
        ) {
            let layout = format!("time:=100000000,worker:10,sequence:12;tick={tick};epoch=1799990000000");
            let numbering = numbering(&layout, "1");
            let tick = Duration::from_millis(numbering.tick_ms());
            let max_ahead = Duration::from_secs(10).max(4 * tick);
            let horizon = (max_ahead - 2 * tick) * horizon_share / 100;
            let rule = CeilingRule { horizon, max_ahead, tick };
            let now = Now { wall: UnixMicros(1_800_000_000_000_000 + phase_us), boot: BootMicros(0), jumped: false };
            let id_time = UnixMicros(now.wall.0 + clock::micros(max_ahead) / 1_000 * ahead_share);
            let reach = rule.reach(now, id_time, Duration::from_secs(uptime_s));
            let ceiling = numbering.first_of(Tick(numbering.tick_at(reach).0 + 1));
            let latest = UnixMicros(latest_grant(&rule, now.wall).0 - clock::micros(STEP_BELIEVED_AT_ONCE));
            prop_assert!(instant_of(&numbering, numbering.id_bound(ceiling)) <= latest);
        }
    }
}
