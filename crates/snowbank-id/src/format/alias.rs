//! Aliases: IDs under a keyed permutation, so that a text shows neither the time of an ID nor the
//! number of IDs.
//!
//! ```text
//!  2-7n42DGM5Tfl      key version 2, and 11 digits of base 62: FF1 of the ID under that key
//! ```

use std::fmt;
use std::sync::Arc;

use super::FormatError;
use super::base::Base;
use super::ff1::{KEY_BYTES, Permutation};
use crate::layout::excerpt;

/// The number of digits after the version.
const DIGITS: usize = 11;

const SHAPE: &str = "a key version, a hyphen and 11 digits of base62, as in 1-7n42DGM5Tfl";

/// The keys of aliases, each with its version.
///
/// The key with the highest version writes aliases. Each key reads the aliases that have its
/// version. So an old key must stay in the file as long as these aliases are in use. A key is never
/// printed.
#[derive(Clone)]
pub struct AliasKeys {
    /// The keys in ascending order of their versions. There is at least one.
    keys: Arc<[Key]>,
    digits: Base,
}

struct Key {
    version: u16,
    permutation: Permutation,
}

impl AliasKeys {
    /// Reads the lines of a key file: a version from 1 to 65535, blanks, and 64 hexadecimal digits.
    /// Empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// Returns an error if a line has another form, a version is given twice, or there is no key.
    /// The error gives the number of the line, and never shows a key.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut keys: Vec<Key> = Vec::new();
        for (line, text) in (1..).zip(text.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let key = Key::parse(text).map_err(|found| FormatError::KeyLine { line, found })?;
            if keys.iter().any(|known| known.version == key.version) {
                let version = key.version;
                return Err(FormatError::KeyVersionTwice { line, version });
            }
            keys.push(key);
        }
        keys.sort_by_key(|key| key.version);
        if keys.is_empty() {
            return Err(FormatError::NoKeys);
        }
        Ok(AliasKeys { keys: keys.into(), digits: Base::base62() })
    }

    /// Appends the alias of an ID, under the newest key.
    pub(super) fn write(&self, id: u64, text: &mut String) {
        use fmt::Write;
        let Some(key) = self.keys.last() else { return };
        // Writing to a String cannot fail.
        let _ = write!(text, "{}-", key.version);
        self.digits.write(key.permutation.encrypt(id), text);
    }

    /// Reads the ID of an alias, with the key that has the alias's version.
    pub(super) fn read(&self, text: &str) -> Result<u64, FormatError> {
        let Some((version, number)) = self.split(text) else {
            return Err(FormatError::Shape { text: excerpt(text), format: "alias", allowed: SHAPE });
        };
        let Some(key) = self.keys.iter().find(|key| key.version == version) else {
            let known = self.keys.iter().map(|key| key.version).collect();
            return Err(FormatError::UnknownKeyVersion { text: excerpt(text), version, known });
        };
        Ok(key.permutation.decrypt(number))
    }

    /// Returns the version of the key and the encrypted ID.
    fn split(&self, text: &str) -> Option<(u16, u64)> {
        let (version, digits) = text.split_once('-').filter(|(_, digits)| digits.len() == DIGITS)?;
        Some((parse_version(version)?, self.digits.read(digits).ok()?))
    }
}

impl Key {
    /// Reads a line. An error describes the fault without the line's characters.
    fn parse(line: &str) -> Result<Self, &'static str> {
        let (version, key) = line.split_once(char::is_whitespace).ok_or("one word")?;
        let version = parse_version(version).ok_or("no version at its start")?;
        let digits = key.trim_start().as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return Err("a key of another length");
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
        }
        Ok(Key { version, permutation: Permutation::new(&key) })
    }
}

/// Reads a hexadecimal digit.
fn hex_value(digit: u8) -> Result<u8, &'static str> {
    let value = char::from(digit).to_digit(16).ok_or("a key with other characters")?;
    Ok(value as u8)
}

/// Reads a version. Refuses leading zeros, so that an alias has one text only.
fn parse_version(text: &str) -> Option<u16> {
    let is_plain = text.starts_with(|first: char| first.is_ascii_digit() && first != '0');
    text.parse().ok().filter(|_| is_plain)
}

impl fmt::Debug for AliasKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AliasKeys({} redacted)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Context, Format, LAST_ID};

    const OLD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const NEW: &str = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94";

    fn keys(text: &str) -> AliasKeys {
        AliasKeys::parse(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        let error = AliasKeys::parse(text).unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains("0102"), "{error}");
        error
    }

    #[test]
    fn the_newest_key_writes_and_every_key_reads() {
        let old = keys(&format!("7 {OLD}"));
        // The lines may be in any order, with comments, blanks and the line ends of other systems.
        let both = keys(&format!("# keys\r\n\r\n10\t {NEW}  \r\n7 {OLD}"));
        for id in [0, 1, 1541815603606036480, LAST_ID] {
            let mut before = String::new();
            let mut after = String::new();
            old.write(id, &mut before);
            both.write(id, &mut after);
            assert!(before.starts_with("7-") && after.starts_with("10-"), "{before} {after}");
            assert_eq!((both.read(&before), both.read(&after)), (Ok(id), Ok(id)));
            assert_eq!((before.len(), after.len()), (13, 14));
            let error = old.read(&after).unwrap_err().to_string();
            assert!(error.contains("under key version 10, and the keys have 7"), "{error}");
        }
        let codec = Format::Alias.codec(Context::new("orders", None).alias_keys(&both)).unwrap();
        // This alias was computed by the steps of SP 800-38G in Python, with OpenSSL's AES.
        assert_eq!(codec.text(1541815603606036480).unwrap(), "10-AkWwhOGaEYF");
    }

    #[test]
    fn texts_that_are_not_aliases_are_refused() {
        let keys = keys(&format!("1 {OLD}\n2 {NEW}"));
        for text in [
            "",
            "1",
            "1-",
            "-7n42DGM5Tfl",
            "01-7n42DGM5Tfl",
            "1-7n42DGM5Tf",
            "1-7n42DGM5Tfl0",
            "1-7n42DGM5Tf!",
            "+1-7n42DGM5Tfl",
            "1-zzzzzzzzzzz",
            "65536-7n42DGM5Tfl",
            "1-é2DGM5Tfl",
            "7n42DGM5Tfl",
        ] {
            let error = keys.read(text).unwrap_err().to_string();
            assert!(error.contains("key version, a hyphen and 11 digits"), "{text:?}: {error}");
        }
        assert!(
            keys.read("3-7n42DGM5Tfl")
                .unwrap_err()
                .to_string()
                .contains("key version 3, and the keys have 1, 2")
        );
    }

    #[test]
    fn refusals_of_key_files_never_show_a_key() {
        let short = &OLD[2..];
        for (text, part) in [
            (String::new(), "no key"),
            (String::from("# nothing\n"), "no key"),
            (format!("1 {OLD}\n2"), "line 2 has one word"),
            (OLD.to_owned(), "line 1 has one word"),
            (format!("0 {OLD}"), "line 1 has no version"),
            (format!("v1 {OLD}"), "line 1 has no version"),
            (format!("65536 {OLD}"), "line 1 has no version"),
            (format!("1 {short}"), "line 1 has a key of another length"),
            (format!("1 {OLD} x"), "line 1 has a key of another length"),
            (format!("1 {}", OLD.replace('f', "g")), "line 1 has a key with other characters"),
            (format!("1 {OLD}\n\n1 {NEW}"), "line 3 has version 1 again"),
        ] {
            let error = refusal(&text);
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(format!("{:?}", keys(&format!("1 {OLD}"))), "AliasKeys(1 redacted)");
    }

    #[test]
    fn aliases_without_keys_are_refused() {
        let error = Format::Alias.codec(Context::new("orders", None)).unwrap_err().to_string();
        assert!(error.starts_with("alias needs keys"), "{error}");
    }
}
