//! What a volume was saved as at a shutdown, as the state file has it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use volume::SaveId;

/// A save of a volume that nobody has written to since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownSave {
    /// See [`SaveId`].
    lineage: Uuid,
    /// See [`SaveId`].
    sequence: u64,
}

impl From<SaveId> for ShutdownSave {
    fn from(SaveId { lineage, sequence }: SaveId) -> Self {
        Self { lineage, sequence }
    }
}

impl From<ShutdownSave> for SaveId {
    fn from(ShutdownSave { lineage, sequence }: ShutdownSave) -> Self {
        Self { lineage, sequence }
    }
}
