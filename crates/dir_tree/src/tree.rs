//! The tree: its settings, its locks, and the operations of [`FileTree`].
//!
//! # Locks
//!
//! In this order: the names of the tree, or the search; then the data of one file; then the modes;
//! then the places. Changes of names happen one at a time, and so do changes of one file's data, so
//! that attributes before and after a change enclose only that change, as far as changes come
//! through the tree. Nothing is made durable under a lock.

mod content;
mod create;
mod extended;
mod list;
mod names;
mod ranges;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use file_tree::{
    Access, AttributeChanges, Attributes, Caller, Changed, Cookie, Created, DirectoryEntry,
    DirectoryPage, FileError, FileId, FileKind, FileTree, Listing, Name, NewFile, ReadDone,
    SeekDone, SeekTarget, Timestamp, TreeLimits, TreeSpace, WriteDone, XattrMode, XattrName,
    permission,
};
use memory::{Budget, MemoryError};
use rustix::fs::{Mode as HostMode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::identity::{Identifier, ownership};
use crate::places::Places;
use crate::resolve::{Resolver, may_change};

/// The files in a directory of the host.
#[derive(Debug)]
pub struct DirTree {
    resolver: Resolver,
    /// Held while names change.
    names: Mutex<()>,
    /// Held while data or attributes of a file change: one of these, by the file's number.
    data: [Mutex<()>; DATA_LOCKS],
    /// Whether changes are on disk before an operation returns.
    is_durable: AtomicBool,
    is_read_only: bool,
    /// Whether the file system has extended attributes of users.
    has_xattrs: bool,
    /// The block size of the file system, the unit of clones.
    block_bytes: u32,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It does not exist.
    #[error("the directory does not exist")]
    Missing,
    /// It is something else.
    #[error("it is not a directory")]
    NotDirectory,
    /// The process may not read and search it.
    #[error("the user of this process may not read it")]
    NotPermitted,
    /// The file system cannot tell a file from an earlier one with the same number.
    #[error("its file system has neither file handles nor times of creation")]
    NoIdentity,
    /// Descriptors of the process are not in `/proc`.
    #[error("/proc is not mounted")]
    NoProc,
    /// Another error of the host.
    #[error("{0}")]
    Host(#[source] io::Error),
    /// Memory for the tree could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// How many locks of data there are. Two files that share one only wait for each other.
const DATA_LOCKS: usize = 64;
/// The most hard links of a file: what ext4 allows, of the common file systems the fewest.
const LINKS_MAX: u32 = 65_000;
/// The longest path of a symbolic link (`PATH_MAX` with its NUL is 4096).
const LINK_BYTES_MAX: usize = 4095;
/// The unit of clones, unless the file system says otherwise.
const CLONE_UNIT_BYTES: u32 = 4096;
/// The largest file (`off_t`).
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

impl DirTree {
    /// The files in `directory`. Symbolic links in the path itself are followed, once.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(directory: &Path, budget: &Arc<Budget>) -> Result<Self, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, HostMode::empty());
        let root = root.map_err(|error| match error {
            Errno::NOENT => OpenError::Missing,
            Errno::NOTDIR => OpenError::NotDirectory,
            Errno::ACCESS | Errno::PERM => OpenError::NotPermitted,
            error => OpenError::Host(error.into()),
        })?;
        let host = |error: Errno| OpenError::Host(error.into());
        let identifier = Identifier::new(&root).map_err(host)?;
        let identifier = identifier.ok_or(OpenError::NoIdentity)?;
        let looked = identifier.look(&root);
        let root_id = looked.map_err(|_| host(Errno::IO))?.id;
        rustix::fs::stat("/proc/self/fd").map_err(|_| OpenError::NoProc)?;
        let status = rustix::fs::fstatvfs(&root).map_err(host)?;
        let has_xattrs = extended::are_supported(&root);
        Ok(Self {
            resolver: Resolver {
                places: Mutex::new(Places::new(root_id.number, budget)?),
                search: Mutex::new(Instant::now()),
                modes: Mutex::new(()),
                root,
                root_id,
                identifier,
            },
            names: Mutex::new(()),
            data: std::array::from_fn(|_| Mutex::new(())),
            is_durable: AtomicBool::new(true),
            is_read_only: status.f_flag.contains(StatVfsMountFlags::RDONLY),
            has_xattrs,
            block_bytes: u32::try_from(status.f_bsize).unwrap_or(CLONE_UNIT_BYTES),
        })
    }

    /// Whether changes are on disk before an operation returns; otherwise they are when the host
    /// writes them back, or after [`FileTree::commit`].
    pub fn set_durable(&self, is_durable: bool) {
        self.is_durable.store(is_durable, Ordering::Relaxed);
    }

    /// Whether the process may change the directory's own entries.
    pub fn is_writable(&self) -> bool {
        !self.is_read_only && may_change(&self.resolver.root)
    }

    /// Identifies the file system, as far as that has a number of its own (`f_fsid`).
    pub fn file_system(&self) -> u64 {
        rustix::fs::fstatvfs(&self.resolver.root).map_or(0, |status| status.f_fsid)
    }

    fn lock_names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_data(&self, file: FileId) -> MutexGuard<'_, ()> {
        let at = (file.number % DATA_LOCKS as u64) as usize;
        self.data[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Relaxed)
    }

    fn look(&self, file: &OwnedFd) -> Result<Attributes, FileError> {
        self.resolver.identifier.look(file)
    }
}

impl FileTree for DirTree {
    fn root(&self) -> FileId {
        self.resolver.root_id
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn space(&self) -> TreeSpace {
        let Ok(status) = rustix::fs::fstatvfs(&self.resolver.root) else {
            return TreeSpace {
                total_bytes: 0,
                free_bytes: 0,
                total_files: 0,
                free_files: 0,
            };
        };
        TreeSpace {
            total_bytes: status.f_blocks.saturating_mul(status.f_frsize),
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
            total_files: status.f_files,
            free_files: status.f_favail,
        }
    }

    fn limits(&self) -> TreeLimits {
        TreeLimits {
            file_bytes_max: FILE_BYTES_MAX,
            links_max: LINKS_MAX,
            link_bytes_max: LINK_BYTES_MAX,
            time_step: Timestamp {
                seconds: 0,
                nanoseconds: 1,
            },
            clone_unit_bytes: self.block_bytes,
            has_xattrs: self.has_xattrs,
        }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn attributes(&self, file: FileId) -> Result<Attributes, FileError> {
        self.resolver.find(file).map(|found| found.attributes)
    }

    fn access(&self, caller: &Caller<'_>, file: FileId) -> Result<Access, FileError> {
        let attributes = self.attributes(file)?;
        let owner = ownership(&attributes);
        Ok(permission::access(caller, attributes.kind, &owner))
    }

    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError> {
        self.change_attributes(caller, file, changes, guard)
    }

    fn lookup(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Attributes, FileError> {
        let directory = self.resolver.directory(directory)?;
        permission::check_search(caller, &ownership(&directory.attributes))?;
        let found = self.resolver.entry(&directory, name)?;
        Ok(found.attributes)
    }

    fn parent(&self, caller: &Caller<'_>, directory: FileId) -> Result<Attributes, FileError> {
        let directory = self.resolver.directory(directory)?;
        permission::check_search(caller, &ownership(&directory.attributes))?;
        self.resolver
            .parent(&directory)
            .map(|found| found.attributes)
    }

    fn read_link(
        &self,
        _caller: &Caller<'_>,
        link: FileId,
        use_path: &mut dyn FnMut(&[u8]),
    ) -> Result<Attributes, FileError> {
        let found = self.resolver.find(link)?;
        if found.attributes.kind != FileKind::SymbolicLink {
            return Err(FileError::Invalid);
        }
        let path = rustix::fs::readlinkat(&found.handle, c"", Vec::new());
        use_path(path.map_err(crate::errors::of_host)?.to_bytes());
        Ok(found.attributes)
    }

    fn read(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<ReadDone, FileError> {
        self.read_data(caller, file, offset, dest)
    }

    fn write(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        data: &[u8],
        must_be_stable: bool,
    ) -> Result<Changed<WriteDone>, FileError> {
        self.write_data(caller, file, (offset, data), must_be_stable)
    }

    fn punch_hole(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.make_hole(caller, file, offset, len_bytes)
    }

    fn allocate(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.reserve_range(caller, file, offset, len_bytes)
    }

    fn clone_range(
        &self,
        caller: &Caller<'_>,
        from: (FileId, u64),
        to: (FileId, u64),
        len_bytes: u64,
    ) -> Result<Changed, FileError> {
        self.clone_data(caller, from, to, len_bytes)
    }

    fn seek(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<SeekDone, FileError> {
        self.seek_data(caller, file, offset, target)
    }

    fn commit(&self, caller: &Caller<'_>, file: FileId) -> Result<Changed, FileError> {
        self.commit_data(caller, file)
    }

    fn create(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
        new: NewFile<'_>,
        attributes: &AttributeChanges,
    ) -> Result<Changed<Created>, FileError> {
        self.create_entry(caller, (directory, name), new, attributes)
    }

    fn link(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed<Attributes>, FileError> {
        self.link_entry(caller, file, (directory, name))
    }

    fn remove(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError> {
        self.remove_entry(caller, (directory, name), names::Removal::NotDirectory)
    }

    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError> {
        self.remove_entry(caller, (directory, name), names::Removal::Directory)
    }

    fn rename(
        &self,
        caller: &Caller<'_>,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Result<Changed<Changed>, FileError> {
        self.rename_entry(caller, from, to)
    }

    fn list(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        after: Cookie,
        take: &mut dyn FnMut(&DirectoryEntry<'_>) -> Listing,
    ) -> Result<DirectoryPage, FileError> {
        self.list_entries(caller, directory, after, take)
    }

    fn read_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        use_value: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError> {
        self.get_xattr(caller, file, name, use_value)
    }

    fn set_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Changed, FileError> {
        self.put_xattr(caller, file, (name, value), mode)
    }

    fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
    ) -> Result<Changed, FileError> {
        self.drop_xattr(caller, file, name)
    }

    fn list_xattrs(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        take: &mut dyn FnMut(XattrName<'_>),
    ) -> Result<(), FileError> {
        self.each_xattr(caller, file, take)
    }
}
