//! Removal of names, and of files with their last name.

use std::sync::Arc;

use file_tree::permission;
use file_tree::{Caller, Changed, FileError, FileId, Name, Timestamp};

use super::{Namespace, change_directory};
use crate::inode::{Inode, Meta};
use crate::usage::Usage;

/// A removed name, and the file if that was its last one: the caller frees its data.
pub(crate) type Removed<T> = (Changed<T>, Option<Arc<Inode>>);

/// Which kind of file may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    NotDirectory,
    EmptyDirectory,
}

impl Namespace {
    pub(crate) fn remove(
        &mut self,
        usage: &Usage,
        caller: &Caller<'_>,
        (directory, name): (FileId, Name<'_>),
        removal: Removal,
        now: Timestamp,
    ) -> Result<Removed<()>, FileError> {
        let (parent, entries) = self.directory(directory)?;
        let parent = Arc::clone(parent);
        let parent_meta = *parent.meta();
        permission::check_entries(caller, &parent_meta.owner)?;
        let name = self.hashed(name);
        let number = entries.find(name).ok_or(FileError::NotFound)?;
        let inode = Arc::clone(self.numbered(number)?);
        permission::check_sticky(caller, &parent_meta.owner, &inode.meta().owner)?;
        self.check_removal(&inode, removal)?;

        self.entries_mut(directory)?.remove(name);
        usage.refund_metadata(name.entry_bytes());
        let changed = change_directory(&parent, now, |meta: &mut Meta| {
            meta.links -= u32::from(inode.is_directory());
            meta.size_bytes -= name.entry_bytes();
        });
        Ok((changed, self.unlink(usage, &inode, now)))
    }

    /// Whether the file is of the kind that may be removed, and empty if it is a directory.
    pub(super) fn check_removal(&self, inode: &Inode, removal: Removal) -> Result<(), FileError> {
        match removal {
            Removal::NotDirectory if inode.is_directory() => Err(FileError::IsDirectory),
            Removal::EmptyDirectory if !inode.is_directory() => Err(FileError::NotDirectory),
            Removal::EmptyDirectory if !self.directory(inode.id)?.1.is_empty() => {
                Err(FileError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    /// Takes one link from a file, or all of a directory, and removes the file with the last.
    pub(super) fn unlink(
        &mut self,
        usage: &Usage,
        inode: &Inode,
        now: Timestamp,
    ) -> Option<Arc<Inode>> {
        let links = {
            let mut meta = inode.meta();
            meta.links = if inode.is_directory() {
                0
            } else {
                meta.links - 1
            };
            meta.touch(now);
            meta.links
        };
        if links > 0 {
            return None;
        }
        self.forget(usage, inode.id.number)
    }
}
