//! Values as a person writes and reads them.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use jiff::SignedDuration;
use tracing::level_filters::LevelFilter;

use super::fields::{LogFormat, Shards, WorkerIds};
use super::file_ref::FileRef;
use super::state_dir::StateDirChoice;
use super::worker_id_from::WorkerIdFrom;
use snowbank_core::shard::Order;
use snowbank_core::source::{Kind, OnStepBack, SequenceStart};
use snowbank_fleet::Endpoint;
use snowbank_id::layout::Layout;
use snowbank_tls::names::CertificateName;
use snowbank_wire::address::Address;

/// Reads `0`, or a duration with units such as `10ms` or `1m 30s`; `None` for anything else.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    match text.trim() {
        "0" => Some(Duration::ZERO),
        text => Duration::try_from(text.parse::<SignedDuration>().ok()?).ok(),
    }
}

/// Prints a duration as it is written in a configuration.
pub(super) struct Plain(pub(super) Duration);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(SignedDuration::ZERO) => f.write_str("0"),
            Ok(duration) => write!(f, "{duration:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// Returns a text as it is written in a configuration, with its quotes.
pub(super) fn quoted(text: impl fmt::Display) -> String {
    format!("{:?}", text.to_string())
}

/// Returns the word for a choice in a configuration.
pub(super) fn word(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Returns strings as they are written in a configuration: an array.
fn list(items: &[impl fmt::Display]) -> String {
    format!("[{}]", items.iter().map(quoted).collect::<Vec<_>>().join(", "))
}

/// A value that a configuration can have.
pub(crate) trait Written {
    /// Returns the value as it would be written in a file.
    fn written(&self) -> String;
}

macro_rules! written {
    ($($type:ty: |$value:ident| $text:expr;)+) => {
        $(impl Written for $type {
            fn written(&self) -> String {
                let $value = self;
                $text
            }
        })+
    };
}

written! {
    bool: |choice| choice.to_string();
    usize: |count| count.to_string();
    u64: |count| count.to_string();
    NonZeroU32: |count| count.to_string();
    Shards: |count| count.to_string();
    Duration: |duration| quoted(Plain(*duration));
    Option<Duration>: |duration| duration.map_or_else(|| quoted("off"), |duration| duration.written());
    String: |text| quoted(text);
    Option<Vec<String>>: |names| names.as_ref().map_or_else(|| quoted("all"), |names| list(names));
    Option<u32>: |count| count.map_or_else(|| quoted("off"), |count| count.to_string());
    Vec<CertificateName>: |names| list(names);
    Option<String>: |text| quoted(text.as_deref().unwrap_or_default());
    PathBuf: |path| quoted(path.display());
    Option<FileRef>: |file| file.as_ref().map_or_else(|| quoted(""), quoted);
    StateDirChoice: |choice| quoted(choice);
    Vec<Address>: |addresses| match &addresses[..] {
        [] => quoted(""),
        addresses => list(addresses),
    };
    Vec<Endpoint>: |endpoints| list(endpoints);
    WorkerIdFrom: |from| quoted(from);
    Layout: |layout| quoted(layout);
    WorkerIds: |worker_ids| worker_ids.by_field.as_ref().map_or_else(|| quoted(&worker_ids.set), quoted);
    Order: |order| quoted(order.name());
    OnStepBack: |choice| quoted(choice.name());
    SequenceStart: |choice| quoted(choice.name());
    Kind: |kind| quoted(kind.name());
    LogFormat: |format| quoted(word(*format));
    LevelFilter: |level| quoted(level);
}

/// Prints a number with thousands separators: `4,096,000`.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_needs_a_unit_unless_it_is_zero() {
        for (text, millis) in [
            ("0", 0),
            ("10ms", 10),
            ("1s", 1_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1m 30s", 90_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "10 parsecs", "1y", "1h1", "9999999999999999999999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_back(millis in 0..=u64::from(u32::MAX)) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&Plain(duration).to_string()), Some(duration));
        }
    }
}
