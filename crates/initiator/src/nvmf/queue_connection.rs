//! The connection of an I/O queue, which carries requests as NVMe commands.

use std::{os::fd::BorrowedFd, sync::Weak, time::Duration};

use nvme::host::{CommandKey, io};
use nvme::wire::{Nsid, Status, StatusCode};
use session::{BufferRange, Buffers};

use super::transport::NvmeConnection;
use crate::queue_connection::{
    ConnectionHandle, ConnectionState, QueueConnection, QueueState, TimeoutAction,
};
use crate::socket::Interest;
use crate::{CommandError, ConnectionError, Operation, Request};

/// An I/O queue's connection.
#[derive(Debug)]
pub(crate) struct NvmeQueueConnection<C> {
    connection: C,
    config: NvmeQueueConfig,
    /// By slot: the status of the half of a fused pair that ended first.
    halves: Box<[Option<Status>]>,
}

/// What the queues of an association have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmeQueueConfig {
    pub(crate) nsid: Nsid,
    /// The key of the second command of slot 0's fused pair; those of the others follow.
    pub(crate) second_keys: CommandKey,
}

impl<C: NvmeConnection> NvmeQueueConnection<C> {
    pub(crate) fn new(connection: C, config: NvmeQueueConfig, depth: u16) -> Self {
        Self {
            connection,
            config,
            halves: vec![None; usize::from(depth)].into_boxed_slice(),
        }
    }

    /// Starts a fused pair, of which both or none are submitted.
    fn start_pair(&mut self, request: &Request, expected: BufferRange, buffers: &Buffers) -> bool {
        const PAIR: u16 = 2;
        if self.connection.room() < PAIR {
            return false;
        }
        let new = BufferRange {
            offset: expected.len_bytes,
            ..expected
        };
        let pair = io::compare_and_write(self.config.nsid, request.extent, expected, new);
        let slot = request.slot.0;
        let keys = [slot, self.config.second_keys.0 + slot];
        for (key, command) in keys.into_iter().zip(pair) {
            let submitted = self.connection.submit(CommandKey(key), &command, buffers);
            assert!(submitted.is_ok(), "there was room for both");
        }
        self.halves[usize::from(slot)] = None;
        true
    }
}

impl<C: NvmeConnection> QueueConnection for NvmeQueueConnection<C> {
    fn handle(&self) -> Weak<dyn ConnectionHandle> {
        self.connection.handle()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.descriptor()
    }

    fn interest(&self) -> Interest {
        self.connection.interest()
    }

    fn signals(&self) -> bool {
        self.connection.signals()
    }

    fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) -> std::io::Result<()> {
        self.connection.wait_input(also, timeout)
    }

    fn start(&mut self, request: &Request, shift: u32, buffers: &mut Buffers) -> bool {
        let (nsid, slot, extent) = (self.config.nsid, request.slot.0, request.extent);
        let data = BufferRange::first(slot, (extent.blocks.0 << shift) as u32);
        let command = match request.operation {
            Operation::Read => io::read(nsid, extent, data),
            Operation::Write => io::write(nsid, extent, data),
            Operation::WriteDurable => io::write_durable(nsid, extent, data),
            Operation::Flush => io::flush(nsid),
            Operation::WriteZeroes(unmap) => io::write_zeroes(nsid, extent, unmap),
            Operation::Verify => io::verify(nsid, extent),
            Operation::Compare => io::compare(nsid, extent, data),
            Operation::Deallocate => {
                let list = BufferRange {
                    slot,
                    offset: (buffers.slot_bytes() - io::DEALLOCATE_RANGE_BYTES) as u32,
                    len_bytes: io::DEALLOCATE_RANGE_BYTES as u32,
                };
                io::deallocate(nsid, extent, list, buffers.range_mut(list))
            }
            Operation::CompareAndWrite => return self.start_pair(request, data, buffers),
        };
        let key = CommandKey(slot);
        self.connection.submit(key, &command, buffers).is_ok()
    }

    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        self.connection.turn(buffers)
    }

    fn settle(&mut self, state: &mut QueueState<'_>) -> ConnectionState {
        let mut connection_state = ConnectionState::Open;
        for outcome in self.connection.outcomes().drain(..) {
            if outcome.status.raw_code() == StatusCode::AbortedSqDeletion as u16 {
                // The connection is about to end; the command is in flight until then.
                connection_state = ConnectionState::Ended;
                continue;
            }
            let key = outcome.key.0;
            let slot = key.checked_sub(self.config.second_keys.0).unwrap_or(key);
            let mut status = outcome.status;
            if state.slots.request(slot).operation == Operation::CompareAndWrite {
                let half = &mut self.halves[usize::from(slot)];
                match half.take() {
                    None => {
                        *half = Some(status);
                        continue;
                    }
                    Some(first) => status = pair_status(first, status),
                }
            }
            let result = if status.is_success() {
                Ok(())
            } else {
                Err(CommandError::Status(status))
            };
            state.done.push(state.slots.end(slot, result));
        }
        connection_state
    }

    fn release_buffers(&mut self, buffers: &mut Buffers) {
        self.connection.release_buffers(buffers);
    }

    fn on_timeout(&mut self, _slot: u16) -> TimeoutAction {
        // An abort needs the admin queue. A new association replaces the one with the stuck
        // command.
        TimeoutAction::Disconnect
    }
}

/// The status of a pair: that of the command that failed first-hand.
fn pair_status(first: Status, second: Status) -> Status {
    let is_follower = first.code() == Some(StatusCode::AbortedFailedFused);
    if first.is_success() || (is_follower && !second.is_success()) {
        second
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_that_failed_gives_the_status_of_a_pair() {
        let failed = Status::from(StatusCode::CompareFailure);
        let follower = Status::from(StatusCode::AbortedFailedFused);
        let ok = Status::SUCCESS;
        assert_eq!(pair_status(ok, ok), ok);
        assert_eq!(pair_status(failed, follower), failed);
        assert_eq!(pair_status(follower, failed), failed);
        assert_eq!(pair_status(ok, failed), failed);
        assert_eq!(pair_status(follower, ok), follower);
    }
}
