//! The rule of every durable text: the state file, exports, marks, the file `fleet`, and the values
//! at a coordinator.
//!
//! A text names two numbers: its *format*, and its *least reader*, the lowest format that a program
//! must know to use the text.
//!
//! - A change that an older program must not overlook, or an ID repeats, raises both. The older
//!   program then refuses the text.
//! - Any other new field raises only the format. An older program reads such a text, but does not
//!   write it again, because what it writes would lack the field. So it reads a text with
//!   [`Read::to_read`], and with [`Read::to_write`] right before it replaces the text.
//!
//! A text without a least reader was written before 0.1.0. Its least reader is its format.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The two numbers of a text. A program has one such constant for each kind of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The format that the program writes, and the highest that it knows.
    pub format: u64,
    /// The lowest format that a program must know to use the text.
    pub least_reader: u64,
}

/// The reason why a program may not use a text. The message does not name the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The text is only for programs that know a later format.
    #[error(
        "found format {}, for programs that know format {}, allowed: up to {known}; run the newer release that wrote it",
        found.format, found.least_reader
    )]
    Newer {
        /// What the text names.
        found: Form,
        /// The highest format that this program knows.
        known: u64,
    },
    /// The text has something that this program would drop if it wrote the text again.
    #[error(
        "found {0:?} in it, which this release does not know and would drop, allowed: to show it, but not to write it \
         again; run the newer release that wrote it"
    )]
    Unknown(String),
}

impl Form {
    /// Checks that a program with this form may read a text of the form `found`.
    ///
    /// # Errors
    /// The text is only for programs that know a later format.
    pub fn may_read(self, found: Form) -> Result<(), FormError> {
        if found.least_reader > self.format {
            return Err(FormError::Newer { found, known: self.format });
        }
        Ok(())
    }

    /// Takes the two numbers out of the fields of a JSON object. Returns `None` if it names no
    /// format.
    pub fn take_from(fields: &mut Map<String, Value>) -> Option<Form> {
        let format = fields.remove("format")?.as_u64()?;
        let least_reader = fields.remove("least_reader").map_or(Some(format), |least| least.as_u64())?;
        Some(Form { format, least_reader })
    }

    /// Returns this value as JSON that begins with the two numbers.
    pub fn json(self, value: &impl Serialize) -> String {
        #[derive(Serialize)]
        struct Text<'a, T> {
            #[serde(flatten)]
            form: Form,
            #[serde(flatten)]
            value: &'a T,
        }
        // The values are made of texts and numbers, so this cannot fail.
        serde_json::to_string(&Text { form: self, value }).unwrap_or_default()
    }
}

/// A value that was read from a text, perhaps without some of the text's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    value: T,
    /// The name of a field that this program does not know.
    unknown: Option<String>,
}

impl<T> Read<T> {
    /// Returns the value for a program that writes the text again.
    ///
    /// # Errors
    /// The text has a field that this program does not know.
    pub fn to_write(self) -> Result<T, FormError> {
        self.unknown.map_or(Ok(self.value), |field| Err(FormError::Unknown(field)))
    }

    /// Returns the value for a program that leaves the text as it is.
    pub fn to_read(self) -> T {
        self.value
    }
}

/// Reads a value from JSON. A field is unknown if the value does not have it when it is written
/// again. A field that is null says nothing.
///
/// # Errors
/// The JSON is not such a value.
pub fn read<T: DeserializeOwned + Serialize>(found: &Value) -> serde_json::Result<Read<T>> {
    let value = T::deserialize(found)?;
    let unknown = unknown_in(found, &serde_json::to_value(&value)?);
    Ok(Read { value, unknown })
}

fn unknown_in(found: &Value, known: &Value) -> Option<String> {
    match (found, known) {
        (Value::Object(found), Value::Object(known)) => {
            found.iter().find_map(|(name, value)| match known.get(name) {
                Some(known) => unknown_in(value, known),
                None if value.is_null() => None,
                None => Some(name.clone()),
            })
        }
        (Value::Array(found), Value::Array(known)) => {
            found.iter().zip(known).find_map(|(found, known)| unknown_in(found, known))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Value {
        name: String,
        parts: Vec<Form>,
    }

    const KNOWN: Form = Form { format: 2, least_reader: 1 };

    #[test]
    fn only_a_least_reader_above_the_known_format_is_refused() {
        for (format, least_reader, is_allowed) in [(1, 1, true), (2, 2, true), (9, 2, true), (3, 3, false)] {
            let found = Form { format, least_reader };
            assert_eq!(KNOWN.may_read(found).is_ok(), is_allowed, "{found:?}");
        }
        let refused = KNOWN.may_read(Form { format: 4, least_reader: 3 }).unwrap_err().to_string();
        assert!(
            refused.starts_with("found format 4, for programs that know format 3, allowed: up to 2; run")
        );
    }

    #[test]
    fn a_value_with_an_unknown_field_is_shown_and_not_written_again() {
        let value = Value { name: String::from("a"), parts: vec![KNOWN] };
        let text = json!({ "name": "a", "parts": [{ "format": 2, "least_reader": 1 }] });
        assert_eq!(read::<Value>(&text).unwrap().to_write(), Ok(value.clone()));
        for (newer, field) in [
            (json!({ "name": "a", "parts": [{ "format": 2, "least_reader": 1 }], "new": false }), "new"),
            (
                json!({ "name": "a", "parts": [{ "format": 2, "least_reader": 1, "deep": 7 }], "none": null }),
                "deep",
            ),
        ] {
            let read = read::<Value>(&newer).unwrap();
            assert_eq!(read.clone().to_read(), value);
            assert_eq!(read.to_write(), Err(FormError::Unknown(field.to_owned())));
        }
        assert!(read::<Value>(&json!({ "name": "a" })).is_err());
    }

    #[test]
    fn a_text_names_its_two_numbers_first() {
        let mut found: serde_json::Value =
            serde_json::from_str(&KNOWN.json(&json!({ "name": "a" }))).unwrap();
        assert_eq!(KNOWN.json(&json!({ "name": "a" })), r#"{"format":2,"least_reader":1,"name":"a"}"#);
        let fields = found.as_object_mut().unwrap();
        assert_eq!(Form::take_from(fields), Some(KNOWN));
        assert_eq!(Form::take_from(fields), None, "they are taken");
        let mut early = json!({ "format": 2 });
        let early = Form::take_from(early.as_object_mut().unwrap());
        assert_eq!(early, Some(Form { format: 2, least_reader: 2 }));
    }
}
