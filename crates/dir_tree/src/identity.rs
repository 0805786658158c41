//! The identifier and the attributes of a file.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use file_tree::permission::Ownership;
use file_tree::{Attributes, DeviceNumber, FileError, FileId, FileKind, Mode, Timestamp};
use rustix::fs::{AtFlags, FileType, RawMode, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::errors::of_host;
use crate::system_call::handle::generation;

/// How files of a file system that had the same number are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generations {
    /// By the file system's own handles.
    Handles,
    /// By the time of their creation.
    BirthTimes,
}

/// Identifies the files of one file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identifier {
    generations: Generations,
    device: (u32, u32),
}

/// What is known of a file from one look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) attributes: Attributes,
    /// Another file system is mounted there.
    pub(crate) is_mount: bool,
}

/// What the attributes of a file are made of.
const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
const SECTOR_BYTES: u64 = 512;
const NANOSECONDS: u64 = 1_000_000_000;

impl Identifier {
    /// How to identify files of the file system that has this directory. `None` if that has no
    /// means of telling files apart.
    pub(crate) fn new(root: &OwnedFd) -> Result<Option<Self>, Errno> {
        let status = rustix::fs::statx(root, c"", AtFlags::EMPTY_PATH, MASK)?;
        let generations = match generation(root.as_fd(), c"") {
            Ok(_) => Generations::Handles,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
                if has(&status, StatxFlags::BTIME) =>
            {
                Generations::BirthTimes
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(Self {
            generations,
            device: (status.stx_dev_major, status.stx_dev_minor),
        }))
    }

    /// Looks at an open file.
    pub(crate) fn look(&self, file: &OwnedFd) -> Result<Attributes, FileError> {
        self.look_at(file.as_fd(), c"").map(|seen| seen.attributes)
    }

    /// Looks at an entry of a directory, or at `directory` itself if the name is empty. A symbolic
    /// link is not followed.
    pub(crate) fn look_at(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Seen, FileError> {
        let flags = if name.is_empty() {
            AtFlags::EMPTY_PATH
        } else {
            AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT
        };
        let status = rustix::fs::statx(directory, name, flags, MASK).map_err(of_host)?;
        let is_other = (status.stx_dev_major, status.stx_dev_minor) != self.device;
        let is_root = status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let is_mount = is_other || !name.is_empty() && is_root;
        let generation = match self.generations {
            // What is mounted there is not shown, so it needs none.
            _ if is_mount => 0,
            Generations::Handles => generation(directory, name).map_err(of_host)?,
            Generations::BirthTimes => {
                let born = status.stx_btime;
                nanoseconds(born.tv_sec, born.tv_nsec)
            }
        };
        if is_other && name.is_empty() {
            return Err(FileError::NotFound);
        }
        Ok(Seen {
            attributes: attributes(&status, generation),
            is_mount,
        })
    }
}

/// What permissions depend on.
pub(crate) fn ownership(attributes: &Attributes) -> Ownership {
    Ownership {
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
    }
}

fn attributes(status: &Statx, generation: u64) -> Attributes {
    let mode = u32::from(status.stx_mode);
    let changed = time(&status.stx_ctime);
    Attributes {
        id: FileId {
            number: status.stx_ino,
            generation,
        },
        kind: kind(status, mode),
        mode: Mode::new(mode),
        links: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        size_bytes: status.stx_size,
        used_bytes: status.stx_blocks.saturating_mul(SECTOR_BYTES),
        accessed: time(&status.stx_atime),
        modified: time(&status.stx_mtime),
        changed,
        change: nanoseconds(changed.seconds, changed.nanoseconds),
    }
}

fn kind(status: &Statx, mode: u32) -> FileKind {
    let device = DeviceNumber {
        major: status.stx_rdev_major,
        minor: status.stx_rdev_minor,
    };
    match FileType::from_raw_mode(mode as RawMode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::SymbolicLink,
        FileType::BlockDevice => FileKind::BlockDevice(device),
        FileType::CharacterDevice => FileKind::CharacterDevice(device),
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

fn time(of: &StatxTimestamp) -> Timestamp {
    Timestamp {
        seconds: of.tv_sec,
        nanoseconds: of.tv_nsec,
    }
}

/// An instant as a number that differs between instants.
fn nanoseconds(seconds: i64, nanoseconds: u32) -> u64 {
    seconds
        .cast_unsigned()
        .wrapping_mul(NANOSECONDS)
        .wrapping_add(u64::from(nanoseconds))
}

fn has(status: &Statx, what: StatxFlags) -> bool {
    StatxFlags::from_bits_retain(status.stx_mask).contains(what)
}
