//! Operations on one file: attributes and data.

use file_tree::permission;
use file_tree::{
    AttributeChanges, Caller, Changed, FileError, FileId, ReadDone, SeekDone, SeekTarget,
    TimeChange, Timestamp, WriteDone,
};

use super::RamTree;
use crate::inode::{Inode, Meta, unchanged, with_value};
use crate::limits::FILE_BYTES_MAX;
use crate::pages::PAGE_BYTES;

impl RamTree {
    pub(super) fn change_attributes(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        self.change_inode(caller, &inode, changes, guard)
    }

    pub(super) fn change_inode(
        &self,
        caller: &Caller<'_>,
        inode: &Inode,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError> {
        let Some(size_bytes) = changes.size_bytes else {
            let mut meta = inode.meta();
            let before = inode.attributes(&meta).before_change();
            self.apply_changes(caller, inode, &mut meta, changes, guard)?;
            return Ok(Changed {
                before,
                after: inode.attributes(&meta),
                value: (),
            });
        };
        let mut data = inode.data_mut();
        data.check()?;
        let (before, old_bytes) = {
            let mut meta = inode.meta();
            let before = inode.attributes(&meta).before_change();
            self.apply_changes(caller, inode, &mut meta, changes, guard)?;
            (before, before.size_bytes)
        };
        if size_bytes < old_bytes {
            data.truncate(&self.space, size_bytes)?;
        }
        let mut meta = inode.meta();
        meta.used_bytes = data.used_bytes();
        Ok(Changed {
            before,
            after: inode.attributes(&meta),
            value: (),
        })
    }

    /// Changes all attributes or none, but not the data.
    fn apply_changes(
        &self,
        caller: &Caller<'_>,
        inode: &Inode,
        meta: &mut Meta,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<(), FileError> {
        if guard.is_some_and(|changed| changed != meta.changed) {
            return Err(FileError::NotSynchronized);
        }
        permission::check_changes(caller, inode.kind, &meta.owner, changes)?;
        if changes.size_bytes.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(FileError::TooLarge);
        }
        if *changes == AttributeChanges::default() {
            return Ok(());
        }
        let now = meta.touch(self.now());
        if let Some(size_bytes) = changes.size_bytes {
            meta.size_bytes = size_bytes;
            meta.modified = now;
            permission::clear_set_id(caller, inode.kind, &mut meta.owner);
        }
        permission::change_mode_and_owner(caller, inode.kind, &mut meta.owner, changes);
        let instant = |change| match change {
            TimeChange::Now => now,
            TimeChange::To(time) => time,
        };
        if let Some(change) = changes.accessed {
            inode.set_accessed(meta, instant(change));
        }
        if let Some(change) = changes.modified {
            meta.modified = instant(change);
        }
        Ok(())
    }

    pub(super) fn read_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<ReadDone, FileError> {
        let inode = self.inode(file)?;
        let data = inode.data();
        data.check()?;
        // Before the bytes: attributes that are older than them make a client read again, newer
        // ones would make it keep old bytes.
        let attributes = {
            let meta = inode.meta();
            permission::check_read(caller, inode.kind, &meta.owner)?;
            inode.note_read(self.now());
            inode.attributes(&meta)
        };
        let left = attributes.size_bytes.saturating_sub(offset);
        let len_bytes = left.min(dest.len() as u64) as usize;
        data.read(&self.space, offset, &mut dest[..len_bytes])?;
        Ok(ReadDone {
            len_bytes,
            is_end: len_bytes as u64 == left,
            attributes,
        })
    }

    pub(super) fn write_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Changed<WriteDone>, FileError> {
        let inode = self.inode(file)?;
        let end = offset.checked_add(bytes.len() as u64);
        let fits = end.filter(|&end| end <= FILE_BYTES_MAX);
        {
            let data = inode.data();
            data.check()?;
            let size_bytes = check_write(caller, &inode)?.size_bytes;
            let end = fits.ok_or(FileError::TooLarge)?;
            if bytes.is_empty() {
                return Ok(with_value(unchanged(&inode), written(0)));
            }
            if end <= size_bytes && data.overwrite(&self.space, offset, bytes)? {
                let changed = self.note_change(caller, &inode, |_| {});
                return Ok(with_value(changed, written(bytes.len())));
            }
        }
        let mut data = inode.data_mut();
        data.check()?;
        check_write(caller, &inode)?;
        let len_bytes = data.write(&self.space, offset, bytes)?;
        let grown = |meta: &mut Meta| {
            meta.used_bytes = data.used_bytes();
            if len_bytes > 0 {
                meta.size_bytes = meta.size_bytes.max(offset + len_bytes as u64);
            }
        };
        let changed = self.note_change(caller, &inode, grown);
        Ok(with_value(changed, written(len_bytes)))
    }

    pub(super) fn make_hole(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        let mut data = inode.data_mut();
        data.check()?;
        let size_bytes = check_write(caller, &inode)?.size_bytes;
        let mut end = offset.saturating_add(len_bytes);
        if end >= size_bytes {
            // What lies behind the end is zeros anyway, so the last page can be freed.
            end = size_bytes.next_multiple_of(PAGE_BYTES);
        }
        if offset < end {
            data.punch_hole(&self.space, offset, end)?;
        }
        Ok(self.note_change(caller, &inode, |meta| {
            meta.used_bytes = data.used_bytes();
        }))
    }

    pub(super) fn seek_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<SeekDone, FileError> {
        let inode = self.inode(file)?;
        let data = inode.data();
        data.check()?;
        let meta = *inode.meta();
        permission::check_read(caller, inode.kind, &meta.owner)?;
        let size_bytes = meta.size_bytes;
        let found = match target {
            _ if offset >= size_bytes => None,
            SeekTarget::Data => data.next_data(offset).filter(|&at| at < size_bytes),
            SeekTarget::Hole => Some(data.next_hole(offset, size_bytes)),
        };
        Ok(SeekDone {
            offset: found,
            size_bytes,
        })
    }

    pub(super) fn commit_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        check_write(caller, &inode)?;
        Ok(unchanged(&inode))
    }

    /// Notes a change of data, after it, so that no client takes old bytes for new ones.
    pub(super) fn note_change(
        &self,
        caller: &Caller<'_>,
        inode: &Inode,
        change: impl FnOnce(&mut Meta),
    ) -> Changed {
        let now = self.now();
        let mut meta = inode.meta();
        let before = inode.attributes(&meta).before_change();
        change(&mut meta);
        meta.touch_data(now);
        permission::clear_set_id(caller, inode.kind, &mut meta.owner);
        Changed {
            before,
            after: inode.attributes(&meta),
            value: (),
        }
    }
}

/// The attributes, if the caller may write the file.
pub(super) fn check_write(caller: &Caller<'_>, inode: &Inode) -> Result<Meta, FileError> {
    let meta = *inode.meta();
    permission::check_write(caller, inode.kind, &meta.owner)?;
    Ok(meta)
}

/// Memory is as stable as this tree makes any bytes.
fn written(len_bytes: usize) -> WriteDone {
    WriteDone {
        len_bytes,
        is_stable: true,
    }
}
