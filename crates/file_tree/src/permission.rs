//! Who may do what, by mode, owner and group, as POSIX and Linux have it. Trees check with these
//! functions, so that all kinds of them decide the same way.

use crate::{Access, AttributeChanges, Caller, FileError, FileKind, Mode, TimeChange, Timestamp};

/// What permissions depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Permission bits.
    pub mode: Mode,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;
const ANY_EXECUTE: u16 = 0o111;
const GROUP_EXECUTE: u16 = 0o010;
const NANOSECONDS: u32 = 1_000_000_000;
const MODE_OF_FILE: u32 = 0o600;
const MODE_OF_DIRECTORY: u32 = 0o700;
const MODE_OF_LINK: u32 = 0o777;

/// What the mode permits the caller.
pub fn access(caller: &Caller<'_>, kind: FileKind, owner: &Ownership) -> Access {
    let mode = owner.mode.bits();
    if caller.is_root() {
        return Access {
            read: true,
            write: true,
            execute: kind == FileKind::Directory || mode & ANY_EXECUTE != 0,
        };
    }
    let bits = if caller.uid == owner.uid {
        mode >> 6
    } else if caller.is_in_group(owner.gid) {
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
pub fn is_owner(caller: &Caller<'_>, owner: &Ownership) -> bool {
    caller.is_root() || caller.uid == owner.uid
}

/// A regular file's data may be read by its owner, and by those who may execute it.
pub fn check_read(caller: &Caller<'_>, kind: FileKind, owner: &Ownership) -> Result<(), FileError> {
    check_regular(kind)?;
    let access = access(caller, kind, owner);
    permit(access.read || access.execute || is_owner(caller, owner))
}

/// A regular file's data may be changed by its owner.
pub fn check_write(
    caller: &Caller<'_>,
    kind: FileKind,
    owner: &Ownership,
) -> Result<(), FileError> {
    check_regular(kind)?;
    permit(access(caller, kind, owner).write || is_owner(caller, owner))
}

/// The caller must have the execute permission of a directory.
pub fn check_search(caller: &Caller<'_>, owner: &Ownership) -> Result<(), FileError> {
    permit(access(caller, FileKind::Directory, owner).execute)
}

/// The caller must be permitted to change a directory's entries.
pub fn check_entries(caller: &Caller<'_>, owner: &Ownership) -> Result<(), FileError> {
    let access = access(caller, FileKind::Directory, owner);
    permit(access.write && access.execute)
}

/// In a sticky directory only owners remove and rename.
pub fn check_sticky(
    caller: &Caller<'_>,
    directory: &Ownership,
    file: &Ownership,
) -> Result<(), FileError> {
    let is_sticky = directory.mode.bits() & Mode::STICKY != 0;
    if is_sticky && !is_owner(caller, directory) && !is_owner(caller, file) {
        return Err(FileError::NotOwner);
    }
    Ok(())
}

/// Whether all changes are permitted and possible.
pub fn check_changes(
    caller: &Caller<'_>,
    kind: FileKind,
    owner: &Ownership,
    changes: &AttributeChanges,
) -> Result<(), FileError> {
    if changes.size_bytes.is_some() {
        check_write(caller, kind, owner)?;
    }
    let owns = is_owner(caller, owner);
    let uid_stays = changes.uid.is_none_or(|uid| owns && uid == owner.uid);
    let gid_fits = changes
        .gid
        .is_none_or(|gid| owns && (gid == owner.gid || caller.is_in_group(gid)));
    let is_permitted =
        (changes.mode.is_none() || owns) && (caller.is_root() || (uid_stays && gid_fits));
    if !is_permitted {
        return Err(FileError::NotOwner);
    }
    for time in [changes.accessed, changes.modified] {
        match time {
            None => {}
            Some(TimeChange::Now) => {
                permit(owns || access(caller, kind, owner).write)?;
            }
            Some(TimeChange::To(_)) if !owns => return Err(FileError::NotOwner),
            Some(TimeChange::To(time)) => check_time(time)?,
        }
    }
    Ok(())
}

/// Sets mode, owner and group as far as `changes` says, after
/// [`check_changes`].
pub fn change_mode_and_owner(
    caller: &Caller<'_>,
    kind: FileKind,
    owner: &mut Ownership,
    changes: &AttributeChanges,
) {
    owner.uid = changes.uid.unwrap_or(owner.uid);
    owner.gid = changes.gid.unwrap_or(owner.gid);
    if let Some(mode) = changes.mode {
        let is_foreign = !caller.is_root() && !caller.is_in_group(owner.gid);
        let cleared = if is_foreign { Mode::SET_GID } else { 0 };
        owner.mode = Mode::new(u32::from(mode.bits() & !cleared));
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        clear_set_id(caller, kind, owner);
    }
}

/// Takes set-user-ID and set-group-ID from a file whose data or owner someone else than root has
/// changed. Without the group's execute bit, set-group-ID stays, as in Linux.
pub fn clear_set_id(caller: &Caller<'_>, kind: FileKind, owner: &mut Ownership) {
    if caller.is_root() || kind == FileKind::Directory {
        return;
    }
    let bits = owner.mode.bits();
    let set_gid = if bits & GROUP_EXECUTE != 0 {
        Mode::SET_GID
    } else {
        0
    };
    owner.mode = Mode::new(u32::from(bits & !(Mode::SET_UID | set_gid)));
}

/// Mode, owner and group of a file that the caller creates in `directory`, if it may have the
/// attributes that `changes` asks for. A size is for regular files only.
pub fn of_new_file(
    caller: &Caller<'_>,
    kind: FileKind,
    directory: &Ownership,
    changes: &AttributeChanges,
) -> Result<Ownership, FileError> {
    let inherits = directory.mode.bits() & Mode::SET_GID != 0;
    let default_mode = match kind {
        FileKind::Directory => MODE_OF_DIRECTORY,
        FileKind::SymbolicLink => MODE_OF_LINK,
        _ => MODE_OF_FILE,
    };
    let mut owner = Ownership {
        mode: Mode::new(default_mode),
        uid: caller.uid,
        gid: if inherits { directory.gid } else { caller.gid },
    };
    check_changes(caller, kind, &owner, changes)?;
    owner.uid = changes.uid.unwrap_or(owner.uid);
    owner.gid = changes.gid.unwrap_or(owner.gid);
    let mode = changes.mode.unwrap_or(owner.mode).bits();
    let is_foreign = !caller.is_root() && !caller.is_in_group(owner.gid);
    let mode = match kind {
        FileKind::Directory if inherits => mode | Mode::SET_GID,
        FileKind::Directory => mode,
        _ if is_foreign => mode & !Mode::SET_GID,
        _ => mode,
    };
    owner.mode = Mode::new(u32::from(mode));
    Ok(owner)
}

/// Extended attributes are of regular files and directories, and are read by those who may read
/// these. Other files have none.
pub fn check_read_xattr(
    caller: &Caller<'_>,
    kind: FileKind,
    owner: &Ownership,
) -> Result<(), FileError> {
    match kind {
        FileKind::Regular | FileKind::Directory => permit(access(caller, kind, owner).read),
        _ => Err(FileError::NoXattr),
    }
}

/// Extended attributes are changed by those who may change the file; of a sticky directory only by
/// its owner.
pub fn check_write_xattr(
    caller: &Caller<'_>,
    kind: FileKind,
    owner: &Ownership,
) -> Result<(), FileError> {
    let is_sticky = owner.mode.bits() & Mode::STICKY != 0;
    match kind {
        FileKind::Directory if is_sticky && !is_owner(caller, owner) => Err(FileError::NotOwner),
        FileKind::Regular | FileKind::Directory => permit(access(caller, kind, owner).write),
        _ => Err(FileError::NotOwner),
    }
}

/// Whether the caller may create a file of this kind other than a directory, a regular file or a
/// symbolic link. Only root makes devices, since a client may open them.
pub fn check_special(caller: &Caller<'_>, kind: FileKind) -> Result<(), FileError> {
    match kind {
        FileKind::BlockDevice(_) | FileKind::CharacterDevice(_) if !caller.is_root() => {
            Err(FileError::NotOwner)
        }
        FileKind::BlockDevice(_)
        | FileKind::CharacterDevice(_)
        | FileKind::Fifo
        | FileKind::Socket => Ok(()),
        FileKind::Regular | FileKind::Directory | FileKind::SymbolicLink => Err(FileError::Invalid),
    }
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
