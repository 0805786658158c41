//! The host's end of one NVMe/TCP connection: commands go out, data are put where they belong,
//! outcomes come back.
//!
//! Read first: NVMe/TCP 1.1, the sections on connection establishment, data transfer and error
//! handling.
//!
//! ```text
//!              ICResp, terms accepted                    C2HTermReq, violation
//!  AwaitIcResp ──────────────────────► Ready ───────────────────────────────────► Closed
//!       └────────── C2HTermReq, violation, digests refused ─────────────────────────►
//! ```
//!
//! No socket, no clock: the owner gives what was received to [`HostSession::handle_bytes`] and
//! sends what [`HostSession::poll_transmit`] puts into a [`SendList`], whose placements are offsets
//! into the queue's [`Buffers`].

mod inbound;
mod outbound;
mod table;

use std::collections::VecDeque;

use session::{SendList, SourceId};

use self::inbound::Inbound;
use self::outbound::{Answer, PreparedTermReq};
use self::table::{Held, Table};
use super::wire::{Dgst, Fes, Layout, Violation};
use crate::host::{BufferRange, Buffers, Command, CommandKey, NoRoom, Outcome};

/// One queue's connection, seen from the host.
#[derive(Debug)]
pub struct HostSession {
    config: HostConfig,
    state: State,
    /// How PDUs to the controller are laid out, and the most data of one H2CData.
    to_controller: Layout,
    h2c_data_max_bytes: u32,
    /// How PDUs to the host are laid out.
    to_host: Layout,
    table: Table,
    /// Keys of commands whose capsule has not been emitted, in the order of submission.
    pending: VecDeque<u16>,
    /// R2Ts to answer, in the order of arrival.
    answers: VecDeque<Answer>,
    inbound: Inbound,
    hello: Hello,
    term_req: Option<PreparedTermReq>,
    /// Bytes that were put into the send list, and bytes that the owner has sent, since the
    /// connection began.
    emitted_bytes: u64,
    sent_bytes: u64,
    /// Outcomes of commands whose data are still in the send list.
    held: VecDeque<Held>,
}

/// The terms of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The digests to ask for.
    pub dgst: Dgst,
    /// Keys go from 0 to this less one; at most [`CommandKey::COUNT_MAX`].
    pub keys: u16,
    /// How many commands the controller's queue takes at once: its entries less one.
    pub in_flight_max: u16,
    /// The most data that go inside a command capsule (from IOCCSZ); Fabrics commands have a limit
    /// of their own.
    pub in_capsule_max_bytes: u32,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The controller broke the protocol; a terminate connection request with the reason is to be
    /// sent.
    #[error(
        "the controller sent a PDU of type {pdu_type:#04x} that breaks the protocol: {violation}"
    )]
    Violation {
        /// The PDU's type (PDU-Type).
        pdu_type: u8,
        /// What is wrong.
        violation: Violation,
    },
    /// The controller terminates the connection.
    #[error(
        "the controller terminated the connection: fatal error status {fes:#x}, information {fei:#x}"
    )]
    Terminated {
        /// Fatal error status (FES).
        fes: u16,
        /// Fatal error information (FEI).
        fei: u32,
    },
    /// The controller does not use the requested digests.
    #[error("digests {:#x} were requested, but the controller uses {:#x}; change hdgst and ddgst", asked.0, used.0)]
    Digests {
        /// The requested digests (DGST).
        asked: Dgst,
        /// The digests that the controller uses.
        used: Dgst,
    },
    /// Bytes came after the end.
    #[error("the connection has ended")]
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitIcResp,
    Ready,
    Closed,
}

/// Whether ICReq has been emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hello {
    Due,
    Emitted,
}

impl HostSession {
    /// The most R2Ts outstanding for one command that the host takes (MAXR2T), 1's based.
    pub const R2TS_MAX: u8 = 4;
    /// The source of every placement: the queue's buffers.
    pub const SOURCE: SourceId = SourceId(0);
    /// Reads from this length on are worth being received in place.
    pub const BULK_MIN_BYTES: u32 = 16 * 1024;

    /// A connection that has just been made; ICReq is the first thing to be sent.
    pub fn new(config: HostConfig) -> Self {
        assert!(
            config.keys <= CommandKey::COUNT_MAX,
            "a queue has at most 4096 keys"
        );
        let keys = usize::from(config.keys);
        Self {
            config,
            state: State::AwaitIcResp,
            to_controller: Layout::default(),
            h2c_data_max_bytes: 0,
            to_host: Layout::default(),
            table: Table::new(config.keys),
            pending: VecDeque::with_capacity(keys),
            answers: VecDeque::with_capacity(keys),
            inbound: Inbound::default(),
            hello: Hello::Due,
            term_req: None,
            emitted_bytes: 0,
            sent_bytes: 0,
            held: VecDeque::new(),
        }
    }

    /// Takes a command; it is emitted when the connection is ready. Panics if `key` is out of range
    /// or in flight, or if the command's data lie outside of `buffers`.
    pub fn submit(
        &mut self,
        key: CommandKey,
        command: &Command,
        buffers: &Buffers,
    ) -> Result<(), NoRoom> {
        if self.state == State::Closed {
            return Err(NoRoom::Closed);
        }
        if self.table.in_flight() >= self.config.in_flight_max {
            return Err(NoRoom::QueueFull);
        }
        self.table
            .insert(key, command, self.config.in_capsule_max_bytes, buffers);
        self.pending.push_back(key.0);
        Ok(())
    }

    /// How many more commands fit into the controller's queue.
    pub fn room(&self) -> u16 {
        self.config
            .in_flight_max
            .saturating_sub(self.table.in_flight())
    }

    /// Handles all of `input`, in any chunking. Puts data into `buffers` and appends outcomes to
    /// `done`. If this fails, the next output of [`poll_transmit`](Self::poll_transmit) is the
    /// last, and the connection must be closed after it.
    pub fn handle_bytes(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        done: &mut Vec<Outcome>,
    ) -> Result<(), HostError> {
        let mut rest = input;
        while !rest.is_empty() {
            if self.state == State::Closed {
                return Err(HostError::Closed);
            }
            rest = if self.inbound.in_payload() {
                self.on_payload(rest, buffers, done)
            } else {
                self.on_header_bytes(rest, done)?
            };
        }
        Ok(())
    }

    /// Where the next received bytes belong, as long as they are data of a long read: the owner
    /// receives at most that many bytes there, then calls [`handle_placed`](Self::handle_placed).
    pub fn direct(&self) -> Option<BufferRange> {
        self.inbound.direct()
    }

    /// `len_bytes` bytes have been received into the start of what [`direct`](Self::direct) gave.
    pub fn handle_placed(&mut self, len_bytes: u32, buffers: &Buffers, done: &mut Vec<Outcome>) {
        self.on_placed(len_bytes, buffers, done);
    }

    /// Whether most of what will arrive are data of long reads, so that little should be received
    /// at once that is not in place.
    pub fn expects_bulk(&self) -> bool {
        self.table.expects_bulk()
    }

    /// Adds pending output to `out`, as much as fits.
    pub fn poll_transmit(&mut self, buffers: &Buffers, out: &mut SendList) {
        self.emit(buffers, out);
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would add anything to an empty list.
    pub fn wants_transmit(&self) -> bool {
        self.hello == Hello::Due
            || self.term_req.is_some()
            || (self.state == State::Ready && !(self.pending.is_empty() && self.answers.is_empty()))
    }

    /// `len_bytes` more bytes of the list have been sent.
    pub fn handle_sent(&mut self, len_bytes: u64, done: &mut Vec<Outcome>) {
        self.sent_bytes += len_bytes;
        while let Some(held) = self.held.front() {
            if held.until_bytes > self.sent_bytes {
                break;
            }
            done.push(held.outcome);
            self.held.pop_front();
        }
    }

    /// Whether the connection is to be closed once everything has been sent.
    pub fn is_closing(&self) -> bool {
        self.state == State::Closed
    }

    /// How many commands are in flight or wait to be emitted.
    pub fn in_flight(&self) -> u16 {
        self.table.in_flight()
    }

    /// The PDU whose header is `header` breaks the protocol: reports that to the controller and to
    /// the caller.
    fn violated(&mut self, header: &[u8], violation: Violation) -> HostError {
        self.state = State::Closed;
        self.term_req = Some(PreparedTermReq::new(violation, header));
        HostError::Violation {
            pdu_type: header.first().copied().unwrap_or_default(),
            violation,
        }
    }

    /// Ends a command. Its outcome waits if its data are still in the send list, since the caller
    /// may use the buffer again as soon as it has the outcome.
    fn end(&mut self, key: u16, outcome: Outcome, done: &mut Vec<Outcome>) {
        let ended = self.table.remove(key);
        if ended.has_open_r2ts {
            self.answers.retain(|answer| answer.key != key);
        }
        if ended.placed_until_bytes > self.sent_bytes {
            self.held.push_back(Held {
                until_bytes: ended.placed_until_bytes,
                outcome,
            });
        } else {
            done.push(outcome);
        }
    }
}

const fn invalid_field(offset: u32) -> Violation {
    Violation {
        fes: Fes::InvalidPduHeaderField,
        fei: offset,
    }
}

#[cfg(test)]
mod tests;
