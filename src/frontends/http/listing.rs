//! IDs as the body of a reply, written piece by piece.

use super::reply::{JSON, TEXT};
use snowbank_id::format::Codec;

/// The form of a body that lists IDs.
#[derive(Debug)]
pub(crate) struct Listing {
    prefix: String,
    separator: &'static str,
    suffix: &'static str,
    is_json: bool,
    /// The format of each ID. `None`: decimal digits.
    codec: Option<Codec>,
    /// True once the first ID is written.
    has_begun: bool,
}

impl Listing {
    /// Returns the form of a JSON object with `members` and then `ids`, an array of strings.
    pub(super) fn json(members: &str, codec: Option<Codec>) -> Listing {
        let prefix = format!("{{{members}\"ids\":[");
        Listing { prefix, separator: ",", suffix: "]}\n", is_json: true, codec, has_begun: false }
    }

    /// Returns the form of a JSON object with one ID as text.
    pub(super) fn json_of_one() -> Listing {
        let prefix = String::from("{\"id\":");
        Listing { prefix, separator: "", suffix: "}", is_json: true, codec: None, has_begun: false }
    }

    /// Returns the form of IDs in lines, with `suffix` behind the last line.
    pub(super) fn lines(suffix: &'static str, codec: Option<Codec>) -> Listing {
        Listing { prefix: String::new(), separator: "\n", suffix, is_json: false, codec, has_begun: false }
    }

    /// Returns the type of the body.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.is_json { JSON } else { TEXT }
    }

    /// Appends the next IDs and, if they are the last, the end of the body.
    pub(crate) fn write(&mut self, ids: impl Iterator<Item = u64>, is_last: bool, out: &mut Vec<u8>) {
        for id in ids {
            let before = if self.has_begun { self.separator } else { &self.prefix };
            out.extend_from_slice(before.as_bytes());
            self.has_begun = true;
            self.write_one(id, out);
        }
        if is_last {
            out.extend_from_slice(self.suffix.as_bytes());
        }
    }

    fn write_one(&self, id: u64, out: &mut Vec<u8>) {
        let Some(codec) = &self.codec else {
            let quote: &[u8] = if self.is_json { b"\"" } else { b"" };
            out.extend_from_slice(quote);
            out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
            return out.extend_from_slice(quote);
        };
        // The codec was made for the source, so it has a text for each ID of the source.
        let text = codec.text(id).unwrap_or_else(|_| id.to_string());
        if self.is_json {
            // The characters of a `dictionary` format may include some that JSON escapes.
            out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
        } else {
            out.extend_from_slice(text.as_bytes());
        }
    }
}
