//! IDs as decimal digits. The standard library's formatting takes four times as long.

/// The digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// A number in decimal digits.
pub(super) struct Decimal {
    digits: [u8; DIGITS_MAX],
    at: usize,
}

impl Decimal {
    /// Returns the digits of a number.
    #[inline]
    pub(super) fn of(mut number: u64) -> Decimal {
        let (mut digits, mut at) = ([0; DIGITS_MAX], DIGITS_MAX);
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Decimal { digits, at };
            }
        }
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
        for number in [0, 9, 10, 99, 100, 1 << 53, i64::MAX as u64, u64::MAX] {
            assert_eq!(Decimal::of(number).bytes(), number.to_string().as_bytes());
        }
    }
}
