//! The state file: definitions, durable.
//!
//! One file of lines. The first names the format; each other is a transaction: a checksum and the
//! changes that it made. A transaction is appended and synced before it is answered, so the
//! thousandth costs what the first did. When the lines have grown far beyond what is defined, a new
//! file with one transaction replaces the old one by rename.
//!
//! A kill or a power cut can leave an incomplete last line. Its change was never acknowledged, and
//! the line is removed. Any other damage is reported and prevents the start, since definitions
//! would be lost silently otherwise. While the daemon starts, changes are collected and the file is
//! not written, so that a failed start leaves it unchanged. See `docs/design/0010-state-file.md`.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::change::Change;
use crate::saved_state::SavedState;
use files::{Files, HostFiles};

/// The first line, with the version of the format.
const HEADER: &str = "ramport-state 1\n";
/// Journals shorter than this are not compacted.
const COMPACT_MIN_BYTES: u64 = 256 << 10;
/// A journal is compacted when it is this many times as long as after the last compaction.
const COMPACT_FACTOR: u64 = 4;
/// How often the lock file is tried, and how long after each.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Why the state file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It has another format.
    #[error(
        "{path} is not a state file that this version reads (it must begin with {expected:?}); use the version that wrote it, or another --state",
        path = path.display(),
        expected = HEADER.trim_end()
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// A line is damaged.
    #[error(
        "{path}, line {line} is damaged: {fault}; {}restore the file from a backup, or move it away and run `ramport apply` with your definitions",
        place.way_out(),
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Where the line stands.
        place: Place,
        /// What is wrong.
        fault: LineFault,
    },
    /// Another daemon has it.
    #[error(
        "{path} is in use by another ramport; stop it, or choose another --state",
        path = path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// Where a damaged line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Other lines follow.
    Before,
    /// It is the last one.
    Last,
}

impl Place {
    fn when_last(is_last: bool) -> Self {
        if is_last { Self::Last } else { Self::Before }
    }

    /// How to continue if only the last change is lost.
    fn way_out(self) -> &'static str {
        match self {
            Self::Before => "",
            Self::Last => "delete this last line to go back to the state before its change, ",
        }
    }
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// The line does not end: its write was cut short.
    #[error("the line is incomplete")]
    Torn,
    /// The checksum is missing or wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// The changes cannot be read.
    #[error("{0}")]
    Changes(#[from] serde_json::Error),
}

/// What lies behind the good part of the file.
#[derive(Debug)]
enum Tail {
    Nothing,
    /// Perhaps a line that a failed write or a kill cut short.
    Torn,
}

/// Whether appended transactions are written.
#[derive(Debug)]
enum Phase {
    /// They are collected: the daemon may not start after all.
    Starting(Vec<Change>),
    /// They are written and synced.
    Running,
}

/// Whether a power cut leaves the state file under its name.
#[derive(Debug)]
enum Name {
    Synced,
    /// An older file may have the name again.
    Replaced,
}

/// The open state file.
#[derive(Debug)]
pub(crate) struct Store<F: Files = HostFiles> {
    files: F,
    path: PathBuf,
    phase: Phase,
    /// None until a new file is made.
    file: Option<F::File>,
    name: Name,
    /// The offset of the next line. Bytes after it are not part of the state.
    len_bytes: u64,
    /// What may lie behind `len_bytes`.
    tail: Tail,
    /// The length after the last compaction.
    compact_bytes: u64,
    /// Held as long as the store is: keeps a second daemon off the same state.
    _lock: F::Lock,
}

impl Store {
    /// Reads the state file, if there is one. Nothing is written before [`settle`](Self::settle).
    pub(crate) fn open(path: &Path) -> Result<(Self, SavedState), StoreError> {
        Self::open_in(HostFiles, path)
    }
}

impl<F: Files> Store<F> {
    fn open_in(files: F, path: &Path) -> Result<(Self, SavedState), StoreError> {
        let lock = lock(&files, path)?;
        let bytes = files.read(path);
        let bytes = bytes.map_err(|source| failed("read", path, source))?;
        let Loaded {
            saved,
            len_bytes,
            tail,
        } = read(path, &bytes.unwrap_or_default())?;
        let file = match len_bytes {
            0 => None,
            _ => Some(files.open(path)),
        };
        let file = file.transpose();
        let store = Self {
            files,
            path: path.to_owned(),
            phase: Phase::Starting(Vec::new()),
            file: file.map_err(|source| failed("write", path, source))?,
            // A process that was killed may have replaced the file.
            name: Name::Replaced,
            len_bytes,
            tail,
            compact_bytes: len_bytes,
            _lock: lock,
        };
        Ok((store, saved))
    }

    /// Writes what was appended so far as one transaction. From now on, every transaction is
    /// written.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        if let Phase::Starting(changes) = std::mem::replace(&mut self.phase, Phase::Running)
            && !changes.is_empty()
        {
            self.append(&changes)?;
        }
        Ok(())
    }

    /// Makes a transaction durable, or collects it before [`settle`](Self::settle). If this fails,
    /// the state is as if the transaction had never been tried.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if let Phase::Starting(collected) = &mut self.phase {
            collected.extend_from_slice(changes);
            return Ok(());
        }
        let line = line(changes);
        let appended = self.try_append(&line);
        if appended.is_ok() {
            self.len_bytes += line.len() as u64;
        } else if let Err(error) = self.cut_tail() {
            let path = self.path.display();
            tracing::error!(%path, %error, "cannot take back a failed write; tried again before the next one");
        }
        appended.map_err(|source| failed("write", &self.path, source))
    }

    fn try_append(&mut self, line: &str) -> io::Result<()> {
        if self.file.is_none() {
            self.replace(&SavedState::default())?;
        }
        self.sync_name()?;
        self.cut_tail()?;
        if let Some(file) = &mut self.file {
            self.tail = Tail::Torn;
            self.files.append(file, line.as_bytes())?;
            self.files.sync(file)?;
            self.tail = Tail::Nothing;
        }
        Ok(())
    }

    fn cut_tail(&mut self) -> io::Result<()> {
        if let (Tail::Torn, Some(file)) = (&self.tail, &mut self.file) {
            self.files.cut(file, self.len_bytes)?;
            self.files.sync(file)?;
            self.tail = Tail::Nothing;
        }
        Ok(())
    }

    /// What is appended to a file is durable only if its name is.
    fn sync_name(&mut self) -> io::Result<()> {
        if let Name::Replaced = self.name {
            self.files.sync_folder(folder(&self.path))?;
            self.name = Name::Synced;
        }
        Ok(())
    }

    /// Whether the file has grown so far that [`compact`](Self::compact) is worth it.
    pub(crate) fn wants_compaction(&self) -> bool {
        matches!(self.phase, Phase::Running)
            && self.len_bytes > COMPACT_MIN_BYTES.max(self.compact_bytes * COMPACT_FACTOR)
    }

    /// Replaces the file by one that holds only `saved`. If this fails, the state is what it was.
    pub(crate) fn compact(&mut self, saved: &SavedState) -> Result<(), StoreError> {
        let compacted = self.replace(saved).and_then(|()| self.sync_name());
        compacted.map_err(|source| failed("write", &self.path, source))
    }

    /// Writes a whole state file beside the old one, syncs it, and puts it in the old one's place.
    fn replace(&mut self, saved: &SavedState) -> io::Result<()> {
        let temporary = with_suffix(&self.path, ".new");
        let changes = saved.as_changes();
        let mut text = HEADER.to_owned();
        if !changes.is_empty() {
            text.push_str(&line(&changes));
        }
        let mut file = self.files.create(&temporary)?;
        self.files.append(&mut file, text.as_bytes())?;
        self.files.sync(&mut file)?;
        self.files.rename(&temporary, &self.path)?;
        // From here on the old file has no name, so nothing must be appended to it.
        self.file = Some(file);
        self.name = Name::Replaced;
        self.len_bytes = text.len() as u64;
        self.tail = Tail::Nothing;
        self.compact_bytes = self.len_bytes;
        Ok(())
    }
}

/// What a state file holds.
struct Loaded {
    saved: SavedState,
    /// How much of the file is good; 0 if there is no file yet.
    len_bytes: u64,
    tail: Tail,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            saved: SavedState::default(),
            len_bytes: 0,
            tail: Tail::Nothing,
        }
    }
}

/// Reads a state file. A last line without its end is left out.
fn read(path: &Path, bytes: &[u8]) -> Result<Loaded, StoreError> {
    if bytes.is_empty() {
        return Ok(Loaded::default());
    }
    let Some(body) = bytes.strip_prefix(HEADER.as_bytes()) else {
        return Err(StoreError::Format {
            path: path.to_owned(),
        });
    };
    let mut loaded = Loaded {
        len_bytes: HEADER.len() as u64,
        ..Loaded::default()
    };
    let mut lines = body.split_inclusive(|&byte| byte == b'\n').peekable();
    // The header is line 1.
    let mut number = 1;
    while let Some(line) = lines.next() {
        number += 1;
        let changes = match changes_of(line) {
            Ok(changes) => changes,
            // Only the last one can be without its end.
            Err(LineFault::Torn) => {
                let path = path.display();
                tracing::warn!(%path, number, "the last line was cut short before it was acknowledged; it is left out");
                loaded.tail = Tail::Torn;
                break;
            }
            Err(fault) => {
                return Err(StoreError::Damaged {
                    path: path.to_owned(),
                    line: number,
                    place: Place::when_last(lines.peek().is_none()),
                    fault,
                });
            }
        };
        for change in changes {
            loaded.saved.make(change);
        }
        loaded.len_bytes += line.len() as u64;
    }
    Ok(loaded)
}

fn line(changes: &[Change]) -> String {
    let json = serde_json::to_string(changes).expect("changes serialise");
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

fn changes_of(line: &[u8]) -> Result<Vec<Change>, LineFault> {
    let Some(whole) = line.strip_suffix(b"\n") else {
        // A whole line whose last byte is damaged was not cut short.
        let is_whole = line
            .split_last()
            .is_some_and(|(_, rest)| checked(rest).is_some());
        return Err(if is_whole {
            LineFault::Checksum
        } else {
            LineFault::Torn
        });
    };
    let json = checked(whole).ok_or(LineFault::Checksum)?;
    Ok(serde_json::from_slice(json)?)
}

/// The changes of a line without its end, if its checksum is right.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (checksum, json) = line.split_at_checked(9)?;
    let checksum = std::str::from_utf8(checksum).ok()?;
    let checksum = u32::from_str_radix(checksum.trim_end(), 16).ok()?;
    (checksum == crc32c::crc32c(json)).then_some(json)
}

/// Takes the lock file beside the state file, which is itself replaced by rename. Waits a moment
/// for an earlier holder that is just ending.
fn lock<F: Files>(files: &F, path: &Path) -> Result<F::Lock, StoreError> {
    let lock_path = with_suffix(path, ".lock");
    let created = files.create_folder(folder(path));
    created.map_err(|source| failed("create the folder of", path, source))?;
    for _ in 0..LOCK_TRIES {
        let locked = files.lock(&lock_path);
        if let Some(locked) = locked.map_err(|source| failed("lock", &lock_path, source))? {
            return Ok(locked);
        }
        thread::sleep(LOCK_PAUSE);
    }
    Err(StoreError::InUse {
        path: path.to_owned(),
    })
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
