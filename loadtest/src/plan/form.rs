//! The layout of the planned daemons: the form of their replies, and the used share of its space.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use snowbank_client::layout::{Layout, LayoutError, Life, Numbering, UnixMicros, WorkerSet};

use super::swept::Swept;
use super::{Inputs, NoPlan, Wanted};
use crate::units::counted;
use crate::value::Mix;

/// A layout's space and how much of it the plan uses.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Space {
    /// IDs per second of one worker ID.
    pub(crate) ids_per_s_each: u64,
    /// Worker IDs of the plan, spare daemons' included.
    pub(crate) worker_ids_used: u64,
    /// Worker IDs of the layout.
    pub(crate) worker_ids: u64,
    /// The unused share of the IDs of the daemons that carry the load.
    pub(crate) unused_share: f64,
    /// The date after which there are no IDs.
    pub(crate) ends: String,
    /// Years until then.
    pub(crate) years_left: f64,
}

/// The form of the planned IDs and replies.
pub(super) struct Form {
    /// None for counters, and for a source without a layout in its INFO.
    pub(super) numbering: Option<Numbering>,
    pub(super) worker_ids_each: u64,
    pub(super) largest_request: u32,
    /// True if the layout is not the sweep's.
    pub(super) other_layout: bool,
    /// True if each ID goes over the wire by itself.
    pub(super) needs_list: bool,
}

fn numbering(text: &str, workers: u64) -> Result<Numbering, LayoutError> {
    Numbering::new(Layout::resolve(text)?, WorkerSet::from_list(0..workers)?)
}

impl Form {
    pub(super) fn of(sweep: &Swept, wanted: &Wanted) -> Result<Self, NoPlan> {
        let worker_ids_each = wanted.worker_ids.map(u64::from).or(sweep.worker_ids.map(|count| count as u64));
        let worker_ids_each = worker_ids_each.unwrap_or(1).max(1);
        let no_layout =
            |text: &str, error| NoPlan::Unsupported(format!("its layout {text:?} is not one: {error}"));
        let measured = sweep.layout.as_deref();
        let measured = measured.map(|text| numbering(text, 1).map_err(|error| no_layout(text, error)));
        let measured = measured.transpose()?;
        let planned = match (&wanted.layout, &sweep.layout) {
            (Some(_), None) => {
                let reason = "its source has no layout, so it says nothing about a source with one";
                return Err(NoPlan::Unsupported(reason.to_owned()));
            }
            (wanted, measured) => wanted.as_ref().or(measured.as_ref()),
        };
        let numbering = planned.map(|text| numbering(text, worker_ids_each)).transpose()?;
        let layout_of = |numbering: &Option<Numbering>| numbering.as_ref().map(|it| it.layout().to_string());
        let other_layout = layout_of(&numbering) != layout_of(&measured);
        let needs_list = numbering.as_ref().is_some_and(Numbering::needs_list);
        let form = Self {
            numbering,
            worker_ids_each,
            largest_request: wanted.batch.as_ref().map_or(1, Mix::max),
            other_layout,
            needs_list,
        };
        form.refuse_other_replies(sweep, wanted, measured.as_ref())?;
        Ok(form)
    }

    /// Refuses another batch size where each ID goes over the wire: the cost of a request then follows its
    /// size.
    fn refuse_other_replies(
        &self,
        sweep: &Swept,
        wanted: &Wanted,
        measured: Option<&Numbering>,
    ) -> Result<(), NoPlan> {
        let measured_list = measured.is_some_and(Numbering::needs_list);
        if self.needs_list != measured_list {
            return Err(NoPlan::Unsupported(
                "one of the two layouts puts every ID on the wire, the other only runs; sweep a daemon with the \
                 planned layout"
                    .to_owned(),
            ));
        }
        let other_batch = wanted.batch.as_ref().is_some_and(|batch| batch.mean() != sweep.mean_batch);
        if self.needs_list && other_batch {
            return Err(NoPlan::Unsupported(format!(
                "its layout puts every ID on the wire, so the cost of a request follows its size; sweep with the \
                 planned --batch (it had {})",
                sweep.batch
            )));
        }
        Ok(())
    }

    /// IDs per tick of one worker ID.
    pub(super) fn ids_per_tick(&self) -> Option<u64> {
        self.numbering.as_ref().map(|numbering| numbering.layout().ids_per_tick())
    }

    /// IDs per second of one worker ID.
    pub(super) fn ids_per_s(&self) -> Option<u64> {
        self.numbering.as_ref().map(|numbering| numbering.layout().ids_per_second())
    }

    pub(super) fn space(
        &self,
        inputs: &Inputs,
        daemons: u64,
        spare: u64,
        now: SystemTime,
    ) -> Result<Option<Space>, NoPlan> {
        let Some(layout) = self.numbering.as_ref().map(Numbering::layout) else {
            return Ok(None);
        };
        let used = (daemons + spare) * self.worker_ids_each;
        if used > layout.workers() {
            return Err(NoPlan::Impossible(format!(
                "{} and {spare} spare, with {} each, need {}; the layout has {}",
                counted(daemons, "daemon"),
                counted(self.worker_ids_each, "worker ID"),
                counted(used, "worker ID"),
                layout.workers()
            )));
        }
        let left = life_left(layout, now)?;
        let all = (daemons * self.worker_ids_each) as f64 * layout.ids_per_second() as f64;
        Ok(Some(Space {
            ids_per_s_each: layout.ids_per_second(),
            worker_ids_used: used,
            worker_ids: layout.workers(),
            unused_share: (1.0 - inputs.ids_per_s / all).max(0.0),
            ends: layout.end().date(),
            years_left: left.as_secs_f64() / (365.2425 * 86_400.0),
        }))
    }
}

fn life_left(layout: &Layout, now: SystemTime) -> Result<Duration, NoPlan> {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match layout.life(UnixMicros(since_1970.as_micros() as i64)) {
        Life::Running { left } | Life::LastYear { left } => Ok(left),
        Life::NotBegun => Err(NoPlan::Impossible("the layout's epoch is in the future".to_owned())),
        Life::Ended { at } => {
            Err(NoPlan::Impossible(format!("the layout's life ended at {}", layout.rfc3339(at))))
        }
    }
}
