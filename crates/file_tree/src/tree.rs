//! The operations of a file tree.

use crate::{
    Access, AttributeChanges, Attributes, BeforeChange, Caller, FileError, FileId, FileKind, Name,
    Timestamp, XattrMode, XattrName,
};

/// The result of an operation that changes a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed<T = ()> {
    /// Attributes of the file, or of the directory that has the entry, before.
    pub before: BeforeChange,
    /// The same after.
    pub after: Attributes,
    /// What the operation returns beside.
    pub value: T,
}

/// What a creation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The new file's attributes, or those of the existing file that an exclusive creation with
    /// the same verifier has made.
    pub attributes: Attributes,
}

/// The value by which a client recognizes its own exclusive creation when it repeats the call
/// (createverf3, RFC 1813 section 3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExclusiveVerifier(pub [u8; 8]);

/// What is created under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFile<'a> {
    /// A regular file. If the name exists, it is an error.
    Guarded,
    /// A regular file. If a regular file has the name, it is used, with the changed size alone.
    Unchecked,
    /// A regular file. If the name exists, it is an error, unless the same verifier created the
    /// file.
    Exclusive(ExclusiveVerifier),
    /// A directory.
    Directory,
    /// A symbolic link to this path, which the tree does not interpret.
    SymbolicLink(&'a [u8]),
    /// A device, a named pipe or a socket. Other kinds are [`FileError::Invalid`].
    Special(FileKind),
}

/// What a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// How many bytes were read: fewer than asked for only at the end.
    pub len_bytes: usize,
    /// Whether the file ends there.
    pub is_end: bool,
    /// The file's attributes after the read.
    pub attributes: Attributes,
}

/// What is looked for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Bytes that were written.
    Data,
    /// A hole. There is one behind the last byte of each file.
    Hole,
}

/// What a search returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekDone {
    /// Where the next data or the next hole begins, or the offset that was given if it is there.
    /// `None` if it is behind the end, or if there are no data up to the end.
    pub offset: Option<u64>,
    /// The length of the file.
    pub size_bytes: u64,
}

/// What a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// How many bytes were written: fewer than given only if space was used up.
    pub len_bytes: usize,
    /// Whether the bytes are as safe as this tree makes any. Otherwise [`FileTree::commit`] makes
    /// them so.
    pub is_stable: bool,
}

/// A position in a directory that stays valid while entries come and go: an entry that exists
/// throughout a listing is returned exactly once. [`Cookie::START`] is before the first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
}

/// An entry of a directory. `.` and `..` are not entries; a protocol that lists them adds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The position behind it. Never [`Cookie::START`]. Cookies of real entries are above 2, so
    /// that 1 and 2 are left for `.` and `..`.
    pub cookie: Cookie,
    /// The file's attributes.
    pub attributes: Attributes,
}

/// Whether a listing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The entry was taken; give the next.
    More,
    /// The entry did not fit; end here.
    Full,
}

/// How a listing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryPage {
    /// Whether there is no entry behind the last one taken.
    pub is_end: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// What a tree has and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpace {
    /// Bytes that files may take in total.
    pub total_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Files that may exist in total.
    pub total_files: u64,
    /// Files that may be created.
    pub free_files: u64,
}

/// Limits that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// The largest length of a file in bytes.
    pub file_bytes_max: u64,
    /// The most hard links of a file.
    pub links_max: u32,
    /// The longest path of a symbolic link in bytes.
    pub link_bytes_max: usize,
    /// The unit in which times differ.
    pub time_step: Timestamp,
    /// The unit of [`FileTree::clone_range`] in bytes, a power of two.
    pub clone_unit_bytes: u32,
    /// Whether files may have extended attributes.
    pub has_xattrs: bool,
}

/// A tree of files. Shared by every session that serves it; all methods take `&self`, are safe from
/// any thread, and do not wait for storage, unless the tree [may wait](Self::may_wait). Each
/// operation takes effect as a whole or not at all, except that reads and writes of more than one
/// page may see each other's parts. Permissions are checked as POSIX does, with exceptions for
/// clients without an open call (RFC 1813 section 4.4): the owner of a regular file may always
/// [`read`](Self::read) and [`write`](Self::write) it, and a caller who may execute it may read it.
pub trait FileTree: Send + Sync {
    /// The root directory.
    fn root(&self) -> FileId;

    /// Whether operations wait for storage. If so, sessions do not execute them in a thread that
    /// serves others meanwhile.
    fn may_wait(&self) -> bool {
        false
    }

    /// Space and files, used and free.
    fn space(&self) -> TreeSpace;

    /// Limits.
    fn limits(&self) -> TreeLimits;

    /// Whether changes are refused at present.
    fn is_read_only(&self) -> bool;

    /// The attributes of a file.
    fn attributes(&self, file: FileId) -> Result<Attributes, FileError>;

    /// What the caller may do with the file.
    fn access(&self, caller: &Caller<'_>, file: FileId) -> Result<Access, FileError>;

    /// Changes attributes, all or none. With `guard`, only if [`Attributes::changed`] is that
    /// instant; otherwise [`FileError::NotSynchronized`].
    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        changes: &AttributeChanges,
        guard: Option<Timestamp>,
    ) -> Result<Changed, FileError>;

    /// The file that an entry names.
    fn lookup(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Attributes, FileError>;

    /// The directory that has this directory as an entry; of the root, the root.
    fn parent(&self, caller: &Caller<'_>, directory: FileId) -> Result<Attributes, FileError>;

    /// Calls `use_path` with the path of a symbolic link, once.
    fn read_link(
        &self,
        caller: &Caller<'_>,
        link: FileId,
        use_path: &mut dyn FnMut(&[u8]),
    ) -> Result<Attributes, FileError>;

    /// Copies bytes from `offset` on into `dest`. A hole reads as zeros. Sets the time of the last
    /// read.
    fn read(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        dest: &mut [u8],
    ) -> Result<ReadDone, FileError>;

    /// Writes `data` at `offset`. With `must_be_stable`, the bytes are safe when this returns.
    fn write(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        data: &[u8],
        must_be_stable: bool,
    ) -> Result<Changed<WriteDone>, FileError>;

    /// Makes `len_bytes` bytes from `offset` on read as zeros and frees what they take; the length
    /// stays. A range beyond the end is cut off there.
    fn punch_hole(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError>;

    /// Reserves space for `len_bytes` bytes from `offset` on, so that writes to them do not fail
    /// for lack of space. What is there stays, holes still read as zeros, and a shorter file is
    /// extended.
    ///
    /// # Errors
    /// [`FileError::Invalid`] without bytes. [`FileError::Busy`] after a part, if the range is more
    /// than the tree reserves at a time: the next call goes on.
    fn allocate(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Changed, FileError>;

    /// Replaces a range of one file by a range of another or the same file, at once: nobody sees a
    /// part of it. Offsets are multiples of [`TreeLimits::clone_unit_bytes`], and so is the length,
    /// unless the source ends there and the target does not continue. A shorter target is extended.
    /// The result is of the target.
    ///
    /// # Errors
    /// [`FileError::Invalid`] if the range is not in the source, the units do not fit, or ranges of
    /// one file overlap. [`FileError::NotSupported`] if the tree cannot clone, and
    /// [`FileError::TooLarge`] if it cannot clone that many bytes.
    fn clone_range(
        &self,
        caller: &Caller<'_>,
        from: (FileId, u64),
        to: (FileId, u64),
        len_bytes: u64,
    ) -> Result<Changed, FileError>;

    /// Looks for data or for a hole from `offset` on. Holes that are small, or behind many pieces
    /// of data, may be taken for data.
    fn seek(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<SeekDone, FileError>;

    /// Makes written bytes as safe as this tree makes any.
    fn commit(&self, caller: &Caller<'_>, file: FileId) -> Result<Changed, FileError>;

    /// Creates a file in a directory, owned by the caller unless `attributes` says otherwise
    /// (which needs root, as a change would). A directory with
    /// [`Mode::SET_GID`](crate::Mode::SET_GID) passes its group on.
    fn create(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
        new: NewFile<'_>,
        attributes: &AttributeChanges,
    ) -> Result<Changed<Created>, FileError>;

    /// Adds a hard link. The value has the linked file's attributes.
    fn link(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed<Attributes>, FileError>;

    /// Removes an entry that is not a directory; the file itself with its last entry.
    fn remove(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError>;

    /// Removes an empty directory.
    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        name: Name<'_>,
    ) -> Result<Changed, FileError>;

    /// Moves an entry, replacing a compatible one. Moving a directory below itself is
    /// [`FileError::Invalid`]. If both names are of the same file, nothing changes. The outer
    /// result is of the directory moved from, the value of the one moved to.
    fn rename(
        &self,
        caller: &Caller<'_>,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Result<Changed<Changed>, FileError>;

    /// Calls `take` with the entries behind `after`, in the order of their cookies, until it
    /// answers [`Listing::Full`] or there are no more.
    fn list(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        after: Cookie,
        take: &mut dyn FnMut(&DirectoryEntry<'_>) -> Listing,
    ) -> Result<DirectoryPage, FileError>;

    /// Calls `use_value` with the value of an extended attribute, once.
    fn read_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        use_value: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError>;

    /// Sets an extended attribute of a regular file or directory.
    fn set_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Changed, FileError>;

    /// Removes an extended attribute.
    fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
    ) -> Result<Changed, FileError>;

    /// Calls `take` with the name of each extended attribute, in an order that stays while none is
    /// set or removed.
    fn list_xattrs(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        take: &mut dyn FnMut(XattrName<'_>),
    ) -> Result<(), FileError>;
}
