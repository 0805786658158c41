//! The messages of `/dev/fuse`, protocol version 7.31. Read first: include/uapi/linux/fuse.h.
//!
//! Integers have the machine's own order. Fields are in the order of the kernel's structures;
//! reserved ones are sent as zero.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The minor version: the first with the layout of `InitOut` and all flags below.
pub(crate) const MINOR: u32 = 31;
/// The number of the root, which is the only file.
pub(crate) const ROOT: u64 = 1;

/// `fuse_init_out.flags`: reads of a file may be in flight side by side (FUSE_ASYNC_READ).
pub(crate) const ASYNC_READ: u32 = 1;
/// Writes may be longer than a page (FUSE_BIG_WRITES).
pub(crate) const BIG_WRITES: u32 = 1 << 5;
/// Direct I/O may be asynchronous (FUSE_ASYNC_DIO).
pub(crate) const ASYNC_DIO: u32 = 1 << 15;
/// `InitOut::max_pages` is valid (FUSE_MAX_PAGES).
pub(crate) const MAX_PAGES: u32 = 1 << 22;

/// `OpenOut::flags`: the page cache is not used (FOPEN_DIRECT_IO).
pub(crate) const OPEN_DIRECT: u32 = 1;
/// Writes may be in flight side by side (FOPEN_PARALLEL_DIRECT_WRITES).
pub(crate) const OPEN_PARALLEL: u32 = 1 << 6;

/// `FallocateIn::mode`: the size stays (FALLOC_FL_KEEP_SIZE).
pub(crate) const KEEP_SIZE: u32 = 1;
/// Bytes read as zeros and may be freed (FALLOC_FL_PUNCH_HOLE).
pub(crate) const PUNCH_HOLE: u32 = 2;
/// Bytes read as zeros and stay allocated (FALLOC_FL_ZERO_RANGE).
pub(crate) const ZERO_RANGE: u32 = 16;

/// Operations that have an answer of their own; the others are unknown to this file system.
pub(crate) mod opcode {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// The head of a request.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct InHeader {
    /// Bytes of the message, with this head.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    /// Identifies the request in its reply.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// Length of extensions, in units of 8 bytes.
    pub(crate) extensions: u16,
    pub(crate) reserved: u16,
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct OutHeader {
    /// Bytes of the message, with this head.
    pub(crate) len: u32,
    /// Zero, or a negative error number.
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// The part of `fuse_init_in` that every version has.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct InitIn {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
}

/// `fuse_init_out`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct InitOut {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
    /// The most asynchronous requests in flight.
    pub(crate) max_background: u16,
    /// From how many on the kernel counts the file system as congested.
    pub(crate) congestion_threshold: u16,
    /// The most bytes of a write.
    pub(crate) max_write: u32,
    /// Granularity of times, in nanoseconds.
    pub(crate) time_granularity: u32,
    /// The most pages of a request.
    pub(crate) max_pages: u16,
    pub(crate) map_alignment: u16,
    pub(crate) reserved: [u32; 8],
}

/// `fuse_attr`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Attr {
    pub(crate) node: u64,
    pub(crate) len_bytes: u64,
    /// In units of 512 bytes.
    pub(crate) blocks: u64,
    /// Seconds of the times of access, modification and change.
    pub(crate) times: [u64; 3],
    pub(crate) nanoseconds: [u32; 3],
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u32,
    pub(crate) block_bytes: u32,
    pub(crate) flags: u32,
}

/// `fuse_attr_out`. Attributes are valid for no time, so that the kernel asks again after a resize.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct AttrOut {
    pub(crate) valid: u64,
    pub(crate) valid_nanoseconds: u32,
    pub(crate) reserved: u32,
    pub(crate) attr: Attr,
}

/// `fuse_open_out`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

/// `fuse_read_in` and `fuse_write_in`, which have the same layout; a write's data follow.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct TransferIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u32,
    pub(crate) transfer_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

/// `fuse_write_out`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WriteOut {
    pub(crate) len_bytes: u32,
    pub(crate) reserved: u32,
}

/// `fuse_kstatfs`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub(crate) blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) available_blocks: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
    pub(crate) block_bytes: u32,
    pub(crate) name_bytes_max: u32,
    pub(crate) fragment_bytes: u32,
    pub(crate) reserved: [u32; 7],
}

/// `fuse_fallocate_in`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    pub(crate) mode: u32,
    pub(crate) reserved: u32,
}

const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitIn>() == 16);
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<OpenOut>() == 16);
const _: () = assert!(size_of::<TransferIn>() == 40);
const _: () = assert!(size_of::<WriteOut>() == 8);
const _: () = assert!(size_of::<StatfsOut>() == 80);
const _: () = assert!(size_of::<FallocateIn>() == 32);

/// A structure all of whose fields are zero.
pub(crate) fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}
