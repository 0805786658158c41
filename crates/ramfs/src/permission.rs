//! Who may do what, by mode, owner and group, as POSIX and Linux have it.

use file_tree::{
    Access, AttributeChanges, Caller, FileError, FileKind, Mode, TimeChange, Timestamp,
};

use crate::inode::Meta;

const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;
const ANY_EXECUTE: u16 = 0o111;
const GROUP_EXECUTE: u16 = 0o010;
const NANOSECONDS: u32 = 1_000_000_000;

/// What the mode permits the caller.
pub(crate) fn access(caller: &Caller<'_>, kind: FileKind, meta: &Meta) -> Access {
    let mode = meta.mode.bits();
    if caller.is_root() {
        return Access {
            read: true,
            write: true,
            execute: kind == FileKind::Directory || mode & ANY_EXECUTE != 0,
        };
    }
    let bits = if caller.uid == meta.uid {
        mode >> 6
    } else if caller.is_in_group(meta.gid) {
        mode >> 3
    } else {
        mode
    };
    Access {
        read: bits & READ != 0,
        write: bits & WRITE != 0,
        execute: bits & EXECUTE != 0,
    }
}

/// Whether the caller owns the file or is root.
pub(crate) fn is_owner(caller: &Caller<'_>, meta: &Meta) -> bool {
    caller.is_root() || caller.uid == meta.uid
}

/// A regular file's data may be read by its owner, and by those who may execute it.
pub(crate) fn check_read(
    caller: &Caller<'_>,
    kind: FileKind,
    meta: &Meta,
) -> Result<(), FileError> {
    check_regular(kind)?;
    let access = access(caller, kind, meta);
    permit(access.read || access.execute || is_owner(caller, meta))
}

/// A regular file's data may be changed by its owner.
pub(crate) fn check_write(
    caller: &Caller<'_>,
    kind: FileKind,
    meta: &Meta,
) -> Result<(), FileError> {
    check_regular(kind)?;
    permit(access(caller, kind, meta).write || is_owner(caller, meta))
}

/// The caller must have the execute permission of a directory.
pub(crate) fn check_search(caller: &Caller<'_>, meta: &Meta) -> Result<(), FileError> {
    permit(access(caller, FileKind::Directory, meta).execute)
}

/// The caller must be permitted to change a directory's entries.
pub(crate) fn check_entries(caller: &Caller<'_>, meta: &Meta) -> Result<(), FileError> {
    let access = access(caller, FileKind::Directory, meta);
    permit(access.write && access.execute)
}

/// In a sticky directory only owners remove and rename.
pub(crate) fn check_sticky(
    caller: &Caller<'_>,
    directory: &Meta,
    file: &Meta,
) -> Result<(), FileError> {
    let is_sticky = directory.mode.bits() & Mode::STICKY != 0;
    if is_sticky && !is_owner(caller, directory) && !is_owner(caller, file) {
        return Err(FileError::NotOwner);
    }
    Ok(())
}

/// Whether all changes are permitted and possible.
pub(crate) fn check_changes(
    caller: &Caller<'_>,
    kind: FileKind,
    meta: &Meta,
    changes: &AttributeChanges,
) -> Result<(), FileError> {
    if changes.size_bytes.is_some() {
        check_write(caller, kind, meta)?;
    }
    let owner = is_owner(caller, meta);
    let uid_stays = changes.uid.is_none_or(|uid| owner && uid == meta.uid);
    let gid_fits = changes
        .gid
        .is_none_or(|gid| owner && (gid == meta.gid || caller.is_in_group(gid)));
    let is_permitted =
        (changes.mode.is_none() || owner) && (caller.is_root() || (uid_stays && gid_fits));
    if !is_permitted {
        return Err(FileError::NotOwner);
    }
    for time in [changes.accessed, changes.modified] {
        match time {
            None => {}
            Some(TimeChange::Now) => {
                permit(owner || access(caller, kind, meta).write)?;
            }
            Some(TimeChange::To(_)) if !owner => return Err(FileError::NotOwner),
            Some(TimeChange::To(time)) => check_time(time)?,
        }
    }
    Ok(())
}

/// Sets mode, owner and group as far as `changes` says, after
/// [`check_changes`].
pub(crate) fn change_mode_and_owner(
    caller: &Caller<'_>,
    kind: FileKind,
    meta: &mut Meta,
    changes: &AttributeChanges,
) {
    meta.uid = changes.uid.unwrap_or(meta.uid);
    meta.gid = changes.gid.unwrap_or(meta.gid);
    if let Some(mode) = changes.mode {
        let is_foreign = !caller.is_root() && !caller.is_in_group(meta.gid);
        let cleared = if is_foreign { Mode::SET_GID } else { 0 };
        meta.mode = Mode::new(u32::from(mode.bits() & !cleared));
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        clear_set_id(caller, kind, meta);
    }
}

/// Takes set-user-ID and set-group-ID from a file whose data or owner someone else than root has
/// changed. Without the group's execute bit, set-group-ID stays, as in Linux.
pub(crate) fn clear_set_id(caller: &Caller<'_>, kind: FileKind, meta: &mut Meta) {
    if caller.is_root() || kind == FileKind::Directory {
        return;
    }
    let bits = meta.mode.bits();
    let set_gid = if bits & GROUP_EXECUTE != 0 {
        Mode::SET_GID
    } else {
        0
    };
    meta.mode = Mode::new(u32::from(bits & !(Mode::SET_UID | set_gid)));
}

fn check_time(time: Timestamp) -> Result<(), FileError> {
    if time.nanoseconds >= NANOSECONDS {
        return Err(FileError::Invalid);
    }
    Ok(())
}

fn check_regular(kind: FileKind) -> Result<(), FileError> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FileError::IsDirectory),
        _ => Err(FileError::Invalid),
    }
}

fn permit(is_permitted: bool) -> Result<(), FileError> {
    if is_permitted {
        Ok(())
    } else {
        Err(FileError::AccessDenied)
    }
}
