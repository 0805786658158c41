//! The bytes of a file. Read first: `docs/save-format.md`.
//!
//! ```text
//!  Header (256) | chunks as stored, one after the other | index: an IndexEntry each | Trailer (64)
//! ```
//!
//! A complete file and an increment differ in the version, the link in the header, and entries for
//! chunks that became zeros.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a volume in one chunk: what is compressed, checked and, where it is damaged, lost at a
/// time. LZ4 looks back 64 KiB, so larger chunks would hardly be smaller.
pub const CHUNK_BYTES: u64 = 256 << 10;

pub(crate) const HEADER_MAGIC: [u8; 8] = *b"RAMPSAVE";
pub(crate) const TRAILER_MAGIC: [u8; 8] = *b"RAMPDONE";
/// The version of complete files.
pub(crate) const VERSION: u32 = 1;
/// The version of increments: a reader that knows complete files only must not take one for such.
pub(crate) const INCREMENT_VERSION: u32 = 2;
/// The most increments of a complete file. Each is open while a volume is loaded.
pub const INCREMENTS_MAX: u32 = 32;
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
pub(crate) const ENTRY_BYTES: usize = size_of::<IndexEntry>();
pub(crate) const TRAILER_BYTES: usize = size_of::<Trailer>();
/// The longest volume.
const SIZE_MAX_BYTES: u64 = 64 << 40;
/// The longest name of a volume.
const NAME_MAX_BYTES: usize = 64;

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name of the volume when it was saved.
    pub volume: String,
    /// Its capacity in bytes.
    pub size_bytes: u64,
    /// Bytes in a block: 512 or 4096.
    pub block_bytes: u32,
    /// What all saves of one volume's contents have in common, over restores. Contents that began
    /// anew have another.
    pub lineage: Uuid,
    /// The number of the save in its lineage, from 1.
    pub sequence: u64,
    /// The moment that the file shows, in nanoseconds since 1970.
    pub moment_unix_ns: u64,
}

/// Identifies a file among all saves. The checksum covers header and index, so all contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// See [`Label::sequence`].
    pub sequence: u64,
    /// See [`Label::moment_unix_ns`].
    pub moment_unix_ns: u64,
    /// The checksum in the file's trailer.
    pub crc: u32,
}

/// What an increment is an increment of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The complete file.
    pub(crate) base: FileId,
    /// The file before: the complete one, or an increment.
    pub(crate) previous: FileId,
    /// The place after the complete file, from 1 to [`INCREMENTS_MAX`].
    pub(crate) place: u32,
}

/// A [`FileId`] in a file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileIdField {
    sequence: U64,
    moment_unix_ns: U64,
    crc: U32,
}

/// A [`Link`] in a file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LinkField {
    base: FileIdField,
    previous: FileIdField,
    place: U32,
}

impl From<&Link> for LinkField {
    fn from(link: &Link) -> Self {
        Self {
            base: link.base.into(),
            previous: link.previous.into(),
            place: U32::new(link.place),
        }
    }
}

impl From<FileId> for FileIdField {
    fn from(id: FileId) -> Self {
        Self {
            sequence: U64::new(id.sequence),
            moment_unix_ns: U64::new(id.moment_unix_ns),
            crc: U32::new(id.crc),
        }
    }
}

impl From<FileIdField> for FileId {
    fn from(field: FileIdField) -> Self {
        Self {
            sequence: field.sequence.get(),
            moment_unix_ns: field.moment_unix_ns.get(),
            crc: field.crc.get(),
        }
    }
}

/// At the start of a file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// [`HEADER_MAGIC`].
    pub(crate) magic: [u8; 8],
    /// [`VERSION`] or [`INCREMENT_VERSION`].
    pub(crate) version: U32,
    /// Bytes in a block of the volume: 512 or 4096.
    block_bytes: U32,
    /// Capacity of the volume in bytes, whole blocks.
    size_bytes: U64,
    /// [`CHUNK_BYTES`].
    chunk_bytes: U32,
    /// Length of `volume` in bytes, from 1 to 64.
    volume_len: U32,
    /// See [`Label::lineage`].
    lineage: [u8; 16],
    /// See [`Label::sequence`].
    sequence: U64,
    /// See [`Label::moment_unix_ns`].
    moment_unix_ns: U64,
    /// Name of the volume; zeros after its end.
    volume: [u8; NAME_MAX_BYTES],
    /// In an increment; zeros in a complete file.
    link: LinkField,
    /// Zero.
    reserved: [u8; 80],
    /// CRC-32C of the 252 bytes before.
    crc: U32,
}

const _: () = assert!(size_of::<Header>() == 256);
const _: () = assert!(core::mem::offset_of!(Header, link) == 128);
const _: () = assert!(size_of::<LinkField>() == 44);

/// One chunk that is stored. Entries stand in ascending order of `number`, and their bytes one
/// after the other from the end of the header on, in the same order.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct IndexEntry {
    /// Offset in the volume, in chunks. A chunk without an entry is zeros, or in an increment what
    /// it was before.
    pub(crate) number: U32,
    /// Bytes in the file: as many as the chunk has if it is stored as it is, fewer if it is an LZ4
    /// block. The last chunk of a volume may be short. 0 in an increment: the chunk became zeros.
    pub(crate) stored_bytes: U32,
    /// CRC-32C of the chunk as it was in the volume.
    pub(crate) crc: U32,
}

const _: () = assert!(size_of::<IndexEntry>() == 12);

/// At the end of a file, written last.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Trailer {
    /// [`TRAILER_MAGIC`].
    magic: [u8; 8],
    /// Where the index begins in the file.
    pub(crate) index_offset: U64,
    /// Entries of the index.
    pub(crate) entries: U32,
    /// CRC-32C of the index.
    pub(crate) index_crc: U32,
    /// `crc` of the header, so that both ends are of one save.
    header_crc: U32,
    /// Zero.
    reserved: [u8; 32],
    /// CRC-32C of the 60 bytes before.
    crc: U32,
}

const _: () = assert!(size_of::<Trailer>() == 64);

impl Header {
    /// The header of a complete file, or of the increment that `link` says.
    pub(crate) fn new(label: &Label, link: Option<&Link>) -> Self {
        let mut volume = [0; NAME_MAX_BYTES];
        let len = label.volume.len().min(NAME_MAX_BYTES);
        volume[..len].copy_from_slice(&label.volume.as_bytes()[..len]);
        let mut header = Self {
            magic: HEADER_MAGIC,
            version: U32::new(link.map_or(VERSION, |_| INCREMENT_VERSION)),
            block_bytes: U32::new(label.block_bytes),
            size_bytes: U64::new(label.size_bytes),
            chunk_bytes: U32::new(CHUNK_BYTES as u32),
            volume_len: U32::new(len as u32),
            lineage: *label.lineage.as_bytes(),
            sequence: U64::new(label.sequence),
            moment_unix_ns: U64::new(label.moment_unix_ns),
            volume,
            link: link.map_or_else(LinkField::new_zeroed, LinkField::from),
            reserved: [0; 80],
            crc: U32::ZERO,
        };
        header.crc = U32::new(header.computed_crc());
        header
    }

    pub(crate) fn crc(&self) -> u32 {
        self.crc.get()
    }

    fn computed_crc(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..HEADER_BYTES - 4])
    }

    /// What it is an increment of; `None` for a complete file. The header is valid.
    pub(crate) fn link(&self) -> Option<Link> {
        (self.version.get() == INCREMENT_VERSION).then(|| Link {
            base: self.link.base.into(),
            previous: self.link.previous.into(),
            place: self.link.place.get(),
        })
    }

    /// What the header says; `None` if it is damaged or no volume can be so. Magic and version are
    /// right.
    pub(crate) fn label(&self) -> Option<Label> {
        let name = self.volume.get(..self.volume_len.get() as usize)?;
        let is_name =
            |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_valid = self.crc() == self.computed_crc()
            && u64::from(self.chunk_bytes.get()) == CHUNK_BYTES
            && matches!(self.block_bytes.get(), 512 | 4096)
            && (1..=SIZE_MAX_BYTES).contains(&self.size_bytes.get())
            && !name.is_empty()
            && name.iter().all(is_name);
        is_valid.then(|| Label {
            volume: String::from_utf8_lossy(name).into_owned(),
            size_bytes: self.size_bytes.get(),
            block_bytes: self.block_bytes.get(),
            lineage: Uuid::from_bytes(self.lineage),
            sequence: self.sequence.get(),
            moment_unix_ns: self.moment_unix_ns.get(),
        })
    }
}

impl IndexEntry {
    /// The length of chunk `number` of a volume of `size_bytes`; 0 beyond its end.
    pub(crate) fn chunk_len(number: u32, size_bytes: u64) -> u64 {
        size_bytes
            .saturating_sub(u64::from(number) * CHUNK_BYTES)
            .min(CHUNK_BYTES)
    }
}

impl Trailer {
    pub(crate) fn new(header: &Header, index_offset: u64, index: &[IndexEntry]) -> Self {
        let mut trailer = Self {
            magic: TRAILER_MAGIC,
            index_offset: U64::new(index_offset),
            entries: U32::new(index.len() as u32),
            index_crc: U32::new(crc32c::crc32c(index.as_bytes())),
            header_crc: U32::new(header.crc()),
            reserved: [0; 32],
            crc: U32::ZERO,
        };
        trailer.crc = U32::new(trailer.computed_crc());
        trailer
    }

    fn computed_crc(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..TRAILER_BYTES - 4])
    }

    /// Its checksum.
    pub(crate) fn crc(&self) -> u32 {
        self.crc.get()
    }

    /// Whether it is whole and ends the file that begins with `header`.
    pub(crate) fn ends(&self, header: &Header) -> bool {
        self.magic == TRAILER_MAGIC
            && self.crc.get() == self.computed_crc()
            && self.header_crc.get() == header.crc()
    }
}
