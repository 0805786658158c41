//! Operations on ranges of a file's data that move no bytes to or from a caller.

use std::os::fd::OwnedFd;

use file_tree::{Caller, Changed, FileError, FileId, FileTree as _, permission};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::content::changed;
use super::{DirTree, FILE_BYTES_MAX};
use crate::errors::of_host;
use crate::identity::ownership;
use crate::resolve::Found;
use crate::system_call::clone::clone_range;

impl DirTree {
    pub(super) fn reserve_range(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        check_end(offset, len_bytes)?;
        let free_bytes = self.space().free_bytes;
        self.change_range(caller, file, |data, found| {
            // Some file systems take all that is free before they fail.
            let missing_bytes = len_bytes.saturating_sub(found.attributes.used_bytes);
            if missing_bytes > free_bytes {
                return Err(FileError::NoSpace);
            }
            rustix::fs::fallocate(data, FallocateFlags::empty(), offset, len_bytes).map_err(of_host)
        })
    }

    pub(super) fn make_hole(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.change_range(caller, file, |data, found| {
            let size_bytes = found.attributes.size_bytes;
            let len_bytes = len_bytes.min(size_bytes.saturating_sub(offset));
            if len_bytes == 0 {
                return Ok(());
            }
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(data, mode, offset, len_bytes).map_err(of_host)
        })
    }

    pub(super) fn clone_data(
        &self,
        caller: &Caller<'_>,
        (source, from): (FileId, u64),
        (target, to): (FileId, u64),
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        check_end(to, len_bytes)?;
        let source = self.resolver.find(source)?;
        let attributes = source.attributes;
        permission::check_read(caller, attributes.kind, &ownership(&attributes))?;
        self.change_range(caller, target, |data, _| {
            let is_inside = from
                .checked_add(len_bytes)
                .is_some_and(|end| end <= attributes.size_bytes);
            if !is_inside {
                return Err(FileError::Invalid);
            }
            if len_bytes == 0 {
                return Ok(());
            }
            let source = source.open_as(&self.resolver, OFlags::RDONLY)?;
            clone_range((&source, from), (data, to), len_bytes).map_err(|error| match error {
                // Neither the file system nor its blocks are shared with what the client takes for
                // one.
                Errno::XDEV | Errno::NOTTY => FileError::NotSupported,
                error => of_host(error),
            })
        })
    }

    /// Changes data of a file that the caller may write.
    fn change_range(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        change: impl FnOnce(&OwnedFd, &Found) -> Result<(), FileError>,
    ) -> Result<Changed, FileError> {
        let locked = self.lock_data(file);
        let found = self.resolver.find(file)?;
        let before = found.attributes;
        permission::check_write(caller, before.kind, &ownership(&before))?;
        let data = found.open_as(&self.resolver, OFlags::WRONLY)?;
        change(&data, &found)?;
        let after = self.end_change(caller, &found)?;
        drop(locked);
        if self.is_durable() {
            rustix::fs::fdatasync(&data).map_err(of_host)?;
        }
        Ok(changed(&before, after))
    }
}

/// Whether a file may have a range.
fn check_end(offset: u64, len_bytes: u64) -> Result<(), FileError> {
    let end = offset.checked_add(len_bytes);
    if end.is_none_or(|end| end > FILE_BYTES_MAX) {
        return Err(FileError::TooLarge);
    }
    Ok(())
}
