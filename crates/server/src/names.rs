//! Names that users give. They are checked once, when they are parsed.

use std::fmt;
use std::str::FromStr;

/// Why a text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It is empty.
    #[error("is empty; give at least one character")]
    Empty,
    /// It is too long for its kind.
    #[error("is longer than {max_bytes} bytes; shorten it")]
    TooLong {
        /// The most bytes.
        max_bytes: usize,
    },
    /// It has a character that is not allowed in its kind.
    #[error("contains {character:?}; use {allowed}")]
    Character {
        /// The first such character.
        character: char,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// It begins like an iSCSI qualified name but does not continue like one.
    #[error("is not an iSCSI qualified name; write iqn.YEAR-MONTH.REVERSED.DOMAIN:WORD")]
    NotAnIqn,
    /// It would be a step of a path.
    #[error("is a step of a path, not a name; choose another")]
    Dots,
    /// It is the name of something that always exists.
    #[error("is reserved for the discovery service; choose another")]
    Reserved,
}

/// A volume's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

/// A share's name, of the same form as that of a volume. Clients mount `/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareName(String);

/// A target's name: an iSCSI name (`iqn.`, `eui.`, `naa.`), an NQN, or another name of up to 223
/// bytes that NVMe hosts accept as one (with a warning).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName(String);

/// A host's name here: its NQN or iSCSI initiator name, or any label for a host that is identified
/// by its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The longest name of a volume or a share.
const WORD_MAX_BYTES: usize = 64;
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

impl ShareName {
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

    /// The protocol that the target is offered over: iSCSI for names in a form of iSCSI's (RFC 7143
    /// §4.2.7.1), NVMe for all others.
    pub fn protocol(&self) -> Protocol {
        Protocol::of_name(&self.0)
    }

    /// Whether it has the form of an NQN (`nqn.yyyy-mm.reversed.domain[:anything]`). Linux, SPDK
    /// and QEMU accept other names too; some other hosts do not.
    pub fn is_nqn(&self) -> bool {
        self.0.strip_prefix("nqn.").is_some_and(has_date_and_domain)
    }
}

/// The prefixes of iSCSI names (RFC 7143 §4.2.7.1).
const ISCSI_FORMS: [&str; 3] = ["iqn.", "eui.", "naa."];

fn has_form(name: &str, form: &str) -> bool {
    let start = name.get(..form.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(form))
}

/// The protocol that a target is offered over. A target's name decides: hosts of each protocol name
/// targets, and themselves, in its own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NVMe over Fabrics: subsystems with namespaces, numbered from 1.
    Nvme,
    /// iSCSI: targets with LUNs, numbered from 0.
    Iscsi,
}

impl Protocol {
    /// Ignores case, so that a name such as `IQN.…` belongs to iSCSI: as the name of a target it is
    /// rejected, and as the name of an initiator it is recognized.
    fn of_name(name: &str) -> Self {
        if ISCSI_FORMS.iter().any(|form| has_form(name, form)) {
            Self::Iscsi
        } else {
            Self::Nvme
        }
    }

    /// The lowest number of a volume in a target.
    pub const fn first_number(self) -> u32 {
        match self {
            Self::Nvme => 1,
            Self::Iscsi => 0,
        }
    }
}

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The protocol whose targets hosts of such a name use: iSCSI for names in a form of iSCSI's
    /// and for port identifiers of SRP, NVMe for all others.
    pub fn protocol(&self) -> Protocol {
        if self.is_srp_port() {
            Protocol::Iscsi
        } else {
            Protocol::of_name(&self.0)
        }
    }

    /// Whether it is the port identifier of an SRP initiator: `0x` and 32 hexadecimal digits in
    /// lower case.
    pub fn is_srp_port(&self) -> bool {
        let digits = self.0.strip_prefix("0x");
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_digit))
    }

    /// Whether it is of a kind that hosts give themselves: an NQN, or an iSCSI name (`iqn.`,
    /// `eui.`, `naa.`), or a port identifier of SRP.
    pub fn is_qualified(&self) -> bool {
        self.0.starts_with("nqn.") || self.protocol() == Protocol::Iscsi
    }
}

impl FromStr for VolumeName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        check_word(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for ShareName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Self, NameFault> {
        check_word(text)?;
        if matches!(text, "." | "..") {
            return Err(NameFault::Dots);
        }
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
        let name = Self(text.to_owned());
        if name.protocol() == Protocol::Iscsi {
            check_iscsi_name(text)?;
        }
        Ok(name)
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

impl fmt::Display for ShareName {
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

/// Checks the name of a volume or a share.
fn check_word(text: &str) -> Result<(), NameFault> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    check(
        text,
        WORD_MAX_BYTES,
        is_allowed,
        "letters, digits, '.', '_' and '-'",
    )
}

/// iSCSI names are compared in lower case and allow few characters (RFC 7143 §4.2.7.2), so this
/// form is required. The date of an `iqn.` name is followed by the domain of the naming authority.
fn check_iscsi_name(text: &str) -> Result<(), NameFault> {
    let is_allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | ':');
    check(
        text,
        NQN_MAX_BYTES,
        is_allowed,
        "lower-case letters, digits, '.', '-' and ':'",
    )?;
    match text.strip_prefix("iqn.") {
        Some(rest) if !has_date_and_domain(rest) => Err(NameFault::NotAnIqn),
        _ => Ok(()),
    }
}

/// Whether a name continues, after its type, with `yyyy-mm.reversed.domain[:anything]`.
fn has_date_and_domain(rest: &str) -> bool {
    let (date, rest) = rest.split_at_checked(8).unwrap_or((rest, ""));
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 => byte == b'-',
        7 => byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    is_date && date.len() == 8 && !rest.is_empty() && !rest.starts_with(':')
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
    fn a_share_is_one_step_of_a_path() {
        assert!("db-1.log_a".parse::<ShareName>().is_ok());
        assert!("...".parse::<ShareName>().is_ok());
        for dots in [".", ".."] {
            assert_eq!(dots.parse::<ShareName>(), Err(NameFault::Dots), "{dots}");
        }
        assert!(matches!(
            "/db".parse::<ShareName>(),
            Err(NameFault::Character { character: '/', .. })
        ));
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

    #[test]
    fn a_targets_name_decides_its_protocol() {
        let protocol = |text: &str| text.parse::<TargetName>().map(|name| name.protocol());
        assert_eq!(protocol("iqn.2025-01.io.ramport:a"), Ok(Protocol::Iscsi));
        assert_eq!(protocol("eui.02004567a425678d"), Ok(Protocol::Iscsi));
        assert_eq!(protocol("nqn.2025-01.io.ramport:a"), Ok(Protocol::Nvme));
        assert_eq!(protocol("plain"), Ok(Protocol::Nvme));
        for text in ["iqn.a", "iqn.2025-01", "iqn.2025-1.io:a"] {
            assert_eq!(protocol(text), Err(NameFault::NotAnIqn), "{text}");
        }
        for (text, capital) in [
            ("iqn.2025-01.io.Ramport", 'R'),
            ("IQN.2025-01.io.ramport", 'I'),
            ("Eui.02004567a425678d", 'E'),
        ] {
            assert!(
                matches!(protocol(text), Err(NameFault::Character { character, .. }) if character == capital),
                "{text}"
            );
        }
        let host: HostName = "IQN.2025-01.io.ramport:h".parse().expect("a name");
        assert_eq!(
            (host.protocol(), host.is_qualified()),
            (Protocol::Iscsi, true)
        );
        for (text, is_port) in [
            ("0x00000000000000015054_00fffe123456", false),
            ("0x0000000000000001505400fffe123456", true),
            ("0x0000000000000001505400FFFE123456", false),
            ("0x1", false),
        ] {
            let host: HostName = text.parse().expect("a name");
            assert_eq!(host.is_srp_port(), is_port, "{text}");
            assert_eq!(host.protocol() == Protocol::Iscsi, is_port, "{text}");
        }
    }
}
