//! A file: what it is, its attributes and its data.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use file_tree::permission::Ownership;
use file_tree::{Attributes, Changed, ExclusiveVerifier, FileId, FileKind, Timestamp};

use crate::data::FileData;
use crate::xattrs::Xattrs;

/// Of a last read that the attributes have already.
const NOT_READ: i64 = i64::MIN;
const NANOSECONDS: i64 = 1_000_000_000;

/// A file of any kind. A directory's entries are in the namespace, under its lock.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) kind: FileKind,
    /// The path of a symbolic link.
    pub(crate) link_path: Box<[u8]>,
    /// The value by which an exclusive creation is recognized.
    pub(crate) verifier: Option<ExclusiveVerifier>,
    meta: Mutex<Meta>,
    /// When data were read since [`Meta::accessed`] was set, in nanoseconds, so that readers do not
    /// change what others compare.
    last_read: AtomicI64,
    data: RwLock<FileData>,
    xattrs: Mutex<Xattrs>,
}

/// What changes of a file besides its data. The size changes only under the data's write lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) owner: Ownership,
    pub(crate) links: u32,
    pub(crate) size_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) change: u64,
}

impl Meta {
    /// Notes a change at `now`. Times of changes of a file always rise, so that clients that
    /// compare only times see each change.
    pub(crate) fn touch(&mut self, now: Timestamp) -> Timestamp {
        self.changed = now.max(next(self.changed));
        self.change += 1;
        self.changed
    }

    /// Notes a change of data or entries at `now`.
    pub(crate) fn touch_data(&mut self, now: Timestamp) {
        self.modified = self.touch(now);
    }
}

impl Inode {
    pub(crate) fn new(
        id: FileId,
        kind: FileKind,
        link_path: Box<[u8]>,
        verifier: Option<ExclusiveVerifier>,
        meta: Meta,
    ) -> Self {
        Self {
            id,
            kind,
            link_path,
            verifier,
            meta: Mutex::new(meta),
            last_read: AtomicI64::new(NOT_READ),
            data: RwLock::default(),
            xattrs: Mutex::default(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The attributes, locked. Nothing else is locked meanwhile.
    pub(crate) fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data, locked against changes of size and pages.
    pub(crate) fn data(&self) -> RwLockReadGuard<'_, FileData> {
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data, locked against everyone.
    pub(crate) fn data_mut(&self) -> RwLockWriteGuard<'_, FileData> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The extended attributes, locked.
    pub(crate) fn xattrs(&self) -> MutexGuard<'_, Xattrs> {
        self.xattrs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a read of data or entries.
    pub(crate) fn note_read(&self, now: Timestamp) {
        let nanoseconds = now
            .seconds
            .saturating_mul(NANOSECONDS)
            .saturating_add(i64::from(now.nanoseconds));
        self.last_read.store(nanoseconds, Ordering::Relaxed);
    }

    /// Sets the time of the last read, whatever was noted before.
    pub(crate) fn set_accessed(&self, meta: &mut Meta, time: Timestamp) {
        self.last_read.store(NOT_READ, Ordering::Relaxed);
        meta.accessed = time;
    }

    /// The attributes that `meta` is part of.
    pub(crate) fn attributes(&self, meta: &Meta) -> Attributes {
        let accessed = match self.last_read.load(Ordering::Relaxed) {
            NOT_READ => meta.accessed,
            nanoseconds => Timestamp {
                seconds: nanoseconds.div_euclid(NANOSECONDS),
                nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32,
            },
        };
        Attributes {
            id: self.id,
            kind: self.kind,
            mode: meta.owner.mode,
            links: meta.links,
            uid: meta.owner.uid,
            gid: meta.owner.gid,
            size_bytes: meta.size_bytes,
            used_bytes: meta.used_bytes,
            accessed,
            modified: meta.modified,
            changed: meta.changed,
            change: meta.change,
        }
    }
}

/// What an operation returns that has not changed the file.
pub(crate) fn unchanged(inode: &Inode) -> Changed {
    let after = inode.attributes(&inode.meta());
    Changed {
        before: after.before_change(),
        after,
        value: (),
    }
}

/// The same change with what the operation returns beside.
pub(crate) fn with_value<T>(changed: Changed, value: T) -> Changed<T> {
    Changed {
        before: changed.before,
        after: changed.after,
        value,
    }
}

/// The next instant.
fn next(time: Timestamp) -> Timestamp {
    let nanoseconds = time.nanoseconds + 1;
    if i64::from(nanoseconds) < NANOSECONDS {
        return Timestamp {
            nanoseconds,
            ..time
        };
    }
    Timestamp {
        seconds: time.seconds.saturating_add(1),
        nanoseconds: 0,
    }
}
