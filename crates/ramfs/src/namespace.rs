//! Files and the names by which directories have them. The whole is under one lock of the tree.

mod create;
mod remove;
mod rename;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use file_tree::permission::{self, Ownership};
use file_tree::{
    Attributes, Caller, Changed, Cookie, DirectoryEntry, DirectoryPage, FileError, FileId,
    FileKind, Listing, Mode, Name, Timestamp,
};

use crate::directory::{Directory, HashedName};
use crate::inode::{Inode, Meta};
use crate::table::{Slot, Table};
use crate::usage::Usage;

pub(crate) use create::{CreateOutcome, Creation};
pub(crate) use remove::{Removal, Removed};

/// What a file is charged beside its names, in bytes: the inode with its reference counters and
/// what the allocator adds.
const INODE_BYTES: u64 = size_of::<Inode>() as u64 + 32;
/// What a directory is charged beside that, in bytes. Its first entry allocates a node.
const DIRECTORY_BYTES: u64 = size_of::<Directory>() as u64 + 16 + 256;
const ROOT_MODE: u32 = 0o755;

/// The directories of a tree and the files that they name.
#[derive(Debug)]
pub(crate) struct Namespace {
    table: Table,
    root: FileId,
    /// Its key is unknown to peers, so they cannot choose names whose hashes collide.
    hasher: RandomState,
    links_max: u32,
}

impl Namespace {
    /// A namespace with an empty root directory of root's, which is charged.
    pub(crate) fn new(usage: &Usage, now: Timestamp, links_max: u32) -> Result<Self, FileError> {
        let mut table = Table::default();
        let (root, leaf_bytes) = table.next();
        usage.charge_metadata(leaf_bytes + inode_bytes(FileKind::Directory, 0))?;
        if let Err(error) = usage.add_file() {
            usage.refund_metadata(leaf_bytes + inode_bytes(FileKind::Directory, 0));
            return Err(error);
        }
        let meta = Meta {
            owner: Ownership {
                mode: Mode::new(ROOT_MODE),
                uid: 0,
                gid: 0,
            },
            links: 2,
            size_bytes: 0,
            used_bytes: 0,
            accessed: now,
            modified: now,
            changed: now,
            change: 1,
        };
        let inode = Inode::new(root, FileKind::Directory, Box::default(), None, meta);
        table.insert(Slot {
            inode: Arc::new(inode),
            directory: Some(Box::new(Directory::new(root.number))),
        });
        Ok(Self {
            table,
            root,
            hasher: RandomState::new(),
            links_max,
        })
    }

    pub(crate) fn root(&self) -> FileId {
        self.root
    }

    /// The file of an identifier.
    pub(crate) fn inode(&self, id: FileId) -> Result<&Arc<Inode>, FileError> {
        self.table.get(id).map(|slot| &slot.inode)
    }

    pub(crate) fn lookup(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Attributes, FileError> {
        let (inode, entries) = self.directory(directory)?;
        permission::check_search(caller, &inode.meta().owner)?;
        let number = entries.find(self.hashed(name)).ok_or(FileError::NotFound)?;
        let found = self.numbered(number)?;
        Ok(found.attributes(&found.meta()))
    }

    pub(crate) fn parent(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
    ) -> Result<Attributes, FileError> {
        let (inode, entries) = self.directory(directory)?;
        permission::check_search(caller, &inode.meta().owner)?;
        let parent = self.numbered(entries.parent)?;
        Ok(parent.attributes(&parent.meta()))
    }

    pub(crate) fn list(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        after: Cookie,
        now: Timestamp,
        take: &mut dyn FnMut(&DirectoryEntry<'_>) -> Listing,
    ) -> Result<DirectoryPage, FileError> {
        let (inode, entries) = self.directory(directory)?;
        let access = permission::access(caller, inode.kind, &inode.meta().owner);
        if !access.read {
            return Err(FileError::AccessDenied);
        }
        let mut is_end = true;
        for (cookie, entry) in entries.entries_after(after) {
            let file = self.numbered(entry.file)?;
            let attributes = file.attributes(&file.meta());
            let name = Name::new(&entry.name).map_err(|_fault| FileError::Io)?;
            let entry = DirectoryEntry {
                name,
                cookie,
                attributes,
            };
            if take(&entry) == Listing::Full {
                is_end = false;
                break;
            }
        }
        inode.note_read(now);
        Ok(DirectoryPage {
            is_end,
            attributes: inode.attributes(&inode.meta()),
        })
    }

    /// Takes all files out, so that every identifier is stale. The files are in the result.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            table: std::mem::take(&mut self.table),
            root: self.root,
            hasher: self.hasher.clone(),
            links_max: self.links_max,
        }
    }

    /// Removes a file, whatever names it, if there is one. The caller frees its data.
    pub(crate) fn remove_any(&mut self, usage: &Usage) -> Option<Arc<Inode>> {
        let slot = self.table.any()?;
        let number = slot.inode.id.number;
        let entries = slot.directory.as_ref();
        let entries_bytes = entries.map_or(0, |directory| directory.charged_bytes());
        usage.refund_metadata(entries_bytes);
        self.forget(usage, number)
    }

    fn hashed<'a>(&self, name: Name<'a>) -> HashedName<'a> {
        HashedName::new(name, self.hasher.hash_one(name.as_bytes()))
    }

    fn directory(&self, id: FileId) -> Result<(&Arc<Inode>, &Directory), FileError> {
        let slot = self.table.get(id)?;
        let directory = slot.directory.as_ref().ok_or(FileError::NotDirectory)?;
        Ok((&slot.inode, directory))
    }

    /// The entries of a directory that was found before.
    fn entries_mut(&mut self, id: FileId) -> Result<&mut Directory, FileError> {
        let slot = self
            .table
            .by_number_mut(id.number)
            .ok_or(FileError::Stale)?;
        slot.directory.as_deref_mut().ok_or(FileError::NotDirectory)
    }

    /// The file that an entry names.
    fn numbered(&self, number: u64) -> Result<&Arc<Inode>, FileError> {
        let slot = self.table.by_number(number).ok_or(FileError::Io)?;
        Ok(&slot.inode)
    }

    /// Removes a file from the table and refunds it, without its data and entries.
    fn forget(&mut self, usage: &Usage, number: u64) -> Option<Arc<Inode>> {
        let (slot, leaf_bytes) = self.table.remove(number);
        let inode = slot?.inode;
        usage.refund_metadata(leaf_bytes + inode_bytes(inode.kind, inode.link_path.len()));
        usage.remove_file();
        Some(inode)
    }
}

/// Changes a directory whose entries change.
fn change_directory(directory: &Inode, now: Timestamp, change: impl FnOnce(&mut Meta)) -> Changed {
    let mut meta = directory.meta();
    let before = directory.attributes(&meta).before_change();
    change(&mut meta);
    meta.used_bytes = meta.size_bytes;
    meta.touch_data(now);
    Changed {
        before,
        after: directory.attributes(&meta),
        value: (),
    }
}

fn inode_bytes(kind: FileKind, path_bytes: usize) -> u64 {
    let directory_bytes = match kind {
        FileKind::Directory => DIRECTORY_BYTES,
        _ => 0,
    };
    INODE_BYTES + directory_bytes + (path_bytes as u64).next_multiple_of(16)
}
