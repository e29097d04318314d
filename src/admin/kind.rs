//! The part of a source's status that depends on its kind: a layout that follows the clock, or a
//! ticket counter.

use serde::{Deserialize, Serialize};

use super::finding::seconds;
use super::status::SourceStatus;
use crate::config::Grouped;

/// The kind of a source, with the status that only that kind has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum KindStatus {
    Snowflake(SnowflakeStatus),
    Ticket(TicketStatus),
}

/// The status of a layout that follows the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnowflakeStatus {
    pub(crate) layout: String,
    pub(crate) worker_ids: String,
    /// The full rate of its layout and worker IDs.
    pub(crate) ids_per_second: u64,
    /// The time that the waiting IDs take at the full rate.
    pub(crate) wait_queue_s: f64,
    /// The ceiling's time minus the ID clock's: the time for which IDs last without a raise. At
    /// least 0.
    pub(crate) headroom_s: f64,
    /// The lead of the ID clock over the wall clock, and the most allowed.
    pub(crate) ahead_s: f64,
    pub(crate) max_ahead_s: f64,
    /// The time until the clock allows IDs again.
    pub(crate) stands_s: f64,
    /// True while the clock has not reached the first tick of a source without a state.
    pub(crate) yet_to_begin: bool,
    pub(crate) layout_ends: String,
    pub(crate) layout_years_left: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TicketStatus {
    pub(crate) increment: u64,
    pub(crate) offset: u64,
    /// The numbers that last without a raise: the rest of the reservation, or of the ranges of a
    /// shared counter.
    pub(crate) reserved: u64,
    /// True if the counter is at the fleet's coordinator, where other daemons may count with it.
    pub(crate) shared: bool,
    /// True once another process, or another copy of the machine, may hand out the same numbers.
    pub(crate) restored: bool,
    /// The numbers that are left until the end, and their share of all.
    pub(crate) left: u64,
    pub(crate) left_share: f64,
}

impl SourceStatus {
    /// Returns the status of the source's layout; `None` for a ticket counter.
    pub(crate) fn snowflake(&self) -> Option<&SnowflakeStatus> {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => Some(snowflake),
            KindStatus::Ticket(_) => None,
        }
    }

    /// Returns the status of the source's ticket counter; `None` for a layout.
    pub(crate) fn ticket(&self) -> Option<&TicketStatus> {
        match &self.kind {
            KindStatus::Ticket(ticket) => Some(ticket),
            KindStatus::Snowflake(_) => None,
        }
    }

    /// Returns how long IDs last without a raise, in words.
    pub(super) fn left(&self) -> String {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => seconds(snowflake.headroom_s),
            KindStatus::Ticket(ticket) => format!("{} numbers", Grouped(ticket.reserved)),
        }
    }

    /// Returns the time until the clock allows IDs again. The clock never holds a ticket counter
    /// up.
    pub(crate) fn stands_s(&self) -> f64 {
        self.snowflake().map_or(0.0, |snowflake| snowflake.stands_s)
    }

    /// Returns true if nothing is left below the ceiling.
    pub(crate) fn is_ceiling_reached(&self) -> bool {
        match &self.kind {
            KindStatus::Snowflake(snowflake) => snowflake.headroom_s <= 0.0,
            KindStatus::Ticket(ticket) => ticket.reserved == 0,
        }
    }
}
