//! Instants and ticks: parsing and formatting of times.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};

use super::LayoutError;

/// The first instant that RFC 3339 can write, 0000-01-01T00:00:00Z, in Unix milliseconds.
pub(super) const MIN_UNIX_MS: i64 = -62_167_219_200_000;

/// The last whole second that jiff can write in every time zone, 9999-12-30T22:00:00Z, in Unix
/// milliseconds. This is [`Timestamp::MAX`] without its fraction, so every instant up to this one
/// can be formatted.
pub(super) const MAX_UNIX_MS: i64 = 253_402_207_200_000;

/// Microseconds since the Unix epoch, UTC.
///
/// Parses from RFC 3339 (`2026-01-31T12:00:00Z`), from a date (`2026-01-31`, its first instant in
/// UTC), or from Unix milliseconds (`1769860800000`). The range is the year 0000 to
/// 9999-12-30T22:00:00Z. `Display` writes RFC 3339 in UTC with as many decimals as needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnixMicros(pub i64);

/// Numbers that are refused, because they are probably seconds: as milliseconds they are in early
/// 1970, as seconds after 2001.
const LIKELY_SECONDS: RangeInclusive<i64> = 1_000_000_000..=9_999_999_999;

impl UnixMicros {
    /// Reads the instant of a row or of a question, which is not in 1970.
    ///
    /// # Errors
    /// Returns an error if the text is no instant, or probably has Unix seconds.
    pub fn read(text: &str) -> Result<UnixMicros, LayoutError> {
        match text.parse::<i64>() {
            Ok(number) if LIKELY_SECONDS.contains(&number) => Err(LayoutError::LikelySeconds(number)),
            _ => text.parse(),
        }
    }

    /// Creates the instant `unix_ms` milliseconds after the Unix epoch. Saturates.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        UnixMicros(unix_ms.saturating_mul(1000))
    }

    /// Returns whole milliseconds since the Unix epoch, rounded down.
    pub const fn unix_ms(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Formats as RFC 3339 in UTC with exactly `decimals` decimals (at most 9) of a second. Further
    /// decimals are cut off.
    ///
    /// An instant that has no such form is written in microseconds. RFC 3339 cannot write an
    /// instant before 0000-01-01, and jiff cannot write an instant that is a second or more after
    /// 9999-12-30T22:00:00Z.
    pub fn rfc3339(self, decimals: u8) -> String {
        match self.timestamp() {
            Some(timestamp) => format!("{timestamp:.0$}", usize::from(decimals.min(9))),
            None => format!("{} us after 1970-01-01T00:00:00Z", self.0),
        }
    }

    /// Formats the UTC date, `YYYY-MM-DD`.
    pub fn date(self) -> String {
        let mut text = self.rfc3339(0);
        if let Some(end_of_date) = text.find('T') {
            text.truncate(end_of_date);
        }
        text
    }

    fn timestamp(self) -> Option<Timestamp> {
        (self.0 >= MIN_UNIX_MS * 1000).then(|| Timestamp::from_microsecond(self.0).ok())?
    }

    fn from_timestamp(timestamp: Timestamp) -> Self {
        // Rounds down, as ticks do. `Timestamp::as_microsecond` rounds toward zero. A Timestamp is
        // within the years -9999 to 9999, so its microseconds fit 59 bits.
        UnixMicros(i64::try_from(timestamp.as_nanosecond().div_euclid(1000)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for UnixMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timestamp() {
            Some(timestamp) => timestamp.fmt(f),
            None => f.write_str(&self.rfc3339(0)),
        }
    }
}

impl FromStr for UnixMicros {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let out_of_range = || LayoutError::TimeOutOfRange(text.to_owned());
        let instant = if let Some(digits) = unix_ms_digits(text) {
            UnixMicros::from_unix_ms(digits.parse().map_err(|_| out_of_range())?)
        } else if text.len() == "2026-01-31".len() {
            let date: Date = text.parse().map_err(|_| LayoutError::NotATime(text.to_owned()))?;
            let midnight = date.to_zoned(TimeZone::UTC).map_err(|_| out_of_range())?;
            UnixMicros::from_timestamp(midnight.timestamp())
        } else {
            UnixMicros::from_timestamp(rfc3339_timestamp(text)?)
        };
        if (MIN_UNIX_MS..=MAX_UNIX_MS).contains(&instant.unix_ms()) {
            Ok(instant)
        } else {
            Err(out_of_range())
        }
    }
}

/// Returns the text if it is an integer, with or without a minus sign.
fn unix_ms_digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// The last second of a minute that has a leap second. Unix time does not have it.
const LEAP_SECOND: &str = ":60";

fn rfc3339_timestamp(text: &str) -> Result<Timestamp, LayoutError> {
    let not_a_time = || LayoutError::NotATime(text.to_owned());
    let out_of_range = || LayoutError::TimeOutOfRange(text.to_owned());
    let Some((local, offset)) = split_offset(text) else {
        let error = if local_time(text).is_some() { LayoutError::NoOffset } else { LayoutError::NotATime };
        return Err(error(text.to_owned()));
    };
    let timestamp = offset.to_timestamp(local_time(local).ok_or_else(not_a_time)?);
    let timestamp = timestamp.map_err(|_| out_of_range())?;
    let minute = local.split_once('.').map_or(local, |(whole, _)| whole);
    if !minute.ends_with(LEAP_SECOND) {
        return Ok(timestamp);
    }
    // The parser reads a leap second as the second before, so that a sorted list would go back. The
    // second that follows keeps the order.
    let next = Timestamp::from_second(timestamp.as_second() + 1).map_err(|_| out_of_range())?;
    let begins = next.to_zoned(TimeZone::UTC);
    let ends_a_month = begins.day() == 1 && begins.time() == Time::midnight();
    if ends_a_month { Ok(next) } else { Err(not_a_time()) }
}

/// Reads a date and a time of day, which are divided by a `T` or a space.
fn local_time(text: &str) -> Option<DateTime> {
    // The parser accepts more than RFC 3339: times without colons, and something behind the time.
    let (_, time) = text.split_once(':')?;
    let is_shaped = time.bytes().all(|byte| byte.is_ascii_digit() || b":.".contains(&byte));
    cut_decimals(text).parse().ok().filter(|_| is_shaped)
}

/// Splits off the offset from UTC: `Z` or `+02:00`, as in RFC 3339. Databases and languages print `
/// UTC`, `+02` or `+0200`. Returns `None` if the text has no such offset.
fn split_offset(text: &str) -> Option<(&str, Offset)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix(" UTC")) {
        return Some((local, Offset::UTC));
    }
    let time_at = text.find(':')?;
    let (local, digits) = text.split_at(time_at + text[time_at..].rfind(['+', '-'])?);
    let (hours, minutes) = match digits.as_bytes()[1..] {
        [h1, h2] => ([h1, h2], [b'0', b'0']),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => ([h1, h2], [m1, m2]),
        _ => return None,
    };
    if !hours.iter().chain(&minutes).all(u8::is_ascii_digit) {
        return None;
    }
    let [hours, minutes] =
        [hours, minutes].map(|[tens, ones]| i32::from(tens - b'0') * 10 + i32::from(ones - b'0'));
    // RFC 3339, 5.6: time-hour is at most 23, time-minute at most 59.
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = (hours * 60 + minutes) * 60;
    let offset = Offset::from_seconds(if digits.starts_with('-') { -seconds } else { seconds });
    Some((local, offset.ok()?))
}

/// Cuts the decimals of a second that the parser does not take. RFC 3339 allows any number.
fn cut_decimals(text: &str) -> String {
    let Some((whole, rest)) = text.split_once('.') else { return text.to_owned() };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    format!("{whole}.{}{}", &rest[..digits.min(9)], &rest[digits..])
}

/// One step of a layout's time field. Ticks are counted from the layout's epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tick(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn unix_ms(text: &str) -> i64 {
        text.parse::<UnixMicros>().unwrap().unix_ms()
    }

    #[test]
    fn a_time_is_rfc_3339_a_date_or_unix_milliseconds() {
        assert_eq!(unix_ms("2010-11-04T01:42:54.657Z"), 1288834974657);
        assert_eq!(unix_ms("2010-11-04T09:42:54.657+08:00"), 1288834974657);
        assert_eq!(unix_ms("1288834974657"), 1288834974657);
        assert_eq!(unix_ms("-1360400000000"), -1360400000000);
        assert_eq!(unix_ms("2016-05-20"), 1463702400000);
        assert_eq!(unix_ms("0"), 0);
        for leap_second in ["2016-12-31T23:59:60Z", "2017-01-01t01:59:60.987+02:00"] {
            assert_eq!(unix_ms(leap_second), unix_ms("2017-01-01"), "{leap_second}");
        }
        for printed in [" 01:42:54.657+00", " 09:42:54.657+0800", " 01:42:54.657 UTC", "t01:42:54.657z"] {
            assert_eq!(unix_ms(&format!("2010-11-04{printed}")), 1288834974657, "{printed}");
        }
        assert_eq!(unix_ms("2024-01-01T00:00:00+23:59"), unix_ms("2023-12-31T00:01:00Z"));
        let long = "2023-11-14T22:13:20.999999999999Z";
        assert_eq!(long.parse(), Ok(UnixMicros(1_700_000_000_999_999)), "cut off after nine decimals");
        assert_eq!("1969-12-31T23:59:59.9999999Z".parse(), Ok(UnixMicros(-1)), "rounded down, not to zero");
    }

    #[test]
    fn times_outside_the_range_are_refused() {
        assert_eq!(unix_ms("0000-01-01"), MIN_UNIX_MS);
        assert_eq!(unix_ms("9999-12-30T22:00:00Z"), MAX_UNIX_MS);
        for beyond in [
            "-62167219200001",
            "253402207200001",
            "9223372036854775807",
            "99999999999999999999",
            "-001000-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59.999999999999+00:00",
        ] {
            let refused = beyond.parse::<UnixMicros>().unwrap_err();
            assert_eq!(refused, LayoutError::TimeOutOfRange(beyond.to_owned()));
        }
    }

    #[test]
    fn texts_that_are_not_times_are_refused() {
        for wrong in [
            "",
            "-",
            "yesterday",
            "2026-02-30",
            "2026-1-1",
            "2026-01-31T25:00:00Z",
            "12:00:00Z",
            "2026-01-31Z",
            "2026-01-31T12:00:00Z[UTC]",
            "2026-01-31T12:00:00Z ",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+25:00",
            "2026-01-31T12:00:00+05:60",
            "2026-01-31T12:00:00+05:30:15",
            "2026-01-31T12:00:00+5",
            "2026-01-31T12:00:00+-5",
            "2026-01-31T12:00:00 CET",
            "2026-01-31T12:00:60Z",
            "2026-01-30T23:59:60Z",
            "2026-01-31T23:59:60+01:00",
            "2026-01-31T23:59:61Z",
            "ééééé",
        ] {
            let refused = wrong.parse::<UnixMicros>().unwrap_err();
            assert_eq!(refused, LayoutError::NotATime(wrong.to_owned()));
        }
        let refused = "2026-01-31T12:00:00".parse::<UnixMicros>().unwrap_err();
        assert_eq!(refused, LayoutError::NoOffset("2026-01-31T12:00:00".to_owned()));
    }

    #[test]
    fn instants_are_written_in_utc() {
        let instant = UnixMicros(1288834974657 * 1000);
        assert_eq!(instant.rfc3339(3), "2010-11-04T01:42:54.657Z");
        assert_eq!(instant.rfc3339(0), "2010-11-04T01:42:54Z");
        assert_eq!(instant.date(), "2010-11-04");
        assert_eq!(UnixMicros(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(UnixMicros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(UnixMicros(i64::MAX).to_string(), "9223372036854775807 us after 1970-01-01T00:00:00Z");
    }
}
