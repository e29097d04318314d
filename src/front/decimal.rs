//! IDs as decimal digits. The standard library's formatting takes four times as long.

/// The digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// The end of the digits, behind a byte for the kind of a line.
const END: usize = 1 + DIGITS_MAX;

/// The modulus for the last digits of a number. Only these are made again if the others have not changed.
const TAIL: u64 = 10_000;

/// A number in decimal digits, and its line end.
pub(super) struct Decimal {
    text: [u8; END + 2],
    at: usize,
    /// The number without its tail.
    upper: u64,
}

impl Decimal {
    /// Returns the digits of a number.
    #[inline]
    pub(super) fn of(number: u64) -> Decimal {
        let mut text = [0; END + 2];
        text[END..].copy_from_slice(b"\r\n");
        let mut decimal = Decimal { text, at: END, upper: 0 };
        decimal.set_all(number);
        decimal
    }

    /// Changes it to another number. The IDs of a reply are neighbours, and mostly differ in their last digits.
    #[inline]
    pub(super) fn set(&mut self, number: u64) {
        let (upper, tail) = (number / TAIL, (number % TAIL) as u32);
        if upper == 0 || upper != self.upper {
            return self.set_all(number);
        }
        for (at, pair) in [(END - 4, tail / 100), (END - 2, tail % 100)] {
            self.set_pair(at, pair as u8);
        }
    }

    /// Makes all digits, in pairs: divisions of 64 bits take most of the time.
    fn set_all(&mut self, mut number: u64) {
        (self.at, self.upper) = (END, number / TAIL);
        while number >= 10 {
            self.at -= 2;
            self.set_pair(self.at, (number % 100) as u8);
            number /= 100;
        }
        if number > 0 || self.at == END {
            self.at -= 1;
            self.text[self.at] = b'0' + number as u8;
        }
    }

    #[inline]
    fn set_pair(&mut self, at: usize, pair: u8) {
        (self.text[at], self.text[at + 1]) = (b'0' + pair / 10, b'0' + pair % 10);
    }

    /// Returns them as text.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.text[self.at..END]
    }

    /// Returns them as a line, behind a byte for its kind.
    #[inline]
    pub(super) fn line(&mut self, kind: u8) -> &[u8] {
        self.text[self.at - 1] = kind;
        &self.text[self.at - 1..]
    }

    /// Returns them with a line end.
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
        let mut decimal = Decimal::of(0);
        for number in [0, 1, 9, 10, 99, 100, 101, 9_999, 10_000, 19_999, 99_999, 1 << 53, u64::MAX] {
            for number in [number, number.saturating_sub(1), number.saturating_add(1), number] {
                decimal.set(number);
                for decimal in [&mut decimal, &mut Decimal::of(number)] {
                    assert_eq!(decimal.bytes(), number.to_string().as_bytes());
                    assert_eq!(decimal.line(b':'), format!(":{number}\r\n").as_bytes());
                    assert_eq!(decimal.ended(), format!("{number}\r\n").as_bytes());
                }
            }
        }
    }
}
