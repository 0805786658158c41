//! Numbers as fio writes them: `4k`, `1m`, `2g`; `10`, `500ms`, `2m`.

use std::time::Duration;

/// A number that cannot be read, and what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// No length in bytes.
    #[error(
        "{text:?} is not a length; write bytes or a multiple such as 4k, 1m, 50GiB (k is 1024)"
    )]
    Len {
        /// The text.
        text: String,
    },
    /// No duration.
    #[error("{text:?} is not a time; write seconds or a unit: 10, 10s, 500ms, 2m, 1h")]
    Time {
        /// The text.
        text: String,
    },
    /// No list of processors.
    #[error("{text:?} is not a list of processors; write numbers and ranges, as 0,2-3")]
    Cpus {
        /// The text.
        text: String,
    },
}

/// A length in bytes: digits and a suffix `k`, `m`, `g`, `t` (powers of 1024, as fio's default),
/// each also with `b` or `ib` behind it.
pub fn parse_len(text: &str) -> Result<u64, NumberError> {
    let wrong = || NumberError::Len {
        text: text.to_owned(),
    };
    let (digits, suffix) = split_digits(text);
    let suffix = suffix.to_ascii_lowercase();
    let shift = match suffix.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(1 << shift).ok_or_else(wrong)
}

/// A duration: a number of seconds, or with a unit `us`, `ms`, `s`, `m`, `h`; fractions are
/// possible.
pub fn parse_time(text: &str) -> Result<Duration, NumberError> {
    let wrong = || NumberError::Time {
        text: text.to_owned(),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit_s = match suffix {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| wrong())
}

/// Processors: numbers and ranges, separated by commas.
pub fn parse_cpus(text: &str) -> Result<CpuList, NumberError> {
    let wrong = || NumberError::Cpus {
        text: text.to_owned(),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= CpuList::CPU_MAX {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

/// Processors to run on, in the order of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl CpuList {
    /// One more than the highest processor number.
    pub const CPU_MAX: usize = 1024;
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_powers_of_1024_as_in_fio() {
        for (text, len) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("128kb", 128 << 10),
            ("1m", 1 << 20),
            ("50G", 50 << 30),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_len(text), Ok(len), "{text}");
        }
        for text in ["", "k", "4x", "-1", "4 k", "1.5g", "99999999999999t"] {
            assert!(parse_len(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_without_a_unit_are_seconds() {
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        for text in ["soon", "", ".", "1.2.3", "-1", "5d"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_numbers_and_ranges() {
        assert_eq!(parse_cpus("0,2-4"), Ok(CpuList(vec![0, 2, 3, 4])));
        assert!(parse_cpus("3-2").is_err());
        assert!(parse_cpus("0,").is_err());
    }
}
