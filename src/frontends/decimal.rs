//! IDs as decimal digits. The standard library's formatting takes four times as long.

/// The digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// The digits of a group.
const GROUP: usize = 4;

/// The end of the digits in the text. The byte before them is for the type of a RESP line, such as `:`.
const END: usize = 1 + DIGITS_MAX;

const _: () = assert!(DIGITS_MAX.is_multiple_of(GROUP));

/// The size of a line with a kind and 19 digits, which nearly every ID has.
const COMMON_LINE: usize = 1 + 19 + 2;

/// A number in decimal digits, and its line end.
pub(super) struct Decimal {
    text: [u8; END + 2],
    at: usize,
    number: u64,
}

impl Decimal {
    /// Returns the digits of a number.
    #[inline]
    pub(super) fn new(number: u64) -> Decimal {
        let mut text = [0; END + 2];
        text[END..].copy_from_slice(b"\r\n");
        let mut decimal = Decimal { text, at: END, number };
        decimal.set_all(number);
        decimal
    }

    /// Changes it to another number. The IDs of a reply are neighbours: nine of ten differ from the one before in one digit.
    #[inline]
    pub(super) fn set(&mut self, number: u64) {
        let follows = number.wrapping_sub(self.number) == 1;
        let ones = &mut self.text[END - 1];
        if !follows || *ones == b'9' {
            return self.set_all(number);
        }
        *ones += 1;
        self.number = number;
    }

    /// Makes all digits, in groups: divisions of 64 bits take most of the time.
    fn set_all(&mut self, number: u64) {
        self.number = number;
        let (groups, _) = self.text[1..END].as_chunks_mut::<GROUP>();
        let mut rest = number;
        for group in groups.iter_mut().rev() {
            let digits = (rest % 10_000) as u32;
            rest /= 10_000;
            *group = [digits / 1_000, digits / 100 % 10, digits / 10 % 10, digits % 10]
                .map(|digit| b'0' + digit as u8);
        }
        let zeros = self.text[1..END - 1].iter().take_while(|digit| **digit == b'0').count();
        self.at = 1 + zeros;
    }

    /// Appends it as a line, behind a byte for its kind.
    #[inline]
    pub(super) fn append_line(&mut self, kind: u8, out: &mut Vec<u8>) {
        let line = self.line(kind);
        // A copy of a size that is known needs no call.
        match <&[u8; COMMON_LINE]>::try_from(line) {
            Ok(line) => out.extend_from_slice(line),
            Err(_) => out.extend_from_slice(line),
        }
    }

    /// Returns it as text.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.text[self.at..END]
    }

    /// Returns it as a line, behind a byte for its kind.
    #[inline]
    pub(super) fn line(&mut self, kind: u8) -> &[u8] {
        self.text[self.at - 1] = kind;
        &self.text[self.at - 1..]
    }

    /// Returns it with a line end.
    #[inline]
    pub(super) fn ended(&self) -> &[u8] {
        &self.text[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let mut decimal = Decimal::new(0);
        for number in [0, 1, 9, 10, 99, 100, 101, 9_999, 10_000, 19_999, 99_999, 1 << 53, u64::MAX] {
            for number in [number, number.saturating_sub(1), number, number.saturating_add(1), number] {
                decimal.set(number);
                for decimal in [&mut decimal, &mut Decimal::new(number)] {
                    assert_eq!(decimal.bytes(), number.to_string().as_bytes());
                    assert_eq!(decimal.line(b':'), format!(":{number}\r\n").as_bytes());
                    assert_eq!(decimal.ended(), format!("{number}\r\n").as_bytes());
                    let mut out = vec![b'x'];
                    decimal.append_line(b'$', &mut out);
                    assert_eq!(out, format!("x${number}\r\n").as_bytes());
                }
            }
        }
    }
}
