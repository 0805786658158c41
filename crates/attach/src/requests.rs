//! What the kernel asks of a disk, by whichever of its interfaces.

use std::io;
use std::os::fd::BorrowedFd;

use block::Geometry;
use rustix::io::Errno;

/// What a request wants of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Read {
        offset: u64,
        len_bytes: u32,
    },
    Write {
        offset: u64,
        len_bytes: u32,
    },
    /// Make acknowledged writes durable.
    Flush,
    /// Make bytes read as zeros.
    Zero {
        offset: u64,
        len_bytes: u64,
        keep_allocated: bool,
    },
}

/// What was found when the next request was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A request, which is answered by its `id`.
    Request { id: u64, ask: Ask },
    /// Something that is answered already.
    Handled,
    /// Nothing for now.
    Nothing,
    /// The kernel does not use the disk any more.
    End,
}

/// The disk, as the kernel may ask about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) geometry: Geometry,
    /// Requests at a time.
    pub(crate) depth: u16,
}

/// Where requests come from, and where their outcomes go. Answers fail only if the kernel has given
/// the request up, or the disk: both end elsewhere.
pub(crate) trait Requests {
    /// Whether the device's size can change.
    const PASSES_SIZE_ON: bool;

    /// Takes the next request.
    ///
    /// # Errors
    /// If none can be taken any more.
    fn next(&mut self, disk: &Disk) -> io::Result<Asked>;

    /// Fills `dest` with the data of the write that was taken last.
    ///
    /// # Errors
    /// What the write fails with.
    fn take_data(&mut self, id: u64, dest: &mut [u8]) -> Result<(), Errno>;

    /// A read was carried out.
    fn succeed_read(&mut self, id: u64, data: &[u8]);

    /// A write was carried out.
    fn succeed_write(&mut self, id: u64, len_bytes: u32);

    /// Something else was carried out.
    fn succeed(&mut self, id: u64);

    /// A request failed.
    fn fail(&mut self, id: u64, error: Errno);

    /// Sends the answers that are not sent yet.
    ///
    /// # Errors
    /// If none can be sent any more.
    fn send(&mut self) -> io::Result<()>;

    /// It is readable when there is a request.
    fn descriptor(&self) -> BorrowedFd<'_>;
}
