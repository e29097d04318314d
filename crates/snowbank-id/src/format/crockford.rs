//! Crockford's base 32, with or without its check symbol: <https://www.crockford.com/base32.html>.

use super::FormatError;
use super::base::Base;
use crate::layout::excerpt;

/// The check symbols: the 32 digits, and five more. An ID modulo 37 is the index of the ID's check
/// symbol.
const CHECKS: &[u8; 37] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";

#[derive(Clone, Debug)]
pub(super) struct Crockford {
    digits: Base,
    /// True if a check symbol follows the digits.
    check: bool,
}

impl Crockford {
    pub(super) fn new(check: bool) -> Self {
        let name = if check { "base32-crockford-check" } else { "base32-crockford" };
        Crockford { digits: Base::crockford(name), check }
    }

    /// Appends the 13 symbols of an ID, and the check symbol if the format has one.
    pub(super) fn write(&self, id: u64, text: &mut String) {
        self.digits.write(id, text);
        if self.check {
            text.push(check_of(id));
        }
    }

    /// Reads an ID. Case does not matter, `I` and `L` are 1, `O` is 0, hyphens are ignored, and
    /// leading zeros may be missing.
    pub(super) fn read(&self, text: &str) -> Result<u64, FormatError> {
        let mut symbols = text.replace('-', "");
        if !self.check {
            return self.digits.read(&symbols);
        }
        let last = symbols.pop().unwrap_or_default();
        let id = self.digits.read(&symbols)?;
        let wanted = check_of(id);
        let meant = match last.to_ascii_uppercase() {
            'I' | 'L' => '1',
            'O' => '0',
            other => other,
        };
        if meant == wanted {
            return Ok(id);
        }
        Err(FormatError::CheckSymbol { text: excerpt(text), found: last, wanted })
    }
}

fn check_of(id: u64) -> char {
    char::from(CHECKS[(id % CHECKS.len() as u64) as usize])
}
