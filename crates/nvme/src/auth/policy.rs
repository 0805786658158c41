//! What both sides state about a transaction beforehand.

use std::fmt;
use std::str::FromStr;

use super::{DhGroup, UnknownGroup};

/// Which groups one side accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// All. Controllers choose the smallest that the host offers, and none if it offers none.
    #[default]
    Any,
    /// No group.
    NoGroup,
    /// This group alone.
    Only(DhGroup),
}

impl GroupPolicy {
    /// How [`Self::Any`] is written.
    const ANY: &str = "any";
}

impl FromStr for GroupPolicy {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<Self, UnknownGroup> {
        match text {
            Self::ANY => Ok(Self::Any),
            DhGroup::NONE_NAME => Ok(Self::NoGroup),
            group => group.parse().map(Self::Only),
        }
    }
}

impl fmt::Display for GroupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => Self::ANY,
            Self::NoGroup => DhGroup::NONE_NAME,
            Self::Only(group) => group.name(),
        })
    }
}

/// Who speaks to whom: the names in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Host NQN.
    pub host_nqn: String,
    /// Subsystem NQN.
    pub subsystem_nqn: String,
}
