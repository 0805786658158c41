//! The connection of a queue's session, which carries requests as BRP's commands. A slot's command
//! has the slot's tag.

use std::{
    os::fd::BorrowedFd,
    sync::Weak,
    time::{Duration, Instant},
};

use brp::host::{self, HostEvent, Outcome};
use brp::wire::Status;
use session::{BufferRange, Buffers};

use super::Legacy;
use super::link::Link;
use crate::queue_connection::{
    BusyRetries, ConnectionHandle, ConnectionState, QueueConnection, QueueState, TimeoutAction,
};
use crate::socket::Interest;
use crate::{CommandError, ConnectionError, Operation, Request};

/// A queue's connection.
#[derive(Debug)]
pub(super) struct BrpQueueConnection {
    connection: Box<dyn Link>,
    /// By slot.
    tags: Box<[Tag]>,
    /// Slots whose command ends with an unknown outcome.
    ended: Vec<u16>,
    legacy: Legacy,
    activity: PeerActivity,
}

/// What is known of a slot's command.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    busy: BusyRetries,
    is_aborted: bool,
    /// It was sent in a session that the target has forgotten.
    is_unknown: bool,
}

/// When the target was last heard from.
#[derive(Clone, Copy, Debug, Default)]
struct PeerActivity {
    heard: u64,
    /// When the last ping was sent.
    pinged: Option<Instant>,
    /// When the oldest ping was sent since the target was heard from.
    unanswered: Option<Instant>,
}

impl BrpQueueConnection {
    pub(super) fn new(connection: Box<dyn Link>, depth: u16, legacy: Legacy) -> Self {
        Self {
            connection,
            tags: vec![Tag::default(); usize::from(depth)].into_boxed_slice(),
            ended: Vec::new(),
            legacy,
            activity: PeerActivity::default(),
        }
    }

    /// The commands of these slots were sent in a session that the target has forgotten, and are
    /// submitted again.
    pub(super) fn note_unknown(&mut self, slots: &[u16]) {
        for &slot in slots {
            if let Some(tag) = self.tags.get_mut(usize::from(slot)) {
                tag.is_unknown = true;
            }
        }
    }

    /// No command is submitted again: the next ones of all tags are new (BRP-34).
    pub(super) fn give_up(&mut self) {
        for tag in 0..self.tags.len() as u16 {
            self.connection.common_mut().give_up(tag);
        }
    }

    fn take_events(&mut self, state: &QueueState<'_>) {
        while let Some(event) = self.connection.common_mut().poll_event() {
            match event {
                HostEvent::Resized(blocks) => state.shared.set_blocks(blocks),
                // Commands report the others.
                HostEvent::LoggedIn(_)
                | HostEvent::Writable(_)
                | HostEvent::Removed
                | HostEvent::Shutdown => {}
            }
        }
    }
}

impl QueueConnection for BrpQueueConnection {
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
        let was_unknown = std::mem::take(&mut self.tags[usize::from(slot)].is_unknown);
        if was_unknown && request.operation == Operation::CompareAndWrite {
            // Unlike the others it would not do the same again (BRP-33).
            self.ended.push(slot);
            return true;
        }
        let data = BufferRange::first(slot, (extent.blocks.0 << shift) as u32);
        let command = match request.operation {
            Operation::Read => host::read(extent, data),
            Operation::Write => host::write(extent, data),
            Operation::WriteDurable => host::write_durable(extent, data),
            Operation::Flush => host::flush(),
            Operation::WriteZeroes(unmap) => host::write_zeroes(extent, unmap),
            Operation::Deallocate => host::discard(extent),
            Operation::CompareAndWrite => {
                let len_bytes = data.len_bytes * 2;
                host::compare_and_write(extent, BufferRange { len_bytes, ..data })
            }
            Operation::Verify | Operation::Compare => {
                unreachable!("the queue rejects what its limits do not allow")
            }
        };
        self.tags[usize::from(slot)].is_aborted = false;
        self.connection.submit(slot, &command, buffers).is_ok()
    }

    fn settle(&mut self, state: &mut QueueState<'_>) -> ConnectionState {
        for Outcome { tag, status, .. } in self.connection.outcomes().drain(..) {
            let busy = &mut self.tags[usize::from(tag)].busy;
            let delay = match status {
                Status::Busy => busy.next_delay(),
                _ => None,
            };
            if let Some(delay) = delay {
                state.slots.hold(tag);
                state.postponed.push((state.now + delay, tag));
                continue;
            }
            *busy = BusyRetries::default();
            let result = match status {
                Status::Success => Ok(()),
                status => Err(CommandError::Brp(status)),
            };
            state.done.push(state.slots.end(tag, result));
        }
        for slot in self.ended.drain(..) {
            let lost = state.slots.end(slot, Err(CommandError::ConnectionLost));
            state.done.push(lost);
        }
        self.take_events(state);
        ConnectionState::Open
    }

    fn release_buffers(&mut self, buffers: &mut Buffers) {
        self.connection.release_buffers(buffers);
    }

    fn keep_session(&mut self) {
        self.legacy.put(self.connection.common().resumption());
    }

    fn replays(&self) -> bool {
        true
    }

    fn log_out(&mut self, buffers: &mut Buffers) {
        self.connection.common_mut().log_out();
        let _ = self.connection.turn(buffers);
    }

    fn on_timeout(&mut self, slot: u16) -> TimeoutAction {
        // Each command is aborted once.
        let tag = &mut self.tags[usize::from(slot)];
        if !tag.is_aborted && self.connection.common_mut().abort(slot) {
            tag.is_aborted = true;
            TimeoutAction::WaitForAbort
        } else {
            TimeoutAction::Disconnect
        }
    }

    /// Pings at a third of the time (BRP-25). If the target is not heard from for `timeout` after a
    /// ping, the connection counts as lost (BRP-26). Time without a call of this function does not
    /// count.
    fn keep_alive(&mut self, now: Instant, timeout: Duration) -> ConnectionState {
        let session = self.connection.common_mut();
        let activity = &mut self.activity;
        if activity.heard != session.heard() {
            activity.heard = session.heard();
            activity.unanswered = None;
        }
        let lasts = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        if activity.unanswered.is_some_and(|at| lasts(at, timeout)) {
            return ConnectionState::Ended;
        }
        if activity.pinged.is_none_or(|at| lasts(at, timeout / 3)) {
            session.ping();
            activity.pinged = Some(now);
            activity.unanswered.get_or_insert(now);
        }
        ConnectionState::Open
    }
}
