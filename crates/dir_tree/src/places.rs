//! Which directory has which file under which name, as far as that is known: the way from a file's
//! number to a path. It is only a hint. Whatever a path leads to is compared with the identifier.

use std::collections::VecDeque;
use std::sync::Arc;

use file_tree::FileId;
use memory::{Budget, Charge, MemoryError};
use rustc_hash::FxHashMap;

/// Where a file is, or was when the tree last saw it.
#[derive(Debug)]
struct Place {
    /// The number of the directory.
    directory: u64,
    name: Box<[u8]>,
    /// Whether it was used since the table last looked for room.
    is_used: bool,
}

/// Places of files, by their numbers.
#[derive(Debug)]
pub(crate) struct Places {
    root: u64,
    by_number: FxHashMap<u64, Place>,
    /// Numbers in the order in which they are looked at for room. Some have no place any more.
    order: VecDeque<u64>,
    /// What the places take.
    used_bytes: u64,
    charge: Charge,
    /// Whether each file that the tree ever saw has a place, unless it was removed.
    is_complete: bool,
    /// Files that were removed through this tree, the oldest first: they need no search.
    removed: VecDeque<FileId>,
}

/// The most memory that places take, in bytes: of about 400,000 files.
pub(crate) const PLACES_BYTES_MAX: u64 = 64 << 20;
/// What the table charges to the budget at a time.
const CHARGE_STEP_BYTES: u64 = 64 << 10;
/// What a place takes besides its name: the entry, its share of the map, and its number in `order`.
const PLACE_BYTES: u64 = 112;
/// The deepest directory. It ends the way up from places that lead in a circle.
const DEPTH_MAX: usize = 4096;
/// How many removed files are remembered.
const REMOVED_MAX: usize = 1024;

impl Places {
    /// A table without places, below the directory `root`.
    pub(crate) fn new(root: u64, budget: &Arc<Budget>) -> Result<Self, MemoryError> {
        Ok(Self {
            root,
            by_number: FxHashMap::default(),
            order: VecDeque::new(),
            used_bytes: 0,
            charge: budget.reserve(CHARGE_STEP_BYTES)?,
            is_complete: false,
            removed: VecDeque::new(),
        })
    }

    /// Notes that a directory has a file under a name.
    pub(crate) fn learn(&mut self, directory: u64, name: &[u8], file: u64) {
        if file == self.root {
            return;
        }
        if let Some(place) = self.by_number.get_mut(&file)
            && place.name.len() == name.len()
        {
            place.directory = directory;
            place.name.copy_from_slice(name);
            return;
        }
        self.forget(file);
        let bytes = place_bytes(name);
        if !self.make_room(bytes) {
            self.is_complete = false;
            return;
        }
        self.used_bytes += bytes;
        let place = Place {
            directory,
            name: name.into(),
            is_used: true,
        };
        self.by_number.insert(file, place);
        self.order.push_back(file);
    }

    /// Every file will be learned now.
    pub(crate) fn begin_completion(&mut self) {
        self.is_complete = true;
    }

    /// A file was seen that was not learned.
    pub(crate) fn note_incomplete(&mut self) {
        self.is_complete = false;
    }

    /// Whether each file that the tree ever saw has a place, unless it was removed.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether another place fits without giving up one.
    pub(crate) fn has_room(&self) -> bool {
        self.used_bytes + place_bytes(&[0; file_tree::Name::LEN_MAX]) <= PLACES_BYTES_MAX
    }

    /// A file is not, or no more, where it was.
    pub(crate) fn forget(&mut self, file: u64) {
        let Some(place) = self.by_number.remove(&file) else {
            return;
        };
        self.used_bytes -= place_bytes(&place.name);
        if self.order.len() > 2 * self.by_number.len() + REMOVED_MAX {
            let places = &self.by_number;
            self.order.retain(|number| places.contains_key(number));
        }
    }

    /// The last name of a file was removed.
    pub(crate) fn note_removed(&mut self, file: FileId) {
        self.forget(file.number);
        if self.removed.len() >= REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(file);
    }

    /// Whether a file is known to have been removed.
    pub(crate) fn is_removed(&self, file: FileId) -> bool {
        self.removed.contains(&file)
    }

    /// The path of a file from the root, and the numbers of the directories on it, the nearest
    /// first.
    pub(crate) fn path(&mut self, file: u64) -> Option<(Vec<u8>, Vec<u64>)> {
        let mut chain = vec![file];
        let mut at = file;
        while at != self.root {
            if chain.len() > DEPTH_MAX {
                return None;
            }
            let place = self.by_number.get_mut(&at)?;
            place.is_used = true;
            at = place.directory;
            chain.push(at);
        }
        let named = &chain[..chain.len() - 1];
        let names = named
            .iter()
            .rev()
            .map(|number| &*self.by_number[number].name);
        let path = names.collect::<Vec<_>>().join(&b'/');
        chain.remove(0);
        Some((path, chain))
    }

    /// Gives up places that were not used lately until another one fits. Whether it does.
    fn make_room(&mut self, bytes: u64) -> bool {
        while !self.fits(bytes) {
            let Some(number) = self.order.pop_front() else {
                return false;
            };
            match self.by_number.get_mut(&number) {
                None => {}
                Some(place) if place.is_used => {
                    place.is_used = false;
                    self.order.push_back(number);
                }
                Some(_) => {
                    self.is_complete = false;
                    self.forget(number);
                }
            }
        }
        true
    }

    fn fits(&mut self, bytes: u64) -> bool {
        let wanted = self.used_bytes + bytes;
        if wanted <= self.charge.len_bytes() {
            return true;
        }
        let charged = wanted.next_multiple_of(CHARGE_STEP_BYTES);
        charged <= PLACES_BYTES_MAX && self.charge.resize(charged).is_ok()
    }
}

fn place_bytes(name: &[u8]) -> u64 {
    PLACE_BYTES + (name.len() as u64).next_multiple_of(16)
}
