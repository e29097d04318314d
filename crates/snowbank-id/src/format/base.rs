//! Numbers in a base whose digits are the characters of a dictionary, most significant digit first.

use std::fmt;

use super::{FormatError, LAST_ID};
use crate::layout::excerpt;

/// The prefix of a format's name if a user gave the dictionary.
pub(super) const DICTIONARY: &str = "dictionary:";

/// The printable characters of ASCII without the space.
const PRINTABLE: std::ops::RangeInclusive<u8> = b'!'..=b'~';

/// The largest base.
pub(super) const BASE_MAX: usize = 94;
const _: () = assert!(*PRINTABLE.end() as usize - *PRINTABLE.start() as usize + 1 == BASE_MAX);

/// The number of digits of 2^63 − 1 in base 2. No ID has more digits in any base.
const DIGITS_MAX: usize = 63;

/// Marks a byte that is no digit.
const NO_DIGIT: u8 = u8::MAX;

/// The dictionary of `base62-shuffled`: a published one that short links use.
const SHUFFLED: &str = "ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";

/// A positional notation with 2 to 94 distinct characters as digits.
///
/// If the characters are in the order of ASCII, all strings are as long as the string of
/// [`LAST_ID`]. So strings sort in the order of their IDs. Otherwise, and in `decimal`, a string is
/// as short as possible.
#[derive(Clone, PartialEq, Eq)]
pub struct Base {
    /// The name of the format. If a user gave the dictionary, this is only the prefix
    /// [`DICTIONARY`].
    name: &'static str,
    digits: Box<[u8]>,
    /// The value of each byte as a digit, or [`NO_DIGIT`].
    values: Box<[u8; 256]>,
    /// The lowest number of digits of a text.
    width: usize,
}

impl Base {
    /// Creates a base from a dictionary, whose characters are the digits from 0 on.
    ///
    /// # Errors
    /// Returns an error unless there are 2 to 94 distinct printable characters of ASCII, without
    /// the space.
    pub fn of(characters: &str) -> Result<Self, FormatError> {
        let dictionary = excerpt(characters);
        if let Some(found) = characters.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(FormatError::DictionaryCharacter { dictionary, found });
        }
        let digits = characters.as_bytes();
        if let Some(twice) = (1..digits.len()).find(|&index| digits[..index].contains(&digits[index])) {
            let found = char::from(digits[twice]);
            return Err(FormatError::DictionaryTwice { dictionary, found });
        }
        if digits.len() < 2 {
            return Err(FormatError::DictionaryTooShort(dictionary));
        }
        Ok(Base::new(DICTIONARY, digits))
    }

    /// Returns the base of the decimal digits, which writes no leading zeros.
    pub(super) fn decimal() -> Self {
        Base { width: 1, ..Base::new("decimal", b"0123456789") }
    }

    pub(super) fn hex() -> Self {
        Base::new("hex", b"0123456789abcdef").in_either_case()
    }

    /// Returns the base of Crockford's digits, with the name of the format that uses it. The base
    /// reads `I` and `L` as 1, and `O` as 0.
    pub(super) fn crockford(name: &'static str) -> Self {
        let mut base = Base::new(name, b"0123456789ABCDEFGHJKMNPQRSTVWXYZ").in_either_case();
        for (misread, value) in [("IiLl", 1), ("Oo", 0)] {
            misread.bytes().for_each(|byte| base.values[usize::from(byte)] = value);
        }
        base
    }

    pub(super) fn base62() -> Self {
        Base::new("base62", b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    }

    pub(super) fn base62_shuffled() -> Self {
        Base::new("base62-shuffled", SHUFFLED.as_bytes())
    }

    /// Creates a base. There must be 2 to 94 digits, all distinct.
    fn new(name: &'static str, digits: &[u8]) -> Self {
        let mut values = Box::new([NO_DIGIT; 256]);
        for (value, &digit) in (0..).zip(digits) {
            values[usize::from(digit)] = value;
        }
        let width = if digits.is_sorted() { LAST_ID.ilog(digits.len() as u64) as usize + 1 } else { 1 };
        Base { name, digits: digits.into(), values, width }
    }

    fn in_either_case(mut self) -> Self {
        for (value, digit) in (0..).zip(&self.digits) {
            self.values[usize::from(digit.to_ascii_lowercase())] = value;
            self.values[usize::from(digit.to_ascii_uppercase())] = value;
        }
        self
    }

    /// Returns true if the digits are in the order of ASCII.
    pub(super) fn sorts(&self) -> bool {
        self.digits.is_sorted()
    }

    /// Appends the digits of a number.
    pub(super) fn write(&self, number: u64, text: &mut String) {
        let base = self.digits.len() as u64;
        let mut digits = [self.digits[0]; DIGITS_MAX + 1];
        let mut start = digits.len();
        let mut rest = number;
        while rest > 0 {
            start -= 1;
            digits[start] = self.digits[(rest % base) as usize];
            rest /= base;
        }
        let start = start.min(digits.len() - self.width);
        text.extend(digits[start..].iter().map(|&digit| char::from(digit)));
    }

    /// Reads digits, with any number of leading zeros.
    pub(super) fn read(&self, text: &str) -> Result<u64, FormatError> {
        if text.is_empty() {
            return Err(FormatError::NoDigits(self.to_string()));
        }
        let base = self.digits.len() as u64;
        // The error names a wrong character even if the text is too long.
        let mut number = Some(0_u64);
        for found in text.chars() {
            let value = u8::try_from(found).map_or(NO_DIGIT, |byte| self.values[usize::from(byte)]);
            if value == NO_DIGIT {
                return Err(FormatError::WrongCharacter {
                    text: excerpt(text),
                    found,
                    format: self.to_string(),
                    digits: String::from_utf8_lossy(&self.digits).into_owned(),
                });
            }
            number = number.and_then(|number| number.checked_mul(base)?.checked_add(value.into()));
        }
        let id = number.filter(|&number| number <= LAST_ID);
        id.ok_or_else(|| FormatError::TooLarge { text: excerpt(text), format: self.to_string() })
    }
}

/// Writes the name of the format.
impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.name == DICTIONARY {
            f.write_str(&String::from_utf8_lossy(&self.digits))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base({self})")
    }
}
