//! bitmap4: a set of attributes.

use crate::xdr::{Malformed, Reader, Writer};

/// A set of attributes, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bitmap(u128);

/// Words of a bitmap that are read. No attribute has a number above 4 × 32, but clients may ask for
/// any.
const WORDS_MAX: u32 = 64;
/// Stands for all attributes that have no number of their own here. None with this number exists.
const OTHERS: u32 = 127;

impl Bitmap {
    /// These attributes.
    pub(super) const fn of(numbers: &[u32]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < numbers.len() {
            bits |= 1 << numbers[at];
            at += 1;
        }
        Self(bits)
    }

    /// Reads it.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let words = reader.u32()?;
        if words > WORDS_MAX {
            return Err(Malformed);
        }
        let mut bits = 0;
        for at in 0..words {
            let word = u128::from(reader.u32()?);
            match at {
                0..4 => bits |= word << (32 * at),
                _ if word != 0 => bits |= 1 << OTHERS,
                _ => {}
            }
        }
        Ok(Self(bits))
    }

    /// Writes it, without words of zeros at its end.
    pub(super) fn write(self, out: &mut Writer<'_>) {
        let words = (u128::BITS - self.0.leading_zeros()).div_ceil(32);
        out.u32(words);
        for at in 0..words {
            out.u32((self.0 >> (32 * at)) as u32);
        }
    }

    /// Those with this number and smaller ones.
    pub(super) const fn up_to(self, number: u32) -> Self {
        Self(self.0 & (u128::MAX >> (u128::BITS - 1 - number)))
    }

    pub(super) const fn contains(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in `other`.
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers, in ascending order.
    pub(super) fn numbers(self) -> impl Iterator<Item = u32> {
        (0..u128::BITS).filter(move |&number| self.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_has_its_lowest_attribute_in_the_first_words_lowest_bit() {
        let bitmap = Bitmap::of(&[0, 33, 75]);
        let mut bytes = Vec::new();
        bitmap.write(&mut Writer::new(&mut bytes));
        let golden = [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 8, 0];
        assert_eq!(bytes, golden);
        assert_eq!(Bitmap::read(&mut Reader::new(&golden)), Ok(bitmap));
        assert_eq!(bitmap.numbers().collect::<Vec<_>>(), [0, 33, 75]);
    }

    #[test]
    fn unknown_attributes_are_not_forgotten_and_too_many_words_are_malformed() {
        let mut bytes = vec![0, 0, 0, 5];
        bytes.resize(4 + 16, 0);
        bytes.extend([0, 0, 0, 1]);
        let read = Bitmap::read(&mut Reader::new(&bytes)).expect("it is short enough");
        assert!(!read.is_empty());
        let long = [[0, 0, 0, 65], [0; 4]].concat();
        assert_eq!(Bitmap::read(&mut Reader::new(&long)), Err(Malformed));
    }
}
