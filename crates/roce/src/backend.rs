//! What an end needs of the program around it.

use crate::memory::{MemoryId, MemoryRange};

use crate::wire::Icrc;

/// The memory behind regions, and unpredictable numbers. The provider above owns both; this crate
/// only says which bytes.
///
/// Offsets and lengths passed here were checked against the region's registration or the request.
pub trait Backend {
    /// Copies `bytes`, which a peer sent, to `offset` bytes from the start of `region`.
    fn write(&mut self, region: MemoryId, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Leaves `bytes`, which a peer sent, where they were received until the program above has
    /// handled the completions so far. Returns their placement, or `None` if they must be copied,
    /// which is always correct.
    #[expect(unused_variables, reason = "most programs have them copied")]
    fn leave(&mut self, bytes: &[u8]) -> Option<MemoryRange> {
        None
    }

    /// Adds the bytes of `placement` to `icrc`, in order. They are sent from the same place later.
    /// If they change in between, the peer drops the packet and it is retransmitted.
    fn hash(&mut self, placement: MemoryRange, icrc: &mut Icrc) -> Result<(), MemoryFault>;

    /// Replaces the 8 bytes at `offset`, a number in the machine's byte order, by the result of
    /// `op`, and returns the former number. Atomic with respect to all other atomic operations on
    /// the region.
    fn atomic(&mut self, region: MemoryId, offset: u64, op: AtomicOp) -> Result<u64, MemoryFault>;

    /// 64 bits that no peer can guess: keys, communication identifiers and first PSNs are made of
    /// them.
    fn random(&mut self) -> u64;
}

/// The memory behind a region cannot be used: it was freed, or the device below it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory behind the region failed")]
pub struct MemoryFault;

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Write `swap` if the current value is `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /// The summand.
        add: u64,
    },
}

impl AtomicOp {
    /// The result of the operation on `original`.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if original == compare => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd { add } => original.wrapping_add(add),
        }
    }
}
