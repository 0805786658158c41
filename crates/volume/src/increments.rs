//! Saves that hold only what has changed: what has to be known for them, and when they are cheaper.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{CHUNK_BYTES, Chain, HostFiles, HostReader, IfBroken, ImageError, Label, Tail};
use memory::{MemoryError, Store, Tracker};

/// The part of a complete file, as a divisor, that its increments may be as long as together. More,
/// and the next save is complete.
const INCREMENTS_DIVISOR: u64 = 2;

/// The files that hold what a volume was, and what has changed in it since.
#[derive(Debug)]
pub(crate) struct Tracked {
    tracker: Tracker,
    /// The complete file.
    path: PathBuf,
    tail: Tail,
}

/// How a volume is saved next.
pub(crate) enum Plan {
    /// As a complete file.
    Complete,
    /// As an increment with these chunks, after these files.
    Increment(Chain<HostReader>, Vec<u32>),
    /// Not at all: these files show what the volume is.
    Unchanged(Chain<HostReader>),
}

impl Tracked {
    /// Begins to note what changes. The snapshot of the save that [`new`](Self::new) gets is taken
    /// later.
    pub(crate) fn begin(store: &Arc<Store>) -> Result<Tracker, MemoryError> {
        store.track_changes(CHUNK_BYTES)
    }

    /// The save is on stable storage: in `path` and its increments up to `tail`.
    pub(crate) fn new(tracker: Tracker, path: &Path, tail: Tail) -> Self {
        Self {
            tracker,
            path: path.to_owned(),
            tail,
        }
    }

    /// How the volume that `label` describes is saved to `path`, when a snapshot of it has been
    /// taken.
    pub(crate) fn plan(&self, path: &Path, label: &Label) -> Plan {
        if self.path != path {
            return Plan::Complete;
        }
        let Some(changed) = self.tracker.changed() else {
            return Plan::Complete;
        };
        let accept = |_: &Label| Ok::<(), ImageError>(());
        let opened = Chain::open(&HostFiles, path, accept, IfBroken::Refuse);
        // Someone may have replaced, moved or damaged a file.
        let Ok(chain) = opened else {
            return Plan::Complete;
        };
        let found = chain.label();
        let is_it = chain.tail() == self.tail
            && found.lineage == label.lineage
            && found.size_bytes == label.size_bytes
            && found.block_bytes == label.block_bytes;
        if !is_it {
            return Plan::Complete;
        }
        if changed.is_empty() {
            return Plan::Unchanged(chain);
        }
        if !is_cheaper(&chain, changed.len() as u64) {
            return Plan::Complete;
        }
        let number = |number: u64| u32::try_from(number).expect("volumes are at most 64 TiB");
        Plan::Increment(chain, changed.into_iter().map(number).collect())
    }
}

/// Whether an increment of `changed` chunks is written, as far as can be known before these are
/// compressed.
fn is_cheaper(chain: &Chain<HostReader>, changed: u64) -> bool {
    let (base_bytes, held_bytes) = (chain.base_bytes(), chain.held_bytes());
    let increments_bytes = chain.file_bytes() - base_bytes;
    // They are probably as compressible as the complete file.
    let plain_bytes = u128::from(changed * CHUNK_BYTES);
    let stored_bytes = plain_bytes * u128::from(base_bytes) / u128::from(held_bytes.max(1));
    let bound = u128::from(base_bytes / INCREMENTS_DIVISOR);
    chain.tail().has_room() && u128::from(increments_bytes) + stored_bytes.min(plain_bytes) <= bound
}
