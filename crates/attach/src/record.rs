//! What is attached: a folder per disk below [`FOLDER`], with a record that its process holds
//! locked.
//!
//! A record without a lock is left of a process that was killed, and counts as none.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::AttachError;
use crate::kernel::loop_device::{self, LoopError};
use crate::kernel::ublk::delete_left;

/// Where attached disks are recorded. Not the daemon's folder, which the service manager removes.
const FOLDER: &str = "/run/ramport-attach";
/// The most disks whose names are chosen.
const DISKS_MAX: u32 = 1024;
/// The most characters of a name.
const NAME_CHARACTERS_MAX: usize = 64;
/// The most bytes of a record.
const RECORD_BYTES_MAX: u64 = 1 << 16;
/// How long [`detach`] waits for the disk's process.
const DETACH_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it looks.
const DETACH_INTERVAL: Duration = Duration::from_millis(20);

/// An attached disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// The block device.
    pub device: PathBuf,
    /// The URL, without secrets.
    pub url: String,
    /// The disk's size when it was attached, in bytes.
    pub size_bytes: u64,
    /// The process that serves it.
    pub pid: i32,
}

/// A name that this process holds.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: String,
    folder: PathBuf,
    file: File,
}

impl Claim {
    /// Takes a name, or the first free one of `disk0`, `disk1` and so on.
    pub(crate) fn take(name: Option<&str>) -> Result<Self, AttachError> {
        if let Some(name) = name {
            return Self::take_name(name);
        }
        for number in 0..DISKS_MAX {
            match Self::take_name(&format!("disk{number}")) {
                Err(AttachError::NameInUse { .. }) => {}
                other => return other,
            }
        }
        Err(AttachError::TooMany { count: DISKS_MAX })
    }

    fn take_name(name: &str) -> Result<Self, AttachError> {
        let folder = folder(name)?;
        let claimed = || -> std::io::Result<Option<File>> {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)?;
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.join("record"))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(file)),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        let file = claimed().map_err(|source| AttachError::Kernel {
            step: "record the disk in /run/ramport-attach",
            source,
            fix: "attach needs root",
        })?;
        let name = name.to_owned();
        let Some(file) = file else {
            return Err(AttachError::NameInUse { name });
        };
        let mut claim = Self { name, folder, file };
        claim.clean()?;
        Ok(claim)
    }

    /// Removes what a process left that was killed.
    fn clean(&mut self) -> Result<(), AttachError> {
        if let Some(left) = read(&mut self.file) {
            delete_left(&left.device, left.pid).map_err(|source| AttachError::Kernel {
                step: "delete the device that a killed process left",
                source,
                fix: "close what uses it (`fuser -v`)",
            })?;
            if is_on(&left.device, &self.disk()) {
                match loop_device::remove(&left.device) {
                    Err(LoopError::Busy) => {
                        let device = left.device;
                        return Err(AttachError::InUse { device });
                    }
                    // The device goes away with its file.
                    Ok(()) | Err(LoopError::System(_)) => {}
                }
            }
            self.clear();
        }
        // Fails if nothing is mounted, as usual.
        let _ = unmount(self.disk(), UnmountFlags::DETACH);
        Ok(())
    }

    /// The file with the disk's blocks.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Writes the record, as one write.
    pub(crate) fn write(&mut self, record: &Record) -> std::io::Result<()> {
        self.clear();
        self.file.write_all(&serde_json::to_vec(record)?)
    }

    fn clear(&mut self) {
        // The record is in memory; an empty or an old one without a lock counts as none.
        let _ = self.file.set_len(0);
        let _ = self.file.rewind();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The folder of a disk.
fn folder(name: &str) -> Result<PathBuf, AttachError> {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_good = (1..=NAME_CHARACTERS_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(is_known);
    if is_good {
        Ok(Path::new(FOLDER).join(name))
    } else {
        let name = name.to_owned();
        Err(AttachError::Name { name })
    }
}

/// Where the process of a disk in the background logs.
pub(crate) fn log(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name).join("log")
}

/// Whether the loop device has this file.
fn is_on(device: &Path, file: &Path) -> bool {
    let Some(name) = device.file_name() else {
        return false;
    };
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    fs::read_to_string(backing).is_ok_and(|text| Path::new(text.trim_end()) == file)
}

fn read(file: &mut File) -> Option<Record> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether a process holds the record.
fn is_held(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// The attached disks, by name.
pub fn list() -> Vec<Record> {
    let mut all: Vec<Record> = open_records()
        .into_iter()
        .map(|(record, _)| record)
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn open_records() -> Vec<(Record, File)> {
    let Ok(folders) = fs::read_dir(FOLDER) else {
        return Vec::new();
    };
    let records = folders.flatten().filter_map(|folder| {
        let mut file = File::open(folder.path().join("record")).ok()?;
        let record = is_held(&file).then(|| read(&mut file)).flatten()?;
        Some((record, file))
    });
    records.collect()
}

/// Detaches the disk with this name or device, which must not be in use, and waits until that is
/// done.
pub fn detach(name: &str) -> Result<Record, AttachError> {
    let mut records = open_records().into_iter();
    let found = records.find(|(record, _)| record.name == name || record.device == Path::new(name));
    let Some((record, file)) = found else {
        let name = name.to_owned();
        return Err(AttachError::NotAttached { name });
    };
    if let Err(LoopError::Busy) = loop_device::open_unused(&record.device) {
        let device = record.device;
        return Err(AttachError::InUse { device });
    }
    request_stop(&record, &file).map_err(|source| AttachError::Kernel {
        step: "end the process that serves the disk",
        source: source.into(),
        fix: "detach needs root",
    })?;
    let began = Instant::now();
    while is_held(&file) {
        if began.elapsed() > DETACH_TIMEOUT {
            return Err(AttachError::StillAttached {
                log: log(&record.name),
                device: record.device,
                timeout: DETACH_TIMEOUT,
            });
        }
        std::thread::sleep(DETACH_INTERVAL);
    }
    Ok(record)
}

/// Sends SIGTERM. The process holds the record after its descriptor was opened, so it is that
/// process.
fn request_stop(record: &Record, file: &File) -> Result<(), Errno> {
    let pid = Pid::from_raw(record.pid).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if !is_held(file) {
        return Ok(());
    }
    pidfd_send_signal(&process, Signal::TERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/etc",
            ".hidden",
            "a b",
            "ä",
            &"x".repeat(65),
        ] {
            assert!(
                matches!(folder(bad), Err(AttachError::Name { .. })),
                "{bad:?}"
            );
        }
        for good in ["disk0", "db-1.main_2", &"x".repeat(64)] {
            assert_eq!(folder(good).unwrap(), Path::new(FOLDER).join(good));
        }
    }

    #[test]
    fn a_loop_device_on_another_file_is_not_ours() {
        assert!(!is_on(Path::new("/dev/null"), Path::new("/run/x")));
        assert!(!is_on(Path::new("/"), Path::new("/run/x")));
    }
}
