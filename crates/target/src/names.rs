//! Names that people give: checked once, where they come in.

use std::fmt;
use std::str::FromStr;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It is empty.
    #[error("is empty; give at least one character")]
    Empty,
    /// It is longer than names of its kind are.
    #[error("is longer than {max_bytes} bytes; shorten it")]
    TooLong {
        /// The most bytes.
        max_bytes: usize,
    },
    /// It has a character that names of its kind do not have.
    #[error("has the character {character:?}; use {allowed}")]
    Character {
        /// The first such character.
        character: char,
        /// What may stand in the name.
        allowed: &'static str,
    },
    /// It is the name of something that always exists.
    #[error("belongs to the discovery service; choose another")]
    Reserved,
}

/// A volume's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

/// A target's name: an NQN, or another name of up to 223 bytes that hosts accept as one (with a warning).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName(String);

/// A host's name here: its NQN, or any label for a host that is told by its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The longest volume name.
const VOLUME_NAME_MAX_BYTES: usize = 64;
/// The longest NVMe Qualified Name.
const NQN_MAX_BYTES: usize = 223;
/// The name at which every NVMe discovery service answers.
pub(crate) const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

impl VolumeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TargetName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has the form of an NQN (`nqn.yyyy-mm.reversed.domain[:anything]`). Linux, SPDK and QEMU accept
    /// other names too; some other hosts do not.
    pub fn is_nqn(&self) -> bool {
        let Some(rest) = self.0.strip_prefix("nqn.") else {
            return false;
        };
        let (date, rest) = rest.split_at_checked(8).unwrap_or((rest, ""));
        let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
            4 => byte == b'-',
            7 => byte == b'.',
            _ => byte.is_ascii_digit(),
        });
        is_date && date.len() == 8 && !rest.is_empty() && !rest.starts_with(':')
    }
}

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        check(
            text,
            VOLUME_NAME_MAX_BYTES,
            is_allowed,
            "letters, digits, '.', '_' and '-'",
        )?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for TargetName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        check_nqn_like(text)?;
        if text == DISCOVERY_NQN {
            return Err(NameFault::Reserved);
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for HostName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        check_nqn_like(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_nqn_like(text: &str) -> Result<(), NameFault> {
    let is_allowed = |c: char| !c.is_control() && !c.is_whitespace();
    check(
        text,
        NQN_MAX_BYTES,
        is_allowed,
        "anything but spaces and control characters",
    )
}

fn check(
    text: &str,
    max_bytes: usize,
    is_allowed: impl Fn(char) -> bool,
    allowed: &'static str,
) -> Result<(), NameFault> {
    if text.is_empty() {
        return Err(NameFault::Empty);
    }
    if text.len() > max_bytes {
        return Err(NameFault::TooLong { max_bytes });
    }
    match text.chars().find(|&c| !is_allowed(c)) {
        Some(character) => Err(NameFault::Character { character, allowed }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_names_are_plain_words() {
        assert!("db-1.log_a".parse::<VolumeName>().is_ok());
        assert_eq!("".parse::<VolumeName>(), Err(NameFault::Empty));
        assert!(matches!(
            "a/b".parse::<VolumeName>(),
            Err(NameFault::Character { character: '/', .. })
        ));
        assert_eq!(
            "x".repeat(65).parse::<VolumeName>(),
            Err(NameFault::TooLong { max_bytes: 64 })
        );
    }

    #[test]
    fn names_that_are_no_nqn_are_accepted_and_told_apart() {
        let plain: TargetName = "nvmet-rd0".parse().expect("accepted");
        assert!(!plain.is_nqn());
        for nqn in [
            "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba",
            "nqn.2025-01.io.ramport:disk",
        ] {
            assert!(nqn.parse::<TargetName>().expect("accepted").is_nqn());
        }
        for other in ["nqn.2014-08", "nqn.20140-8.org", "nqn.2014-08.:x", "nqn."] {
            assert!(!other.parse::<TargetName>().expect("accepted").is_nqn());
        }
        assert_eq!(
            DISCOVERY_NQN.parse::<TargetName>(),
            Err(NameFault::Reserved)
        );
    }
}
