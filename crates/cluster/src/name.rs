//! Names of clusters, nodes and zones.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name: that of a label of DNS (RFC 1035 §2.3.4).
const LEN_MAX: usize = 63;

/// A name: lower-case letters, digits and hyphens, of which a hyphen is not the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text that is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a name; use at most {LEN_MAX} lower-case letters, digits and hyphens, beginning with a letter or digit"
)]
pub struct NameFault {
    text: String,
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let is_name = text.len() <= LEN_MAX
            && text.bytes().next().is_some_and(is_plain)
            && text.bytes().all(|b| is_plain(b) || b == b'-');
        if !is_name {
            let text = text.chars().take(2 * LEN_MAX).collect();
            return Err(NameFault { text });
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = NameFault;

    fn try_from(text: String) -> Result<Self, NameFault> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_of_dns_in_lower_case() {
        for text in ["a", "n1", "rack-2", &"x".repeat(63)] {
            assert!(text.parse::<Name>().is_ok(), "{text}");
        }
        for text in ["", "-a", "A", "a.b", "a/b", "a b", "ä", &"x".repeat(64)] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }
}
