//! Files by number.

use std::collections::BTreeSet;
use std::sync::Arc;

use file_tree::{FileError, FileId};

use crate::directory::Directory;
use crate::inode::Inode;

const LEAF_SLOTS: usize = 256;
/// What a leaf is charged, in bytes: its allocation and its place in the table.
pub(crate) const LEAF_BYTES: u64 = size_of::<Leaf>() as u64 + 64;

/// The files that exist. Numbers are used again, the smallest first; generations are not.
#[derive(Debug, Default)]
pub(crate) struct Table {
    leaves: Vec<Option<Box<Leaf>>>,
    /// Leaves that have a free slot.
    open: BTreeSet<usize>,
    generation: u64,
}

/// A file, and its entries if it is a directory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) inode: Arc<Inode>,
    pub(crate) directory: Option<Box<Directory>>,
}

#[derive(Debug)]
struct Leaf {
    slots: [Option<Slot>; LEAF_SLOTS],
    used: usize,
}

impl Table {
    /// The identifier of the next file, and the bytes that the table then allocates.
    pub(crate) fn next(&self) -> (FileId, u64) {
        let (index, leaf_bytes) = if let Some(&leaf) = self.open.first() {
            let slots = self.leaves[leaf]
                .as_ref()
                .map_or(&[][..], |leaf| &leaf.slots);
            let free = slots.iter().position(Option::is_none).unwrap_or(0);
            (leaf * LEAF_SLOTS + free, 0)
        } else {
            let vacant = self.leaves.iter().position(Option::is_none);
            (vacant.unwrap_or(self.leaves.len()) * LEAF_SLOTS, LEAF_BYTES)
        };
        let id = FileId {
            number: index as u64 + 1,
            generation: self.generation + 1,
        };
        (id, leaf_bytes)
    }

    /// Adds the file that has the identifier which [`next`](Self::next) gave.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let (leaf, index) = place(slot.inode.id.number);
        self.generation = slot.inode.id.generation;
        if leaf == self.leaves.len() {
            self.leaves.push(None);
        }
        let new = || {
            Box::new(Leaf {
                slots: std::array::from_fn(|_| None),
                used: 0,
            })
        };
        let slots = self.leaves[leaf].get_or_insert_with(new);
        slots.slots[index] = Some(slot);
        slots.used += 1;
        if slots.used < LEAF_SLOTS {
            self.open.insert(leaf);
        } else {
            self.open.remove(&leaf);
        }
    }

    /// Removes a file. Returns it, and the bytes that the table has freed.
    pub(crate) fn remove(&mut self, number: u64) -> (Option<Slot>, u64) {
        let (leaf, index) = place(number);
        let Some(Some(slots)) = self.leaves.get_mut(leaf) else {
            return (None, 0);
        };
        let Some(removed) = slots.slots[index].take() else {
            return (None, 0);
        };
        slots.used -= 1;
        if slots.used > 0 {
            self.open.insert(leaf);
            return (Some(removed), 0);
        }
        self.open.remove(&leaf);
        self.leaves[leaf] = None;
        while let Some(None) = self.leaves.last() {
            self.leaves.pop();
        }
        (Some(removed), LEAF_BYTES)
    }

    /// The file of an identifier.
    pub(crate) fn get(&self, id: FileId) -> Result<&Slot, FileError> {
        self.by_number(id.number)
            .filter(|slot| slot.inode.id == id)
            .ok_or(FileError::Stale)
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<&Slot> {
        let (leaf, index) = place(number);
        self.leaves.get(leaf)?.as_ref()?.slots[index].as_ref()
    }

    pub(crate) fn by_number_mut(&mut self, number: u64) -> Option<&mut Slot> {
        let (leaf, index) = place(number);
        self.leaves.get_mut(leaf)?.as_mut()?.slots[index].as_mut()
    }

    /// A file, if there is one.
    pub(crate) fn any(&self) -> Option<&Slot> {
        let slots = self
            .leaves
            .iter()
            .rev()
            .flatten()
            .flat_map(|leaf| &leaf.slots);
        slots.flatten().next()
    }
}

/// Leaf and index inside it. Number 0 is none, and beyond every leaf.
fn place(number: u64) -> (usize, usize) {
    let index = number.wrapping_sub(1) as usize;
    (index / LEAF_SLOTS, index % LEAF_SLOTS)
}
