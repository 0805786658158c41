//! What a session of NFS is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::FileStatistics;
use utoipa::ToSchema;

use super::KindView;

/// What a session of NFS is: a connection of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NfsSessionView {
    /// The shares that it has used.
    pub shares: Vec<String>,
    /// What it has done, by procedure of NFS and MOUNT. Those that were not called are not listed.
    pub procedures: BTreeMap<String, KindView>,
}

/// The counters of procedures that were called, by name.
pub(super) fn by_procedure(statistics: &FileStatistics) -> BTreeMap<String, KindView> {
    let called = statistics.kinds().filter(|(_, kind)| kind.operations > 0);
    called
        .map(|(procedure, kind)| (procedure.name().to_owned(), kind.into()))
        .collect()
}
