//! A queue: one connection's commands, buffers and completions, for one thread.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use block::Geometry;
use iscsi::initiator::SessionError;
use session::Buffers;

use crate::device_state::DeviceState;
use crate::mailbox::{Mailbox, Update};
use crate::queue_connection::{ConnectionState, QueueConnection, QueueState, TimeoutAction};
use crate::slots::Slots;
use crate::socket::{Interest, wait};
use crate::{
    CommandError, Completion, ConnectionError, DeviceOptions, OnLoss, Operation, QueueError,
    Request, Slot, SubmitError, WaitStrategy,
};

/// A handle of one I/O queue. Move it to the thread that uses it.
pub struct Queue {
    limits: QueueLimits,
    on_loss: OnLoss,
    command_timeout: Duration,
    keep_alive: Duration,
    shared: Arc<DeviceState>,
    mailbox: Arc<Mailbox>,
    updates_seen: u64,
    state: State,
    buffers: Buffers,
    slots: Slots,
    /// Slots whose command waits for a connection or for room in the controller's queue.
    waiting: VecDeque<u16>,
    /// Slots whose command the target postponed, and until when.
    postponed: Vec<(Instant, u16)>,
    /// When to check for commands that exceed their time limit.
    next_sweep: Option<Instant>,
}

/// What the other side and the options allow a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) depth: u16,
    pub(crate) transfer_max_bytes: usize,
    /// Buffers beyond those of the slots, for the connection's own commands.
    pub(crate) spare_slots: u16,
    /// Bytes of each buffer behind the part that is the caller's, for lists that commands execute.
    pub(crate) tail_bytes: usize,
    pub(crate) blocks_max: BlocksMax,
}

/// The most blocks of a command, by kind; 0 if the other side does not know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlocksMax {
    pub(crate) data: u64,
    pub(crate) durable: u64,
    pub(crate) verify: u64,
    pub(crate) compare: u64,
    pub(crate) zeroes: u64,
    pub(crate) deallocate: u64,
    pub(crate) compare_and_write: u64,
}

/// Whether a queue has a connection at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Commands can go out.
    Up,
    /// The connection is being made again; commands wait.
    Down,
}

enum State {
    Up {
        connection: Box<dyn QueueConnection>,
        generation: u64,
    },
    Down,
    Ended(QueueError),
}

/// The interval between checks for commands that exceed their time limit.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time for which a target may postpone reconnection.
const HOLD_OFF_MAX: Duration = Duration::from_secs(60);

impl Queue {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        shared: Arc<DeviceState>,
        limits: QueueLimits,
        options: &DeviceOptions,
    ) -> Self {
        let mut queue = Self {
            limits,
            on_loss: options.on_loss,
            command_timeout: options.command_timeout,
            keep_alive: options.keep_alive,
            shared,
            mailbox,
            updates_seen: 0,
            state: State::Down,
            buffers: Buffers::new(
                limits.depth + limits.spare_slots,
                options.buffer_bytes + limits.tail_bytes,
            ),
            slots: Slots::new(limits.depth),
            waiting: VecDeque::with_capacity(limits.depth.into()),
            postponed: Vec::new(),
            next_sweep: None,
        };
        queue.read_mail(&mut Vec::new());
        queue
    }

    /// How many slots there are: as many as requested, or as the controller takes if that is fewer.
    pub fn depth(&self) -> u16 {
        self.limits.depth
    }

    /// Block size and capacity of the namespace as last learned (a resize changes it).
    pub fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    /// The most data bytes of one command: what a slot's buffer holds and the controller takes
    /// (MDTS).
    pub fn transfer_bytes_max(&self) -> usize {
        self.limits.transfer_max_bytes
    }

    /// The most blocks of one command of this kind; 0 if the other side does not support it.
    pub fn blocks_max(&self, operation: Operation) -> u64 {
        let most = &self.limits.blocks_max;
        let transfer = self.limits.transfer_max_bytes as u64 >> self.block_shift();
        match operation {
            Operation::Flush => 0,
            Operation::Read | Operation::Write => most.data.min(transfer),
            Operation::Compare => most.compare.min(transfer),
            Operation::WriteDurable => most.durable.min(transfer),
            Operation::Verify => most.verify,
            Operation::WriteZeroes(_) => most.zeroes,
            Operation::Deallocate => most.deallocate,
            Operation::CompareAndWrite => most.compare_and_write.min(transfer / 2),
        }
    }

    /// Whether there is a connection at present.
    pub fn link(&self) -> Link {
        match self.state {
            State::Up { .. } => Link::Up,
            State::Down | State::Ended(_) => Link::Down,
        }
    }

    /// How many commands are in flight or waiting for a connection.
    pub fn in_flight(&self) -> usize {
        self.slots.busy()
    }

    /// The buffer of `slot`, which holds the data of a completed read. Panics if `slot` is beyond
    /// the depth, or, over RDMA, if its command is in flight, since the controller accesses the
    /// buffer then.
    pub fn buffer(&self, slot: Slot) -> &[u8] {
        self.assert_slot(slot);
        let buffer = self.buffers.slot(slot.0);
        &buffer[..buffer.len() - self.limits.tail_bytes]
    }

    /// The buffer of `slot`, to fill before a write. Panics if a command is in flight in `slot`,
    /// since it could send half of each.
    pub fn buffer_mut(&mut self, slot: Slot) -> &mut [u8] {
        assert!(
            self.slots.is_idle(slot.0),
            "slot {} has a command in flight",
            slot.0
        );
        let buffer = self.buffers.slot_mut(slot.0);
        let len = buffer.len() - self.limits.tail_bytes;
        &mut buffer[..len]
    }

    /// Takes a request. Nothing is sent before the next [`poll`](Self::poll) or
    /// [`wait`](Self::wait), so that many go out in one send.
    #[inline]
    pub fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        self.check(&request)?;
        let slot = request.slot.0;
        self.slots.occupy(slot, request);
        if !self.waiting.is_empty() || !self.start(slot) {
            self.waiting.push_back(slot);
        }
        Ok(())
    }

    /// Sends what was submitted, takes what has arrived, appends what has completed to `done`, and
    /// says how many that were. Never waits. Fails once nothing is in flight and no connection will
    /// come.
    pub fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) -> Result<usize, QueueError> {
        let before = done.len();
        if self.mailbox.updates() != self.updates_seen {
            self.read_mail(done);
        }
        if !self.postponed.is_empty() {
            self.resume(now);
        }
        if let State::Up { connection, .. } = &mut self.state {
            let turned = connection.turn(&mut self.buffers);
            let connection_state = connection.settle(&mut QueueState {
                slots: &mut self.slots,
                waiting: &mut self.waiting,
                done,
                shared: &self.shared,
                buffers: &self.buffers,
                now,
                postponed: &mut self.postponed,
            });
            if let Err(error) = &turned {
                self.note_hold_off(now, error);
            }
            if turned.is_err() || connection_state == ConnectionState::Ended {
                self.lose_connection(done);
            } else if !self.waiting.is_empty() {
                self.start_waiting();
            }
            if self.next_sweep.is_none_or(|at| at <= now) {
                self.sweep(now, done);
            }
        }
        if let State::Ended(error) = &self.state {
            let error = error.clone();
            self.fail_all(done);
            if done.len() == before {
                return Err(error);
            }
        }
        Ok(done.len() - before)
    }

    /// Polls until at least one command has completed or `timeout` is over.
    pub fn wait(
        &mut self,
        strategy: WaitStrategy,
        timeout: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<usize, QueueError> {
        let began = Instant::now();
        let mut now = began;
        loop {
            let count = self.poll(now, done)?;
            let waited = now.saturating_duration_since(began);
            if count > 0 || waited >= timeout {
                return Ok(count);
            }
            let spins = match strategy {
                WaitStrategy::Spin => true,
                WaitStrategy::Sleep => false,
                WaitStrategy::SpinThenSleep(spin) => waited < spin,
            };
            if spins {
                std::hint::spin_loop();
            } else {
                self.wait_input(None, timeout.saturating_sub(waited));
            }
            now = Instant::now();
        }
    }

    /// Whether the operating system had no room for all that is to be sent: a thread that waits for
    /// several queues waits until their descriptors can be written, too.
    pub fn wants_write(&self) -> bool {
        match &self.state {
            State::Up { connection, .. } => connection.interest() == Interest::ReadWrite,
            State::Down | State::Ended(_) => false,
        }
    }

    /// Whether input makes [`descriptor`](Self::descriptor) readable. If not (several RDMA
    /// connections share one socket, or a busy target has postponed commands), a thread with
    /// several queues has to poll this one.
    pub fn signals(&self) -> bool {
        match &self.state {
            State::Up { connection, .. } => connection.signals() && self.postponed.is_empty(),
            State::Down | State::Ended(_) => true,
        }
    }

    /// The descriptor to wait for (readable; writable where [`wants_write`](Self::wants_write))
    /// before the next [`poll`](Self::poll), for a thread that has several queues. It changes with
    /// each connection.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let slot = request.slot;
        if slot.0 >= self.limits.depth {
            return Err(SubmitError::NoSuchSlot {
                slot,
                depth: self.limits.depth,
            });
        }
        if !self.slots.is_idle(slot.0) {
            return Err(SubmitError::SlotBusy { slot });
        }
        let blocks = request.extent.blocks.0;
        let most = &self.limits.blocks_max;
        let (blocks_max, buffers) = match request.operation {
            Operation::Flush => return Ok(()),
            Operation::Deallocate => (most.deallocate, 0),
            Operation::WriteZeroes(_) => (most.zeroes, 0),
            Operation::Verify => (most.verify, 0),
            Operation::Read | Operation::Write => (most.data, 1),
            Operation::Compare => (most.compare, 1),
            Operation::WriteDurable => (most.durable, 1),
            Operation::CompareAndWrite => (most.compare_and_write, 2),
        };
        if blocks_max == 0 {
            return Err(SubmitError::Unsupported {
                operation: request.operation,
            });
        }
        if blocks == 0 || blocks > blocks_max {
            return Err(SubmitError::BlockCount {
                blocks,
                max: blocks_max,
            });
        }
        let len_bytes = blocks << self.block_shift();
        let buffer_bytes = (self.buffers.slot_bytes() - self.limits.tail_bytes) as u64;
        let max_bytes = match buffers {
            0 => return Ok(()),
            1 => self.limits.transfer_max_bytes as u64,
            _ => (self.limits.transfer_max_bytes as u64).min(buffer_bytes / 2),
        };
        if len_bytes > max_bytes {
            return Err(SubmitError::TooLong {
                len_bytes,
                max_bytes,
            });
        }
        Ok(())
    }

    fn block_shift(&self) -> u32 {
        self.shared.geometry().block_size.shift()
    }

    /// Hands a slot's command to the session; `false` if it has to wait.
    #[inline]
    fn start(&mut self, slot: u16) -> bool {
        let shift = self.block_shift();
        let State::Up { connection, .. } = &mut self.state else {
            return false;
        };
        let started = connection.start(self.slots.request(slot), shift, &mut self.buffers);
        if started {
            self.slots.start(slot);
        }
        started
    }

    fn start_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            if !self.start(slot) {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// Handles an update from the supervisor.
    #[cold]
    fn read_mail(&mut self, done: &mut Vec<Completion>) {
        self.updates_seen = self.mailbox.updates();
        let Some(update) = self.mailbox.take() else {
            return;
        };
        // The supervisor may know of a loss before this end notices.
        self.lose_connection(done);
        match update {
            Update::Connection {
                connection,
                generation,
            } => {
                self.state = State::Up {
                    connection,
                    generation,
                };
                self.start_waiting();
            }
            Update::End(error) => self.state = State::Ended(error),
        }
    }

    /// Handles the loss of the connection: commands in flight fail or wait for the next connection.
    #[cold]
    fn lose_connection(&mut self, done: &mut Vec<Completion>) {
        let State::Up {
            connection,
            generation,
        } = &mut self.state
        else {
            return;
        };
        if let Some(handle) = connection.handle().upgrade() {
            handle.close();
        }
        connection.release_buffers(&mut self.buffers);
        connection.keep_session();
        let replays = connection.replays();
        self.mailbox
            .report_loss(*generation, &self.shared.supervisor);
        self.state = State::Down;
        for slot in (0..self.limits.depth).rev() {
            if !self.slots.is_in_flight(slot) {
                continue;
            }
            let operation = self.slots.request(slot).operation;
            let is_repeatable = replays || operation != Operation::CompareAndWrite;
            if self.on_loss == OnLoss::Resubmit && is_repeatable {
                self.slots.hold(slot);
                self.waiting.push_front(slot);
            } else {
                done.push(self.slots.end(slot, Err(CommandError::ConnectionLost)));
            }
        }
    }

    /// Queues postponed commands whose delay has expired.
    #[cold]
    fn resume(&mut self, now: Instant) {
        let waiting = &mut self.waiting;
        self.postponed.retain(|&(until, slot)| {
            if until <= now {
                waiting.push_back(slot);
            }
            until > now
        });
    }

    /// Informs the supervisor if the target asked not to be connected to for a time.
    #[cold]
    fn note_hold_off(&self, now: Instant, error: &ConnectionError) {
        if let ConnectionError::Session(SessionError::Dropped { wait_s, .. }) = error {
            let wait = Duration::from_secs((*wait_s).into()).min(HOLD_OFF_MAX);
            self.mailbox.hold_off(now + wait);
        }
    }

    /// Fails commands that wait for a connection, since none will follow.
    #[cold]
    fn fail_all(&mut self, done: &mut Vec<Completion>) {
        self.waiting
            .extend(self.postponed.drain(..).map(|(_, slot)| slot));
        for slot in self.waiting.drain(..) {
            done.push(self.slots.end(slot, Err(CommandError::NotSubmitted)));
        }
    }

    /// Closes the connection if a command exceeds its time limit and cannot be aborted.
    #[cold]
    fn sweep(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.next_sweep = Some(now + SWEEP_INTERVAL);
        if let State::Up { connection, .. } = &mut self.state
            && !self.keep_alive.is_zero()
            && connection.keep_alive(now, self.keep_alive) == ConnectionState::Ended
        {
            return self.lose_connection(done);
        }
        while let Some(slot) = self.slots.sweep(now, self.command_timeout) {
            let action = match &mut self.state {
                State::Up { connection, .. } => connection.on_timeout(slot.0),
                State::Down | State::Ended(_) => return,
            };
            match action {
                TimeoutAction::WaitForAbort => self.slots.give_time(slot.0),
                TimeoutAction::Disconnect => return self.lose_connection(done),
            }
        }
    }

    fn assert_slot(&self, slot: Slot) {
        let depth = self.limits.depth;
        assert!(
            slot.0 < depth,
            "slot {} is beyond the depth of {depth}",
            slot.0
        );
    }

    /// Sleeps until something arrives, a command may be due, `also` is readable, or `timeout` is
    /// over: for a thread that has other work besides this queue. [`poll`](Self::poll) first.
    pub fn wait_input(&self, also: Option<BorrowedFd<'_>>, timeout: Duration) {
        let due = self.postponed.iter().map(|(until, _)| *until).min();
        let due = due.map_or(SWEEP_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now())
        });
        let timeout = timeout.min(SWEEP_INTERVAL).min(due);
        let slept = match &self.state {
            State::Up { connection, .. } => connection.wait_input(also, timeout),
            State::Down | State::Ended(_) => wait(
                self.mailbox.waker.descriptor(),
                Interest::Read,
                also,
                timeout,
            ),
        };
        if slept.is_err() {
            std::thread::sleep(timeout);
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.state {
            State::Up { connection, .. } => connection.descriptor(),
            State::Down | State::Ended(_) => self.mailbox.waker.descriptor(),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.mailbox.abandon();
        if let State::Up { connection, .. } = &mut self.state {
            connection.log_out(&mut self.buffers);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("limits", &self.limits)
            .field("link", &self.link())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
