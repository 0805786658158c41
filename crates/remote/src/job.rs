//! A request of the window, and the commands that it becomes.

use std::time::Instant;

use block::{Blocks, Extent, Lba, Persistence, Unmap, WriteCache};
use initiator::{Operation, Queue};
use window::{BackingOp, Request};

/// The most bytes that are zeroed by one command, so that a slow disk answers in time.
const ZEROED_BYTES_MAX: u64 = 32 << 20;

/// A request of the window on its way.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    /// When it fails, unless one of its commands ends before.
    pub(crate) deadline: Instant,
    /// It is not tried again before.
    pub(crate) not_before: Option<Instant>,
    /// How much of its range is done.
    done_bytes: u64,
    /// Of a read that takes several commands: what was read so far.
    pub(crate) gathered: Vec<u8>,
    /// Whether it completes when its effect is on stable storage.
    is_durable: bool,
    /// Whether a step was done that is not durable by itself.
    has_unforced: bool,
    /// Whether all of its range is done, and a flush has to follow.
    needs_flush: bool,
}

/// The next command of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) extent: Extent,
    /// Where it begins in the request's range.
    pub(crate) offset_bytes: u64,
    /// How much of the range it does.
    pub(crate) len_bytes: u64,
}

impl Step {
    /// Whether it sends the slot's buffer.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.operation, Operation::Write | Operation::WriteDurable)
    }
}

/// What the other side of a path is able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Bytes of a block, as a power of two.
    shift: u32,
    transfer_bytes: u64,
    /// The most blocks that are zeroed by one command; 0 if there is no such command.
    pub(crate) zeroed_blocks: u64,
    /// How a write is made durable.
    durable: Durable,
}

/// How a write is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// Every write is.
    Always,
    /// By FUA.
    Forced,
    /// By a flush.
    Flush,
}

impl Abilities {
    pub(crate) fn of(queue: &Queue, write_cache: WriteCache) -> Self {
        let shift = queue.geometry().block_size.shift();
        Self {
            shift,
            transfer_bytes: (queue.transfer_bytes_max() as u64 >> shift).max(1) << shift,
            zeroed_blocks: queue
                .blocks_max(Operation::WriteZeroes(Unmap::Allowed))
                .min(ZEROED_BYTES_MAX >> shift),
            durable: match write_cache {
                WriteCache::Absent => Durable::Always,
                WriteCache::Volatile if queue.blocks_max(Operation::WriteDurable) > 0 => {
                    Durable::Forced
                }
                WriteCache::Volatile => Durable::Flush,
            },
        }
    }
}

impl Job {
    /// A request to a volume that advertises `write_cache`: hosts that know of none do not flush,
    /// so that all of their changes are durable.
    pub(crate) fn new(request: Request, deadline: Instant, write_cache: WriteCache) -> Self {
        let is_durable = match request.op {
            BackingOp::Read | BackingOp::Flush => false,
            BackingOp::Write(Persistence::Durable) => true,
            BackingOp::Write(Persistence::Volatile)
            | BackingOp::Discard
            | BackingOp::WriteZeroes(_) => write_cache == WriteCache::Absent,
        };
        Self {
            request,
            deadline,
            not_before: None,
            done_bytes: 0,
            gathered: Vec::new(),
            is_durable,
            has_unforced: false,
            needs_flush: false,
        }
    }

    /// The next command, on a path whose other side is able to do `can`.
    pub(crate) fn step(&self, can: &Abilities) -> Step {
        let range = self.request.range;
        let left = range.len - self.done_bytes;
        let transfer = left.min(can.transfer_bytes);
        let (operation, len_bytes) = match self.request.op {
            _ if self.needs_flush => (Operation::Flush, 0),
            BackingOp::Flush => (Operation::Flush, 0),
            BackingOp::Read => (Operation::Read, transfer),
            BackingOp::Write(_) => (self.write(can), transfer),
            BackingOp::Discard | BackingOp::WriteZeroes(_) if can.zeroed_blocks == 0 => {
                (self.write(can), transfer)
            }
            // A deallocation promises no zeros; this does.
            BackingOp::Discard => (Operation::WriteZeroes(Unmap::Allowed), self.zeroed(can)),
            BackingOp::WriteZeroes(unmap) => (Operation::WriteZeroes(unmap), self.zeroed(can)),
        };
        let lba = Lba((range.offset + self.done_bytes) >> can.shift);
        Step {
            operation,
            extent: Extent::new(lba, Blocks(len_bytes >> can.shift)),
            offset_bytes: self.done_bytes,
            len_bytes,
        }
    }

    /// Notes that a step has ended well. Whether the job is done.
    pub(crate) fn complete(&mut self, step: &Step, can: &Abilities) -> bool {
        if step.operation == Operation::Flush {
            return true;
        }
        self.done_bytes += step.len_bytes;
        self.has_unforced |= step.operation != Operation::WriteDurable;
        if self.done_bytes < self.request.range.len {
            return false;
        }
        self.needs_flush = self.is_durable && self.has_unforced && can.durable != Durable::Always;
        !self.needs_flush
    }

    /// Whether its step writes zeros from the slot's buffer.
    pub(crate) fn writes_zeros(&self, step: &Step) -> bool {
        let erases = matches!(
            self.request.op,
            BackingOp::Discard | BackingOp::WriteZeroes(_)
        );
        erases && step.is_write()
    }

    fn write(&self, can: &Abilities) -> Operation {
        if self.is_durable && can.durable == Durable::Forced {
            Operation::WriteDurable
        } else {
            Operation::Write
        }
    }

    fn zeroed(&self, can: &Abilities) -> u64 {
        let max = can.zeroed_blocks.min(u64::MAX >> can.shift) << can.shift;
        (self.request.range.len - self.done_bytes).min(max)
    }
}

#[cfg(test)]
mod tests {
    use block::ByteRange;
    use window::RequestId;

    use super::*;

    const CAN: Abilities = Abilities {
        shift: 9,
        transfer_bytes: 4096,
        zeroed_blocks: 16,
        durable: Durable::Flush,
    };

    /// The steps of a request: operation, LBA and blocks of each.
    fn steps(
        op: BackingOp,
        len: u64,
        can: &Abilities,
        write_cache: WriteCache,
    ) -> Vec<(Operation, u64, u64)> {
        let mut job = Job::new(
            Request {
                id: RequestId(1),
                op,
                range: ByteRange { offset: 512, len },
            },
            Instant::now(),
            write_cache,
        );
        let mut steps = Vec::new();
        loop {
            let step = job.step(can);
            steps.push((step.operation, step.extent.lba.0, step.extent.blocks.0));
            if job.complete(&step, can) {
                return steps;
            }
        }
    }

    #[test]
    fn long_requests_are_several_commands() {
        use Operation::{Flush, Read, Write, WriteDurable, WriteZeroes};
        let durable = BackingOp::Write(Persistence::Durable);
        let forced = Abilities {
            durable: Durable::Forced,
            ..CAN
        };
        let always = Abilities {
            durable: Durable::Always,
            ..CAN
        };
        let no_zeroing = Abilities {
            zeroed_blocks: 0,
            ..CAN
        };
        let zero = WriteZeroes(Unmap::Allowed);
        for (op, len, can, expected) in [
            (BackingOp::Read, 4608, CAN, vec![(Read, 1, 8), (Read, 9, 1)]),
            (durable, 512, CAN, vec![(Write, 1, 1), (Flush, 2, 0)]),
            (durable, 512, forced, vec![(WriteDurable, 1, 1)]),
            (durable, 512, always, vec![(Write, 1, 1)]),
            (
                BackingOp::Discard,
                10240,
                CAN,
                vec![(zero, 1, 16), (zero, 17, 4)],
            ),
            (
                BackingOp::Discard,
                4608,
                no_zeroing,
                vec![(Write, 1, 8), (Write, 9, 1)],
            ),
            (BackingOp::Flush, 0, CAN, vec![(Flush, 1, 0)]),
        ] {
            let steps = steps(op, len, &can, WriteCache::Volatile);
            assert_eq!(steps, expected, "{op:?} {can:?}");
        }
    }

    #[test]
    fn what_hosts_do_not_flush_is_made_durable() {
        use Operation::{Flush, Write, WriteDurable, WriteZeroes};
        let volatile = BackingOp::Write(Persistence::Volatile);
        let zero = BackingOp::WriteZeroes(Unmap::Forbidden);
        let can = |durable| Abilities { durable, ..CAN };
        for (op, durable, expected) in [
            (volatile, Durable::Always, vec![Write]),
            (volatile, Durable::Forced, vec![WriteDurable]),
            (volatile, Durable::Flush, vec![Write, Flush]),
            (zero, Durable::Always, vec![WriteZeroes(Unmap::Forbidden)]),
            (
                zero,
                Durable::Forced,
                vec![WriteZeroes(Unmap::Forbidden), Flush],
            ),
            (BackingOp::Read, Durable::Flush, vec![Operation::Read]),
        ] {
            let steps = steps(op, 512, &can(durable), WriteCache::Absent);
            let operations: Vec<_> = steps.iter().map(|step| step.0).collect();
            assert_eq!(operations, expected, "{op:?} {durable:?}");
        }
    }
}
