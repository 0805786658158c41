//! New files.

use file_tree::permission::{self, Ownership};
use file_tree::{
    AttributeChanges, Attributes, Caller, Changed, Created, DeviceNumber, ExclusiveVerifier,
    FileError, FileId, FileKind, Mode, Name, NewFile, TimeChange, Timestamp,
};
use rustix::fs::{AtFlags, FileType, Mode as HostMode, OFlags};

use super::content::{changed, set_owner, set_times};
use super::{DirTree, FILE_BYTES_MAX, LINK_BYTES_MAX};
use crate::errors::of_host;
use crate::identity::ownership;
use crate::resolve::{CONFINED, Found};

/// What a file is created with until it has its attributes: nobody else may use it.
const FIRST_MODE: HostMode = HostMode::RUSR.union(HostMode::WUSR);
const FIRST_DIRECTORY_MODE: HostMode = HostMode::RWXU;

impl DirTree {
    pub(super) fn create_entry(
        &self,
        caller: &Caller<'_>,
        (directory, name): (FileId, Name<'_>),
        new: NewFile<'_>,
        attributes: &AttributeChanges,
    ) -> Result<Changed<Created>, FileError> {
        let locked = self.lock_names();
        let parent = self.resolver.directory(directory)?;
        let before = parent.attributes;
        permission::check_search(caller, &ownership(&before))?;
        match self.resolver.entry(&parent, name) {
            Err(FileError::NotFound) => {}
            Err(error) => return Err(error),
            Ok(existing) => {
                drop(locked);
                let attributes = self.use_existing(caller, &existing, new, attributes)?;
                return Ok(created(&before, before, attributes));
            }
        }
        permission::check_entries(caller, &ownership(&before))?;
        let (kind, owner, changes) = plan(caller, new, &ownership(&before), attributes)?;
        make(&parent, name, new)?;
        let made = self.resolver.entry(&parent, name);
        let made = made.and_then(|made| {
            self.equip(&made, kind, &owner, &changes, new)?;
            Ok(made)
        });
        let made = made.inspect_err(|_| unmake(&parent, name, kind))?;
        let attributes = self.look(&made.handle)?;
        let after = self.look(&parent.handle)?;
        drop(locked);
        self.make_file_durable(&made)?;
        self.make_file_durable(&parent)?;
        Ok(created(&before, after, attributes))
    }

    /// Uses the file that has the name already, if the creation may.
    fn use_existing(
        &self,
        caller: &Caller<'_>,
        existing: &Found,
        new: NewFile<'_>,
        attributes: &AttributeChanges,
    ) -> Result<Attributes, FileError> {
        let found = existing.attributes;
        let is_regular = found.kind == FileKind::Regular;
        match new {
            NewFile::Unchecked if is_regular => {
                let size_alone = AttributeChanges {
                    size_bytes: attributes.size_bytes,
                    ..AttributeChanges::default()
                };
                let changed = self.change_attributes(caller, found.id, &size_alone, None)?;
                Ok(changed.after)
            }
            NewFile::Exclusive(verifier)
                if is_regular && [found.accessed, found.modified] == verifier_times(verifier) =>
            {
                Ok(found)
            }
            _ => Err(FileError::Exists),
        }
    }

    /// Gives a new file its attributes. If the process may not give it to its owner, it stays the
    /// process's, and then nobody may run it as the process's user.
    fn equip(
        &self,
        made: &Found,
        kind: FileKind,
        owner: &Ownership,
        changes: &AttributeChanges,
        new: NewFile<'_>,
    ) -> Result<(), FileError> {
        let mode = match set_owner(made, (owner.uid, owner.gid)) {
            Err(FileError::NotOwner) if kind == FileKind::Directory => owner.mode,
            Err(FileError::NotOwner) => {
                let set_id = Mode::SET_UID | Mode::SET_GID;
                Mode::new(u32::from(owner.mode.bits() & !set_id))
            }
            set => set.map(|()| owner.mode)?,
        };
        self.set_mode(made, mode)?;
        if let Some(size_bytes) = changes.size_bytes.filter(|size| *size > 0) {
            let data = made.open_as(&self.resolver, OFlags::WRONLY)?;
            rustix::fs::ftruncate(data, size_bytes).map_err(of_host)?;
        }
        let [mut accessed, mut modified] = [changes.accessed, changes.modified];
        if let NewFile::Exclusive(verifier) = new {
            let times = verifier_times(verifier).map(|time| Some(TimeChange::To(time)));
            [accessed, modified] = times;
        }
        if kind == FileKind::SymbolicLink {
            return Ok(());
        }
        set_times(made, accessed, modified)
    }
}

/// What is to be created: its kind, mode, owner and group, and further attributes.
fn plan(
    caller: &Caller<'_>,
    new: NewFile<'_>,
    directory: &Ownership,
    attributes: &AttributeChanges,
) -> Result<(FileKind, Ownership, AttributeChanges), FileError> {
    let kind = match new {
        NewFile::Guarded | NewFile::Unchecked | NewFile::Exclusive(_) => FileKind::Regular,
        NewFile::Directory => FileKind::Directory,
        NewFile::SymbolicLink(path) if path.len() > LINK_BYTES_MAX => {
            return Err(FileError::NameTooLong);
        }
        NewFile::SymbolicLink(path) if path.is_empty() || path.contains(&0) => {
            return Err(FileError::Invalid);
        }
        NewFile::SymbolicLink(_) => FileKind::SymbolicLink,
        NewFile::Special(kind) => {
            permission::check_special(caller, kind)?;
            kind
        }
    };
    // Only a regular file has a size to be set.
    let changes = AttributeChanges {
        size_bytes: attributes.size_bytes.filter(|_| kind == FileKind::Regular),
        ..*attributes
    };
    let owner = permission::of_new_file(caller, kind, directory, &changes)?;
    if changes.size_bytes.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(FileError::TooLarge);
    }
    Ok((kind, owner, changes))
}

/// Creates the entry.
fn make(parent: &Found, name: Name<'_>, new: NewFile<'_>) -> Result<(), FileError> {
    let (directory, name) = (&parent.handle, name.as_bytes());
    let made = match new {
        NewFile::Guarded | NewFile::Unchecked | NewFile::Exclusive(_) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat2(directory, name, flags, FIRST_MODE, CONFINED).map(drop)
        }
        NewFile::Directory => rustix::fs::mkdirat(directory, name, FIRST_DIRECTORY_MODE),
        NewFile::SymbolicLink(path) => rustix::fs::symlinkat(path, directory, name),
        NewFile::Special(kind) => {
            let (kind, DeviceNumber { major, minor }) = match kind {
                FileKind::BlockDevice(device) => (FileType::BlockDevice, device),
                FileKind::CharacterDevice(device) => (FileType::CharacterDevice, device),
                FileKind::Socket => (FileType::Socket, NO_DEVICE),
                _ => (FileType::Fifo, NO_DEVICE),
            };
            let device = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(directory, name, kind, FIRST_MODE, device)
        }
    };
    made.map_err(of_host)
}

const NO_DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };

/// Removes the entry again whose file could not get its attributes.
fn unmake(parent: &Found, name: Name<'_>, kind: FileKind) {
    let flags = match kind {
        FileKind::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    // The first error is reported. If this fails too, an empty file of the process's stays.
    let _ = rustix::fs::unlinkat(&parent.handle, name.as_bytes(), flags);
}

/// The times that a file has after an exclusive creation, until the client sets them: they hold the
/// verifier, so that it outlives a restart (RFC 1813 section 3.3.8).
fn verifier_times(verifier: ExclusiveVerifier) -> [Timestamp; 2] {
    let both = u64::from_be_bytes(verifier.0);
    // Some file systems keep 32 bits of seconds, with a sign.
    [both >> 32, both].map(|half| Timestamp {
        seconds: (half & i32::MAX as u64).cast_signed(),
        nanoseconds: 0,
    })
}

fn created(before: &Attributes, after: Attributes, attributes: Attributes) -> Changed<Created> {
    let Changed { before, after, .. } = changed(before, after);
    Changed {
        before,
        after,
        value: Created { attributes },
    }
}
