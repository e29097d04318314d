//! IDs as decimal digits. The standard library's formatting takes four times as long.

/// The digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// A number in decimal digits.
pub(super) struct Decimal {
    digits: [u8; DIGITS_MAX],
    at: usize,
}

impl Decimal {
    /// Returns the digits of a number. They are made in pairs: divisions of 64 bits take most of the time.
    #[inline]
    pub(super) fn of(mut number: u64) -> Decimal {
        let (mut digits, mut at) = ([0; DIGITS_MAX], DIGITS_MAX);
        while number >= 10 {
            let pair = (number % 100) as u8;
            number /= 100;
            at -= 2;
            digits[at] = b'0' + pair / 10;
            digits[at + 1] = b'0' + pair % 10;
        }
        if number > 0 || at == DIGITS_MAX {
            at -= 1;
            digits[at] = b'0' + number as u8;
        }
        Decimal { digits, at }
    }

    /// Returns them as text.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.digits[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        for number in [0, 1, 9, 10, 99, 100, 101, 1 << 53, 2_123_826_781_336_245_015, u64::MAX] {
            for number in [number, number.saturating_sub(1)] {
                assert_eq!(Decimal::of(number).bytes(), number.to_string().as_bytes());
            }
        }
    }
}
