//! `snowbank layout NAME --above ID`: from which instant on a layout's IDs exceed an old one.

use std::io::Write;

use serde::Serialize;

use super::Failure;
use super::chosen::Chosen;
use crate::clock;
use snowbank_client::layout::{Layout, LayoutError, Tick, UnixMicros};

const DAY_MS: i64 = 86_400_000;

/// The time for which a day counts as not begun, because IDs may be a burst window old and clocks differ.
const MARGIN_MS: i64 = 60_000;

/// The answer, and the output of `--json`.
#[derive(Serialize)]
pub(super) struct Above {
    layout: String,
    above: String,
    from: String,
    is_now: bool,
    /// True if `from` has come, but less than the margin ago.
    #[serde(skip)]
    is_just_now: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_epoch: Option<WithEpoch>,
}

/// The same layout with the epoch with which its IDs exceed the old one today.
#[derive(Serialize)]
struct WithEpoch {
    epoch_unix_ms: i64,
    spec: String,
    from: String,
    last: String,
}

/// Finds from which instant on the IDs of a layout exceed `id`, and the epoch with which they do today.
pub(super) fn find(chosen: &Chosen, id: &str) -> Result<Above, Failure> {
    let (layout, label) = (&chosen.layout, chosen.label());
    let highest = parse(id)?;
    let Some(tick) = layout.tick_above(highest) else {
        return Err(Failure::no(format_args!(
            "no ID of {label} exceeds {highest}, because the layout ends below it; choose one whose time field holds more"
        )));
    };
    let now = clock::os::read().wall;
    let from = layout.start_of(tick);
    let is_now = from.unix_ms() <= now.unix_ms().saturating_sub(MARGIN_MS);
    let with_epoch = if is_now { None } else { Some(WithEpoch::of(layout, tick, now).map_err(Failure::no)?) };
    let is_just_now = !is_now && from <= now;
    Ok(Above {
        layout: label,
        above: highest.to_string(),
        from: layout.rfc3339(from),
        is_now,
        is_just_now,
        with_epoch,
    })
}

fn parse(id: &str) -> Result<u64, Failure> {
    let highest = id.parse::<i64>().ok().and_then(|id| u64::try_from(id).ok());
    highest.ok_or_else(|| {
        Failure::usage(format!("--above: found {id:?}, allowed: an ID, a number from 0 to {}", i64::MAX))
    })
}

impl WithEpoch {
    /// Moves the epoch so that this tick starts with today, in UTC.
    fn of(layout: &Layout, tick: Tick, now: UnixMicros) -> Result<Self, LayoutError> {
        let today_ms = (now.unix_ms() - MARGIN_MS).div_euclid(DAY_MS) * DAY_MS;
        let before_ms = i64::try_from(tick.0.saturating_mul(layout.tick_ms())).unwrap_or(i64::MAX);
        let moved = layout.with_epoch(today_ms.saturating_sub(before_ms))?;
        Ok(WithEpoch {
            epoch_unix_ms: moved.epoch_unix_ms(),
            from: moved.rfc3339(UnixMicros::from_unix_ms(today_ms)),
            last: moved.rfc3339(moved.last()),
            spec: moved.to_string(),
        })
    }
}

impl Above {
    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Above { layout, above, from, is_now, is_just_now, with_epoch } = self;
        let when = match (is_now, is_just_now) {
            (true, _) => "",
            (false, true) => ", which is less than a minute ago: too close, because clocks differ",
            (false, false) => ", which is not yet",
        };
        writeln!(out, "IDs of {layout} exceed {above} from {from} on{when}")?;
        if let Some(WithEpoch { epoch_unix_ms, spec, from, last }) = with_epoch {
            writeln!(out, "with epoch {epoch_unix_ms} they do from {from} on, until {last}:\n{spec}")?;
        }
        Ok(())
    }
}
