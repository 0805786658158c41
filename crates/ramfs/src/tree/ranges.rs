//! Operations on ranges of a file's data that move no bytes to or from a caller.

use std::sync::Arc;

use file_tree::permission;
use file_tree::{Caller, Changed, FileError, FileId};

use super::RamTree;
use super::content::check_write;
use crate::data::FileData;
use crate::inode::{Inode, Meta, unchanged};
use crate::limits::{ALLOCATE_BYTES_MAX, CLONE_BYTES_MAX, FILE_BYTES_MAX};
use crate::pages::PAGE_BYTES;

/// What is cloned.
#[derive(Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
    len_bytes: u64,
}

impl RamTree {
    pub(super) fn reserve_range(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        let mut data = inode.data_mut();
        data.check()?;
        check_write(caller, &inode)?;
        if len_bytes == 0 {
            return Err(FileError::Invalid);
        }
        let end = end_of(offset, len_bytes)?;
        let missing_bytes = len_bytes.saturating_sub(data.used_bytes());
        // What cannot succeed is not begun.
        if missing_bytes > self.space.usage.quota_free_bytes() {
            return Err(FileError::QuotaExceeded);
        }
        if missing_bytes > self.tree_space().free_bytes {
            return Err(FileError::NoSpace);
        }
        let count_max = ALLOCATE_BYTES_MAX / PAGE_BYTES;
        let is_done = data.fill_holes(&self.space, (offset, end), count_max)?;
        let changed = self.note_change(caller, &inode, |meta: &mut Meta| {
            meta.used_bytes = data.used_bytes();
            if is_done {
                meta.size_bytes = meta.size_bytes.max(end);
            }
        });
        if is_done {
            Ok(changed)
        } else {
            Err(FileError::Busy)
        }
    }

    pub(super) fn clone_data(
        &self,
        caller: &Caller<'_>,
        (source, from): (FileId, u64),
        (target, to): (FileId, u64),
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        let (source, target) = (self.inode(source)?, self.inode(target)?);
        let range = Range {
            from,
            to,
            len_bytes,
        };
        if Arc::ptr_eq(&source, &target) {
            let mut data = target.data_mut();
            data.check()?;
            check_clone(caller, &source, &target, range)?;
            if len_bytes > from.abs_diff(to) {
                return Err(FileError::Invalid);
            }
            let copied = self.copy_range(&data, range)?;
            return self.end_clone(caller, (&target, &mut data), range, copied);
        }
        // The file with the lower number is locked first.
        let first = (source.id.number < target.id.number).then(|| source.data());
        let mut data = target.data_mut();
        let source_data = first.unwrap_or_else(|| source.data());
        source_data.check()?;
        data.check()?;
        check_clone(caller, &source, &target, range)?;
        let copied = self.copy_range(&source_data, range)?;
        source.note_read(self.now());
        self.end_clone(caller, (&target, &mut data), range, copied)
    }

    fn copy_range(&self, source: &FileData, range: Range) -> Result<FileData, FileError> {
        let Range {
            from, len_bytes, ..
        } = range;
        if source.maps_more_than((from, from + len_bytes), CLONE_BYTES_MAX) {
            return Err(FileError::TooLarge);
        }
        source.copy(&self.space, (from, from + len_bytes), range.to)
    }

    fn end_clone(
        &self,
        caller: &Caller<'_>,
        (target, data): (&Inode, &mut FileData),
        Range { to, len_bytes, .. }: Range,
        copied: FileData,
    ) -> Result<Changed, FileError> {
        if len_bytes == 0 {
            return Ok(unchanged(target));
        }
        data.replace(&self.space, (to, to + len_bytes), copied)?;
        Ok(self.note_change(caller, target, |meta: &mut Meta| {
            meta.used_bytes = data.used_bytes();
            meta.size_bytes = meta.size_bytes.max(to + len_bytes);
        }))
    }
}

/// Whether the caller may clone the range, which is in the source and in units.
fn check_clone(
    caller: &Caller<'_>,
    source: &Inode,
    target: &Inode,
    Range {
        from,
        to,
        len_bytes,
    }: Range,
) -> Result<(), FileError> {
    let source_bytes = {
        let meta = source.meta();
        permission::check_read(caller, source.kind, &meta.owner)?;
        meta.size_bytes
    };
    let target_bytes = check_write(caller, target)?.size_bytes;
    let end = from.checked_add(len_bytes);
    let end = end.filter(|&end| end <= source_bytes);
    let end = end.ok_or(FileError::Invalid)?;
    let target_end = end_of(to, len_bytes)?;
    let is_unit = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES);
    let is_rest = end == source_bytes && target_end >= target_bytes;
    if is_unit(from) && is_unit(to) && (is_unit(len_bytes) || is_rest) {
        Ok(())
    } else {
        Err(FileError::Invalid)
    }
}

/// The end of a range, which a file may have.
fn end_of(offset: u64, len_bytes: u64) -> Result<u64, FileError> {
    let end = offset.checked_add(len_bytes);
    end.filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FileError::TooLarge)
}
