//! Doubts about a layout: it can be used, but whoever wrote it probably meant another one.

use std::fmt;
use std::time::Duration;

use super::{Layout, Life, UnixMicros};

/// A layout that ends sooner than this is probably too short: tables live longer.
const SHORT_LIFE: Duration = Duration::from_secs(20 * 365 * 86_400);

/// The end of 1970 in Unix milliseconds. A number below it is no millisecond of today: it is a year, a
/// date without hyphens, or Unix seconds.
const END_OF_1970: i64 = 365 * 86_400_000;
/// The epoch of a layout that counts from 1970 in local time is small, too. Time zones differ from UTC by
/// quarters of an hour, and by 14 hours at most.
const QUARTER_HOUR: i64 = 900_000;
const TIME_ZONE_MAX: i64 = 14 * 4 * QUARTER_HOUR;

/// A reason why a layout is probably not the one that was meant. `Display` writes a line for the
/// operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The layout ends within 20 years.
    ShortLife {
        /// The end of the layout's last tick.
        end: UnixMicros,
        /// The time until then.
        left: Duration,
    },
    /// The epoch is in 1970, so its number was not meant as milliseconds.
    EpochIn1970 {
        /// The epoch in Unix milliseconds.
        epoch: i64,
    },
}

impl Layout {
    /// Returns the doubts about this layout at an instant.
    pub fn doubts(&self, now: UnixMicros) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let epoch = self.epoch_unix_ms;
        let is_time_zone = epoch % QUARTER_HOUR == 0 && epoch <= TIME_ZONE_MAX;
        if (1..END_OF_1970).contains(&epoch) && !is_time_zone {
            doubts.push(Doubt::EpochIn1970 { epoch });
        }
        if let Life::Running { left } | Life::LastYear { left } = self.life(now)
            && left < SHORT_LIFE
        {
            doubts.push(Doubt::ShortLife { end: self.end(), left });
        }
        doubts
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::ShortLife { end, left } => {
                let days = left.as_secs() / 86_400;
                let time = if days < 366 {
                    format!("{days} days")
                } else {
                    format!("{:.1} years", days as f64 / 365.25)
                };
                write!(
                    f,
                    "the layout ends {}, in {time}, and columns outlive that; for a new table, choose a later epoch, more \
                     time or a longer tick",
                    end.date()
                )
            }
            Doubt::EpochIn1970 { epoch } => write!(
                f,
                "the epoch {epoch} is in Unix milliseconds, so it is a day of 1970: write a date, as in \
                 epoch=2024-01-01, or {epoch}000 if it is in Unix seconds"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts(text: &str) -> String {
        let now = UnixMicros(1_795_000_000_000_000); // 2026-11-18
        let layout = Layout::resolve(text).expect(text);
        layout.doubts(now).iter().map(Doubt::to_string).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn a_layout_without_an_epoch_or_with_one_in_1970_is_doubted() {
        let bits = "time:41,worker:10,sequence:12";
        assert!(doubts(bits).contains("ends 2039-09-07, in 12.8 years"), "{}", doubts(bits));
        let in_seconds = doubts(&format!("{bits};epoch=1288834974"));
        assert!(in_seconds.contains("1288834974000 if") && in_seconds.contains("ends 2039"), "{in_seconds}");
        for epoch in ["2024", "20240101", "202401", "50400001", "1704600000", "1970-12-31"] {
            let found = doubts(&format!("time:32,worker:16,sequence:15;tick=1s;epoch={epoch}"));
            assert!(found.contains("a day of 1970: write a date"), "{epoch}: {found}");
        }
        assert!(doubts("kubernetes").contains("ends 2030-03-20, in 3.3 years"));
        let soon = doubts("time:41,sequence:3d;epoch=1958-01-01");
        assert!(soon.contains("ends 2027-09-07, in 293 days, and"), "{soon}");
    }

    #[test]
    fn a_layout_that_lasts_is_not_doubted() {
        for text in [
            "twitter",
            "clearing",
            "clearing-batch",
            "js53",
            "time:41,worker:10,sequence:12;epoch=2024-01-01",
        ] {
            assert_eq!(doubts(text), "", "{text}");
        }
        // Offsets of a time zone are small epochs, too.
        for epoch in ["-28800000", "0", "28800000", "50400000", "1971-01-01"] {
            assert_eq!(doubts(&format!("time:42,worker:9,sequence:12;epoch={epoch}")), "", "{epoch}");
        }
    }
}
