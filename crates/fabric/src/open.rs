//! Which provider an address gets.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::provider::{FabricError, Provider};
use crate::{Hw, HwError, Soft, SoftOptions};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// An adapter where one has the address, else software.
    #[default]
    Auto,
    /// An adapter, or nothing.
    Hw,
    /// Software.
    Soft,
}

/// What was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// An adapter.
    Hw,
    /// Software.
    Soft,
}

/// A provider, and why this one.
pub struct Opened {
    /// The provider.
    pub provider: Box<dyn Provider>,
    /// What it is.
    pub kind: ProviderKind,
    /// Why: a sentence for people.
    pub reason: String,
}

/// The provider of an address of this machine. On any address (0.0.0.0 or ::) there is the one in software only, since an adapter
/// is found by its address.
pub fn open(choice: Choice, address: IpAddr) -> Result<Opened, FabricError> {
    let why_not_hw = match choice {
        Choice::Soft => String::from("software was asked for"),
        Choice::Auto | Choice::Hw => match Hw::open(address) {
            Ok(hw) => {
                let reason = format!("adapter {} has the address {address}", hw.device());
                return Ok(Opened {
                    provider: Box::new(hw),
                    kind: ProviderKind::Hw,
                    reason,
                });
            }
            Err(error) if choice == Choice::Hw => return Err(error.into()),
            Err(error) => error.to_string(),
        },
    };
    let soft = Soft::bind(&SoftOptions::at_ip(address))
        .map_err(|error| FabricError::SoftPort { address, error })?;
    Ok(Opened {
        provider: Box::new(soft),
        kind: ProviderKind::Soft,
        reason: format!("RDMA in software: {why_not_hw}"),
    })
}

/// A choice that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no provider of RDMA; give auto, hw (an adapter) or soft (software)")]
pub struct NoSuchChoice(pub String);

impl FromStr for Choice {
    type Err = NoSuchChoice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "hw" => Ok(Self::Hw),
            "soft" => Ok(Self::Soft),
            other => Err(NoSuchChoice(other.to_owned())),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Hw => "hw",
            Self::Soft => "soft",
        })
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hw => "hw",
            Self::Soft => "soft",
        })
    }
}

impl From<HwError> for FabricError {
    fn from(error: HwError) -> Self {
        Self::Adapter(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_written_as_they_are_read() {
        for choice in [Choice::Auto, Choice::Hw, Choice::Soft] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "both"
            .parse::<Choice>()
            .expect_err("there is no such choice");
        assert!(error.to_string().contains("auto, hw"), "{error}");
    }

    #[test]
    fn loopback_is_served_in_software_whatever_adapters_there_are() {
        let address: IpAddr = "127.36.9.1".parse().expect("an address");
        let opened = open(Choice::Auto, address).expect("the port is free here");
        assert_eq!(opened.kind, ProviderKind::Soft);
        assert!(opened.reason.contains("127.36.9.1"), "{}", opened.reason);
        let error = open(Choice::Hw, address)
            .err()
            .expect("loopback has no adapter");
        assert!(error.to_string().contains("127.36.9.1"), "{error}");
        let error = open(Choice::Soft, address)
            .err()
            .expect("the port is taken");
        assert!(error.to_string().contains("4791"), "{error}");
    }
}
