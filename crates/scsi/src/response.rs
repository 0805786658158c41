//! The response to a command.

use crate::sense::{ScsiStatus, Sense};

/// A finished command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status byte.
    pub status: ScsiStatus,
    /// Why, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data-in, already cut to the CDB's allocation length.
    pub data_in: Vec<u8>,
}

impl Response {
    /// GOOD without data.
    pub fn good() -> Self {
        Self::data(Vec::new())
    }

    pub(crate) fn data(data_in: Vec<u8>) -> Self {
        Self {
            status: ScsiStatus::Good,
            sense: None,
            data_in,
        }
    }

    /// CHECK CONDITION with `sense`.
    pub fn check(sense: Sense) -> Self {
        Self {
            status: ScsiStatus::CheckCondition,
            sense: Some(sense),
            data_in: Vec::new(),
        }
    }

    pub(crate) fn status(status: ScsiStatus) -> Self {
        Self {
            status,
            sense: None,
            data_in: Vec::new(),
        }
    }
}
