//! The reader. Every byte of a file is taken for hostile: lengths are checked before anything is
//! allocated, and chunks against their checksums before they are handed out.

use block::ByteRange;
use lz4_flex::block::decompress_into;
use rustix::io::Errno;
use zerocopy::{FromZeros as _, IntoBytes};

use crate::error::{FileStep, ImageError};
use crate::files::ReadAt;
use crate::format::{
    CHUNK_BYTES, ENTRY_BYTES, FileId, HEADER_BYTES, HEADER_MAGIC, Header, INCREMENT_VERSION,
    IndexEntry, Label, TRAILER_BYTES, Trailer, VERSION,
};

/// A complete file whose header, index and trailer agree with their checksums.
#[derive(Debug)]
pub struct Image<R> {
    file: R,
    label: Label,
    id: FileId,
    index: Vec<IndexEntry>,
    /// Where every [`ENTRIES_PER_START`]th chunk begins in the file.
    starts: Vec<u64>,
    file_bytes: u64,
}

/// How many lengths are added up at most to find a chunk in the file.
const ENTRIES_PER_START: usize = 64;

/// Room for a chunk as it is in the file and as it is in the volume.
#[derive(Debug)]
pub struct ChunkBuffers {
    stored: Vec<u8>,
    plain: Vec<u8>,
}

impl Default for ChunkBuffers {
    fn default() -> Self {
        Self {
            stored: vec![0; CHUNK_BYTES as usize],
            plain: vec![0; CHUNK_BYTES as usize],
        }
    }
}

/// A chunk of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The bytes of the volume that it holds.
    pub range: ByteRange,
    /// Their values; `None` if the file is damaged there.
    pub bytes: Option<&'a [u8]>,
}

impl<R: ReadAt> Image<R> {
    /// Reads header, index and trailer of a complete file. `accept` decides by the label whether to
    /// go on: the index takes memory in proportion to the size of the volume.
    ///
    /// # Errors
    /// If the file cannot be read, is no save, or is damaged there, and those of `accept`.
    pub fn open<E: From<ImageError>>(
        file: R,
        accept: impl FnOnce(&Label) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (header, label) = read_header(&file)?;
        if header.link().is_some() {
            return Err(ImageError::Increment.into());
        }
        accept(&label)?;
        Ok(Self::open_rest(file, &header, label)?)
    }

    /// Reads index and trailer of a file, a complete one or an increment.
    pub(crate) fn open_rest(file: R, header: &Header, label: Label) -> Result<Self, ImageError> {
        let file_bytes = file.len_bytes().map_err(read_failed)?;
        let (index, crc) = read_index(&file, file_bytes, header, &label)?;
        let starts = starts_of(&index);
        let id = FileId {
            sequence: label.sequence,
            moment_unix_ns: label.moment_unix_ns,
            crc,
        };
        Ok(Self {
            file,
            label,
            id,
            index,
            starts,
            file_bytes,
        })
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// The number of each chunk that the file has an entry for, in ascending order, and whether it
    /// is anything but zeros.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        let entry = |entry: &IndexEntry| (entry.number.get(), entry.stored_bytes.get() > 0);
        self.index.iter().map(entry)
    }

    /// What the file says about itself.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Its length in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of the volume that the file holds: all others are zeros.
    pub fn held_bytes(&self) -> u64 {
        let held =
            |entry: &IndexEntry| IndexEntry::chunk_len(entry.number.get(), self.label.size_bytes);
        self.index.iter().map(held).sum()
    }

    /// Reads every chunk, in the order of the volume, until `each` ends it with an error.
    ///
    /// # Errors
    /// Those of `each`, or if the file cannot be read, for a reason other than damage.
    pub fn read<E: From<ImageError>>(
        &self,
        each: &mut dyn FnMut(Chunk<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffers = ChunkBuffers::default();
        for index in 0..self.index.len() {
            each(self.chunk(index, &mut buffers)?)?;
        }
        Ok(())
    }

    /// The numbers of the chunks that the file holds, in ascending order: offsets in the volume,
    /// divided by [`CHUNK_BYTES`].
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.index.iter().map(|entry| entry.number.get())
    }

    /// The number at a position among the [`numbers`](Self::numbers).
    pub fn number(&self, position: usize) -> Option<u32> {
        self.index.get(position).map(|entry| entry.number.get())
    }

    /// Where chunk `number` stands among the [`numbers`](Self::numbers), if the file holds it.
    pub fn position(&self, number: u32) -> Option<usize> {
        let found = self
            .index
            .binary_search_by_key(&number, |entry| entry.number.get());
        found.ok()
    }

    /// Reads the chunk at a position among the [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// If the file cannot be read, for a reason other than damage.
    ///
    /// # Panics
    /// If the file holds fewer chunks.
    pub fn chunk<'a>(
        &self,
        position: usize,
        buffers: &'a mut ChunkBuffers,
    ) -> Result<Chunk<'a>, ImageError> {
        let entry = &self.index[position];
        let number = entry.number.get();
        let len = IndexEntry::chunk_len(number, self.label.size_bytes);
        let stored = &mut buffers.stored[..entry.stored_bytes.get() as usize];
        let bytes = match self.file.read_at(self.offset(position), stored) {
            Ok(()) => unpack(stored, &mut buffers.plain[..len as usize]),
            // Its medium is damaged there.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => None,
            Err(error) => return Err(read_failed(error)),
        };
        Ok(Chunk {
            range: ByteRange {
                offset: u64::from(number) * CHUNK_BYTES,
                len,
            },
            bytes: bytes.filter(|bytes| crc32c::crc32c(bytes) == entry.crc.get()),
        })
    }

    /// Where the chunk at a position begins in the file.
    fn offset(&self, position: usize) -> u64 {
        let first = position - position % ENTRIES_PER_START;
        self.starts[position / ENTRIES_PER_START] + stored_bytes(&self.index[first..position])
    }
}

/// Where every [`ENTRIES_PER_START`]th chunk begins in the file.
fn starts_of(index: &[IndexEntry]) -> Vec<u64> {
    let mut at = HEADER_BYTES as u64;
    let starts = index.chunks(ENTRIES_PER_START).map(|entries| {
        let start = at;
        at += stored_bytes(entries);
        start
    });
    starts.collect()
}

/// How many bytes the chunks of these entries take in the file.
fn stored_bytes(entries: &[IndexEntry]) -> u64 {
    let stored = |entry: &IndexEntry| u64::from(entry.stored_bytes.get());
    entries.iter().map(stored).sum()
}

/// The chunk that `stored` holds, with `plain` as its room.
fn unpack<'a>(stored: &'a [u8], plain: &'a mut [u8]) -> Option<&'a [u8]> {
    if stored.len() == plain.len() {
        return Some(stored);
    }
    if stored.is_empty() {
        plain.fill(0);
        return Some(plain);
    }
    match decompress_into(stored, plain) {
        Ok(len) if len == plain.len() => Some(plain),
        _ => None,
    }
}

pub(crate) fn read_failed(source: std::io::Error) -> ImageError {
    let step = FileStep::Read;
    ImageError::File { step, source }
}

/// The header of a file, and what it says.
pub(crate) fn read_header(file: &impl ReadAt) -> Result<(Header, Label), ImageError> {
    let header = read_unchecked_header(file)?;
    let label = header.label().ok_or(ImageError::Header)?;
    Ok((header, label))
}

/// The header of a file of a version that is known; it may be damaged.
pub(crate) fn read_unchecked_header(file: &impl ReadAt) -> Result<Header, ImageError> {
    let len_bytes = file.len_bytes().map_err(read_failed)?;
    if len_bytes < HEADER_BYTES as u64 {
        return Err(ImageError::NotASave);
    }
    let mut header = Header::new_zeroed();
    file.read_at(0, header.as_mut_bytes())
        .map_err(read_failed)?;
    if header.magic != HEADER_MAGIC {
        return Err(ImageError::NotASave);
    }
    // The version comes first: another one may have its checksum elsewhere.
    let found = header.version.get();
    if found != VERSION && found != INCREMENT_VERSION {
        return Err(ImageError::Version { found });
    }
    Ok(header)
}

/// The index of a file, and the checksum of its trailer.
fn read_index(
    file: &impl ReadAt,
    len_bytes: u64,
    header: &Header,
    label: &Label,
) -> Result<(Vec<IndexEntry>, u32), ImageError> {
    let end = ImageError::End { len_bytes };
    let Some(trailer_offset) = len_bytes.checked_sub(TRAILER_BYTES as u64) else {
        return Err(end);
    };
    let mut trailer = Trailer::new_zeroed();
    file.read_at(trailer_offset, trailer.as_mut_bytes())
        .map_err(read_failed)?;
    if !trailer.ends(header) {
        return Err(end);
    }
    let (offset, entries) = (trailer.index_offset.get(), trailer.entries.get());
    let index_bytes = u64::from(entries) * ENTRY_BYTES as u64;
    let damaged = ImageError::Index {
        offset,
        len_bytes: index_bytes,
    };
    let chunks = label.size_bytes.div_ceil(CHUNK_BYTES);
    if offset.checked_add(index_bytes) != Some(trailer_offset) || u64::from(entries) > chunks {
        return Err(damaged);
    }
    let mut index = vec![IndexEntry::new_zeroed(); entries as usize];
    file.read_at(offset, index.as_mut_slice().as_mut_bytes())
        .map_err(read_failed)?;
    let is_whole = crc32c::crc32c(index.as_bytes()) == trailer.index_crc.get()
        && is_consistent(&index, header, label.size_bytes, offset);
    if is_whole {
        Ok((index, trailer.crc()))
    } else {
        Err(damaged)
    }
}

/// Whether the entries are in order, inside the volume, and as long together as the file has bytes
/// for them.
fn is_consistent(
    index: &[IndexEntry],
    header: &Header,
    size_bytes: u64,
    index_offset: u64,
) -> bool {
    let len_min = u64::from(header.link().is_none());
    let ascends = |two: &[IndexEntry]| two[0].number.get() < two[1].number.get();
    let fits = |entry: &IndexEntry| {
        let len = IndexEntry::chunk_len(entry.number.get(), size_bytes);
        len > 0 && (len_min..=len).contains(&u64::from(entry.stored_bytes.get()))
    };
    index.windows(2).all(ascends)
        && index.iter().all(fits)
        && HEADER_BYTES as u64 + stored_bytes(index) == index_offset
}
