//! Doubts about a layout: it can be used, but whoever wrote it probably meant another one.

use std::fmt;
use std::time::Duration;

use super::{Layout, Life, UnixMicros};

/// A layout that ends sooner than this is probably too short: tables live longer.
const SHORT_LIFE: Duration = Duration::from_secs(20 * 365 * 86_400);

/// Epochs in this range are days of 1970 as milliseconds, and years from 1973 to 2286 as seconds.
const EPOCHS_IN_SECONDS: std::ops::Range<i64> = 100_000_000..10_000_000_000;

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
    /// The epoch, taken for seconds, is an instant from 1973 on.
    EpochInSeconds {
        /// The epoch as it was written.
        epoch: i64,
    },
}

impl Layout {
    /// Returns the doubts about this layout at an instant.
    pub fn doubts(&self, now: UnixMicros) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if EPOCHS_IN_SECONDS.contains(&self.epoch_unix_ms) {
            doubts.push(Doubt::EpochInSeconds { epoch: self.epoch_unix_ms });
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
            Doubt::EpochInSeconds { epoch } => write!(
                f,
                "the epoch {epoch} is in milliseconds, so it is a day of 1970, but looks like seconds: those would be \
                 {epoch}000, {}",
                UnixMicros(epoch.saturating_mul(1_000_000)).date()
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
    fn a_layout_without_an_epoch_or_with_one_in_seconds_is_doubted() {
        let bits = "time:41,worker:10,sequence:12";
        assert!(doubts(bits).contains("ends 2039-09-07, in 12.8 years"), "{}", doubts(bits));
        let in_seconds = doubts(&format!("{bits};epoch=1288834974"));
        assert!(
            in_seconds.contains("1288834974000, 2010-11-04") && in_seconds.contains("ends 2039"),
            "{in_seconds}"
        );
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
        assert_eq!(doubts("time:42,worker:9,sequence:12;epoch=-28800000"), "");
        assert_eq!(doubts("time:42,worker:9,sequence:12;epoch=28800000"), "");
    }
}
