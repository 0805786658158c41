//! The host's end of one NVMe/RDMA queue pair: command capsules go out, the controller moves data
//! by RDMA, outcomes come back.
//!
//! Read first: NVMe RDMA Transport 1.0, the sections on capsules and data transfer; NVM Express
//! Base 2.0, "SGL Descriptor" (keyed data blocks).
//!
//! Each command with data registers exactly its bytes of the queue's buffers, for one direction,
//! under an unpredictable key of its own. The controller is asked to invalidate the key with the
//! response (remote invalidation). If it does not, the session invalidates the key before it
//! reports the outcome. So late RDMA requests cannot access memory. One key for all buffers would
//! save the registrations, but would let a controller write into buffers that the caller has
//! reused.
//!
//! Flow control by SQHD is not used: never more commands are in flight than the controller's queue
//! takes.
//!
//! No queue pair, no clock: the owner posts what [`HostSession::poll_transmit`] requests through
//! [`HostWork`], and hands in the messages that come.

mod table;

use std::collections::VecDeque;

use session::{HostWork, Reach, RemoteKey};
use zerocopy::{FromBytes, IntoBytes};

use self::table::Table;
use crate::host::{Command, CommandKey, NoRoom, Outcome, Transfer};
use crate::wire::{Cid, Cqe, Invalidate, Sgl, Sqe};

/// One queue's connection, seen from the host.
#[derive(Debug)]
pub struct HostSession {
    config: HostConfig,
    table: Table,
    /// Keys of commands whose capsule has not been posted, in the order of submission.
    pending: VecDeque<u16>,
    state: State,
}

/// The terms of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Keys go from 0 to this less one; at most [`CommandKey::COUNT_MAX`].
    pub keys: u16,
    /// How many commands the controller's queue takes at once: its entries less one.
    pub in_flight_max: u16,
    /// The most data that go inside a command capsule (from IOCCSZ, and only where SGLS allows
    /// offsets into it). Fabrics commands have theirs never there: an admin queue need not take
    /// them.
    pub in_capsule_max_bytes: u32,
    /// How many commands may be posted at once for data of more than [`HostSession::SHORT_BYTES`]
    /// to go inside of capsules; those of more are read by the controller. In software, short
    /// capsules and the data read then leave in long runs of packets of one length, and capsules of
    /// two packets in runs of their own.
    pub in_capsule_batch_max: u16,
}

/// Why a connection has to end: the controller broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A response capsule has another length.
    #[error("the controller sent a message of {len_bytes} bytes; a response has 16")]
    Length {
        /// The message's.
        len_bytes: usize,
    },
    /// There is no such command.
    #[error("the controller completed command {:#06x}, which is not outstanding", cid.0)]
    UnknownCommand {
        /// Its identifier (CID).
        cid: Cid,
    },
    /// It is not the key of the command that is completed.
    #[error("the controller invalidated key {:#x}, which does not belong to command {:#06x}", key.0, cid.0)]
    WrongKey {
        /// The key that was invalidated.
        key: RemoteKey,
        /// The command's identifier (CID).
        cid: Cid,
    },
    /// A message came after the end.
    #[error("the connection has ended")]
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Closed,
}

impl HostSession {
    /// The longest data of a command by a keyed SGL, whose length has 24 bits, in whole pages.
    pub const TRANSFER_MAX_BYTES: u32 = (1 << 24) - 4096;
    /// Data that fit into one packet with their command, whatever the path MTU is in practice.
    pub const SHORT_BYTES: u32 = 1024 - size_of::<Sqe>() as u32;
    /// The length of a response capsule.
    pub const RESPONSE_BYTES: u32 = size_of::<Cqe>() as u32;

    /// A connection that has just been made.
    pub fn new(config: HostConfig) -> Self {
        assert!(
            config.keys <= CommandKey::COUNT_MAX,
            "a queue has at most 4096 keys"
        );
        Self {
            config,
            table: Table::new(config.keys),
            pending: VecDeque::with_capacity(config.keys.into()),
            state: State::Ready,
        }
    }

    /// Takes a command. Panics if `key` is out of range or in flight, or if the data are longer
    /// than [`TRANSFER_MAX_BYTES`](Self::TRANSFER_MAX_BYTES).
    pub fn submit(&mut self, key: CommandKey, command: &Command) -> Result<(), NoRoom> {
        if self.state == State::Closed {
            return Err(NoRoom::Closed);
        }
        if self.room() == 0 {
            return Err(NoRoom::QueueFull);
        }
        self.table.insert(key, command);
        self.pending.push_back(key.0);
        Ok(())
    }

    /// How many more commands fit into the controller's queue.
    pub fn room(&self) -> u16 {
        let in_flight = self.table.in_flight();
        self.config.in_flight_max.saturating_sub(in_flight)
    }

    /// How many commands are in flight or wait to be posted.
    pub fn in_flight(&self) -> u16 {
        self.table.in_flight()
    }

    /// Whether commands wait to be posted.
    pub fn wants_transmit(&self) -> bool {
        self.state == State::Ready && !self.pending.is_empty()
    }

    /// Posts as much as fits of what is to be sent.
    pub fn poll_transmit<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        let in_capsule_max_bytes =
            if self.pending.len() <= usize::from(self.config.in_capsule_batch_max) {
                self.config.in_capsule_max_bytes
            } else {
                self.config.in_capsule_max_bytes.min(Self::SHORT_BYTES)
            };
        while self.wants_transmit() {
            let Some(&key) = self.pending.front() else {
                return;
            };
            if !self.post(key, in_capsule_max_bytes, work) {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// Handles a message and the key that the controller invalidated with it. Appends outcomes to
    /// `done`. If this fails, the connection must be closed.
    pub fn handle_message<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        if self.state == State::Closed {
            return Err(HostError::Closed);
        }
        let result = self.on_response(message, invalidated, work, done);
        if result.is_err() {
            self.state = State::Closed;
        }
        result
    }

    /// Handles the end of the connection: invalidates the remaining keys. No outcome is reported
    /// any more.
    pub fn handle_close<W: HostWork + ?Sized>(&mut self, work: &mut W) {
        self.state = State::Closed;
        for key in self.table.take_keys() {
            work.close(key);
        }
    }

    /// Posts the capsule of a command; whether there was room.
    fn post<W: HostWork + ?Sized>(
        &mut self,
        key: u16,
        in_capsule_max_bytes: u32,
        work: &mut W,
    ) -> bool {
        let (mut sqe, transfer) = self.table.pending(key);
        let in_capsule_max_bytes = if sqe.opcode == Sqe::OPCODE_FABRICS {
            0
        } else {
            in_capsule_max_bytes
        };
        let (range, reach) = match transfer {
            Transfer::ToController(range) if range.len_bytes <= in_capsule_max_bytes => {
                sqe.sgl1 = Sgl::in_capsule(0, range.len_bytes);
                let is_posted = work.send(sqe.as_bytes(), Some(range));
                return is_posted && self.table.activate(key, None);
            }
            Transfer::None => {
                sqe.sgl1 = Sgl::keyed(0, 0, 0, Invalidate::No);
                let is_posted = work.send(sqe.as_bytes(), None);
                return is_posted && self.table.activate(key, None);
            }
            Transfer::ToController(range) => (range, Reach::Read),
            Transfer::ToHost(range) => (range, Reach::Write),
        };
        let Some(open) = work.open(key, range, reach) else {
            return false;
        };
        sqe.sgl1 = Sgl::keyed(open.address, range.len_bytes, open.key.0, Invalidate::Yes);
        if work.send(sqe.as_bytes(), None) {
            return self.table.activate(key, Some(open.key));
        }
        work.close(open.key);
        false
    }

    fn on_response<W: HostWork + ?Sized>(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        work: &mut W,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        let cqe = Cqe::read_from_bytes(message).map_err(|_| HostError::Length {
            len_bytes: message.len(),
        })?;
        let cid = cqe.cid();
        let command = self
            .table
            .find(cid)
            .ok_or(HostError::UnknownCommand { cid })?;
        match (command.open, invalidated) {
            (open, Some(key)) if open != Some(key) => {
                return Err(HostError::WrongKey { key, cid });
            }
            (Some(key), None) => work.close(key),
            _ => {}
        }
        let key = CommandKey::of(cid);
        self.table.remove(key);
        done.push(Outcome {
            key,
            status: cqe.status(),
            result: cqe.result.get(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
