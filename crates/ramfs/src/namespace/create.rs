//! New files and new names.

use std::sync::Arc;

use file_tree::permission;
use file_tree::{
    AttributeChanges, Attributes, Caller, Changed, Created, ExclusiveVerifier, FileError, FileId,
    FileKind, Name, NewFile, TimeChange, Timestamp,
};

use super::{Namespace, change_directory, inode_bytes};
use crate::directory::Directory;
use crate::inode::{Inode, Meta, unchanged, with_value};
use crate::limits::{FILE_BYTES_MAX, LINK_BYTES_MAX};
use crate::table::Slot;
use crate::usage::Usage;

/// What is to be created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creation<'a> {
    pub(crate) caller: &'a Caller<'a>,
    pub(crate) directory: FileId,
    pub(crate) name: Name<'a>,
    pub(crate) new: NewFile<'a>,
    pub(crate) attributes: &'a AttributeChanges,
    pub(crate) now: Timestamp,
}

/// How a creation went.
#[derive(Debug)]
pub(crate) enum CreateOutcome {
    /// There is a new file, or the existing one that the same call has created before.
    Done(Changed<Created>),
    /// An existing file is used; its size is to be set. The directory is unchanged.
    Existing(Changed, Arc<Inode>),
}

/// What a file is beside its attributes.
struct Content {
    kind: FileKind,
    link_path: Box<[u8]>,
    verifier: Option<ExclusiveVerifier>,
}

impl Namespace {
    pub(crate) fn create(
        &mut self,
        usage: &Usage,
        creation: &Creation<'_>,
    ) -> Result<CreateOutcome, FileError> {
        let (parent, entries) = self.directory(creation.directory)?;
        let parent = Arc::clone(parent);
        let parent_meta = *parent.meta();
        permission::check_search(creation.caller, &parent_meta.owner)?;
        let name = self.hashed(creation.name);
        if let Some(number) = entries.find(name) {
            return use_existing(&parent, self.numbered(number)?, creation.new);
        }
        permission::check_entries(creation.caller, &parent_meta.owner)?;
        entries.check_room(name)?;
        let content = content(creation)?;
        let meta = first_meta(creation, content.kind, &parent_meta)?;
        let is_directory = content.kind == FileKind::Directory;
        if is_directory && parent_meta.links >= self.links_max {
            return Err(FileError::TooManyLinks);
        }

        let (id, leaf_bytes) = self.table.next();
        let path_bytes = content.link_path.len();
        usage.add_file()?;
        let charge = leaf_bytes + inode_bytes(content.kind, path_bytes) + name.entry_bytes();
        if let Err(error) = usage.charge_metadata(charge) {
            usage.remove_file();
            return Err(error);
        }
        let inode = Inode::new(id, content.kind, content.link_path, content.verifier, meta);
        let attributes = inode.attributes(&meta);
        self.table.insert(Slot {
            inode: Arc::new(inode),
            directory: is_directory.then(|| Box::new(Directory::new(parent.id.number))),
        });
        self.entries_mut(parent.id)?.insert(name, id.number);
        let changed = change_directory(&parent, creation.now, |meta| {
            meta.links += u32::from(is_directory);
            meta.size_bytes += name.entry_bytes();
        });
        Ok(CreateOutcome::Done(with_value(
            changed,
            Created { attributes },
        )))
    }

    pub(crate) fn link(
        &mut self,
        usage: &Usage,
        caller: &Caller<'_>,
        file: FileId,
        (directory, name): (FileId, Name<'_>),
        now: Timestamp,
    ) -> Result<Changed<Attributes>, FileError> {
        let inode = Arc::clone(self.inode(file)?);
        let (parent, entries) = self.directory(directory)?;
        let parent = Arc::clone(parent);
        let parent_meta = *parent.meta();
        permission::check_search(caller, &parent_meta.owner)?;
        if inode.is_directory() {
            return Err(FileError::IsDirectory);
        }
        let name = self.hashed(name);
        if entries.find(name).is_some() {
            return Err(FileError::Exists);
        }
        permission::check_entries(caller, &parent_meta.owner)?;
        entries.check_room(name)?;
        if inode.meta().links >= self.links_max {
            return Err(FileError::TooManyLinks);
        }
        usage.charge_metadata(name.entry_bytes())?;
        self.entries_mut(directory)?.insert(name, file.number);
        let attributes = {
            let mut meta = inode.meta();
            meta.links += 1;
            meta.touch(now);
            inode.attributes(&meta)
        };
        let changed = change_directory(&parent, now, |meta| {
            meta.size_bytes += name.entry_bytes();
        });
        Ok(with_value(changed, attributes))
    }
}

/// Whether a creation may use the file that has the name.
fn use_existing(
    parent: &Inode,
    existing: &Arc<Inode>,
    new: NewFile<'_>,
) -> Result<CreateOutcome, FileError> {
    let is_regular = existing.kind == FileKind::Regular;
    match new {
        NewFile::Unchecked if is_regular => Ok(CreateOutcome::Existing(
            unchanged(parent),
            Arc::clone(existing),
        )),
        NewFile::Exclusive(verifier) if is_regular && existing.verifier == Some(verifier) => {
            let attributes = existing.attributes(&existing.meta());
            let changed = unchanged(parent);
            Ok(CreateOutcome::Done(with_value(
                changed,
                Created { attributes },
            )))
        }
        _ => Err(FileError::Exists),
    }
}

fn content(creation: &Creation<'_>) -> Result<Content, FileError> {
    let of_kind = |kind| Content {
        kind,
        link_path: Box::default(),
        verifier: None,
    };
    match creation.new {
        NewFile::Guarded | NewFile::Unchecked => Ok(of_kind(FileKind::Regular)),
        NewFile::Exclusive(verifier) => Ok(Content {
            verifier: Some(verifier),
            ..of_kind(FileKind::Regular)
        }),
        NewFile::Directory => Ok(of_kind(FileKind::Directory)),
        NewFile::SymbolicLink(path) if path.len() > LINK_BYTES_MAX => Err(FileError::NameTooLong),
        NewFile::SymbolicLink(path) if path.is_empty() || path.contains(&0) => {
            Err(FileError::Invalid)
        }
        NewFile::SymbolicLink(path) => Ok(Content {
            link_path: path.into(),
            ..of_kind(FileKind::SymbolicLink)
        }),
        NewFile::Special(kind) => {
            permission::check_special(creation.caller, kind)?;
            Ok(of_kind(kind))
        }
    }
}

/// The attributes of a new file.
fn first_meta(creation: &Creation<'_>, kind: FileKind, parent: &Meta) -> Result<Meta, FileError> {
    let Creation { caller, now, .. } = *creation;
    // Only a regular file has a size to be set.
    let size_bytes = match kind {
        FileKind::Regular => creation.attributes.size_bytes,
        _ => None,
    };
    let changes = AttributeChanges {
        size_bytes,
        ..*creation.attributes
    };
    let mut meta = Meta {
        owner: permission::of_new_file(caller, kind, &parent.owner, &changes)?,
        links: 1,
        size_bytes: 0,
        used_bytes: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    };
    if let Some(TimeChange::To(time)) = changes.accessed {
        meta.accessed = time;
    }
    if let Some(TimeChange::To(time)) = changes.modified {
        meta.modified = time;
    }
    match (kind, creation.new) {
        (FileKind::Directory, _) => meta.links = 2,
        (_, NewFile::SymbolicLink(path)) => meta.size_bytes = path.len() as u64,
        _ => meta.size_bytes = size_bytes.unwrap_or(0),
    }
    if meta.size_bytes > FILE_BYTES_MAX {
        return Err(FileError::TooLarge);
    }
    Ok(meta)
}
