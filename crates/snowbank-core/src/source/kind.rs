//! The kinds of source, and the properties by which the core tells them apart.

use snowbank_id::numbering::Numbering;

/// The kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Its IDs contain the time, by a layout.
    #[default]
    Snowflake,
    /// Its IDs are the numbers of a counter of its own.
    Ticket,
    /// Its IDs are numbers of a counter at a fleet's coordinator, which gives them in ranges.
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

    /// Returns the kind of a source with this numbering. In a fleet, a counter is at the
    /// coordinator.
    pub fn of(numbering: &Numbering, in_fleet: bool) -> Kind {
        match (numbering.ticket(), in_fleet) {
            (None, _) => Kind::Snowflake,
            (Some(_), false) => Kind::Ticket,
            (Some(_), true) => Kind::SharedTicket,
        }
    }

    /// Returns true if the clock limits its claims, and its IDs grow old. Otherwise each request
    /// gets consecutive numbers, and nothing is claimed ahead.
    #[inline]
    pub const fn follows_the_clock(self) -> bool {
        matches!(self, Kind::Snowflake)
    }

    /// Returns true if ranges raise its grant, and ceilings do not.
    #[inline]
    pub fn takes_ranges(self) -> bool {
        self == Kind::SharedTicket
    }

    /// Returns true if only its own state says which number is next. Copies of one machine would
    /// then hand out the same numbers.
    pub fn counts_by_itself(self) -> bool {
        self == Kind::Ticket
    }
}
