//! The kinds of source, and the properties by which the core tells them apart.

use snowbank_id::numbering::Numbering;

/// The kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Its IDs contain the time, in the time field of a layout.
    #[default]
    Snowflake,
    /// Its IDs are the numbers of a counter that only this daemon has.
    Ticket,
    /// Its IDs are numbers of a counter at a fleet's coordinator, which gives the numbers out in
    /// ranges.
    SharedTicket,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Snowflake, Kind::Ticket, Kind::SharedTicket];

    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Snowflake => "snowflake",
            Kind::Ticket => "ticket",
            Kind::SharedTicket => "fleet-ticket",
        }
    }

    /// Returns the kind of a source with this numbering. If a ticket source is `in_fleet`, its
    /// counter is at the coordinator.
    pub fn of(numbering: &Numbering, in_fleet: bool) -> Kind {
        if numbering.ticket().is_none() {
            Kind::Snowflake
        } else if in_fleet {
            Kind::SharedTicket
        } else {
            Kind::Ticket
        }
    }

    /// Returns true if the clock limits the source's claims, and its IDs become too old to hand
    /// out. A source of another kind gives each request consecutive numbers, and claims nothing
    /// ahead.
    #[inline]
    pub const fn follows_the_clock(self) -> bool {
        matches!(self, Kind::Snowflake)
    }

    /// Returns true if ranges from the coordinator raise the grant, and durable ceilings do not.
    #[inline]
    pub fn takes_ranges(self) -> bool {
        self == Kind::SharedTicket
    }

    /// Returns true if only the state of this daemon says which number is next. Copies of the
    /// machine would hand out the same numbers of such a source.
    pub fn counts_by_itself(self) -> bool {
        self == Kind::Ticket
    }
}
