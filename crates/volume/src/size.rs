//! Sizes as users write them.

use std::fmt;
use std::str::FromStr;

/// A size in bytes, written as users write it: `50G`, `512MiB`, `1.5T`, `1048576`.
///
/// `K`, `M`, `G`, `T`, `P` are powers of 1024, as in lvm and coreutils, with or without `iB`; `KB`,
/// `MB`, `GB`, `TB`, `PB` are powers of 1000, as in coreutils. Case does not matter. A fraction
/// must result in whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// What is wrong with a size that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It does not begin with a number.
    #[error("`{given}` is not a size; write a number and a unit, such as 50G, 512MiB or 1048576")]
    NotANumber {
        /// What was written.
        given: String,
    },
    /// What follows the number is not a unit.
    #[error(
        "`{unit}` in `{given}` is not a unit; use K, M, G, T or P (powers of 1024), or KB, MB, GB, TB or PB"
    )]
    UnknownUnit {
        /// What was written.
        given: String,
        /// The part that is wrong.
        unit: String,
    },
    /// A fraction that is not a whole number of bytes.
    #[error("`{given}` is not a whole number of bytes; write it with a smaller unit")]
    NotWhole {
        /// What was written.
        given: String,
    },
    /// More than 2^64 - 1 bytes.
    #[error("`{given}` is too large; the largest volume is 64T")]
    TooLarge {
        /// What was written.
        given: String,
    },
}

/// Unit letters by power.
const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
/// The most digits after the point.
const FRACTION_DIGITS_MAX: usize = 9;

impl ByteSize {
    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let given = || text.to_owned();
        let trimmed = text.trim();
        let number_len = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || fraction.len() > FRACTION_DIGITS_MAX {
            return Err(SizeError::NotANumber { given: given() });
        }
        let unit = unit.trim();
        let Some(factor) = factor(unit) else {
            return Err(SizeError::UnknownUnit {
                given: given(),
                unit: unit.to_owned(),
            });
        };
        let too_large = |_| SizeError::TooLarge { given: given() };
        let whole = u128::from(whole.parse::<u64>().map_err(too_large)?);
        let scale = 10_u128.pow(fraction.len() as u32);
        // At most nine digits, so this is a number, or nothing.
        let fraction = u128::from(fraction.parse::<u64>().unwrap_or(0));
        let scaled = (whole * scale + fraction) * u128::from(factor);
        if !scaled.is_multiple_of(scale) {
            return Err(SizeError::NotWhole { given: given() });
        }
        match u64::try_from(scaled / scale) {
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err(SizeError::TooLarge { given: given() }),
        }
    }
}

/// The largest unit of 1024 in which the size is a whole number: always exact, and read back as the
/// same.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = (self.0.trailing_zeros() / 10).min(UNITS.len() as u32);
        if self.0 == 0 || power == 0 {
            return write!(f, "{} B", self.0);
        }
        let unit = UNITS[power as usize - 1];
        write!(f, "{} {unit}iB", self.0 >> (10 * power))
    }
}

fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let letter = unit.chars().next()?;
    let power = UNITS.iter().position(|&known| known == letter)? as u32 + 1;
    match &unit[letter.len_utf8()..] {
        "" | "IB" => Some(1 << (10 * power)),
        "B" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u64, SizeError> {
        text.parse().map(ByteSize::bytes)
    }

    #[test]
    fn letters_are_powers_of_1024_and_b_after_them_makes_1000() {
        let sizes = [
            ("1048576", 1 << 20),
            ("50G", 50 << 30),
            ("50g", 50 << 30),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("4KB", 4000),
            ("2TB", 2_000_000_000_000),
            ("1.5T", 3 << 39),
            ("0.5K", 512),
            ("7B", 7),
            (" 1P ", 1 << 50),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["", "G", "-5G", "1..2G", ".5G", "1.2.3G", "1.0000000001T"] {
            assert!(
                matches!(parse(text), Err(SizeError::NotANumber { .. })),
                "{text}"
            );
        }
        for text in ["5X", "5GG", "5GiBs", "5 é", "1e9"] {
            assert!(
                matches!(parse(text), Err(SizeError::UnknownUnit { .. })),
                "{text}"
            );
        }
        for text in ["99999999999999999999", "16384P", "99999999P"] {
            assert!(
                matches!(parse(text), Err(SizeError::TooLarge { .. })),
                "{text}"
            );
        }
        assert!(matches!(parse("0.3K"), Err(SizeError::NotWhole { .. })));
        let error = parse("12 cows").expect_err("no unit");
        assert!(
            error
                .to_string()
                .starts_with("`cows` in `12 cows` is not a unit")
        );
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        let shown = [
            (0, "0 B"),
            (1000, "1000 B"),
            (1536, "1536 B"),
            (512 << 20, "512 MiB"),
            (3 << 39, "1536 GiB"),
            (64 << 40, "64 TiB"),
            (1 << 60, "1024 PiB"),
            (u64::MAX, "18446744073709551615 B"),
        ];
        for (bytes, text) in shown {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(parse(text), Ok(bytes));
        }
    }
}
