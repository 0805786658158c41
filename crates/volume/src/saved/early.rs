//! Restoring a volume that is served meanwhile.

use std::path::Path;
use std::sync::Arc;

use image::{Chain, ChunkBuffers, HostReader, IfBroken, ImageError};
use memory::Progress;

use super::{IfDamaged, RestoreError, SaveId, Saved, Wanted, check_room, open};
use crate::damage::Damage;
use crate::loading::{Loaded, Loading};
use crate::{ManagedVolume, Relay};

/// Reads what a volume is restored from, chunk by chunk. Commands that need a chunk which is not
/// read yet wait for it, so [`step`](Self::step) has to be called until it returns
/// [`LoadStep::End`].
#[derive(Debug)]
pub struct Loader {
    volume: Arc<dyn ManagedVolume>,
    loading: Arc<Loading>,
    chain: Chain<HostReader>,
    buffers: ChunkBuffers,
    saved: Saved,
    /// Where the pass through the file is, which reads what no command has asked for.
    position: usize,
    /// The chunk after the last one that commands waited for. Taking them in ascending order reads
    /// the disk in one direction.
    wanted_from: u32,
}

/// What a step of a [`Loader`] has done.
#[derive(Debug)]
pub enum LoadStep {
    /// A chunk is in memory.
    Loaded,
    /// A chunk is damaged. What hosts do not write anew of it cannot be read.
    Damaged {
        /// Why, if its bytes could not even be read.
        cause: Option<ImageError>,
    },
    /// Nothing is left to read.
    End,
}

/// Begins to restore `volume`, which is offline, has never been written to and is no member of
/// another one, to the file `path`: to save `only`, or to any. When this returns, the volume may be
/// set online. The returned loader does the rest.
///
/// # Errors
/// If the volume cannot be restored, or the file does not fit it, cannot be read or has a damaged
/// header or index. The volume is unchanged. If an increment does not fit, the save before it is
/// restored, unless `only` is another; see [`Loader::broken`].
pub fn begin_restore(
    volume: &Arc<dyn ManagedVolume>,
    path: &Path,
    only: Option<SaveId>,
    relay: &Arc<Relay>,
) -> Result<Loader, RestoreError> {
    let storage = volume.storage();
    let spec = storage.spec();
    let Some(store) = storage.store() else {
        return Err(RestoreError::NotInMemory { kind: spec.kind });
    };
    let if_damaged = IfDamaged::Refuse;
    let wanted = Wanted { only, if_damaged };
    let chain = open(&**volume, path, wanted, IfBroken::EndBefore)?;
    check_room(store, chain.held_bytes())?;
    let (store, relay) = (Arc::clone(store), Arc::clone(relay));
    let loading = Loading::new(store, spec.block_size, relay, chain.numbers());
    let loading = Arc::new(loading);
    volume.controls().begin_loading(Arc::clone(&loading));
    Ok(Loader {
        volume: Arc::clone(volume),
        loading,
        saved: Saved::from(&chain),
        chain,
        buffers: ChunkBuffers::default(),
        position: 0,
        wanted_from: 0,
    })
}

impl Loader {
    /// Loads a chunk that commands wait for, or else the next one of the file.
    ///
    /// # Errors
    /// If the memory budget has no room for it. The commands that waited for it have failed. A
    /// later call tries again.
    pub fn step(&mut self) -> Result<LoadStep, RestoreError> {
        let Some(position) = self.wanted().or_else(|| self.next()) else {
            if self.loading.is_complete() {
                self.volume.controls().end_loading();
            }
            return Ok(LoadStep::End);
        };
        let number = self.chain.number(position).expect("it is a position");
        let read = self.chain.chunk(position, &mut self.buffers);
        let (bytes, cause) = match read {
            Ok(chunk) => (chunk.bytes, None),
            Err(cause) => (None, Some(cause)),
        };
        let loaded = self.loading.load(number, bytes);
        let loaded = loaded.map_err(RestoreError::Write)?;
        if position == self.position {
            self.position += 1;
        }
        Ok(match loaded {
            Loaded::Present => LoadStep::Loaded,
            Loaded::Damaged => LoadStep::Damaged { cause },
        })
    }

    /// Whether commands wait.
    pub fn is_awaited(&self) -> bool {
        self.loading.wanted(0).is_some()
    }

    /// Why the save that is restored is not the last one: an increment is missing or damaged.
    pub fn broken(&self) -> Option<&ImageError> {
        self.chain.broken()
    }

    /// The save.
    pub fn saved(&self) -> Saved {
        self.saved
    }

    /// Whether hosts have changed the volume, so that it is not what the file holds.
    pub fn has_changed(&self) -> bool {
        self.loading.has_changed()
    }

    /// What could not be read so far, and has not been written since.
    pub fn damage(&self) -> Damage {
        self.loading.damage()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let total_bytes = self.saved.held_bytes;
        Progress {
            done_bytes: total_bytes.saturating_sub(self.loading.unread_bytes()),
            total_bytes,
        }
    }

    /// The position of a chunk that commands wait for.
    fn wanted(&mut self) -> Option<usize> {
        let number = self.loading.wanted(self.wanted_from)?;
        self.wanted_from = number + 1;
        self.chain.position(number)
    }

    /// The position of the next chunk of the pass.
    fn next(&mut self) -> Option<usize> {
        loop {
            let number = self.chain.number(self.position)?;
            if self.loading.is_missing(number) {
                return Some(self.position);
            }
            self.position += 1;
        }
    }
}

#[cfg(test)]
mod tests;
