//! Keys by which peers reach memory of ours.
//!
//! A key is a memory region of its own or, if peers may invalidate it, a memory window, since
//! adapters let peers invalidate nothing else. A request of the peer's queue pair binds the window,
//! which then belongs to that queue pair.

use std::collections::HashMap;
use std::ffi::c_uint;

use super::queue_pairs::Serial;
use super::sys::access;
use super::verbs::{Mr, Mw};
use crate::verbs::{Access, MemoryId, Rkey};

/// The object behind a key.
pub(super) enum Grant {
    Region { _mr: Mr },
    Window { _mw: Mw, owner: Serial },
}

/// All keys.
#[derive(Default)]
pub(super) struct Regions {
    pub(super) by_key: HashMap<u32, (MemoryId, Grant)>,
}

impl Regions {
    /// The most keys.
    pub(super) const KEYS_MAX: usize = 1 << 16;

    /// Invalidates a key. Returns whether it was valid.
    pub(super) fn remove(&mut self, key: Rkey) -> bool {
        self.by_key.remove(&key.0).is_some()
    }

    /// Whether a key is a window of this queue pair's.
    pub(super) fn is_window_of(&self, key: Rkey, serial: Serial) -> bool {
        let found = self.by_key.get(&key.0);
        matches!(found, Some((_, Grant::Window { owner, .. })) if *owner == serial)
    }

    /// Invalidates all keys to an allocation.
    pub(super) fn remove_of(&mut self, memory: MemoryId) {
        self.by_key.retain(|_, (of, _)| *of != memory);
    }

    /// Invalidates all windows of a queue pair, which cannot be destroyed before.
    pub(super) fn remove_owned(&mut self, serial: Serial) {
        self.by_key.retain(
            |_, (_, grant)| !matches!(grant, Grant::Window { owner, .. } if *owner == serial),
        );
    }
}

/// Access rights, as the library encodes them.
pub(super) const fn remote_rights(rights: Access) -> c_uint {
    let read = if rights.read { access::REMOTE_READ } else { 0 };
    let write = if rights.write {
        access::REMOTE_WRITE
    } else {
        0
    };
    let atomic = if rights.atomic {
        access::REMOTE_ATOMIC
    } else {
        0
    };
    read | write | atomic
}
