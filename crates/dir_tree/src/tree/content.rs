//! Operations on one file: attributes and data.

use std::os::fd::{AsFd, OwnedFd};

use file_tree::{
    AttributeChanges, Attributes, Caller, Changed, FileError, FileId, FileKind, Mode, ReadDone,
    SeekDone, SeekTarget, TimeChange, Timestamp, WriteDone, permission,
};
use rustix::fs::{AtFlags, Gid, Mode as HostMode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::{DirTree, FILE_BYTES_MAX};
use crate::errors::of_host;
use crate::identity::ownership;
use crate::resolve::Found;

impl DirTree {
    pub(super) fn change_attributes(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError> {
        let locked = self.lock_data(file);
        let found = self.resolver.find(file)?;
        let before = found.attributes;
        if guard.is_some_and(|changed| changed != before.changed) {
            return Err(FileError::NotSynchronized);
        }
        permission::check_changes(caller, before.kind, &ownership(&before), changes)?;
        if changes.size_bytes.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(FileError::TooLarge);
        }
        if *changes == AttributeChanges::default() {
            return Ok(changed(&before, before));
        }
        let mut owner = ownership(&before);
        if changes.size_bytes.is_some() {
            permission::clear_set_id(caller, before.kind, &mut owner);
        }
        permission::change_mode_and_owner(caller, before.kind, &mut owner, changes);
        // What may be refused comes first, so that nothing has changed then.
        let data = changes
            .size_bytes
            .map(|_| found.open_as(&self.resolver, OFlags::WRONLY));
        let data = data.transpose()?;
        set_owner(&found, (owner.uid, owner.gid))?;
        if let (Some(data), Some(size_bytes)) = (&data, changes.size_bytes) {
            rustix::fs::ftruncate(data, size_bytes).map_err(of_host)?;
        }
        self.set_mode(&found, owner.mode)?;
        set_times(&found, changes.accessed, changes.modified)?;
        let after = self.look(&found.handle)?;
        drop(locked);
        self.make_file_durable(&found)?;
        Ok(changed(&before, after))
    }

    pub(super) fn read_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<ReadDone, FileError> {
        let found = self.resolver.find(file)?;
        // From before the bytes: attributes that are older than them make a client read again,
        // newer ones would make it keep old bytes.
        let attributes = found.attributes;
        permission::check_read(caller, attributes.kind, &ownership(&attributes))?;
        let left = attributes.size_bytes.saturating_sub(offset);
        let wanted = left.min(dest.len() as u64) as usize;
        let mut done = 0;
        if wanted > 0 {
            let data = found.open_as(&self.resolver, OFlags::RDONLY)?;
            while done < wanted {
                let at = offset + done as u64;
                match rustix::io::pread(&data, &mut dest[done..wanted], at) {
                    // It was cut off meanwhile.
                    Ok(0) => break,
                    Ok(len) => done += len,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(of_host(error)),
                }
            }
        }
        Ok(ReadDone {
            len_bytes: done,
            is_end: done < wanted || done as u64 == left,
            attributes,
        })
    }

    pub(super) fn write_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (offset, bytes): (u64, &[u8]),
        must_be_stable: bool,
    ) -> Result<Changed<WriteDone>, FileError> {
        let locked = self.lock_data(file);
        let found = self.resolver.find(file)?;
        let before = found.attributes;
        permission::check_write(caller, before.kind, &ownership(&before))?;
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FileError::TooLarge);
        }
        if bytes.is_empty() {
            return Ok(written(&before, before, (0, true)));
        }
        let data = found.open_as(&self.resolver, OFlags::WRONLY)?;
        let len_bytes = write_all(&data, offset, bytes)?;
        let after = self.end_change(caller, &found)?;
        drop(locked);
        if must_be_stable {
            rustix::fs::fdatasync(&data).map_err(of_host)?;
        }
        Ok(written(&before, after, (len_bytes, must_be_stable)))
    }

    pub(super) fn seek_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<SeekDone, FileError> {
        let found = self.resolver.find(file)?;
        let attributes = found.attributes;
        permission::check_read(caller, attributes.kind, &ownership(&attributes))?;
        let size_bytes = attributes.size_bytes;
        if offset >= size_bytes {
            let offset = None;
            return Ok(SeekDone { offset, size_bytes });
        }
        let data = found.open_as(&self.resolver, OFlags::RDONLY)?;
        let sought = rustix::fs::seek(
            &data,
            match target {
                SeekTarget::Data => SeekFrom::Data(offset),
                SeekTarget::Hole => SeekFrom::Hole(offset),
            },
        );
        let offset = match sought {
            Ok(offset) => Some(offset),
            // No data follow, or the file was cut off meanwhile.
            Err(Errno::NXIO) => None,
            Err(error) => return Err(of_host(error)),
        };
        Ok(SeekDone { offset, size_bytes })
    }

    pub(super) fn commit_data(
        &self,
        caller: &Caller<'_>,
        file: FileId,
    ) -> Result<Changed, FileError> {
        let found = self.resolver.find(file)?;
        let attributes = found.attributes;
        permission::check_write(caller, attributes.kind, &ownership(&attributes))?;
        let data = found.open_as(&self.resolver, OFlags::WRONLY)?;
        rustix::fs::fdatasync(&data).map_err(of_host)?;
        Ok(changed(&attributes, attributes))
    }

    /// After a change of data: what lets a file run as another user ends, as far as the kernel has
    /// not done that. Returns the attributes.
    pub(super) fn end_change(
        &self,
        caller: &Caller<'_>,
        found: &Found,
    ) -> Result<Attributes, FileError> {
        let mut owner = ownership(&found.attributes);
        permission::clear_set_id(caller, found.attributes.kind, &mut owner);
        self.set_mode(found, owner.mode)?;
        self.look(&found.handle)
    }

    /// Sets the mode, if it is another one.
    pub(super) fn set_mode(&self, found: &Found, mode: Mode) -> Result<(), FileError> {
        const SET_ID: u16 = Mode::SET_UID | Mode::SET_GID;
        // A link has no mode of its own, and only these bits change by themselves.
        let is_link = found.attributes.kind == FileKind::SymbolicLink;
        let is_same = found.attributes.mode == mode && mode.bits() & SET_ID == 0;
        if is_link || is_same {
            return Ok(());
        }
        let _modes = self.resolver.lock_modes();
        if self.look(&found.handle)?.mode == mode {
            return Ok(());
        }
        let bits = HostMode::from_raw_mode(u32::from(mode.bits()));
        rustix::fs::chmod(found.own_path().as_c_str(), bits).map_err(of_host)
    }

    /// Makes a change of a file's attributes durable, if it has to be.
    pub(super) fn make_file_durable(&self, found: &Found) -> Result<(), FileError> {
        match found.attributes.kind {
            FileKind::Regular | FileKind::Directory if self.is_durable() => {
                let file = found.open_as(&self.resolver, OFlags::RDONLY)?;
                rustix::fs::fsync(file).map_err(of_host)
            }
            // Others cannot be opened without an effect: they become durable with their directory,
            // or when the host writes them back.
            _ => Ok(()),
        }
    }
}

/// A change without a value.
pub(super) fn changed(before: &Attributes, after: Attributes) -> Changed {
    Changed {
        before: before.before_change(),
        after,
        value: (),
    }
}

fn written(
    before: &Attributes,
    after: Attributes,
    (len_bytes, is_stable): (usize, bool),
) -> Changed<WriteDone> {
    let Changed { before, after, .. } = changed(before, after);
    Changed {
        before,
        after,
        value: WriteDone {
            len_bytes,
            is_stable,
        },
    }
}

/// Sets owner and group, if they are others.
pub(super) fn set_owner(found: &Found, (uid, gid): (u32, u32)) -> Result<(), FileError> {
    let Attributes {
        uid: old_uid,
        gid: old_gid,
        ..
    } = found.attributes;
    let uid = (uid != old_uid).then(|| Uid::from_raw(uid));
    let gid = (gid != old_gid).then(|| Gid::from_raw(gid));
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    rustix::fs::chownat(&found.handle, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(of_host)
}

/// Sets times that are to be set.
pub(super) fn set_times(
    found: &Found,
    accessed: Option<TimeChange>,
    modified: Option<TimeChange>,
) -> Result<(), FileError> {
    if accessed.is_none() && modified.is_none() {
        return Ok(());
    }
    let times = Timestamps {
        last_access: host_time(accessed),
        last_modification: host_time(modified),
    };
    rustix::fs::utimensat(&found.handle, c"", &times, AtFlags::EMPTY_PATH).map_err(of_host)
}

fn host_time(change: Option<TimeChange>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match change {
        None => special(rustix::fs::UTIME_OMIT),
        Some(TimeChange::Now) => special(rustix::fs::UTIME_NOW),
        Some(TimeChange::To(time)) => Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds) as _,
        },
    }
}

/// Writes as many of the bytes as there is space for. It is an error if there is space for none.
fn write_all(data: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<usize, FileError> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(data.as_fd(), &bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(of_host(error)),
        }
    }
    Ok(done)
}
