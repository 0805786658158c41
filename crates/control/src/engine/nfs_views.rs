//! What a session of NFS is, as values for requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::{FileStatistics, ShareName};
use utoipa::ToSchema;

use super::statistics_views::{KindView, by_procedure};

/// What a session of NFS is: a connection of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NfsSessionView {
    /// The shares that it has used.
    pub shares: Vec<String>,
    /// What it has done, by procedure of NFS and MOUNT. Those that were not called are not listed.
    pub procedures: BTreeMap<String, KindView>,
}

impl NfsSessionView {
    pub(super) fn new(shares: &[ShareName], operations: &FileStatistics) -> Self {
        Self {
            shares: shares.iter().map(ToString::to_string).collect(),
            procedures: by_procedure(operations),
        }
    }
}
