//! A queue's session, and requests as commands of it.

use std::time::{Duration, Instant};

use iscsi::initiator::{Abort, Event, Session, SessionError};
use scsi::host::{Attention, CommandFailure, CommandKey, Outcome, ReceivedSense, Setup, io};
use scsi::{Lun, ScsiStatus};
use session::{BufferRange, Buffers, SendList};

use super::TAIL_BYTES;
use crate::connection::{Connection, Core};
use crate::line::{Books, Rescue, Standing};
use crate::{CommandError, Operation, Request};

/// A queue's session.
#[derive(Debug)]
pub(crate) struct IscsiLine {
    pub(crate) connection: Connection<Session>,
    lun: Lun,
    /// The key and the buffer of the line's own commands: the first behind those of the slots.
    own: u16,
    /// By slot: what its command met before it was executed.
    setbacks: Box<[Setbacks]>,
    capacity: Capacity,
    silence: Silence,
}

/// How often in a row a command was not executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Setbacks {
    attentions: u8,
    /// BUSY and TASK SET FULL.
    busy: u8,
}

/// What is known of a target that says nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    heard_pdus: u64,
    /// When it was last seen that something had come.
    since: Option<Instant>,
    /// When it was asked whether it is there.
    pinged: Option<Instant>,
}

/// Whether the capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capacity {
    Known,
    /// It has changed.
    Stale,
    /// It is being read.
    Asked,
    /// It has changed while it was being read.
    AskedAndStale,
}

/// Unit attentions in a row that one command takes: more than there are causes for them.
const ATTENTIONS_MAX: u8 = 32;
/// How often in a row a command is sent again to a target that is busy.
const BUSY_MAX: u8 = 200;
/// The pause before it is; it doubles up to the longest, so that all of them last 25 seconds.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(128);
/// Bytes of READ CAPACITY (16).
const CAPACITY_BYTES: u32 = 32;

impl IscsiLine {
    pub(crate) fn new(connection: Connection<Session>, lun: Lun, depth: u16) -> Self {
        Self {
            connection,
            lun,
            own: depth,
            setbacks: vec![Setbacks::default(); usize::from(depth)].into_boxed_slice(),
            capacity: Capacity::Known,
            silence: Silence::default(),
        }
    }

    #[inline]
    pub(crate) fn start(&mut self, request: &Request, shift: u32, buffers: &mut Buffers) -> bool {
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
        let session = self.connection.session();
        session.submit(CommandKey(slot), &command, buffers).is_ok()
    }

    #[inline]
    pub(crate) fn settle(&mut self, books: &mut Books<'_>) -> Standing {
        let shift = books.shared.geometry().block_size.shift();
        for index in 0..self.connection.outcomes().len() {
            let Outcome { key, result } = self.connection.outcomes()[index];
            let slot = key.0;
            if slot == self.own {
                self.on_capacity(result, books);
                continue;
            }
            let result = match result {
                Ok(moved_bytes) => {
                    self.setbacks[usize::from(slot)] = Setbacks::default();
                    whole(books.slots.request(slot), moved_bytes, shift)
                }
                Err(failure) => match self.repeat(slot, &failure) {
                    Repeat::Now => {
                        books.slots.hold(slot);
                        books.waiting.push_front(slot);
                        continue;
                    }
                    Repeat::After(pause) => {
                        books.slots.hold(slot);
                        books.postponed.push((books.now + pause, slot));
                        continue;
                    }
                    Repeat::No => {
                        self.setbacks[usize::from(slot)] = Setbacks::default();
                        Err(failure)
                    }
                },
            };
            let completion = books.slots.end(slot, result.map_err(CommandError::Scsi));
            books.done.push(completion);
        }
        self.connection.outcomes().clear();
        let standing = self.take_events();
        if self.capacity == Capacity::Stale {
            self.ask_capacity(books.buffers);
        }
        standing
    }

    /// Logs out, so that the target need not find out by a broken connection. Nobody waits for the answer.
    pub(crate) fn take_leave(&mut self, buffers: &mut Buffers) {
        self.connection.session().logout();
        let _ = self.connection.turn(buffers);
    }

    /// The command of `slot` takes too long: it is aborted once.
    pub(crate) fn rescue(&mut self, slot: u16) -> Rescue {
        match self.connection.session().abort(CommandKey(slot)) {
            Abort::Asked => Rescue::Aborting,
            Abort::AskedBefore | Abort::NotInFlight => Rescue::None,
        }
    }

    /// Whether a command was not executed and is to be sent again: it met a unit attention (SAM-5, "Unit attention
    /// conditions"), or a target without room for it (BUSY, TASK SET FULL).
    #[cold]
    fn repeat(&mut self, slot: u16, failure: &CommandFailure) -> Repeat {
        const BUSY: u8 = ScsiStatus::Busy as u8;
        const TASK_SET_FULL: u8 = ScsiStatus::TaskSetFull as u8;
        if let CommandFailure::Status {
            status: BUSY | TASK_SET_FULL,
            ..
        } = failure
        {
            let busy = &mut self.setbacks[usize::from(slot)].busy;
            if *busy == BUSY_MAX {
                return Repeat::No;
            }
            let pause = BUSY_PAUSE_MIN * (1 << (*busy).min(7));
            *busy += 1;
            return Repeat::After(pause.min(BUSY_PAUSE_MAX));
        }
        let Some(attention) = failure.sense().and_then(ReceivedSense::attention) else {
            return Repeat::No;
        };
        self.on_attention(attention);
        let attentions = &mut self.setbacks[usize::from(slot)].attentions;
        if *attentions == ATTENTIONS_MAX {
            return Repeat::No;
        }
        *attentions += 1;
        Repeat::Now
    }

    /// Asks a target that has been silent for a third of `patience` whether it is there. Where it does not answer for as
    /// long as `patience`, the session counts as lost. Time in which nobody looked does not count.
    pub(crate) fn keep_alive(&mut self, now: Instant, patience: Duration) -> Standing {
        let session = self.connection.session();
        let heard_pdus = session.heard_pdus();
        let silence = &mut self.silence;
        if silence.heard_pdus != heard_pdus || silence.since.is_none() {
            *silence = Silence {
                heard_pdus,
                since: Some(now),
                pinged: None,
            };
            return Standing::Good;
        }
        let lasts = |since: Option<Instant>, limit| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        if lasts(silence.pinged, patience) {
            return Standing::Ended;
        }
        if silence.pinged.is_none() && lasts(silence.since, patience / 3) {
            session.ping();
            silence.pinged = Some(now);
        }
        Standing::Good
    }

    fn on_attention(&mut self, attention: Attention) {
        if attention == Attention::Capacity {
            self.capacity = match self.capacity {
                Capacity::Known | Capacity::Stale => Capacity::Stale,
                Capacity::Asked | Capacity::AskedAndStale => Capacity::AskedAndStale,
            };
        }
    }

    fn take_events(&mut self) -> Standing {
        let mut standing = Standing::Good;
        while let Some(event) = self.connection.session().poll_event() {
            match event {
                Event::Sense(sense) => {
                    if let Some(attention) = sense.attention() {
                        self.on_attention(attention);
                    }
                }
                Event::LoggedOut => standing = Standing::Ended,
                // The logout that follows a request for it is answered before the session ends.
                Event::LoggedIn | Event::Targets(_) | Event::LogoutRequested => {}
            }
        }
        standing
    }

    fn ask_capacity(&mut self, buffers: &Buffers) {
        let command = io::read_capacity_16(BufferRange::first(self.own, CAPACITY_BYTES));
        let key = CommandKey(self.own);
        let session = self.connection.session();
        if session.submit(key, &command, buffers).is_ok() {
            self.capacity = Capacity::Asked;
        }
    }

    /// READ CAPACITY has ended.
    fn on_capacity(&mut self, result: Result<u32, CommandFailure>, books: &Books<'_>) {
        let was_stale = self.capacity == Capacity::AskedAndStale;
        self.capacity = if was_stale {
            Capacity::Stale
        } else {
            Capacity::Known
        };
        match result {
            Ok(moved_bytes) => {
                let data = &books.buffers.slot(self.own)[..moved_bytes as usize];
                if let Ok(geometry) = Setup::capacity(self.lun, data)
                    && geometry.block_size == books.shared.geometry().block_size
                {
                    books.shared.set_blocks(geometry.blocks);
                }
            }
            // It met an attention of its own: once more.
            Err(failure) if failure.sense().is_some_and(|it| it.attention().is_some()) => {
                self.capacity = Capacity::Stale;
            }
            // The next change tells of itself again.
            Err(_) => {}
        }
    }
}

/// Whether a command that has failed is sent again.
enum Repeat {
    No,
    Now,
    After(Duration),
}

/// GOOD means success where all data were transferred.
#[inline]
fn whole(request: &Request, moved_bytes: u32, shift: u32) -> Result<(), CommandFailure> {
    let len_bytes = match request.operation {
        Operation::Read | Operation::Write | Operation::Compare => request.extent.blocks.0 << shift,
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

impl Core for Session {
    type Outcome = Outcome;
    type Error = SessionError;

    fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        self.handle_bytes(input, buffers, done)
    }

    fn direct(&self) -> Option<BufferRange> {
        self.direct()
    }

    fn handle_placed(
        &mut self,
        len_bytes: u32,
        buffers: &Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), SessionError> {
        self.handle_placed(len_bytes, buffers, done)
    }

    fn expects_bulk(&self) -> bool {
        self.expects_bulk()
    }

    fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.poll_transmit(buffers, out);
    }

    fn wants_transmit(&self) -> bool {
        self.wants_transmit()
    }

    fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.handle_sent(len_bytes, done);
    }
}
