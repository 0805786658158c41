//! Text: key=value pairs, null-terminated, in the data segments of login and text PDUs.
//!
//! Read first: RFC 7143 §6.1, "Text Format".

/// The most bytes of text that one negotiation gathers over continued PDUs.
pub const TEXT_LEN_MAX: usize = 16 << 10;
/// The most pairs of one negotiation.
pub const PAIRS_MAX: usize = 64;
/// The longest key (RFC 7143 §6.1).
const KEY_LEN_MAX: usize = 63;

/// How a text is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    Encoding,
    /// A pair has no `=`.
    #[error("pair {pair} has no '='")]
    NoEquals {
        /// Which pair, from 0.
        pair: usize,
    },
    /// A key is empty or longer than 63 bytes.
    #[error("pair {pair} has a key that is empty or longer than 63 bytes")]
    KeyLength {
        /// Which pair, from 0.
        pair: usize,
    },
    /// A key is repeated.
    #[error("pair {pair} repeats a key")]
    Repeated {
        /// Which pair, from 0.
        pair: usize,
    },
    /// More pairs than a negotiation may have.
    #[error("more than {PAIRS_MAX} pairs")]
    TooManyPairs,
    /// The last pair does not end with a null byte.
    #[error("the text does not end with a null byte")]
    Unterminated,
}

/// Why an offer ends the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// A declared value is outside of what RFC 7143 allows.
    #[error("a declared value is out of range")]
    Declared,
}

/// Parses a whole text. Empty items between pairs (padding) are skipped.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let text = std::str::from_utf8(text).map_err(|_| TextError::Encoding)?;
    let Some(text) = text.strip_suffix('\0') else {
        return if text.is_empty() {
            Ok(Vec::new())
        } else {
            Err(TextError::Unterminated)
        };
    };
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for item in text.split('\0').filter(|item| !item.is_empty()) {
        let pair = pairs.len();
        if pair == PAIRS_MAX {
            return Err(TextError::TooManyPairs);
        }
        let (key, value) = item.split_once('=').ok_or(TextError::NoEquals { pair })?;
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err(TextError::KeyLength { pair });
        }
        if pairs.iter().any(|(other, _)| *other == key) {
            return Err(TextError::Repeated { pair });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Text that is being composed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextBuilder(Vec<u8>);

impl TextBuilder {
    /// Appends `key=value`.
    pub fn push(&mut self, key: &str, value: &str) {
        self.0.extend(key.as_bytes());
        self.0.push(b'=');
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    /// The composed bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A numerical value, decimal or hexadecimal (RFC 7143 §6.1, "regular-numerical-value").
pub fn parse_number(value: &str) -> Option<u32> {
    match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if value.bytes().all(|byte| byte.is_ascii_digit()) => value.parse().ok(),
        None => None,
    }
}

/// A binary value, hexadecimal (0x) or base64 (0b), of at most `len_max` bytes.
pub fn parse_binary(value: &str, len_max: usize) -> Option<Vec<u8>> {
    if let Some(hex) = value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        return parse_hex(hex, len_max);
    }
    let encoded = value
        .strip_prefix("0b")
        .or_else(|| value.strip_prefix("0B"))?;
    parse_base64(encoded, len_max)
}

fn parse_hex(hex: &str, len_max: usize) -> Option<Vec<u8>> {
    // An odd number of digits has an implied leading zero.
    let digits: Option<Vec<u8>> = hex
        .chars()
        .map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect();
    let mut digits = digits?;
    if digits.len() % 2 == 1 {
        digits.insert(0, 0);
    }
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    (bytes.len() <= len_max).then_some(bytes)
}

fn parse_base64(encoded: &str, len_max: usize) -> Option<Vec<u8>> {
    let symbols = encoded.trim_end_matches('=').as_bytes();
    if symbols.len() > len_max.div_ceil(3) * 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(len_max);
    let (mut bits, mut count) = (0_u32, 0);
    for symbol in symbols {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    (bytes.len() <= len_max).then_some(bytes)
}

/// A binary value in hexadecimal.
pub fn encode_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("0x");
    for byte in bytes {
        write!(out, "{byte:02x}").expect("writing to a string does not fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_in_order_and_padding_is_passed_over() {
        let mut text = TextBuilder::default();
        text.push("InitiatorName", "iqn.a");
        text.push("SessionType", "Normal");
        let mut bytes = text.into_bytes();
        bytes.push(0);
        assert_eq!(
            parse(&bytes),
            Ok(vec![("InitiatorName", "iqn.a"), ("SessionType", "Normal")])
        );
        assert_eq!(parse(b""), Ok(vec![]));
    }

    #[test]
    fn malformed_texts_name_the_pair() {
        assert_eq!(parse(b"a=1\0b\0"), Err(TextError::NoEquals { pair: 1 }));
        assert_eq!(parse(b"a=1\0a=2\0"), Err(TextError::Repeated { pair: 1 }));
        assert_eq!(parse(b"=1\0"), Err(TextError::KeyLength { pair: 0 }));
        assert_eq!(parse(b"a=1"), Err(TextError::Unterminated));
        assert_eq!(parse(b"a=\xFF\0"), Err(TextError::Encoding));
        let many: Vec<u8> = (0..=PAIRS_MAX)
            .flat_map(|i| format!("k{i}=v\0").into_bytes())
            .collect();
        assert_eq!(parse(&many), Err(TextError::TooManyPairs));
    }

    #[test]
    fn numbers_and_binaries_in_all_their_forms() {
        assert_eq!(parse_number("65536"), Some(65536));
        assert_eq!(parse_number("0x1F"), Some(31));
        assert_eq!(parse_number("4294967296"), None);
        assert_eq!(parse_number("-1"), None);
        assert_eq!(parse_binary("0xabc", 4), Some(vec![0x0A, 0xBC]));
        assert_eq!(parse_binary("0bTWFu", 4), Some(b"Man".to_vec()));
        assert_eq!(parse_binary("0bTWE=", 4), Some(b"Ma".to_vec()));
        assert_eq!(parse_binary("0x0102", 1), None);
        assert_eq!(parse_binary("0bT*", 4), None);
        assert_eq!(encode_hex(&[0, 0xAB]), "0x00ab");
    }
}
