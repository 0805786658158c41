//! From a file's identifier to a descriptor, confined to the directory.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use file_tree::{Attributes, FileError, FileId, FileKind, Name};
use rustix::fs::{AtFlags, Mode as HostMode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::errors::of_host;
use crate::identity::Identifier;
use crate::places::Places;

/// The directory that is served, and how files below it are found.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) root: OwnedFd,
    pub(crate) root_id: FileId,
    pub(crate) identifier: Identifier,
    pub(crate) places: Mutex<Places>,
    /// When the next search may begin. Held by the thread that searches.
    pub(crate) search: Mutex<Instant>,
    /// Held while the mode of a file changes, if only for a moment.
    pub(crate) modes: Mutex<()>,
}

/// A file that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Opened with `O_PATH`: a name for the file, with which nothing is read or written.
    pub(crate) handle: OwnedFd,
    pub(crate) attributes: Attributes,
    /// The path from the root, without a slash in front. Empty for the root.
    pub(crate) path: Vec<u8>,
    /// The numbers of the directories above it, the nearest first.
    pub(crate) above: Vec<u64>,
}

/// How a path is resolved: below where it begins, without symbolic links and other mounts.
pub(crate) const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// How a file is opened that is neither read nor written. A symbolic link is opened itself.
const AS_HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The longest part of a path that is resolved by one call; the kernel takes less than 4096 bytes.
const PART_BYTES_MAX: usize = 3800;
/// How often a path is resolved again after names on it changed meanwhile.
const ATTEMPTS_MAX: usize = 8;

impl Resolver {
    /// The entry of a directory, and notes where it is.
    pub(crate) fn entry(&self, directory: &Found, name: Name<'_>) -> Result<Found, FileError> {
        let handle = open_confined(&directory.handle, name.as_bytes(), AS_HANDLE)?;
        let attributes = self.identifier.look(&handle)?;
        let directory_number = directory.attributes.id.number;
        let bytes = name.as_bytes();
        self.places()
            .learn(directory_number, bytes, attributes.id.number);
        let mut path = directory.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(bytes);
        let mut above = vec![directory_number];
        above.extend_from_slice(&directory.above);
        Ok(Found {
            handle,
            attributes,
            path,
            above,
        })
    }

    /// The directory above a file; above the root, the root.
    pub(crate) fn parent(&self, found: &Found) -> Result<Found, FileError> {
        let end = found.path.iter().rposition(|byte| *byte == b'/');
        let above = found.above.get(1..).unwrap_or_default().to_vec();
        self.open(found.path[..end.unwrap_or(0)].to_vec(), above)
    }

    /// Opens a path that the tree has made of names that it has found.
    pub(crate) fn open(&self, path: Vec<u8>, above: Vec<u64>) -> Result<Found, FileError> {
        let mut handle = None;
        let mut rest = &path[..];
        while handle.is_none() || !rest.is_empty() {
            let part = rest.get(..PART_BYTES_MAX).map_or(rest, |part| {
                let end = part.iter().rposition(|byte| *byte == b'/');
                &part[..end.unwrap_or(part.len())]
            });
            rest = &rest[part.len()..];
            rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let part = if part.is_empty() { b"." } else { part };
            let from = handle.as_ref().unwrap_or(&self.root);
            handle = Some(open_confined(from, part, AS_HANDLE)?);
        }
        let handle = handle.ok_or(FileError::Io)?;
        let attributes = self.identifier.look(&handle)?;
        Ok(Found {
            handle,
            attributes,
            path,
            above,
        })
    }

    pub(crate) fn lock_modes(&self) -> MutexGuard<'_, ()> {
        self.modes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is true between any two statements of a method of `Places`.
    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Opens the file itself, which is of a kind whose opening has no other effect: a regular file
    /// or a directory.
    pub(crate) fn open_as(&self, resolver: &Resolver, flags: OFlags) -> Result<OwnedFd, FileError> {
        debug_assert!(matches!(
            self.attributes.kind,
            FileKind::Regular | FileKind::Directory
        ));
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = || rustix::fs::open(self.own_path().as_c_str(), flags, HostMode::empty());
        match open() {
            // The owner may always read and write, but the daemon, as the owner, may not.
            Err(Errno::ACCESS) if self.is_own() => self.with_owner_bits(resolver, open),
            opened => opened.map_err(of_host),
        }
    }

    /// A path that leads to this file, wherever it is now and whatever has its name: the descriptor
    /// in `/proc`.
    pub(crate) fn own_path(&self) -> CString {
        let path = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        CString::new(path).unwrap_or_default()
    }

    fn is_own(&self) -> bool {
        rustix::process::geteuid().as_raw() == self.attributes.uid
    }

    /// Opens the file while its mode lets the owner read and write.
    fn with_owner_bits(
        &self,
        resolver: &Resolver,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<OwnedFd, FileError> {
        const OWNER_BITS: u32 = 0o600;
        let _modes = resolver.lock_modes();
        // Another thread may have done the same a moment ago, so the mode that was seen may have
        // been its own.
        let bits = u32::from(resolver.identifier.look(&self.handle)?.mode.bits());
        let path = self.own_path();
        let change = |bits| rustix::fs::chmod(path.as_c_str(), HostMode::from_raw_mode(bits));
        change(bits | OWNER_BITS).map_err(of_host)?;
        let opened = open();
        change(bits).map_err(of_host)?;
        opened.map_err(of_host)
    }
}

/// Opens what a relative path leads to from a directory, without leaving it.
pub(crate) fn open_confined(
    directory: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, FileError> {
    let mut attempts = 0;
    loop {
        let opened = rustix::fs::openat2(directory, path, flags, HostMode::empty(), CONFINED);
        attempts += 1;
        match opened {
            Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS_MAX => {}
            opened => return opened.map_err(of_host),
        }
    }
}

/// Whether the process may read, write and search a directory.
pub(crate) fn may_change(directory: &OwnedFd) -> bool {
    use rustix::fs::Access;
    let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(directory, c".", all, AtFlags::EACCESS).is_ok()
}
