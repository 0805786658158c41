//! The session of a queue, which carries requests as SCSI commands.

use std::{
    os::fd::BorrowedFd,
    sync::Weak,
    time::{Duration, Instant},
};

use scsi::host::{Attention, CommandFailure, CommandKey, Outcome, ReceivedSense, Setup, io};
use scsi::{Lun, ScsiStatus};
use session::{BufferRange, Buffers};

use super::{Ping, ScsiConnection, ScsiEvent, TAIL_BYTES};
use crate::queue_connection::{
    BusyRetries, ConnectionHandle, ConnectionState, QueueConnection, QueueState, TimeoutAction,
};
use crate::socket::Interest;
use crate::{CommandError, ConnectionError, Operation, Request};

/// A queue's session.
#[derive(Debug)]
pub(crate) struct ScsiQueueConnection<C> {
    connection: C,
    lun: Lun,
    /// The key and the buffer of the session's own commands: the first behind those of the slots.
    own: u16,
    /// By slot: how often its command was not executed.
    retries: Box<[Retries]>,
    capacity: Capacity,
    activity: PeerActivity,
}

/// How often in a row a command was not executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Retries {
    attentions: u8,
    /// BUSY and TASK SET FULL.
    busy: BusyRetries,
}

/// When the target was last heard from.
#[derive(Clone, Copy, Debug, Default)]
struct PeerActivity {
    heard: u64,
    /// When a received message was last noticed.
    since: Option<Instant>,
    /// When a ping was sent that is unanswered.
    pinged: Option<Instant>,
}

/// Whether the capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capacity {
    Known,
    /// It has changed.
    Stale,
    /// It is being read.
    Reading,
    /// It has changed while it was being read.
    ReadingAndStale,
}

/// Unit attentions in a row after which a command fails: more than the causes that exist.
const ATTENTIONS_MAX: u8 = 32;
/// Bytes of READ CAPACITY (16).
const CAPACITY_BYTES: u32 = 32;

impl<C: ScsiConnection> ScsiQueueConnection<C> {
    pub(crate) fn new(connection: C, lun: Lun, depth: u16) -> Self {
        Self {
            connection,
            lun,
            own: depth,
            retries: vec![Retries::default(); usize::from(depth)].into_boxed_slice(),
            capacity: Capacity::Known,
            activity: PeerActivity::default(),
        }
    }

    /// Whether a command was not executed and has to be retried: a unit attention (SAM-5, "Unit
    /// attention conditions") or a full target (BUSY, TASK SET FULL) prevented it.
    #[cold]
    fn retry_of(&mut self, slot: u16, failure: &CommandFailure) -> Retry {
        const BUSY: u8 = ScsiStatus::Busy as u8;
        const TASK_SET_FULL: u8 = ScsiStatus::TaskSetFull as u8;
        if let CommandFailure::Status {
            status: BUSY | TASK_SET_FULL,
            ..
        } = failure
        {
            let delay = self.retries[usize::from(slot)].busy.next_delay();
            return delay.map_or(Retry::No, Retry::After);
        }
        let Some(attention) = failure.sense().and_then(ReceivedSense::attention) else {
            return Retry::No;
        };
        self.on_attention(attention);
        let attentions = &mut self.retries[usize::from(slot)].attentions;
        if *attentions == ATTENTIONS_MAX {
            return Retry::No;
        }
        *attentions += 1;
        Retry::Now
    }

    fn on_attention(&mut self, attention: Attention) {
        if attention == Attention::Capacity {
            self.capacity = match self.capacity {
                Capacity::Known | Capacity::Stale => Capacity::Stale,
                Capacity::Reading | Capacity::ReadingAndStale => Capacity::ReadingAndStale,
            };
        }
    }

    fn take_events(&mut self) -> ConnectionState {
        let mut connection_state = ConnectionState::Open;
        while let Some(event) = self.connection.poll_event() {
            match event {
                ScsiEvent::Sense(sense) => {
                    if let Some(attention) = sense.attention() {
                        self.on_attention(attention);
                    }
                }
                ScsiEvent::LoggedOut => connection_state = ConnectionState::Ended,
            }
        }
        connection_state
    }

    fn read_capacity(&mut self, buffers: &Buffers) {
        let command = io::read_capacity_16(BufferRange::first(self.own, CAPACITY_BYTES));
        let key = CommandKey(self.own);
        if self.connection.submit(key, &command, buffers) {
            self.capacity = Capacity::Reading;
        }
    }

    /// READ CAPACITY has ended.
    fn on_capacity(&mut self, result: Result<u32, CommandFailure>, state: &QueueState<'_>) {
        let was_stale = self.capacity == Capacity::ReadingAndStale;
        self.capacity = if was_stale {
            Capacity::Stale
        } else {
            Capacity::Known
        };
        match result {
            Ok(moved_bytes) => {
                let data = &state.buffers.slot(self.own)[..moved_bytes as usize];
                if let Ok(geometry) = Setup::capacity(self.lun, data)
                    && geometry.block_size == state.shared.geometry().block_size
                {
                    state.shared.set_blocks(geometry.blocks);
                }
            }
            // A unit attention prevented it: try again.
            Err(failure) if failure.sense().is_some_and(|it| it.attention().is_some()) => {
                self.capacity = Capacity::Stale;
            }
            // The next change is announced by another unit attention.
            Err(_) => {}
        }
    }
}

impl<C: ScsiConnection> QueueConnection for ScsiQueueConnection<C> {
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

    fn turn(&mut self, buffers: &mut Buffers) -> Result<(), ConnectionError> {
        self.connection.turn(buffers)
    }

    fn start(&mut self, request: &Request, shift: u32, buffers: &mut Buffers) -> bool {
        let (slot, extent) = (request.slot.0, request.extent);
        let data = BufferRange::first(slot, (extent.blocks.0 << shift) as u32);
        let tail = |len_bytes: usize, buffers: &Buffers| BufferRange {
            slot,
            offset: (buffers.slot_bytes() - TAIL_BYTES) as u32,
            len_bytes: len_bytes as u32,
        };
        let command = match request.operation {
            Operation::Read => io::read(extent, data),
            Operation::Write => io::write(extent, data),
            Operation::WriteDurable => io::write_durable(extent, data),
            Operation::Flush => io::synchronize_cache(),
            Operation::Verify => io::verify(extent),
            Operation::Compare => io::compare(extent, data),
            Operation::CompareAndWrite => {
                let len_bytes = data.len_bytes * 2;
                io::compare_and_write(extent, BufferRange { len_bytes, ..data })
            }
            Operation::WriteZeroes(unmap) => {
                let zeros = tail(1 << shift, buffers);
                buffers.range_mut(zeros).fill(0);
                io::write_zeroes(extent, unmap, zeros)
            }
            Operation::Deallocate => {
                let list = tail(io::UNMAP_LIST_BYTES, buffers);
                io::unmap(extent, list, buffers.range_mut(list))
            }
        };
        self.connection.submit(CommandKey(slot), &command, buffers)
    }

    fn settle(&mut self, state: &mut QueueState<'_>) -> ConnectionState {
        let shift = state.shared.geometry().block_size.shift();
        for index in 0..self.connection.outcomes().len() {
            let Outcome { key, result } = self.connection.outcomes()[index];
            let slot = key.0;
            if slot == self.own {
                self.on_capacity(result, state);
                continue;
            }
            let result = match result {
                Ok(moved_bytes) => {
                    self.retries[usize::from(slot)] = Retries::default();
                    check_length(state.slots.request(slot), moved_bytes, shift)
                }
                Err(failure) => match self.retry_of(slot, &failure) {
                    Retry::Now => {
                        state.slots.hold(slot);
                        state.waiting.push_front(slot);
                        continue;
                    }
                    Retry::After(delay) => {
                        state.slots.hold(slot);
                        state.postponed.push((state.now + delay, slot));
                        continue;
                    }
                    Retry::No => {
                        self.retries[usize::from(slot)] = Retries::default();
                        Err(failure)
                    }
                },
            };
            let completion = state.slots.end(slot, result.map_err(CommandError::Scsi));
            state.done.push(completion);
        }
        self.connection.outcomes().clear();
        let connection_state = self.take_events();
        if self.capacity == Capacity::Stale {
            self.read_capacity(state.buffers);
        }
        connection_state
    }

    fn release_buffers(&mut self, buffers: &mut Buffers) {
        self.connection.release_buffers(buffers);
    }

    fn log_out(&mut self, buffers: &mut Buffers) {
        // The response is not waited for.
        self.connection.log_out();
        let _ = self.connection.turn(buffers);
    }

    fn on_timeout(&mut self, slot: u16) -> TimeoutAction {
        self.connection.abort(CommandKey(slot))
    }

    /// Pings a target that has been silent for a third of `timeout`. If the ping is not answered
    /// within `timeout`, the session has ended. Time without a call of this function does not
    /// count.
    fn keep_alive(&mut self, now: Instant, timeout: Duration) -> ConnectionState {
        let heard = self.connection.heard();
        let activity = &mut self.activity;
        if activity.heard != heard || activity.since.is_none() {
            *activity = PeerActivity {
                heard,
                since: Some(now),
                pinged: None,
            };
            return ConnectionState::Open;
        }
        let lasts = |since: Option<Instant>, limit| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        if lasts(activity.pinged, timeout) {
            return ConnectionState::Ended;
        }
        if activity.pinged.is_none() && lasts(activity.since, timeout / 3) {
            activity.pinged = Some(now);
            if self.connection.ping() == Ping::ByCommand && self.capacity == Capacity::Known {
                // It is sent with the next turn, and answered by a target that is there.
                self.capacity = Capacity::Stale;
            }
        }
        ConnectionState::Open
    }
}

/// Whether and when a command that has failed is retried.
enum Retry {
    No,
    Now,
    After(Duration),
}

/// Checks that a command with status GOOD has transferred all of its data.
#[inline]
fn check_length(request: &Request, moved_bytes: u32, shift: u32) -> Result<(), CommandFailure> {
    let len_bytes = match request.operation {
        Operation::Read | Operation::Write | Operation::WriteDurable | Operation::Compare => {
            request.extent.blocks.0 << shift
        }
        Operation::CompareAndWrite => request.extent.blocks.0 << (shift + 1),
        Operation::Flush
        | Operation::Verify
        | Operation::WriteZeroes(_)
        | Operation::Deallocate => return Ok(()),
    };
    if u64::from(moved_bytes) == len_bytes {
        Ok(())
    } else {
        Err(CommandFailure::Short { moved_bytes })
    }
}
