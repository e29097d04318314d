//! The values at the coordinator: the marker of a fleet, and the key of each worker ID.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use snowbank_id::layout::{Layout, Space, UnixMicros};
use snowbank_state::form::{self, Form, FormError, Read};
use snowbank_wire::one_line;

/// The form of all values at the coordinator.
const FORM: Form = Form { format: 2, least_reader: 2 };

/// The length in bytes of the longest text that is read as a value. A marker with the longest
/// layouts of as many sources as a daemon can have is shorter.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// The longest horizon that a fleet may have. After a crash, other daemons wait up to about one
/// horizon for the number.
pub const HORIZON_MAX: Duration = Duration::from_secs(86_400);

/// The longest reach ([`FleetLimits::reach`]) that is believed. It is
/// longer than the reach of any configuration, because `max_ahead` is at most a sixth of the horizon.
pub(super) const REACH_MAX: Duration = HORIZON_MAX.saturating_mul(2);

/// The prefix, in a marker, of an ID space that a colliding space has replaced.
const REPLACED: &str = "replaced ";

/// How far ahead IDs may be granted in a fleet: its `horizon` and its `max_ahead`, in whole
/// milliseconds. The marker has the fleet's values. Each line has the values with which it was
/// written, because an operator may change those of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetLimits {
    horizon_ms: u64,
    max_ahead_ms: u64,
}

impl FleetLimits {
    /// Returns these limits, rounded up to milliseconds.
    pub fn new(horizon: Duration, max_ahead: Duration) -> Self {
        let [horizon_ms, max_ahead_ms] =
            [horizon, max_ahead].map(|it| millis(it + Duration::from_nanos(999_999)));
        FleetLimits { horizon_ms, max_ahead_ms }
    }

    /// How far ahead of the clock a holder keeps its ceiling.
    pub fn horizon(self) -> Duration {
        Duration::from_millis(self.horizon_ms)
    }

    /// How far IDs may be ahead of the wall clock, and clocks ahead of each other.
    pub fn max_ahead(self) -> Duration {
        Duration::from_millis(self.max_ahead_ms)
    }

    /// Returns how far ahead of another daemon's clock a daemon may hand out IDs. The daemon's
    /// clock is at most `max_ahead` ahead of the other daemon's clock. Its IDs are at most
    /// `max_ahead` and a horizon ahead of its own clock.
    pub fn reach(self) -> Duration {
        self.horizon().saturating_add(self.max_ahead().saturating_mul(2)).min(REACH_MAX)
    }
}

impl fmt::Display for FleetLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fleet.horizon {:?} and max_ahead {:?}", self.horizon(), self.max_ahead())
    }
}

/// The value at a worker ID's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberKey {
    /// The identity of the state that holds the number: [`Owner::state`](snowbank_state::Owner).
    pub state: String,
    /// The identity of the holder's term: 128 bits, made when the state took the number. By the
    /// term, a state recognises its own old writes after a restore of the coordinator.
    pub term: String,
    /// The identity of this write: 128 bits, new for each write. By this identity, a daemon
    /// recognises its own writes.
    pub write: String,
    /// The fleet's ceiling: the lowest ID that was not granted. It is text, because JavaScript's
    /// integers end at 2^53.
    #[serde(with = "id_bound")]
    pub id_bound: u64,
    /// The highest bound of the term. A release lowers `id_bound` but not this bound. So a holder
    /// that finds a lower `id_bound` can tell a release from a restore.
    #[serde(with = "id_bound")]
    pub highest: u64,
    /// The bound at which the term began. A start that pauses may raise it. If the coordinator had
    /// acknowledged a higher bound to an earlier holder, then the coordinator went back.
    #[serde(with = "id_bound")]
    pub from: u64,
    /// The limits with which the holder wrote this.
    #[serde(flatten)]
    pub limits: FleetLimits,
    /// True if the holder or an operator released the number. All IDs of the holder are below the
    /// bound.
    pub released: bool,
    /// The holder's name for people: its machine and process.
    pub holder: String,
    /// The source that uses the number.
    pub source: String,
    /// When this holder took the number, in seconds of Unix time.
    pub since_unix_s: i64,
}

impl NumberKey {
    /// Returns the value of a holder. The write, the term and the bounds in it are still empty.
    pub fn new(state: &str, holder: &str, source: &str, since_unix_s: i64) -> Self {
        let [state, holder, source] = [state, holder, source].map(str::to_owned);
        NumberKey { state, holder, source, since_unix_s, ..NumberKey::default() }
    }

    /// Reads a value, to compare or to show it.
    ///
    /// # Errors
    /// The text is not a number's value, or only later releases may read it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse(text)
    }

    /// Returns the text of the value.
    pub fn text(&self) -> String {
        to_text(self)
    }
}

/// The value that `fleet init` writes: the ID spaces of a fleet, and its floor. If the marker is
/// missing, the coordinator may have lost its data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The identity of the fleet: 128 bits, made when the fleet was prepared. So two prepared
    /// clusters have different identities.
    pub identity: String,
    /// The identity of the last change, made as in [`NumberKey`]. So each change of the marker
    /// makes a new text.
    pub(super) write: String,
    /// The ID spaces, in the order in which they were first added. The index of a space is part of
    /// its keys. A space that a colliding space has replaced keeps its index, with `REPLACED`
    /// before its name, so no daemon finds it. Of the other spaces, no two collide.
    pub spaces: Vec<String>,
    /// The fleet's floor: with a number that it did not hold, a daemon starts above this instant.
    floor_unix_ms: i64,
    /// The fleet's limits. Without them only `fleet init` reads the marker.
    #[serde(flatten, deserialize_with = "limits_or_none")]
    pub(super) limits: FleetLimits,
}

/// Reads a marker's limits; [`FleetLimits::default`] if the marker lacks them.
fn limits_or_none<'de, D: Deserializer<'de>>(fields: D) -> Result<FleetLimits, D::Error> {
    Ok(Option::deserialize(fields)?.unwrap_or_default())
}

/// Returns the name of an ID space of the marker.
fn name_of(known: &str) -> &str {
    known.strip_prefix(REPLACED).unwrap_or(known)
}

/// Returns whether two different ID spaces can make the same IDs at about the same time.
///
/// A daemon may hold any of its space's numbers, so it does not matter which of these numbers
/// collide. Returns false for equal spaces.
pub(super) fn run_beside(one: &str, other: &str) -> bool {
    let (Ok(first), Ok(second)) = (one.parse::<Space>(), other.parse::<Space>()) else { return false };
    one != other && first.runs_beside(&second)
}

impl Marker {
    /// Returns the marker of a fleet with these ID spaces and limits.
    pub fn new(identity: &str, spaces: Vec<String>, limits: FleetLimits) -> Self {
        Marker { identity: identity.to_owned(), spaces, limits, ..Marker::default() }
    }

    /// Reads a marker, to compare or to show it.
    ///
    /// # Errors
    /// The text is not a marker, lacks the limits, or only later releases may read it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let marker: Marker = parse(text)?;
        if marker.identity.is_empty() {
            return Err(KeyError::Garbage(String::from("a marker without an identity")));
        }
        if marker.lacks_limits() {
            return Err(KeyError::NoLimits);
        }
        Ok(marker)
    }

    /// Returns true if the marker names no horizon and no `max_ahead`.
    pub(super) fn lacks_limits(&self) -> bool {
        self.limits == FleetLimits::default()
    }

    /// Returns the text of this marker in place of `before`, an earlier text of it. It keeps the
    /// form, and the fields that this release does not know. A daemon must be able to raise the
    /// floor of every fleet that it serves.
    pub(super) fn text_after(&self, before: &str) -> String {
        let fields = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
        let mut kept = fields(before);
        let known = serde_json::to_value(self).unwrap_or_default();
        kept.extend(known.as_object().cloned().unwrap_or_default());
        Value::Object(kept).to_string()
    }

    /// Returns the list of the ID spaces that daemons may use, as text.
    pub fn shown(&self) -> String {
        let active = self.active();
        if active.is_empty() { String::from("none") } else { active.join(", ") }
    }

    /// Returns the ID spaces that daemons may use.
    pub fn active(&self) -> Vec<&str> {
        self.spaces.iter().map(String::as_str).filter(|space| !space.starts_with(REPLACED)).collect()
    }

    /// Returns the index of an ID space that daemons may use.
    pub fn place_of(&self, space: &str) -> Option<usize> {
        self.spaces.iter().position(|known| known == space)
    }

    /// Returns the fleet's floor.
    pub fn floor(&self) -> UnixMicros {
        UnixMicros(self.floor_unix_ms.saturating_mul(1_000))
    }

    /// Raises the floor to an instant. Only an operator's command lowers it.
    pub fn raise_floor(&mut self, floor: UnixMicros) {
        let floor_ms = floor.0.div_euclid(1_000).saturating_add(i64::from(floor.0.rem_euclid(1_000) > 0));
        self.floor_unix_ms = self.floor_unix_ms.max(floor_ms);
    }

    /// Forgets the floor, because an operator knows that it is wrong.
    pub(super) fn forget_floor(&mut self) {
        self.floor_unix_ms = 0;
    }

    /// Returns how far the IDs of the fleet's daemons may be ahead of other clocks.
    pub(super) fn reach(&self) -> Duration {
        self.limits.reach()
    }

    /// Returns the ID space with this index, even if the space was replaced.
    pub(super) fn name_at(&self, index: usize) -> &str {
        name_of(&self.spaces[index])
    }

    /// Returns the index of an ID space, even if the space was replaced.
    pub(super) fn index_of(&self, space: &str) -> Option<usize> {
        self.spaces.iter().position(|known| name_of(known) == space)
    }

    /// Returns the indices of the ID spaces that can make the same IDs as this space, including
    /// spaces that were replaced.
    pub(super) fn rivals(&self, space: &str) -> Vec<usize> {
        (0..self.spaces.len()).filter(|&index| run_beside(self.name_at(index), space)).collect()
    }

    /// Returns the other ID spaces whose daemons may have handed out IDs that this layout makes from
    /// now on: they have passed its present IDs. A floor keeps rivals apart.
    pub(super) fn above(&self, layout: &Layout, now: UnixMicros) -> Vec<String> {
        let own = layout.space();
        let Ok((present, _)) = layout.range(now, now) else { return Vec::new() };
        let names = (0..self.spaces.len()).map(|index| self.name_at(index));
        let above = names.filter(|name| {
            let space = name.parse::<Space>();
            space.is_ok_and(|space| !own.runs_beside(&space) && space.end_of_tick(present) <= now)
        });
        above.map(String::from).collect()
    }

    /// Marks the ID spaces with these indices as replaced. Returns the spaces among them that
    /// daemons could use until now.
    pub(super) fn replace(&mut self, indices: &[usize]) -> Vec<String> {
        let mut replaced = Vec::new();
        for &index in indices {
            let known = &mut self.spaces[index];
            if !known.starts_with(REPLACED) {
                replaced.push(known.clone());
                *known = format!("{REPLACED}{known}");
            }
        }
        replaced
    }

    /// Adds an ID space. If the space was replaced, restores it at its index.
    pub(super) fn put(&mut self, space: &str) {
        match self.index_of(space) {
            Some(index) => self.spaces[index] = space.to_owned(),
            None => self.spaces.push(space.to_owned()),
        }
    }

    /// Reads a marker's identity.
    pub(super) fn identity_in(text: &str) -> Result<String, KeyError> {
        Ok(Marker::parse(text)?.identity)
    }

    /// Returns the text of the marker.
    pub fn text(&self) -> String {
        to_text(self)
    }
}

/// The keys of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    prefix: String,
}

impl Paths {
    /// Returns the keys of the fleet of this name.
    pub fn of(name: &str) -> Self {
        Paths { prefix: format!("/snowbank/{name}") }
    }

    /// Returns the marker's key.
    pub fn marker(&self) -> String {
        format!("{}/marker", self.prefix)
    }

    /// Returns the prefix of the keys of an ID space's numbers. `place` is the space's index in the
    /// marker.
    pub fn space(&self, place: usize) -> String {
        format!("{}/space-{place}/", self.prefix)
    }

    /// Returns the key of the shared counter that the ticket source of this name uses.
    pub fn counter(&self, source: &str) -> String {
        format!("{}/ticket-{source}", self.prefix)
    }

    /// Returns a number's key.
    pub fn number(&self, place: usize, number: u64) -> String {
        format!("{}{number}", self.space(place))
    }
}

/// The reason why a value cannot be used. The message is one line, and does not name the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Snowbank did not write the value.
    #[error(
        "found a value that Snowbank did not write ({0}), allowed: only values that Snowbank writes; find out who wrote it"
    )]
    Garbage(String),
    /// The fleet's marker lacks the limits.
    #[error(
        "found a marker without horizon and max_ahead; stop all daemons of the fleet, and run `snowbank fleet init --above now \
         --config FILE`"
    )]
    NoLimits,
    /// A later release wrote the value.
    #[error(transparent)]
    Newer(#[from] FormError),
    /// No daemon can have been granted the value's bound.
    #[error(
        "found a ceiling of {}, written by {holder}, allowed by this clock: {} at the latest; set the clock right. If somebody wrote the \
         key by mistake, and no such IDs were handed out, free the worker ID with `snowbank fleet release NUMBER --force \
         --lower`",
        until.rfc3339(0), latest.rfc3339(0)
    )]
    TooFarAhead {
        /// The instant of the bound.
        until: UnixMicros,
        /// Who wrote it.
        holder: String,
        /// The latest instant that a bound can have.
        latest: UnixMicros,
    },
}

/// Returns a time in whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn garbage(error: serde_json::Error) -> KeyError {
    KeyError::Garbage(error.to_string())
}

/// Reads a value, to compare or to show it. It may have fields of a later release.
pub(super) fn parse<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, KeyError> {
    Ok(read(text)?.to_read())
}

/// Reads a value that another one replaces now.
///
/// # Errors
/// As [`parse`], or the value has a field that this release would drop.
pub(super) fn parse_to_replace<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, KeyError> {
    Ok(read(text)?.to_write()?)
}

/// Checks that another value may replace this one. `None`: there is none.
///
/// # Errors
/// As [`parse_to_replace`].
pub(super) fn check_replaceable<T: DeserializeOwned + Serialize>(text: Option<&str>) -> Result<(), KeyError> {
    text.map_or(Ok(()), |text| parse_to_replace::<T>(text).map(drop))
}

fn read<T: DeserializeOwned + Serialize>(text: &str) -> Result<Read<T>, KeyError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(KeyError::Garbage(format!("{} bytes", text.len())));
    }
    let mut value: Value = serde_json::from_str(text).map_err(garbage)?;
    clean(&mut value);
    // The form is checked first, because a later format may have other fields.
    let found = value.as_object_mut().and_then(Form::take_from);
    FORM.may_read(found.ok_or_else(|| KeyError::Garbage(String::from("it names no format")))?)?;
    form::read(&value).map_err(garbage)
}

/// Makes the texts of a value safe to show, because anybody who can write keys may have written
/// them.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = one_line(text),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(super) fn to_text(value: &impl Serialize) -> String {
    FORM.json(value)
}

/// An ID bound as text.
pub(super) mod id_bound {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bound: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(bound)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> FleetLimits {
        FleetLimits::new(Duration::from_secs(300), Duration::from_secs(10))
    }

    fn key() -> NumberKey {
        let key = NumberKey::new("5a", "host-a (process 7)", "orders", 1_700_000_000);
        NumberKey { write: String::from("77"), id_bound: u64::MAX, limits: limits(), ..key }
    }

    #[test]
    fn a_value_reads_back() {
        assert_eq!(NumberKey::parse(&key().text()), Ok(key()));
        let marker = Marker::new("1f", vec![String::from("a"), String::from("b")], limits());
        assert_eq!(Marker::parse(&marker.text()), Ok(marker));
        let nameless = Marker::new("", Vec::new(), limits());
        assert!(matches!(Marker::parse(&nameless.text()), Err(KeyError::Garbage(_))));
    }

    #[test]
    fn texts_of_a_value_are_made_one_line() {
        let key = NumberKey { holder: String::from("a\u{1b}[2J\n2: free"), ..key() };
        let marker = Marker::new("1f", vec![String::from("a\rb")], limits());
        assert_eq!(NumberKey::parse(&key.text()).map(|key| key.holder).as_deref(), Ok("a [2J 2: free"));
        assert_eq!(Marker::parse(&marker.text()).map(|marker| marker.spaces), Ok(vec![String::from("a b")]));
    }

    #[test]
    fn a_space_that_was_replaced_keeps_its_index() {
        let mut marker = Marker::new("1f", ["a", "b", "c"].map(String::from).to_vec(), limits());
        assert_eq!(marker.replace(&[0, 2]), ["a", "c"]);
        marker.put("d");
        assert_eq!((marker.active(), marker.place_of("a")), (vec!["b", "d"], None));
        assert_eq!(marker.replace(&[2, 3]), ["d"], "c is replaced already");
        marker.put("a");
        let marker = Marker::parse(&marker.text()).expect("a marker");
        assert_eq!(
            (marker.active(), marker.place_of("a"), marker.index_of("d")),
            (vec!["a", "b"], Some(0), Some(3))
        );
    }

    #[test]
    fn a_floor_never_sinks_and_is_rounded_up() {
        let mut marker = Marker::new("1f", Vec::new(), limits());
        for (floor_us, expected_ms) in [(1, 1), (7_000, 7), (6_999, 7), (7_001, 8), (-1, 8)] {
            marker.raise_floor(UnixMicros(floor_us));
            assert_eq!(marker.floor(), UnixMicros(expected_ms * 1_000));
        }
    }

    /// Somebody may have written these limits by mistake.
    #[test]
    fn a_reach_that_no_daemon_has_is_not_believed() {
        let limits = FleetLimits { horizon_ms: u64::MAX, max_ahead_ms: u64::MAX };
        assert_eq!(Marker::new("1f", Vec::new(), limits).reach(), REACH_MAX);
    }

    #[test]
    fn limits_are_rounded_up_to_milliseconds() {
        let limits = FleetLimits::new(Duration::from_micros(1), Duration::from_millis(2));
        assert_eq!(limits, FleetLimits { horizon_ms: 1, max_ahead_ms: 2 });
        assert_eq!(limits.reach(), Duration::from_millis(5));
    }

    #[test]
    fn spaces_collide_whatever_their_numbers() {
        let [one, other] = ["time,node:=1024,sequence:=4096", "time,node:=512,sequence:=8192"]
            .map(|fields| format!("{fields};tick=1ms;epoch=0"));
        let unlike = "time,node:=512,sequence:=4096;tick=1ms;epoch=0";
        let later = other.replace("epoch=0", "epoch=31536000000");
        assert!(run_beside(&one, &other) && !run_beside(&one, &one));
        assert!(!run_beside(&one, unlike) && !run_beside(&one, &later));
        let marker = Marker::new("1f", vec![one.clone(), unlike.to_owned()], limits());
        assert_eq!((marker.rivals(&other), marker.rivals(&one)), (vec![0], Vec::new()));
    }

    #[test]
    fn garbage_is_told_apart_from_a_later_format() {
        let long = format!("{}{}", key().text(), " ".repeat(TEXT_BYTES_MAX));
        for text in ["", "{}", "7", "null", "{\"format\":1}", "{\"format\":2}", "\u{0}", &long] {
            assert!(matches!(NumberKey::parse(text), Err(KeyError::Garbage(_))), "{text:?}");
            assert!(matches!(Marker::parse(text), Err(KeyError::Garbage(_))), "{text:?}");
        }
        for cut in 0..key().text().len() {
            assert!(NumberKey::parse(&key().text()[..cut]).is_err());
        }
        for text in ["{\"format\":3,\"new\":[]}", "{\"format\":9,\"least_reader\":3}"] {
            assert!(
                matches!(NumberKey::parse(text), Err(KeyError::Newer(FormError::Newer { .. }))),
                "{text}"
            );
            assert!(matches!(Marker::parse(text), Err(KeyError::Newer(FormError::Newer { .. }))), "{text}");
        }
    }

    #[test]
    fn a_value_with_a_later_releases_field_is_read_and_not_replaced() {
        let later = |text: &str| text.replacen("\"format\":2", "\"format\":3", 1);
        assert_eq!(parse_to_replace::<NumberKey>(&later(&key().text())), Ok(key()));
        let more = later(&key().text()).replacen("\"write\"", "\"more\":1,\"write\"", 1);
        assert_eq!(NumberKey::parse(&more), Ok(key()));
        let unknown = KeyError::Newer(FormError::Unknown(String::from("more")));
        assert_eq!(parse_to_replace::<NumberKey>(&more), Err(unknown));
    }

    #[test]
    fn a_raised_floor_keeps_the_fields_of_a_later_release() {
        let text = Marker::new("1f", vec![String::from("a")], limits()).text();
        let later = text.replacen("\"format\":2", "\"format\":3,\"more\":[7]", 1);
        let mut marker = Marker::parse(&later).unwrap();
        marker.raise_floor(UnixMicros(7_000));
        let raised = marker.text_after(&later);
        assert_eq!(Marker::parse(&raised), Ok(marker));
        assert!(raised.contains("\"format\":3") && raised.contains("\"more\":[7]"), "{raised}");
        let known = Marker::parse(&text).unwrap();
        assert_eq!(Marker::parse(&known.text_after(&text)), Ok(known));
    }
}
