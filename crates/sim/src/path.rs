//! The way of one host to the volume: both ends of a protocol, and the network between them.

mod brp;
mod iscsi;
mod iser;
mod link;
mod nvme_rdma;
mod nvme_tcp;

use std::time::Instant;

use block::{Completion, Extent, Unmap};
use rand::rngs::SmallRng;

pub(crate) use self::brp::BrpPath;
pub(crate) use self::iscsi::IscsiPath;
pub(crate) use self::iser::IserPath;
pub(crate) use self::nvme_rdma::NvmeRdmaPath;
pub(crate) use self::nvme_tcp::{Ends, NvmeTcpPath};

/// Commands in flight: keys are below.
pub(crate) const DEPTH: u16 = 16;
/// The longest transfer: beyond in-capsule data, beyond one data PDU and beyond the copy threshold.
pub(crate) const TRANSFER_BLOCKS_MAX: u64 = 300;
pub(crate) const BLOCK_BYTES: usize = 512;
/// Bytes of the buffer of each key.
const SLOT_BYTES: usize = TRANSFER_BLOCKS_MAX as usize * BLOCK_BYTES;

/// What a host asks of the volume. Data are in the key's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Read(Extent),
    Write(Extent),
    WriteZeroes(Extent, Unmap),
    Discard(Extent),
    /// The buffer holds what is compared, then what is written.
    CompareAndWrite(Extent),
    Flush,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) key: u16,
    pub(crate) end: End,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    /// Blocks do not hold what was compared: nothing was written.
    Miscompare,
    Failure,
}

impl End {
    fn of(is_success: bool, is_miscompare: bool) -> Self {
        match (is_success, is_miscompare) {
            (true, _) => Self::Success,
            (false, true) => Self::Miscompare,
            (false, false) => Self::Failure,
        }
    }
}

/// One host's connections to the target. Nothing moves between the ends but by
/// [`shuffle`](Self::shuffle).
pub(crate) trait Path {
    /// Goes on with the set-up; whether requests are taken.
    fn is_up(&mut self, now: Instant) -> bool;

    /// The buffer of `key`.
    fn buffer(&mut self, key: u16) -> &mut [u8];

    /// Sends a request; whether there was room.
    fn submit(&mut self, key: u16, request: Request) -> bool;

    /// What has ended since the last call.
    fn take_done(&mut self) -> Vec<Done>;

    /// Moves something in one direction.
    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng);

    /// The volume is done with a command, which may be one of this path's.
    fn complete(&mut self, now: Instant, completion: Completion);

    /// The network breaks: data in flight are lost, and both ends are notified at once.
    fn cut(&mut self, now: Instant) -> AfterCut;
}

/// What becomes of a path whose connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterCut {
    /// It has ended: the outcomes of its requests are unknown.
    Ended,
    /// It carries its requests out on another connection.
    GoesOn,
}
