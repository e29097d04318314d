//! The metrics of sources.

use std::fmt;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{Page, Value};
use crate::admin::status::{SourceStatus, Status};

/// A metric of sources: name, help, unit, true for a counter, value. `None`: that kind of source does not have it.
pub(super) type SourceMetric =
    (&'static str, &'static str, Option<Unit>, bool, fn(&SourceStatus) -> Option<Value>);

/// The metrics of a source.
pub(super) const SOURCE_METRICS: [SourceMetric; 14] = [
    ("snowbank_ids_issued", "IDs handed out", None, true, |source| Some(source.ids.into())),
    (
        "snowbank_requests",
        "Requests for IDs that were answered, with IDs or a refusal of the source",
        None,
        true,
        |source| Some(source.requests.into()),
    ),
    (
        "snowbank_refusals",
        "Requests refused: the errors exhausted, clock_behind, no_ceiling and shutting_down",
        None,
        true,
        |source| Some(source.refused.into()),
    ),
    (
        "snowbank_exhausted",
        "Requests refused because the IDs were not available within the wait",
        None,
        true,
        |source| Some(source.exhausted.into()),
    ),
    ("snowbank_waits", "Waits of requests for IDs", None, true, |source| Some(source.waits.into())),
    ("snowbank_waiting_requests", "Requests that wait for IDs now", None, false, |source| {
        Some(source.waiting_requests.into())
    }),
    ("snowbank_waiting_ids", "IDs that waiting requests wait for now", None, false, |source| {
        Some(source.waiting_ids.into())
    }),
    (
        "snowbank_ids_per_second_max",
        "IDs per second that the layout and the worker IDs allow",
        None,
        false,
        |source| Some(source.snowflake()?.ids_per_second.into()),
    ),
    (
        "snowbank_ceiling_headroom",
        "For how long IDs can be handed out if the ceiling is not raised; 0 also if no client asks",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.headroom_s.into()),
    ),
    (
        "snowbank_clock_ahead",
        "How far the ID clock is ahead of the wall clock, until that has caught up",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.ahead_s.into()),
    ),
    (
        "snowbank_clock_standing",
        "How long until the clock allows IDs again; above 0 requests are refused with clock_behind",
        Some(Unit::Seconds),
        false,
        |source| Some(source.snowflake()?.stands_s.into()),
    ),
    ("snowbank_layout_years_left", "Years until the layout ends", None, false, |source| {
        Some(source.snowflake()?.layout_years_left.into())
    }),
    (
        "snowbank_ticket_reserved",
        "Numbers of a ticket source that can be handed out if its ceiling is not raised",
        None,
        false,
        |source| Some(source.ticket()?.reserved.into()),
    ),
    (
        "snowbank_ticket_left_ratio",
        "Share of a ticket source's numbers that are left",
        None,
        false,
        |source| Some(source.ticket()?.left_share.into()),
    ),
];

impl Page<'_> {
    pub(super) fn of_sources(&mut self, sources: &[SourceStatus], metric: &SourceMetric) -> fmt::Result {
        let (name, help, unit, is_counter, value) = metric;
        let sources = sources.iter();
        let values = sources.filter_map(|source| Some((("source", source.name.as_str()), value(source)?)));
        self.family(name, help, unit.as_ref(), *is_counter, values)
    }

    /// Encodes each worker ID that this daemon alone has. If two daemons show the same one, they hand
    /// out the same IDs.
    pub(super) fn worker_ids(&mut self, status: &Status) -> fmt::Result {
        let help = "1 for each worker ID: its number in its ID space, which no other daemon may show";
        let mut family =
            self.encoder.encode_descriptor("snowbank_worker_id", help, None, MetricType::Gauge)?;
        for source in status.sources.iter().filter(|_| status.ceilings.lost.is_none()) {
            for number in source.numbers_in_space.iter() {
                let number = number.to_string();
                let labels = [("source", &*source.name), ("id_space", &source.id_space), ("number", &number)];
                family.encode_family(&labels)?.encode_gauge(&1)?;
            }
        }
        Ok(())
    }
}
