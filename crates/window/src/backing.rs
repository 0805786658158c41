//! What stands below a window: an asynchronous block device.

use std::fmt::Debug;

use block::{ByteRange, Persistence, Status, Unmap};

/// An asynchronous device below a volume: a file, a disk, a disk of another machine.
///
/// It carries requests out in any order, also those on the same blocks: the window waits where
/// order matters. How many are carried out at a time is the backing's own bound. The window submits
/// at most a few for each of its frames, so what waits inside the backing is bounded too.
pub trait Backing: Send + Sync + Debug {
    /// Starts a request. Never waits, and never calls [`BackingClient`] from inside. Each request
    /// is answered once by [`BackingClient::done`], whatever happens.
    fn submit(&self, request: Request);

    /// A cache begins to hold dirty blocks that nothing writes but
    /// [`Window::clean`](crate::Window::clean), which is to be called again and again until it
    /// returns `false`. Never waits, and never calls the window from inside. A window that is no
    /// cache never calls it.
    fn wake_cleaner(&self) {}
}

/// Where a backing gets the bytes of writes and reports completions. The window implements it.
pub trait BackingClient: Send + Sync {
    /// Copies the bytes of a write, from `offset_bytes` of the request on, into `buffer`.
    fn fetch(&self, id: RequestId, offset_bytes: usize, buffer: &mut [u8]);

    /// Reports that requests have ended. A result holds the bytes of a read, and is empty for other
    /// requests. Called from a thread of the backing. Several requests in one call wake the threads
    /// of sessions once.
    fn done_all(&self, ended: &[Ended<'_>]);

    /// Reports that a request has ended: as [`done_all`](Self::done_all).
    fn done(&self, id: RequestId, result: Result<&[u8], BackingError>) {
        self.done_all(&[Ended { id, result }]);
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Its name.
    pub id: RequestId,
    /// The bytes of a read; none of other requests.
    pub result: Result<&'a [u8], BackingError>,
}

/// Names a request from its submission to its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// One request to a backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What to do.
    pub op: BackingOp,
    /// With which bytes: whole blocks. Empty for a flush. A read or write is at most one frame
    /// long.
    pub range: ByteRange,
}

/// What a backing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingOp {
    /// Read the range.
    Read,
    /// Write the range. With [`Persistence::Durable`], it completes when the bytes are on stable
    /// storage.
    Write(Persistence),
    /// Put every write that has completed on stable storage.
    Flush,
    /// Free what the range takes. It reads as zeros afterwards.
    Discard,
    /// Make the range read as zeros.
    WriteZeroes(Unmap),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingError {
    /// The medium could not be read or written.
    Medium,
    /// The device below has no space left.
    NoSpace,
    /// The device below does not exist any more.
    Gone,
    /// Anything else.
    Other,
}

impl BackingError {
    /// What a command is answered that needed this read.
    pub const fn of_read(self) -> Status {
        match self {
            Self::Gone => Status::NotReady,
            Self::Medium | Self::NoSpace | Self::Other => Status::ReadError,
        }
    }

    /// What a command is answered whose effect was lost.
    pub const fn of_write(self) -> Status {
        match self {
            Self::Gone => Status::NotReady,
            Self::NoSpace => Status::CapacityExceeded,
            Self::Medium | Self::Other => Status::WriteError,
        }
    }
}
