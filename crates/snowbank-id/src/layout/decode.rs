//! Decodes IDs, and finds the range of IDs of a time span and the state of a layout's life.

use std::fmt;
use std::time::Duration;

use super::{Layout, LayoutError, Role, Tick, UnixMicros};

/// The fields of an ID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    /// The value of the time field.
    pub tick: Tick,
    /// The start of the tick.
    pub instant: UnixMicros,
    /// The worker ID: all node fields together, most significant first. It is 0 if the layout has
    /// no node field.
    pub worker: u64,
    /// The ID's number within its tick and worker.
    pub sequence: u64,
    /// All fields by name, including the time, in the layout's order.
    pub fields: Vec<(&'a str, u64)>,
}

/// The part of a layout's life in which an instant is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// The epoch is in the future.
    NotBegun,
    /// The life ends in more than a year (365 days).
    Running {
        /// The time until the first instant without an ID.
        left: Duration,
    },
    /// The life ends within a year. It is time to choose another layout.
    LastYear {
        /// The time until the first instant without an ID.
        left: Duration,
    },
    /// No IDs can be made any more.
    Ended {
        /// The first instant without an ID.
        at: UnixMicros,
    },
}

const LAST_YEAR: Duration = Duration::from_secs(365 * 86_400);

impl Layout {
    /// Parses an ID of decimal digits.
    ///
    /// # Errors
    /// Returns an error if the text is not an ID, or is above [`last_id`](Layout::last_id).
    pub fn parse_id(&self, text: &str) -> Result<u64, LayoutError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LayoutError::NotAnId(text.to_owned()));
        }
        let id = text.parse().ok().filter(|&id| id <= self.last_id());
        id.ok_or_else(|| too_large(text, self.last_id()))
    }

    /// Splits an ID into its fields.
    ///
    /// # Errors
    /// Returns an error if the ID is above [`last_id`](Layout::last_id), or does not have the
    /// layout's constants.
    pub fn decode(&self, id: u64) -> Result<Decoded<'_>, LayoutError> {
        if id > self.last_id() {
            return Err(too_large(id, self.last_id()));
        }
        let mut worker = 0;
        let mut sequence = 0;
        let mut fields = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let value = field.value_in(id);
            match field.role() {
                Role::Time | Role::Random => {}
                Role::Sequence => sequence = value,
                Role::Node => worker = worker * field.values() + value,
                Role::Constant(constant) if constant == value => {}
                Role::Constant(constant) => {
                    let field = field.name().to_owned();
                    return Err(LayoutError::OtherConstant { id, field, found: value, constant });
                }
            }
            fields.push((field.name(), value));
        }
        let tick = Tick(self.fields[0].value_in(id));
        Ok(Decoded { tick, instant: self.start_of(tick), worker, sequence, fields })
    }

    /// Returns the start of the tick of an ID. Unlike [`decode`](Layout::decode), this function
    /// does not check the constants.
    ///
    /// # Errors
    /// Returns an error if the ID is above [`last_id`](Layout::last_id).
    pub fn instant_of(&self, id: u64) -> Result<UnixMicros, LayoutError> {
        if id > self.last_id() {
            return Err(too_large(id, self.last_id()));
        }
        Ok(self.start_of(Tick(id / self.tick_weight())))
    }

    /// Returns the lowest and the highest ID of the instants from `from` to `to`, inclusive, for a
    /// query such as `WHERE id BETWEEN`.
    ///
    /// The range contains the IDs of all workers, with any values in random fields. If an instant
    /// is within a tick, the range contains the whole tick. The range is cut at the first and the
    /// last tick of the layout.
    ///
    /// # Errors
    /// Returns an error if `from` is after `to`, or if both lie on one side of the layout's life.
    pub fn range(&self, from: UnixMicros, to: UnixMicros) -> Result<(u64, u64), LayoutError> {
        if from > to {
            return Err(LayoutError::RangeBackwards { from, to });
        }
        let last_tick = self.ticks - 1;
        let from_tick = self.tick_since_epoch(from).unwrap_or(0);
        let Some(to_tick) = self.tick_since_epoch(to).filter(|_| from_tick <= last_tick) else {
            let first = self.first();
            let last = self.last();
            return Err(LayoutError::RangeOutsideLife { from, to, first, last });
        };
        let first = from_tick * self.tick_weight() + self.constants;
        Ok((first, to_tick.min(last_tick) * self.tick_weight() + self.highest_in_tick()))
    }

    /// Returns the part of the layout's life in which `now` is.
    pub fn life(&self, now: UnixMicros) -> Life {
        let end = self.end();
        if now < self.first() {
            return Life::NotBegun;
        }
        match u64::try_from(end.0.saturating_sub(now.0)) {
            Err(_) | Ok(0) => Life::Ended { at: end },
            Ok(left_us) => {
                let left = Duration::from_micros(left_us);
                if left > LAST_YEAR { Life::Running { left } } else { Life::LastYear { left } }
            }
        }
    }

    /// Returns the tick of an instant, or `None` before the epoch. The tick may be after the
    /// layout's last tick.
    pub(super) fn tick_since_epoch(&self, instant: UnixMicros) -> Option<u64> {
        let since_epoch_us = instant.0.saturating_sub(self.first().0);
        Some(u64::try_from(since_epoch_us).ok()? / (self.tick_ms * 1000))
    }

    /// Returns the highest ID of tick 0.
    fn highest_in_tick(&self) -> u64 {
        let tops = self.fields.iter().map(|field| match field.role() {
            Role::Time => 0,
            Role::Constant(value) => value * field.weight(),
            Role::Sequence | Role::Node | Role::Random => (field.values() - 1) * field.weight(),
        });
        tops.sum()
    }
}

/// Returns the error of an ID above a layout's last ID.
pub(super) fn too_large(id: impl fmt::Display, last: u64) -> LayoutError {
    LayoutError::IdAboveLast { id: id.to_string(), last }
}
