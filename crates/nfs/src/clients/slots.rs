//! Sessions and their slots: each request of a slot is executed once.
//!
//! Read first: RFC 8881 sections 2.10.6 and 18.46.

use std::net::IpAddr;
use std::time::Instant;

use super::back_channel::BackChannel;
use super::session_id::SessionId;
use super::{Client, Clients, LEASE};
use crate::status4::Status4;
use crate::xdr::Writer;

/// What a channel carries (channel_attrs4), without what only RDMA uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelLimits {
    /// The longest request in bytes.
    pub(crate) request_bytes: u32,
    /// The longest reply in bytes.
    pub(crate) reply_bytes: u32,
    /// The longest reply that is kept, in bytes.
    pub(crate) kept_bytes: u32,
    /// Operations of a compound.
    pub(crate) operations: u32,
    /// Slots.
    pub(crate) requests: u32,
}

/// What CREATE_SESSION returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewSession {
    pub(crate) id: SessionId,
    pub(crate) sequence: u32,
    /// Of the fore channel.
    pub(crate) limits: ChannelLimits,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    limits: ChannelLimits,
    /// Those that were used, at most `limits.requests`.
    slots: Vec<Slot>,
    /// How its client is called, unless the client wants it in no way that is known here.
    back: Option<BackChannel>,
}

/// A slot: the last request that was executed with it.
#[derive(Debug, Default)]
struct Slot {
    sequence: u32,
    /// Of the request, without its SEQUENCE.
    checksum: u32,
    state: SlotState,
    /// The results of a compound, if the client wanted them to be kept.
    reply: Vec<u8>,
}

/// What became of the last request of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    /// There was none, or its reply was not kept.
    #[default]
    NotKept,
    /// A connection is executing it.
    InProgress,
    /// Its reply is kept.
    Kept,
}

/// What SEQUENCE asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest {
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) slot: u32,
    /// sa_cachethis: the reply is to be kept.
    pub(crate) is_kept: bool,
}

/// What is known of a request besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) address: IpAddr,
    /// Its length in bytes.
    pub(crate) len_bytes: usize,
    /// How many operations it has.
    pub(crate) operations: u32,
    /// CRC32C of what follows SEQUENCE, and of the user.
    pub(crate) checksum: u32,
}

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    session: SessionId,
    slot: u32,
}

/// How a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is to be executed, and [finished](Clients::finish).
    New {
        slot: SlotId,
        client: u64,
        limits: ChannelLimits,
        /// sr_status_flags.
        flags: u32,
    },
    /// It was executed, and its results were appended to the output.
    Replied,
    /// It was executed, and its reply was not kept.
    NotKept {
        client: u64,
        limits: ChannelLimits,
        flags: u32,
    },
}

/// The most data of a READ or a WRITE of this version in bytes (maxread and maxwrite). A compound
/// is gathered as a whole before it is executed, so this bounds the memory of a connection.
pub(crate) const TRANSFER_BYTES_MAX: usize = 256 << 10;
/// The longest request and reply: data, and what surrounds them.
pub(crate) const MESSAGE_BYTES_MAX: u32 = TRANSFER_BYTES_MAX as u32 + (8 << 10);
/// The shortest messages that a session is granted: a SEQUENCE and an operation with a file handle
/// fit.
const MESSAGE_BYTES_MIN: u32 = 256;
/// Operations of the shortest compound of a back channel: CB_SEQUENCE and another one.
const BACK_OPERATIONS_MIN: u32 = 2;
/// The longest part of a reply in front of the results of SEQUENCE and with them, in bytes:
/// headers, tag, status.
pub(crate) const HEAD_BYTES_MAX: usize = 28 + 4 + 4 + 4 + 44 + 4;
/// The longest kept reply. That of OPEN with attributes takes some 700 bytes.
const KEPT_BYTES_MAX: u32 = 2048;
/// Operations of a compound.
pub(crate) const OPERATIONS_MAX: u32 = 64;
/// Slots of a session.
const SLOTS_MAX: u32 = 64;
/// Sessions of a client. Linux uses one.
pub(super) const SESSIONS_MAX: usize = 4;

impl ChannelLimits {
    /// What is granted of what a client asks for.
    pub(super) fn granted(&self) -> Result<Self, Status4> {
        if self.request_bytes < MESSAGE_BYTES_MIN || self.reply_bytes < MESSAGE_BYTES_MIN {
            return Err(Status4::TooSmall);
        }
        if self.operations == 0 || self.requests == 0 {
            return Err(Status4::Invalid);
        }
        Ok(Self {
            request_bytes: self.request_bytes.min(MESSAGE_BYTES_MAX),
            reply_bytes: self.reply_bytes.min(MESSAGE_BYTES_MAX),
            kept_bytes: self.kept_bytes.min(KEPT_BYTES_MAX),
            operations: self.operations.min(OPERATIONS_MAX),
            requests: self.requests.min(SLOTS_MAX),
        })
    }

    /// Checks what a client offers for its back channel, which has to carry a recall (section
    /// 18.36.3), whether or not this server uses it.
    pub(super) const fn check_back(&self) -> Result<(), Status4> {
        if self.request_bytes < MESSAGE_BYTES_MIN
            || self.reply_bytes < MESSAGE_BYTES_MIN
            || self.operations < BACK_OPERATIONS_MIN
        {
            return Err(Status4::TooSmall);
        }
        Ok(())
    }
}

impl Session {
    pub(super) const fn new(limits: ChannelLimits, back: Option<BackChannel>) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            back,
        }
    }

    pub(super) const fn back(&self) -> Option<&BackChannel> {
        self.back.as_ref()
    }

    pub(super) const fn back_mut(&mut self) -> Option<&mut BackChannel> {
        self.back.as_mut()
    }

    pub(super) const fn limits(&self) -> ChannelLimits {
        self.limits
    }

    /// What a session with these limits takes, in bytes.
    pub(super) const fn bytes(limits: ChannelLimits) -> usize {
        let slot = size_of::<Slot>() + limits.kept_bytes as usize;
        size_of::<Self>() + limits.requests as usize * slot + BackChannel::BYTES_MAX
    }

    fn begin(
        &mut self,
        asked: &SlotRequest,
        request: &Request,
        flags: u32,
        reply: &mut Writer<'_>,
    ) -> Result<Begun, Status4> {
        let (limits, client) = (self.limits, asked.session.client());
        let slot = self.slot(asked, request)?;
        let is_new = asked.sequence == slot.sequence.wrapping_add(1);
        // A slot that was never used has nothing to repeat.
        let is_repeated = asked.sequence == slot.sequence && slot.sequence != 0;
        match slot.state {
            _ if !is_new && !is_repeated => return Err(Status4::MisorderedSequence),
            SlotState::InProgress => return Err(Status4::Delay),
            _ if is_repeated && slot.checksum != request.checksum => {
                return Err(Status4::FalseRetry);
            }
            SlotState::Kept if is_repeated => {
                reply.raw(&slot.reply);
                return Ok(Begun::Replied);
            }
            SlotState::NotKept if is_repeated => {
                return Ok(Begun::NotKept {
                    client,
                    limits,
                    flags,
                });
            }
            // Not even what every reply begins with can be kept.
            _ if asked.is_kept && (limits.kept_bytes as usize) < HEAD_BYTES_MAX => {
                return Err(Status4::ReplyTooBigToCache);
            }
            SlotState::Kept | SlotState::NotKept => {}
        }
        slot.sequence = asked.sequence;
        slot.checksum = request.checksum;
        slot.state = SlotState::InProgress;
        Ok(Begun::New {
            slot: SlotId {
                session: asked.session,
                slot: asked.slot,
            },
            client,
            limits,
            flags,
        })
    }

    /// The slot of a request that keeps the session's limits.
    fn slot(&mut self, asked: &SlotRequest, request: &Request) -> Result<&mut Slot, Status4> {
        if request.len_bytes > self.limits.request_bytes as usize {
            return Err(Status4::RequestTooBig);
        }
        if request.operations > self.limits.operations {
            return Err(Status4::TooManyOperations);
        }
        if asked.slot >= self.limits.requests {
            return Err(Status4::BadSlot);
        }
        let at = asked.slot as usize;
        if self.slots.len() <= at {
            let missing = self.limits.requests as usize - self.slots.len();
            self.slots.reserve_exact(missing);
            self.slots.resize_with(at + 1, Slot::default);
        }
        Ok(&mut self.slots[at])
    }
}

impl Clients {
    /// The client of a session, which must be used from the client's address.
    pub(super) fn session_owner(
        &mut self,
        address: IpAddr,
        id: SessionId,
    ) -> Result<(&mut Client, u32), Status4> {
        if id.start() != self.start {
            return Err(Status4::BadSession);
        }
        let client = self.clients.get_mut(&id.client());
        let is_own = |client: &&mut Client| {
            client.principal.address == address && client.sessions.contains_key(&id.number())
        };
        let client = client.filter(is_own).ok_or(Status4::BadSession)?;
        Ok((client, id.number()))
    }

    /// Whether a session exists and belongs to this address: BIND_CONN_TO_SESSION.
    pub(crate) fn check_session(&mut self, address: IpAddr, id: SessionId) -> Result<(), Status4> {
        self.session_owner(address, id).map(|_| ())
    }

    /// SEQUENCE: begins a request, and renews the client's lease.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        asked: &SlotRequest,
        request: &Request,
        reply: &mut Writer<'_>,
    ) -> Result<Begun, Status4> {
        self.expire(now);
        let (client, number) = self.session_owner(request.address, asked.session)?;
        client.lease_end = now + LEASE;
        let id = asked.session.client();
        let flags = self.path_flags(id, number) | self.revocation_flags(id);
        let client = self.clients.get_mut(&id);
        let session = client.and_then(|client| client.sessions.get_mut(&number));
        session
            .ok_or(Status4::BadSession)?
            .begin(asked, request, flags, reply)
    }

    /// Ends a request. With `reply` its results are kept. The session may have been destroyed by
    /// the request.
    pub(crate) fn finish(&mut self, id: SlotId, reply: Option<&[u8]>) {
        let SlotId { session, slot } = id;
        let session = self
            .clients
            .get_mut(&session.client())
            .and_then(|client| client.sessions.get_mut(&session.number()));
        let Some(session) = session else {
            return;
        };
        let kept_bytes = session.limits.kept_bytes as usize;
        let Some(slot) = session.slots.get_mut(slot as usize) else {
            return;
        };
        slot.reply.clear();
        slot.state = SlotState::NotKept;
        if let Some(reply) = reply.filter(|reply| reply.len() <= kept_bytes) {
            slot.reply.reserve_exact(reply.len());
            slot.reply.extend_from_slice(reply);
            slot.state = SlotState::Kept;
        }
    }
}
