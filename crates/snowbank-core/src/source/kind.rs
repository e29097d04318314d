//! The kinds of source. Here alone the core tells them apart: others ask what they need to know.

use snowbank_id::numbering::Numbering;

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its IDs contain the time, by a layout.
    Snowflake,
    /// Its IDs are the numbers of a counter of its own.
    Ticket,
    /// Its IDs are numbers of a counter at a fleet's coordinator, which gives them in ranges.
    SharedTicket,
}

impl Kind {
    /// Returns the kind of a source that shares its numbers with nobody.
    pub(super) fn of(numbering: &Numbering) -> Kind {
        if numbering.is_ticket() { Kind::Ticket } else { Kind::Snowflake }
    }

    /// Returns whether the clock limits its claims, and its IDs grow old. Otherwise requests are
    /// served whole, one after the other, and nothing is claimed ahead of them.
    #[inline]
    pub fn follows_the_clock(self) -> bool {
        self == Kind::Snowflake
    }

    /// Returns whether its grant rises with ranges, and not with ceilings.
    #[inline]
    pub fn takes_ranges(self) -> bool {
        self == Kind::SharedTicket
    }

    /// Returns whether nothing but its own state shows where it goes on. Copies of one machine
    /// would then count alike.
    pub fn counts_by_itself(self) -> bool {
        self == Kind::Ticket
    }
}
