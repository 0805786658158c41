//! What a session of NFS is, as values for requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::{FileStatistics, NfsClientInfo, ShareName};
use utoipa::ToSchema;

use super::statistics_views::{KindView, by_procedure};

/// What a session of NFS is: a connection of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NfsSessionView {
    /// The shares that it has used.
    pub shares: Vec<String>,
    /// What it has done, by procedure of NFS and MOUNT. Those that were not called are not listed.
    pub procedures: BTreeMap<String, KindView>,
    /// What clients of NFS version 4 at its address hold, by whichever connection: one for each
    /// minor version that Linux has mounted.
    #[serde(default)]
    pub clients: Vec<NfsClientView>,
}

/// What a client of NFS version 4 holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NfsClientView {
    /// The name that it has given itself.
    pub name: String,
    /// Its sessions.
    pub sessions: usize,
    /// Open files, once per program or user that has opened them.
    pub opens: usize,
    /// Locked ranges of files.
    pub locks: usize,
    /// Files that are delegated to it: it opens and reads them without asking.
    #[serde(default)]
    pub delegations: usize,
}

impl NfsSessionView {
    pub(super) fn new(
        shares: &[ShareName],
        operations: &FileStatistics,
        clients: &[NfsClientInfo],
    ) -> Self {
        Self {
            shares: shares.iter().map(ToString::to_string).collect(),
            procedures: by_procedure(operations),
            clients: clients.iter().map(client_view).collect(),
        }
    }
}

fn client_view(info: &NfsClientInfo) -> NfsClientView {
    NfsClientView {
        name: info.name.clone(),
        sessions: info.sessions,
        opens: info.opens,
        locks: info.locks,
        delegations: info.delegations,
    }
}
