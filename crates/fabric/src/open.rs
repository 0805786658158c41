//! Which provider an address gets.

use std::fmt;
use std::str::FromStr;

use crate::FabricError;
use crate::provider::Provider;
use crate::{Hw, LinkLayer, Soft, SoftOptions};

/// Which provider is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// An adapter if one has the address, otherwise software.
    #[default]
    Auto,
    /// An adapter, or nothing.
    Hw,
    /// Software.
    Soft,
}

/// Which provider was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// An adapter.
    Hw,
    /// Software.
    Soft,
}

/// A provider, and why this one.
pub struct Opened<S = Box<Soft>> {
    /// The provider.
    pub provider: AnyProvider<S>,
    /// Why: a sentence for people.
    pub reason: String,
}

/// A provider of either kind. The kinds stay separate types, so that their callers are compiled for
/// each.
pub enum AnyProvider<S = Box<Soft>> {
    /// An adapter.
    Hw(Box<Hw>),
    /// Software: one provider, or several of one address.
    Soft(S),
}

impl<S> AnyProvider<S> {
    /// Which of the two.
    pub const fn kind(&self) -> ProviderKind {
        match self {
            Self::Hw(_) => ProviderKind::Hw,
            Self::Soft(_) => ProviderKind::Soft,
        }
    }

    /// Its link layer; `None` if the system does not say. RDMA in software is RoCEv2, which runs
    /// over Ethernet.
    pub fn link_layer(&self) -> Option<LinkLayer> {
        match self {
            Self::Hw(hw) => hw.link_layer(),
            Self::Soft(_) => Some(LinkLayer::Ethernet),
        }
    }
}

impl AnyProvider {
    /// The provider, for callers that need not know which kind it is.
    pub fn boxed(self) -> Box<dyn Provider> {
        match self {
            Self::Hw(hw) => hw,
            Self::Soft(soft) => soft,
        }
    }
}

/// The provider of an address of this machine, which `soft` names together with all that concerns
/// software. On any address (0.0.0.0 or ::) there is the one in software only, since an adapter is
/// found by its address.
pub fn open(choice: Choice, soft: &SoftOptions) -> Result<Opened, FabricError> {
    open_or(choice, soft, || Ok(Box::new(Soft::bind(soft)?)))
}

/// The same. In software, `threads` providers share the address (see [`Soft::bind_several`]).
pub fn open_several(
    choice: Choice,
    soft: &SoftOptions,
    threads: usize,
) -> Result<Opened<Vec<Soft>>, FabricError> {
    open_or(choice, soft, || Soft::bind_several(soft, threads))
}

fn open_or<S>(
    choice: Choice,
    soft: &SoftOptions,
    bind: impl FnOnce() -> Result<S, FabricError>,
) -> Result<Opened<S>, FabricError> {
    let address = soft.local.ip();
    let no_adapter = match choice {
        Choice::Soft => None,
        Choice::Auto | Choice::Hw => match Hw::open(address) {
            Ok(hw) => {
                return Ok(Opened {
                    reason: format!("adapter {} has the address {address}", hw.device()),
                    provider: AnyProvider::Hw(Box::new(hw)),
                });
            }
            Err(error) if choice == Choice::Hw => return Err(error.into()),
            Err(error) => Some(error),
        },
    };
    match (bind(), no_adapter) {
        (Ok(soft), no_adapter) => Ok(Opened {
            provider: AnyProvider::Soft(soft),
            reason: no_adapter.map_or_else(
                || String::from("software was asked for"),
                |error| error.to_string(),
            ),
        }),
        (Err(error), None) => Err(error),
        (Err(error), Some(hw)) => Err(FabricError::Neither {
            hw,
            soft: Box::new(error),
        }),
    }
}

/// A choice that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RDMA provider; use auto, hw (adapter) or soft (software)")]
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
        let soft = SoftOptions::at_ip("127.36.9.1".parse().expect("an address"));
        let refused = |choice| open(choice, &soft).err().expect("refused").to_string();
        let error = refused(Choice::Hw);
        assert!(error.contains("127.36.9.1"), "{error}");
        let opened = open(Choice::Auto, &soft).expect("the port is free here");
        assert_eq!(opened.provider.kind(), ProviderKind::Soft);
        assert_eq!(opened.provider.link_layer(), Some(LinkLayer::Ethernet));
        assert!(opened.reason.contains("127.36.9.1"), "{}", opened.reason);
        let error = refused(Choice::Soft);
        assert!(
            error.starts_with("cannot use UDP port 4791 of 127.36.9.1"),
            "{error}"
        );
        let both = refused(Choice::Auto);
        assert!(
            both.contains("no RDMA adapter") && both.ends_with(&error),
            "{both}"
        );
    }
}
