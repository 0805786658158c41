//! Finds a file by its identifier: where it was, or by a search, if its place is not known: after a
//! restart, after others moved it, or after its place was given up.
//!
//! A search goes through the whole directory, by numbers alone, so that it looks at no file. It
//! notes the places of everything that it passes, so that one search serves many files. One thread
//! searches at a time, and only for a part of the time, whatever handles clients invent: a file
//! that cannot be searched for now is [`FileError::Busy`].

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::TryLockError;
use std::time::{Duration, Instant};

use file_tree::{FileError, FileId, FileKind};
use rustix::fs::{FileType, OFlags, RawDir};

use crate::errors::of_host;
use crate::resolve::{Found, Resolver, open_confined};

/// A directory that a search has found.
struct Directory {
    number: u64,
    /// Its place in the list of directories; of the root, its own.
    parent: usize,
    name: Box<[u8]>,
}

/// The name and the number of an entry, and whether it may be a directory.
type Entry = (Box<[u8]>, u64, bool);

/// After a search that found nothing, none begins for this many times as long as it took.
const PAUSE_FACTOR: u32 = 8;
/// The shortest of these pauses.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The most directories that a search goes through, some 64 MiB.
const DIRECTORIES_MAX: usize = 1 << 20;
/// The longest list of entries that is read at a time, in bytes.
pub(crate) const LIST_BYTES: usize = 32 << 10;

impl Resolver {
    /// The file of an identifier.
    pub(crate) fn find(&self, file: FileId) -> Result<Found, FileError> {
        let known = {
            let mut places = self.places();
            if places.is_removed(file) {
                return Err(FileError::Stale);
            }
            places.path(file.number)
        };
        let had_place = known.is_some();
        if let Some((path, above)) = known {
            match self.open(path, above) {
                Ok(found) if found.attributes.id == file => return Ok(found),
                // The number is that of a later file.
                Ok(found) if found.attributes.id.number == file.number => {
                    return Err(FileError::Stale);
                }
                // It was moved or removed by others.
                Ok(_) | Err(FileError::NotFound | FileError::NotDirectory) => {
                    self.places().forget(file.number);
                }
                Err(error) => return Err(error),
            }
        }
        self.search_for(file, had_place)
    }

    /// The directory of an identifier.
    pub(crate) fn directory(&self, file: FileId) -> Result<Found, FileError> {
        let found = self.find(file)?;
        match found.attributes.kind {
            FileKind::Directory => Ok(found),
            _ => Err(FileError::NotDirectory),
        }
    }

    /// Searches for a file that is not, or no more, where it was, or has no place.
    fn search_for(&self, file: FileId, had_place: bool) -> Result<Found, FileError> {
        let mut not_before = match self.search.try_lock() {
            Ok(not_before) => not_before,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(FileError::Busy),
        };
        // Another thread's search may have found it.
        let (known, is_complete) = {
            let mut places = self.places();
            (places.path(file.number), places.is_complete())
        };
        if let Some((path, above)) = known
            && let Ok(found) = self.open(path, above)
            && found.attributes.id.number == file.number
        {
            return identified(found, file);
        }
        let begin = Instant::now();
        if begin < *not_before {
            // If a search has seen all files, one that it did not see does not exist any more.
            let is_gone = is_complete && !had_place;
            return Err(if is_gone {
                FileError::Stale
            } else {
                FileError::Busy
            });
        }
        let found = self.walk(file.number);
        let found = found.and_then(|found| found.ok_or(FileError::Stale));
        if found.is_err() {
            *not_before = Instant::now() + PAUSE_MIN.max(begin.elapsed() * PAUSE_FACTOR);
        }
        identified(found?, file)
    }

    /// Goes through all directories. Returns the file with the number.
    fn walk(&self, number: u64) -> Result<Option<Found>, FileError> {
        let mut directories = vec![Directory {
            number: self.root_id.number,
            parent: 0,
            name: Box::default(),
        }];
        let mut seen = BTreeSet::from([self.root_id.number]);
        let mut found = None;
        let mut at = 0;
        self.places().begin_completion();
        while at < directories.len() && (found.is_none() || self.places().has_room()) {
            let (path, _) = place(&directories, at);
            let entries = match self.directory_entries(&path) {
                Ok(entries) => entries,
                // It was removed meanwhile, or the daemon may not read it.
                Err(FileError::NotFound | FileError::AccessDenied | FileError::NotDirectory) => {
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            let mut places = self.places();
            for (name, entry, is_directory) in entries {
                if entry == number && found.is_none() {
                    found = Some((at, name.clone()));
                }
                if places.has_room() {
                    places.learn(directories[at].number, &name, entry);
                } else {
                    places.note_incomplete();
                }
                if is_directory && directories.len() < DIRECTORIES_MAX && seen.insert(entry) {
                    directories.push(Directory {
                        number: entry,
                        parent: at,
                        name,
                    });
                }
            }
            at += 1;
        }
        found.map_or(Ok(None), |(directory, name)| {
            self.open_entry(&directories, directory, &name, number)
        })
    }

    /// Opens the entry that a search has found, and notes the places on the way to it.
    fn open_entry(
        &self,
        directories: &[Directory],
        directory: usize,
        name: &[u8],
        number: u64,
    ) -> Result<Option<Found>, FileError> {
        self.learn_way(directories, directory);
        let parent = directories[directory].number;
        self.places().learn(parent, name, number);
        let (mut path, mut above) = place(directories, directory);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        above.insert(0, parent);
        match self.open(path, above) {
            Ok(found) => Ok((found.attributes.id.number == number).then_some(found)),
            Err(FileError::NotFound | FileError::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes the places of a directory and of those above it.
    fn learn_way(&self, directories: &[Directory], directory: usize) {
        let mut places = self.places();
        let mut at = directory;
        while at != 0 {
            let Directory {
                number,
                parent,
                name,
            } = &directories[at];
            places.learn(directories[*parent].number, name, *number);
            at = *parent;
        }
    }

    /// The names and numbers of a directory's entries, and which may be directories.
    fn directory_entries(&self, path: &[u8]) -> Result<Vec<Entry>, FileError> {
        let directory = self.open(path.to_vec(), Vec::new())?;
        let list = open_list(&directory.handle)?;
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut reader = RawDir::new(&list, &mut buffer);
        let mut entries = Vec::new();
        while let Some(entry) = reader.next() {
            let entry = entry.map_err(of_host)?;
            let name = entry.file_name().to_bytes();
            let kind = entry.file_type();
            let is_directory = matches!(kind, FileType::Directory | FileType::Unknown);
            if !matches!(name, b"." | b"..") {
                entries.push((name.into(), entry.ino(), is_directory));
            }
        }
        Ok(entries)
    }
}

/// Opens a directory so that its entries can be read.
pub(crate) fn open_list(directory: &OwnedFd) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_confined(directory, b".", flags)
}

/// The path of a directory, and the numbers of those above it, the nearest first.
fn place(directories: &[Directory], directory: usize) -> (Vec<u8>, Vec<u64>) {
    let (mut names, mut above) = (Vec::new(), Vec::new());
    let mut at = directory;
    while at != 0 {
        names.push(&*directories[at].name);
        at = directories[at].parent;
        above.push(directories[at].number);
    }
    names.reverse();
    (names.join(&b'/'), above)
}

/// The file, if it is the one of the identifier and not a later one of the same number.
fn identified(found: Found, file: FileId) -> Result<Found, FileError> {
    if found.attributes.id == file {
        Ok(found)
    } else {
        Err(FileError::Stale)
    }
}
