//! Listings of directories. A cookie is the file system's own position behind an entry, which stays
//! valid for as long as the directory exists, so a listing keeps nothing between calls.

use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

use file_tree::{
    Caller, Cookie, DirectoryEntry, DirectoryPage, FileError, FileId, Listing, Name, permission,
};
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;

use super::DirTree;
use crate::errors::of_host;
use crate::identity::ownership;
use crate::search::{LIST_BYTES, open_list};

/// Cookies up to this one are for `.` and `..`, so a position of the file system is moved by it.
const FIRST_COOKIE: u64 = 3;

impl DirTree {
    pub(super) fn list_entries(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        after: Cookie,
        take: &mut dyn FnMut(&DirectoryEntry<'_>) -> Listing,
    ) -> Result<DirectoryPage, FileError> {
        let found = self.resolver.directory(directory)?;
        let access =
            permission::access(caller, found.attributes.kind, &ownership(&found.attributes));
        if !access.read {
            return Err(FileError::AccessDenied);
        }
        let list = open_list(&found.handle)?;
        if after != Cookie::START {
            let at = after.0.checked_sub(FIRST_COOKIE);
            let at = at.ok_or(FileError::BadCookie)?;
            rustix::fs::seek(&list, SeekFrom::Start(at)).map_err(|error| match error {
                Errno::INVAL => FileError::BadCookie,
                error => of_host(error),
            })?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut reader = RawDir::new(&list, &mut buffer);
        let mut is_end = true;
        while let Some(entry) = reader.next() {
            let entry = entry.map_err(of_host)?;
            let text = entry.file_name();
            // `.`, `..`, and what no client could name.
            let Ok(name) = Name::new(text.to_bytes()) else {
                continue;
            };
            let seen = match self.resolver.identifier.look_at(list.as_fd(), text) {
                Ok(seen) if seen.is_mount => continue,
                Ok(seen) => seen,
                // It was removed meanwhile.
                Err(FileError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let number = seen.attributes.id.number;
            let places = &mut self.resolver.places();
            places.learn(directory.number, name.as_bytes(), number);
            let cookie = entry.next_entry_cookie().checked_add(FIRST_COOKIE);
            let entry = DirectoryEntry {
                name,
                cookie: Cookie(cookie.ok_or(FileError::Io)?),
                attributes: seen.attributes,
            };
            if take(&entry) == Listing::Full {
                is_end = false;
                break;
            }
        }
        Ok(DirectoryPage {
            is_end,
            attributes: self.look(&found.handle)?,
        })
    }
}
