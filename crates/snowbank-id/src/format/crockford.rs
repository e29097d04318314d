//! Crockford's base 32, with or without its check symbol: <https://www.crockford.com/base32.html>.

use super::FormatError;
use super::base::read_digits;
use super::error::excerpt;

/// The 32 digits, and the five further symbols that only a check can be.
const SYMBOLS: &[u8; 37] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";

/// The number of symbols of 2^63 − 1.
const WIDTH: usize = 13;

/// The check is the number modulo this prime.
const CHECK: u64 = 37;

/// Appends the symbols of an ID, always [`WIDTH`] of them, and the check symbol.
pub(super) fn write(id: u64, check: bool, text: &mut String) {
    for place in (0..WIDTH).rev() {
        text.push(char::from(SYMBOLS[(id >> (5 * place) & 31) as usize]));
    }
    if check {
        text.push(char::from(SYMBOLS[(id % CHECK) as usize]));
    }
}

/// Reads an ID. Case does not matter, `I` and `L` are 1, `O` is 0, hyphens do not count, and
/// leading zeros may be missing.
pub(super) fn read(text: &str, check: bool) -> Result<u64, FormatError> {
    let format = if check { "base32-crockford-check" } else { "base32-crockford" };
    let symbols: String = text.chars().filter(|&symbol| symbol != '-').collect();
    let (digits, last) = match symbols.char_indices().next_back() {
        Some((end, last)) if check => (&symbols[..end], Some(last)),
        _ => (symbols.as_str(), None),
    };
    let id = read_digits(digits, &format, 32, |found| {
        value_of(found).filter(|&value| value < 32).ok_or_else(|| {
            FormatError::character(text, found, format, &String::from_utf8_lossy(&SYMBOLS[..32]))
        })
    })?;
    match last {
        Some(last) if value_of(last).map(u64::from) != Some(id % CHECK) => {
            let wanted = char::from(SYMBOLS[(id % CHECK) as usize]);
            let text = excerpt(text);
            Err(FormatError::new(format!(
                "{text:?} ends with the check symbol {last:?}, and its other symbols need {wanted:?}; compare the text"
            )))
        }
        _ => Ok(id),
    }
}

/// Returns the value of a symbol, as a digit or as a check.
fn value_of(symbol: char) -> Option<u8> {
    let symbol = match symbol.to_ascii_uppercase() {
        'I' | 'L' => '1',
        'O' => '0',
        other => other,
    };
    (0..).zip(SYMBOLS).find(|&(_, &known)| char::from(known) == symbol).map(|(value, _)| value)
}
