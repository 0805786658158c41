//! Which bytes have memory.

use block::{Allocation, ByteRange};

/// The most steps of one query: slabs, granules, or chunks that do not exist.
const STEPS_MAX: usize = 1024;

/// How the byte at an offset is backed, and the unit in which that changes there.
#[derive(Clone, Copy)]
pub(super) struct Backing {
    pub(super) allocated: bool,
    pub(super) step_bytes: u64,
}

impl Backing {
    /// Whether the start of `range` is allocated, and for at least how many bytes that holds.
    pub(super) fn of(range: ByteRange, backing: impl Fn(u64) -> Self) -> Allocation {
        let end = range.offset.saturating_add(range.len);
        let first = backing(range.offset);
        let (mut at, mut here) = (range.offset, first);
        for _ in 0..STEPS_MAX {
            if at >= end || here.allocated != first.allocated {
                break;
            }
            at = (at & !(here.step_bytes - 1)).saturating_add(here.step_bytes);
            here = backing(at);
        }
        Allocation {
            allocated: first.allocated,
            len_bytes: at.min(end) - range.offset,
        }
    }
}
