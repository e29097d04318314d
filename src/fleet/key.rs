//! The values at the coordinator: the marker of a fleet, and the key of each worker number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format of values that this release writes. It reads no later one: a later one may mean something else.
pub(super) const FORMAT: u64 = 1;

/// The longest text of a value that is read. A marker of 64 sources with the longest layouts is far shorter.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// The prefix, in a marker, of an ID space that a colliding one has replaced.
const REPLACED: &str = "replaced ";

/// The value at a worker number's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberKey {
    pub(super) format: u64,
    /// The identity of the state that holds the number: [`Owner::state`](crate::ceiling::Owner).
    pub state: String,
    /// The identity of this write: 128 bits, drawn for each. A daemon recognises its own writes by it.
    pub write: String,
    /// The fleet's ceiling: the lowest ID that was not granted. Text, because JavaScript's numbers end at 2^53.
    #[serde(with = "id_bound")]
    pub id_bound: u64,
    /// True if the holder released the number: all IDs that it handed out are below the bound.
    pub released: bool,
    /// The holder's name for people: its machine and process.
    pub holder: String,
    /// The source that uses the number.
    pub source: String,
    /// The instant since which this holder has it, in seconds of Unix time.
    pub since_unix_s: i64,
}

impl NumberKey {
    /// Returns the value of a holder's first write.
    pub fn new(state: &str, holder: &str, source: &str, since_unix_s: i64) -> Self {
        let [state, holder, source] = [state, holder, source].map(str::to_owned);
        NumberKey {
            format: FORMAT,
            state,
            write: String::new(),
            id_bound: 0,
            released: false,
            holder,
            source,
            since_unix_s,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The text is no such value, or a later release wrote it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse(text)
    }

    /// Returns the text of the value.
    pub fn text(&self) -> String {
        to_text(self)
    }
}

/// The value that shows that a fleet of this name was prepared, with its ID spaces. If it is missing, the
/// coordinator may have lost its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    format: u64,
    /// 128 bits, drawn when the fleet was prepared: two clusters that were each prepared have different ones.
    pub identity: String,
    /// The identity of this write, as in [`NumberKey`]. So no two writes have equal texts.
    #[serde(default)]
    pub(super) write: String,
    /// The ID spaces, in the order of their first use: a space's place is part of its keys. One that a colliding one has
    /// replaced keeps its place, with `REPLACED` before it: no daemon finds it.
    pub spaces: Vec<String>,
    /// For an ID space that has replaced others: the bound of the IDs that were made in those. Text, as all bounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    floors: BTreeMap<String, String>,
}

/// An ID space in the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its index, which is part of its keys.
    pub index: usize,
    /// The lowest ID that its numbers may make.
    pub floor: u64,
}

/// Returns the name of an ID space of the marker.
fn name_of(known: &str) -> &str {
    known.strip_prefix(REPLACED).unwrap_or(known)
}

impl Marker {
    /// Returns the marker of a fleet with these ID spaces.
    pub fn new(identity: &str, spaces: Vec<String>) -> Self {
        let (format, identity, write, floors) = (FORMAT, identity.to_owned(), String::new(), BTreeMap::new());
        Marker { format, identity, write, spaces, floors }
    }

    /// Reads a marker.
    ///
    /// # Errors
    /// The text is no marker, or a later release wrote it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse(text)
    }

    /// Returns the ID spaces that daemons may use, for people.
    pub fn shown(&self) -> String {
        let active = self.active();
        if active.is_empty() { String::from("none") } else { active.join(", ") }
    }

    /// Returns the ID spaces that daemons may use. None of them collide.
    pub fn active(&self) -> Vec<&str> {
        self.spaces.iter().map(String::as_str).filter(|space| !space.starts_with(REPLACED)).collect()
    }

    /// Returns the place of an ID space that daemons may use.
    pub fn place_of(&self, space: &str) -> Option<Place> {
        let index = self.spaces.iter().position(|known| known == space)?;
        Some(Place { index, floor: self.floor(space) })
    }

    /// Returns true if daemons may use the ID space of an index.
    pub(super) fn is_active(&self, index: usize) -> bool {
        !self.spaces[index].starts_with(REPLACED)
    }

    /// Returns the ID space of an index.
    pub(super) fn name_at(&self, index: usize) -> &str {
        name_of(&self.spaces[index])
    }

    /// Returns the index of an ID space, also of one that was replaced.
    pub(super) fn index_of(&self, space: &str) -> Option<usize> {
        self.spaces.iter().position(|known| name_of(known) == space)
    }

    /// Returns the indices of the ID spaces whose names match, including those that were replaced.
    pub(super) fn indices(&self, matches: impl Fn(&str) -> bool) -> Vec<usize> {
        (0..self.spaces.len()).filter(|&index| matches(name_of(&self.spaces[index]))).collect()
    }

    /// Replaces ID spaces. Returns those that daemons could use until now.
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

    /// Adds an ID space, or puts it back where it was. Its numbers start at `floor` at least.
    pub(super) fn put(&mut self, space: &str, floor: u64) {
        match self.index_of(space) {
            Some(index) => self.spaces[index] = space.to_owned(),
            None => self.spaces.push(space.to_owned()),
        }
        let floor = floor.max(self.floor(space));
        if floor > 0 {
            self.floors.insert(space.to_owned(), floor.to_string());
        }
    }

    /// Returns the lowest ID that an ID space may make: colliding spaces may have made those below.
    pub(super) fn floor(&self, space: &str) -> u64 {
        // A floor that is no number allows no ID.
        self.floors.get(space).map_or(0, |floor| floor.parse().unwrap_or(u64::MAX))
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

    /// Returns the prefix of all numbers' keys of an ID space.
    pub fn space(&self, place: usize) -> String {
        format!("{}/space-{place}/", self.prefix)
    }

    /// Returns the key of a shared counter: of the ticket source of this name.
    pub fn counter(&self, source: &str) -> String {
        format!("{}/ticket-{source}", self.prefix)
    }

    /// Returns a number's key.
    pub fn number(&self, place: usize, number: u64) -> String {
        format!("{}{number}", self.space(place))
    }
}

/// The reason why a value cannot be used, in one line without the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// This program did not write it.
    #[error(
        "found a value that Snowbank did not write ({0}), allowed: values of Snowbank alone; find out who wrote it"
    )]
    Garbage(String),
    /// A later release wrote it.
    #[error("found format {0}, which a later release wrote, allowed: {FORMAT}; update this daemon first")]
    Newer(u64),
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, KeyError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(KeyError::Garbage(format!("{} bytes", text.len())));
    }
    let garbage = |error: serde_json::Error| KeyError::Garbage(error.to_string());
    let value: Value = serde_json::from_str(text).map_err(garbage)?;
    // First: nothing else is known of a later format.
    match value.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => serde_json::from_value(value).map_err(garbage),
        Some(later) if later > FORMAT => Err(KeyError::Newer(later)),
        _ => Err(KeyError::Garbage(String::from("no format"))),
    }
}

pub(super) fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// An ID bound as text.
pub(super) mod id_bound {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::fleet) fn serialize<S: Serializer>(bound: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(bound)
    }

    pub(in crate::fleet) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> NumberKey {
        let key = NumberKey::new("5a", "host-a (process 7)", "orders", 1_700_000_000);
        NumberKey { write: String::from("77"), id_bound: u64::MAX, ..key }
    }

    #[test]
    fn a_value_reads_back() {
        assert_eq!(NumberKey::parse(&key().text()), Ok(key()));
        let marker = Marker::new("1f", vec![String::from("a"), String::from("b")]);
        assert_eq!(Marker::parse(&marker.text()), Ok(marker));
    }

    #[test]
    fn a_space_that_was_replaced_keeps_its_index_and_comes_back_above_the_others() {
        let mut marker = Marker::new("1f", ["a", "b", "c"].map(String::from).to_vec());
        assert_eq!(marker.replace(&marker.indices(|space| space != "b")), ["a", "c"]);
        marker.put("d", 7);
        assert_eq!((marker.active(), marker.place_of("a")), (vec!["b", "d"], None));
        assert_eq!(marker.place_of("d"), Some(Place { index: 3, floor: 7 }));
        let others = marker.indices(|space| ["c", "d"].contains(&space));
        assert_eq!((marker.replace(&others), others), (vec![String::from("d")], vec![2, 3]));
        marker.put("a", 9);
        let marker = Marker::parse(&marker.text()).expect("a marker");
        assert_eq!(
            (marker.active(), marker.place_of("d"), marker.index_of("d")),
            (vec!["a", "b"], None, Some(3))
        );
        assert_eq!(marker.place_of("a"), Some(Place { index: 0, floor: 9 }));
    }

    #[test]
    fn garbage_and_later_formats_are_refused_as_such() {
        let long = format!("{}{}", key().text(), " ".repeat(TEXT_BYTES_MAX));
        for text in ["", "{}", "7", "null", "{\"format\":0}", "{\"format\":1}", "\u{0}", &long] {
            assert!(matches!(NumberKey::parse(text), Err(KeyError::Garbage(_))), "{text:?}");
            assert!(matches!(Marker::parse(text), Err(KeyError::Garbage(_))), "{text:?}");
        }
        for cut in 0..key().text().len() {
            assert!(NumberKey::parse(&key().text()[..cut]).is_err());
        }
        assert_eq!(NumberKey::parse("{\"format\":2,\"new\":[]}"), Err(KeyError::Newer(2)));
        assert_eq!(Marker::parse("{\"format\":9}"), Err(KeyError::Newer(9)));
    }
}
