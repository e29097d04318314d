//! A keyed permutation of the numbers of 63 bits: FF1 of NIST SP 800-38G with AES-256, without a
//! tweak.
//!
//! The crate `fpe` computes the rounds. Here, each half of a number fits a machine word, so the
//! crate's big integers are not used. The numbers with 63 digits of radix 2 are exactly the numbers
//! that can be IDs. So every ID has an alias, and every alias has an ID.

use aes::Aes256;
use fpe::ff1::{FF1, NumeralString, Operations};

pub(super) const KEY_BYTES: usize = 32;

const RADIX: u32 = 2;
/// The number of digits in the high half. Both halves together have 63 digits.
const HIGH: usize = 31;
const LOW: usize = 32;

pub(super) struct Permutation(FF1<Aes256>);

impl Permutation {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Permutation(FF1::new(key, RADIX).expect("2 is a radix of FF1"))
    }

    /// Permutes a number below 2^63.
    pub(super) fn encrypt(&self, number: u64) -> u64 {
        self.0.encrypt(&[], &Halves::of(number)).expect(FITS).number()
    }

    /// Reverts [`encrypt`](Self::encrypt).
    pub(super) fn decrypt(&self, number: u64) -> u64 {
        self.0.decrypt(&[], &Halves::of(number)).expect(FITS).number()
    }
}

/// The reason why FF1 accepts every number below 2^63.
const FITS: &str = "63 digits of radix 2 are more than the 20 that FF1 asks for";

/// A numeral string, as its high and its low half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Halves(Half, Half);

/// A number, and the number of its digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Half {
    number: u64,
    digits: usize,
}

impl Halves {
    fn of(number: u64) -> Self {
        let low = number & ((1 << LOW) - 1);
        Halves(Half { number: number >> LOW, digits: HIGH }, Half { number: low, digits: LOW })
    }

    fn number(self) -> u64 {
        self.0.number << LOW | self.1.number
    }
}

impl NumeralString for Halves {
    type Ops = Half;

    fn is_valid(&self, radix: u32) -> bool {
        [self.0, self.1].iter().all(|half| u128::from(half.number) < modulus(radix, half.digits))
    }

    fn numeral_count(&self) -> usize {
        self.0.digits + self.1.digits
    }

    fn split(&self) -> (Half, Half) {
        (self.0, self.1)
    }

    fn concat(high: Half, low: Half) -> Self {
        Halves(high, low)
    }
}

impl Operations for Half {
    type Bytes = Bytes;

    fn numeral_count(&self) -> usize {
        self.digits
    }

    fn to_be_bytes(&self, _radix: u32, count: usize) -> Bytes {
        Bytes { bytes: self.number.to_be_bytes(), count }
    }

    fn add_mod_exp(self, other: impl Iterator<Item = u8>, radix: u32, digits: usize) -> Half {
        let modulus = modulus(radix, digits);
        self.with((u128::from(self.number) + number_of(other) % modulus) % modulus, digits)
    }

    fn sub_mod_exp(self, other: impl Iterator<Item = u8>, radix: u32, digits: usize) -> Half {
        let modulus = modulus(radix, digits);
        self.with((u128::from(self.number) + modulus - number_of(other) % modulus) % modulus, digits)
    }
}

impl Half {
    /// Returns a half with another number. `number` is below the modulus of `digits`, so it fits 64
    /// bits.
    fn with(self, number: u128, digits: usize) -> Half {
        Half { number: number as u64, digits }
    }
}

/// The lowest `count` bytes of a number, at most 8, big-endian.
struct Bytes {
    bytes: [u8; 8],
    count: usize,
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.bytes.len() - self.count..]
    }
}

/// Returns the number of values that this many digits can have.
fn modulus(radix: u32, digits: usize) -> u128 {
    // The result is at most 36^10 in NIST's samples, and at most 2^32 otherwise.
    u128::from(radix).pow(digits as u32)
}

/// Reads the number in the bytes of a round's output: 8 bytes, or 12 in samples of NIST.
fn number_of(bytes: impl Iterator<Item = u8>) -> u128 {
    bytes.fold(0, |number, byte| number << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    use aes::{Aes128, Aes192};
    use proptest::prelude::*;

    use super::*;

    const KEY_128: &str = "2b7e151628aed2a6abf7158809cf4f3c";
    const KEY_192: &str = "2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f";
    const KEY_256: &str = "2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn halves(text: &str, radix: u32) -> Halves {
        let half =
            |text: &str| Half { number: u64::from_str_radix(text, radix).unwrap(), digits: text.len() };
        let (high, low) = text.split_at(text.len() / 2);
        Halves(half(high), half(low))
    }

    fn holds<C: KeyInit + BlockCipherEncrypt + Clone>(
        key: &str,
        radix: u32,
        tweak: &str,
        plain: &str,
        cipher: &str,
    ) {
        let ff1 = FF1::<C>::new(&bytes(key), radix).unwrap();
        let plain = halves(plain, radix);
        let cipher = halves(cipher, radix);
        assert_eq!(ff1.encrypt(&bytes(tweak), &plain).unwrap(), cipher);
        assert_eq!(ff1.decrypt(&bytes(tweak), &cipher).unwrap(), plain);
    }

    #[test]
    fn the_nine_samples_of_nist_encrypt_and_decrypt() {
        let ten = "0123456789";
        let nineteen = "0123456789abcdefghi";
        let tweak = "39383736353433323130";
        let longer = "3737373770717273373737";
        holds::<Aes128>(KEY_128, 10, "", ten, "2433477484");
        holds::<Aes128>(KEY_128, 10, tweak, ten, "6124200773");
        holds::<Aes128>(KEY_128, 36, longer, nineteen, "a9tv40mll9kdu509eum");
        holds::<Aes192>(KEY_192, 10, "", ten, "2830668132");
        holds::<Aes192>(KEY_192, 10, tweak, ten, "2496655549");
        holds::<Aes192>(KEY_192, 36, longer, nineteen, "xbj3kv35jrawxv32ysr");
        holds::<Aes256>(KEY_256, 10, "", ten, "6657667009");
        holds::<Aes256>(KEY_256, 10, tweak, ten, "1001623463");
        holds::<Aes256>(KEY_256, 36, longer, nineteen, "xs8a0azh2avyalyzuwd");
    }

    proptest! {
        #[test]
        fn ff1_permutes_the_numbers_below_2_to_the_63(number in 0..=i64::MAX as u64, key: [u8; KEY_BYTES]) {
            let permutation = Permutation::new(&key);
            let permuted = permutation.encrypt(number);
            prop_assert!(permuted <= i64::MAX as u64);
            prop_assert_eq!(permutation.decrypt(permuted), number);
            prop_assert_eq!(permutation.encrypt(permutation.decrypt(number)), number);
        }
    }
}
