//! The writer: a new file beside the old one, which it replaces when it is complete.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use block::{Allocation, ByteRange, Status};
use lz4_flex::block::{compress_into, get_maximum_output_size};
use uuid::Uuid;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::chain::{Tail, increment_path, is_increment};
use crate::error::{FileStep, ImageError, WriteError};
use crate::files::Files;
use crate::format::{
    CHUNK_BYTES, FileId, HEADER_BYTES, Header, INCREMENTS_MAX, IndexEntry, Label, Trailer,
};
use crate::reader::read_header;

/// Bytes of a volume that do not change while they are read.
pub trait Source {
    /// Whether the start of `range` may hold anything but zeros, and for how many bytes that holds.
    fn allocation(&self, range: ByteRange) -> Allocation;

    /// Copies the bytes from `offset` on into `dest`.
    ///
    /// # Errors
    /// If they are not what they were any more.
    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<(), Status>;
}

/// Which file of the same name is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// An earlier save of the same lineage.
    SameLineage,
    /// Any save.
    AnySave,
}

/// A file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Bytes of the volume that it holds: all others are zeros, or in an increment unchanged.
    pub held_bytes: u64,
    /// What the next increment follows.
    pub tail: Tail,
}

/// Where an increment goes, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Increment<'a> {
    /// What it follows.
    pub tail: Tail,
    /// The numbers of the chunks that have changed since, in ascending order.
    pub changed: &'a [u32],
}

/// Bytes that are collected for one call of the system.
const BATCH_BYTES: usize = 1 << 20;
/// The end of the name of a file that is not complete.
const PARTIAL: &str = ".partial";

/// Writes all of `source` to `path`, and reports to `progress` the offset in the volume that was
/// reached, which may cancel the work. Until this returns, `path` is what it was before, whatever
/// fails or is killed; afterwards it is the new file, which is on stable storage, and increments of
/// the former one are removed.
///
/// # Errors
/// If the files or the source fail, or `path` exists and is not to be replaced.
pub fn write<F: Files>(
    files: &F,
    path: &Path,
    label: &Label,
    source: &dyn Source,
    replace: Replace,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, WriteError> {
    check_replaced(files, path, label, replace)?;
    let header = Header::new(label, None);
    let written = publish(files, path, header, &mut |writer| {
        writer.write_all(label, source, progress)
    })?;
    for place in 1..=INCREMENTS_MAX {
        let path = increment_path(path, place);
        if let Ok(Some(file)) = files.open(&path)
            && is_increment(&file).unwrap_or(false)
        {
            // If it stays, it is not read: its link names another file.
            let _leftover = files.remove(&path);
        }
    }
    let id = written.id(label);
    Ok(written.report(Tail::of_complete(id)))
}

/// Writes what has changed in `source` to an increment beside the complete file `path`, and reports
/// to `progress` the bytes of the volume that are done. Whatever fails or is killed, the file and
/// its earlier increments are what they were.
///
/// # Errors
/// If the files or the source fail, or a file that is no increment has the name.
pub fn write_increment<F: Files>(
    files: &F,
    path: &Path,
    label: &Label,
    source: &dyn Source,
    increment: Increment<'_>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, WriteError> {
    let link = increment.tail.next_link();
    let path = increment_path(path, link.place);
    check_no_other(files, &path)?;
    let header = Header::new(label, Some(&link));
    let written = publish(files, &path, header, &mut |writer| {
        writer.write_changed(label, source, increment.changed, progress)
    })?;
    let id = written.id(label);
    Ok(written.report(Tail {
        base: link.base,
        last: id,
        increments: link.place,
    }))
}

/// Creates a file, has it filled, and gives it its name when it is on stable storage.
fn publish<F: Files>(
    files: &F,
    path: &Path,
    header: Header,
    fill: &mut dyn FnMut(&mut Writer<'_, F>) -> Result<Filled, WriteError>,
) -> Result<Filled, WriteError> {
    let names = Names::new(path).ok_or_else(|| WriteError::NotASave { path: path.into() })?;
    files.remove_leftovers(&names.folder, &names.begin, PARTIAL);
    let file = files
        .create(&names.partial)
        .map_err(|error| failed(FileStep::Create, &names.partial, error))?;
    let mut writer = Writer::new(files, file, &names.partial, header);
    let done = fill(&mut writer).and_then(|written| {
        let renamed = files.rename(&names.partial, path);
        renamed.map_err(|error| failed(FileStep::Rename, path, error))?;
        Ok(written)
    });
    let written = match done {
        Ok(written) => written,
        Err(error) => {
            // The next save of this name tries again.
            let _leftover = files.remove(&names.partial);
            return Err(error);
        }
    };
    let synced = files.sync_folder(&names.folder);
    synced.map_err(|error| failed(FileStep::Sync, &names.folder, error))?;
    Ok(written)
}

/// Refuses to replace what is not to be replaced.
fn check_replaced<F: Files>(
    files: &F,
    path: &Path,
    label: &Label,
    replace: Replace,
) -> Result<(), WriteError> {
    let opened = files.open(path);
    let Some(old) = opened.map_err(|error| failed(FileStep::Open, path, error))? else {
        return Ok(());
    };
    match read_header(&old) {
        Ok((header, _)) if header.link().is_some() => {
            Err(WriteError::NotASave { path: path.into() })
        }
        Ok((_, found)) if replace == Replace::SameLineage && found.lineage != label.lineage => {
            Err(WriteError::OtherSave {
                path: path.into(),
                found: Box::new(found),
            })
        }
        Ok(_) => Ok(()),
        Err(ImageError::File { step, source }) => Err(failed(step, path, source)),
        Err(_) => Err(WriteError::NotASave { path: path.into() }),
    }
}

/// Refuses to replace anything but an increment.
fn check_no_other<F: Files>(files: &F, path: &Path) -> Result<(), WriteError> {
    let opened = files.open(path);
    let Some(old) = opened.map_err(|error| failed(FileStep::Open, path, error))? else {
        return Ok(());
    };
    match is_increment(&old) {
        Ok(true) => Ok(()),
        Err(ImageError::File { step, source }) => Err(failed(step, path, source)),
        _ => Err(WriteError::NotAnIncrement { path: path.into() }),
    }
}

fn failed(step: FileStep, path: &Path, source: io::Error) -> WriteError {
    let path = path.into();
    WriteError::File { step, path, source }
}

/// The names of a file while it is not complete.
struct Names {
    folder: PathBuf,
    /// How the name of each such file begins.
    begin: String,
    partial: PathBuf,
}

impl Names {
    /// `None` if `path` does not name a file.
    fn new(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy();
        let folder = path.parent()?.to_owned();
        let begin = format!(".{name}.");
        // Two writers of one name do not rename each other's files.
        let partial = folder.join(format!("{begin}{}{PARTIAL}", Uuid::new_v4().simple()));
        Some(Self {
            folder,
            begin,
            partial,
        })
    }
}

/// A file that is complete, and its checksum.
struct Filled {
    file_bytes: u64,
    held_bytes: u64,
    crc: u32,
}

impl Filled {
    fn id(&self, label: &Label) -> FileId {
        FileId {
            sequence: label.sequence,
            moment_unix_ns: label.moment_unix_ns,
            crc: self.crc,
        }
    }

    fn report(self, tail: Tail) -> Written {
        Written {
            file_bytes: self.file_bytes,
            held_bytes: self.held_bytes,
            tail,
        }
    }
}

struct Writer<'a, F: Files> {
    files: &'a F,
    file: F::New,
    path: &'a Path,
    header: Header,
    /// What is not in the file yet.
    batch: Vec<u8>,
    /// Bytes in the file and the batch.
    file_bytes: u64,
    index: Vec<IndexEntry>,
    held_bytes: u64,
}

impl<'a, F: Files> Writer<'a, F> {
    fn new(files: &'a F, file: F::New, path: &'a Path, header: Header) -> Self {
        let mut batch = Vec::with_capacity(BATCH_BYTES + 2 * CHUNK_BYTES as usize);
        batch.extend_from_slice(header.as_bytes());
        Self {
            files,
            file,
            path,
            header,
            batch,
            file_bytes: HEADER_BYTES as u64,
            index: Vec::new(),
            held_bytes: 0,
        }
    }

    fn write_all(
        &mut self,
        label: &Label,
        source: &dyn Source,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Filled, WriteError> {
        let mut plain = vec![0; CHUNK_BYTES as usize];
        let mut offset = 0;
        while offset < label.size_bytes {
            if progress(offset).is_break() {
                return Err(WriteError::Cancelled);
            }
            let rest = ByteRange {
                offset,
                len: label.size_bytes - offset,
            };
            let number = (offset / CHUNK_BYTES) as u32;
            let told = source.allocation(rest);
            let skipped = told.len_bytes / CHUNK_BYTES * CHUNK_BYTES;
            if !told.allocated && skipped > 0 {
                offset += skipped;
                continue;
            }
            let len = IndexEntry::chunk_len(number, label.size_bytes) as usize;
            let plain = &mut plain[..len];
            source.read(offset, plain).map_err(WriteError::Source)?;
            if !is_zero(plain) {
                self.add_chunk(number, plain)?;
            }
            offset += len as u64;
        }
        self.finish()
    }

    fn write_changed(
        &mut self,
        label: &Label,
        source: &dyn Source,
        changed: &[u32],
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Filled, WriteError> {
        let mut plain = vec![0; CHUNK_BYTES as usize];
        let mut done = 0;
        for &number in changed {
            if progress(done).is_break() {
                return Err(WriteError::Cancelled);
            }
            let len = IndexEntry::chunk_len(number, label.size_bytes) as usize;
            let plain = &mut plain[..len];
            let offset = u64::from(number) * CHUNK_BYTES;
            source.read(offset, plain).map_err(WriteError::Source)?;
            if is_zero(plain) {
                self.add_entry(number, 0, plain);
            } else {
                self.add_chunk(number, plain)?;
            }
            done += len as u64;
        }
        self.finish()
    }

    /// Stores a chunk.
    fn add_chunk(&mut self, number: u32, plain: &[u8]) -> Result<(), WriteError> {
        let start = self.batch.len();
        self.batch
            .resize(start + get_maximum_output_size(plain.len()), 0);
        let packed = compress_into(plain, &mut self.batch[start..]).unwrap_or(plain.len());
        // What saves less than a sixteenth is not worth the time to unpack it.
        let stored = if packed <= plain.len() - plain.len() / 16 && packed < plain.len() {
            packed
        } else {
            self.batch[start..start + plain.len()].copy_from_slice(plain);
            plain.len()
        };
        self.batch.truncate(start + stored);
        self.file_bytes += stored as u64;
        self.held_bytes += plain.len() as u64;
        self.add_entry(number, stored, plain);
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn add_entry(&mut self, number: u32, stored: usize, plain: &[u8]) {
        self.index.push(IndexEntry {
            number: U32::new(number),
            stored_bytes: U32::new(stored as u32),
            crc: U32::new(crc32c::crc32c(plain)),
        });
    }

    fn finish(&mut self) -> Result<Filled, WriteError> {
        self.flush()?;
        let index = std::mem::take(&mut self.index);
        for piece in index.as_bytes().chunks(BATCH_BYTES) {
            self.batch.extend_from_slice(piece);
            self.flush()?;
        }
        let trailer = Trailer::new(&self.header, self.file_bytes, &index);
        self.file_bytes += (index.as_bytes().len() + trailer.as_bytes().len()) as u64;
        self.batch.extend_from_slice(trailer.as_bytes());
        self.flush()?;
        let synced = self.files.sync(&mut self.file);
        synced.map_err(|error| failed(FileStep::Sync, self.path, error))?;
        Ok(Filled {
            file_bytes: self.file_bytes,
            held_bytes: self.held_bytes,
            crc: trailer.crc(),
        })
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let appended = self.files.append(&mut self.file, &self.batch);
        appended.map_err(|error| failed(FileStep::Write, self.path, error))?;
        self.batch.clear();
        Ok(())
    }
}

/// Whether all bytes are zeros. By comparing with itself shifted, which is a `memcmp`.
fn is_zero(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == 0 && *rest == bytes[..rest.len()],
    }
}
