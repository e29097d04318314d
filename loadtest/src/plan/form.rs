//! The layout of the planned daemons: what their replies look like, and how much of its space they use.

use std::time::SystemTime;

use serde::Serialize;
use snowbank_client::layout::{Layout, Life, Numbering, UnixMicros, WorkerSet};

use super::page::counted;
use super::swept::Swept;
use super::{Inputs, NoPlan, Wanted};
use crate::value::Mix;

/// A layout's space and how much of it the plan uses.
#[derive(Debug, Clone, Serialize)]
pub struct Space {
    /// IDs per second of one worker ID.
    pub ids_per_s_each: u64,
    /// Worker IDs of the plan, spare daemons' included.
    pub worker_ids_used: u64,
    /// Worker IDs that there are.
    pub worker_ids: u64,
    /// The share of the IDs of the daemons that carry the load which nobody asks for.
    pub unused_share: f64,
    /// The date after which there are no IDs.
    pub ends: String,
    /// Years until then.
    pub years_left: f64,
}

/// The form of the planned IDs and replies.
pub(super) struct Form {
    /// None for counters, and for a source that did not tell.
    pub(super) numbering: Option<Numbering>,
    pub(super) worker_ids_each: u64,
    pub(super) largest_request: u32,
    /// Whether the layout is not the sweep's.
    pub(super) other_layout: bool,
    /// Whether IDs go over the wire one by one.
    pub(super) needs_list: bool,
}

impl Form {
    pub(super) fn of(sweep: &Swept, wanted: &Wanted) -> Result<Self, NoPlan> {
        let worker_ids_each = wanted.worker_ids.map(u64::from).or(sweep.worker_ids.map(|count| count as u64));
        let worker_ids_each = worker_ids_each.unwrap_or(1).max(1);
        let numbering_of = |text: &str, workers: u64| {
            let layout = Layout::resolve(text)?;
            Numbering::new(layout, WorkerSet::from_list(0..workers)?)
        };
        let measured =
            match &sweep.layout {
                None => None,
                Some(text) => Some(numbering_of(text, 1).map_err(|error| {
                    NoPlan::Unsupported(format!("its layout {text:?} is not one: {error}"))
                })?),
            };
        let (numbering, other_layout) = match (&wanted.layout, &measured) {
            (Some(_), None) => {
                return Err(NoPlan::Unsupported(
                    "its source has no layout, so nothing follows for one that has".to_owned(),
                ));
            }
            (Some(text), Some(measured)) => {
                let numbering = numbering_of(text, worker_ids_each)?;
                let other = numbering.layout() != measured.layout();
                (Some(numbering), other)
            }
            (None, Some(measured)) => {
                (Some(numbering_of(&measured.layout().to_string(), worker_ids_each)?), false)
            }
            (None, None) => (None, false),
        };
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

    /// Where IDs go over the wire one by one, the cost of a request follows their number, and no other batch size.
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
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = match layout.life(UnixMicros(since_1970.as_micros() as i64)) {
            Life::Running { left } | Life::LastYear { left } => left,
            Life::NotBegun => {
                return Err(NoPlan::Impossible("the layout's epoch is in the future".to_owned()));
            }
            Life::Ended { at } => {
                return Err(NoPlan::Impossible(format!("the layout's life ended at {}", layout.rfc3339(at))));
            }
        };
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
