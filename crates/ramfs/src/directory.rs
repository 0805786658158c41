//! The entries of one directory.

use std::collections::BTreeMap;
use std::ops::Bound;

use file_tree::{Cookie, FileError, Name};

/// Entries whose names have the same hash have neighbouring cookies.
const PLACES: u64 = 8;
/// What an entry is charged beside its name, in bytes: its part of nodes that are at least five
/// elevenths full, and the name's allocation.
const ENTRY_BYTES: u64 = 112;
/// Names are charged in units of this.
const NAME_STEP_BYTES: u64 = 16;

/// Names and the numbers of their files, by cookie. A cookie is a hash of the name with a key that
/// peers do not know, so one map serves look-ups and listings, a cookie never changes, and growth
/// moves no other entries.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The number of the directory that has this one as an entry.
    pub(crate) parent: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    /// The number of its file.
    pub(crate) file: u64,
}

/// A name with its hash, which is a cookie of 63 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedName<'a> {
    name: Name<'a>,
    first_place: u64,
}

impl<'a> HashedName<'a> {
    pub(crate) fn new(name: Name<'a>, hash: u64) -> Self {
        let buckets = 1 << 60;
        // Bucket 0 would have the cookies that are not those of entries.
        let bucket = (hash % buckets).max(1);
        Self {
            name,
            first_place: bucket * PLACES,
        }
    }

    /// What an entry of this name is charged, in bytes.
    pub(crate) fn entry_bytes(self) -> u64 {
        entry_bytes(self.name.as_bytes().len())
    }

    fn places(self) -> std::ops::Range<u64> {
        self.first_place..self.first_place + PLACES
    }
}

impl Directory {
    pub(crate) fn new(parent: u64) -> Self {
        Self {
            parent,
            entries: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the file that has the name.
    pub(crate) fn find(&self, name: HashedName<'_>) -> Option<u64> {
        self.find_entry(name).map(|(_, entry)| entry.file)
    }

    /// Whether [`insert`](Self::insert) can add the name, which no entry has.
    pub(crate) fn check_room(&self, name: HashedName<'_>) -> Result<(), FileError> {
        if self.entries.range(name.places()).count() as u64 == PLACES {
            return Err(FileError::NoSpace);
        }
        Ok(())
    }

    /// Adds an entry, after [`check_room`](Self::check_room).
    pub(crate) fn insert(&mut self, name: HashedName<'_>, file: u64) {
        let mut places = name.places();
        let free = places.find(|place| !self.entries.contains_key(place));
        let place = free.expect("the caller has checked");
        let entry = Entry {
            name: name.name.as_bytes().into(),
            file,
        };
        self.entries.insert(place, entry);
    }

    /// Lets an entry name another file.
    pub(crate) fn replace(&mut self, name: HashedName<'_>, file: u64) {
        let found = self.find_entry(name).map(|(place, _)| place);
        if let Some(entry) = found.and_then(|place| self.entries.get_mut(&place)) {
            entry.file = file;
        }
    }

    pub(crate) fn remove(&mut self, name: HashedName<'_>) {
        if let Some((place, _)) = self.find_entry(name) {
            self.entries.remove(&place);
        }
    }

    /// The entries behind `after`, in the order of their cookies.
    pub(crate) fn entries_after(&self, after: Cookie) -> impl Iterator<Item = (Cookie, &Entry)> {
        let behind = (Bound::Excluded(after.0), Bound::Unbounded);
        self.entries
            .range(behind)
            .map(|(&place, entry)| (Cookie(place), entry))
    }

    /// What all entries are charged, in bytes.
    pub(crate) fn charged_bytes(&self) -> u64 {
        let names = self.entries.values().map(|entry| entry.name.len());
        names.map(entry_bytes).sum()
    }

    fn find_entry(&self, name: HashedName<'_>) -> Option<(u64, &Entry)> {
        self.entries
            .range(name.places())
            .find(|(_, entry)| *entry.name == *name.name.as_bytes())
            .map(|(&place, entry)| (place, entry))
    }
}

fn entry_bytes(name_bytes: usize) -> u64 {
    ENTRY_BYTES + (name_bytes as u64).next_multiple_of(NAME_STEP_BYTES)
}
