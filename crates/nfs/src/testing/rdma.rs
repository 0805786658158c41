//! A client of one session over a queue pair, and the headers that it sends and receives.

use std::collections::VecDeque;
use std::time::Instant;

use ::session::testing::{PostedWork, Work};
use ::session::{MessageSession, RemoteBuffer, Session};
use zerocopy::IntoBytes;

use super::TestServer;
use crate::rdma::wire::{FixedHeader, PrivateData, Segment, procedure};
use crate::rdma::{RdmaSession, SessionError, accept};
use crate::xdr::{Malformed, Reader, Writer};

/// A header of RPC-over-RDMA, with any values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaHeader {
    /// The transaction identifier.
    pub xid: u32,
    /// The version.
    pub version: u32,
    /// What the message is.
    pub procedure: u32,
    /// Credits.
    pub credits: u32,
    /// The read list: positions and segments.
    pub reads: Vec<(u32, Segment)>,
    /// The write list.
    pub writes: Vec<Vec<Segment>>,
    /// The reply chunk.
    pub reply: Option<Vec<Segment>>,
    /// Of an error: its code, and the lowest and highest version, if it has them.
    pub error: Vec<u32>,
}

impl RdmaHeader {
    /// The header of a call that follows it.
    pub fn message(xid: u32) -> Self {
        Self {
            xid,
            version: 1,
            procedure: procedure::MSG,
            credits: 32,
            ..Self::default()
        }
    }

    /// The header of a call that is in these segments.
    pub fn long(xid: u32, call: &[Segment]) -> Self {
        Self {
            procedure: procedure::NOMSG,
            reads: call.iter().map(|segment| (0, *segment)).collect(),
            ..Self::message(xid)
        }
    }

    /// The message that this header and `body` are.
    pub fn encode(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.view(&FixedHeader {
            xid: self.xid.into(),
            version: self.version.into(),
            credits: self.credits.into(),
            procedure: self.procedure.into(),
        });
        for (position, segment) in &self.reads {
            out.bool(true);
            out.u32(*position);
            out.view(segment);
        }
        out.bool(false);
        for chunk in &self.writes {
            out.bool(true);
            write_chunk(chunk, &mut out);
        }
        out.bool(false);
        out.bool(self.reply.is_some());
        if let Some(chunk) = &self.reply {
            write_chunk(chunk, &mut out);
        }
        out.raw(body);
        bytes
    }

    /// A message of a server, and what follows its header. Panics if it is malformed.
    pub fn decode(message: &[u8]) -> (Self, Vec<u8>) {
        Self::try_decode(message)
            .unwrap_or_else(|Malformed| panic!("a malformed header: {message:?}"))
    }

    fn try_decode(message: &[u8]) -> Result<(Self, Vec<u8>), Malformed> {
        let mut reader = Reader::new(message);
        let fixed: &FixedHeader = reader.view()?;
        let mut header = Self {
            xid: fixed.xid.get(),
            version: fixed.version.get(),
            credits: fixed.credits.get(),
            procedure: fixed.procedure.get(),
            ..Self::default()
        };
        if header.procedure == procedure::ERROR {
            while !reader.rest().is_empty() {
                header.error.push(reader.u32()?);
            }
            return Ok((header, Vec::new()));
        }
        while reader.bool()? {
            header.reads.push((reader.u32()?, *reader.view()?));
        }
        while reader.bool()? {
            header.writes.push(read_chunk(&mut reader)?);
        }
        if reader.bool()? {
            header.reply = Some(read_chunk(&mut reader)?);
        }
        Ok((header, reader.rest().to_vec()))
    }
}

fn write_chunk(chunk: &[Segment], out: &mut Writer<'_>) {
    out.u32(chunk.len() as u32);
    for segment in chunk {
        out.view(segment);
    }
}

fn read_chunk(reader: &mut Reader<'_>) -> Result<Vec<Segment>, Malformed> {
    let len = reader.u32()?;
    (0..len).map(|_| reader.view().copied()).collect()
}

/// A client on one connection.
pub struct RdmaPeer {
    session: RdmaSession<TestServer>,
    /// The send queue of the session.
    pub posted: PostedWork,
    /// Memory that the session may access: by its key less 1.
    memory: Vec<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    /// Keys that messages have invalidated.
    pub invalidated: Vec<u32>,
    /// The private data of the reply to the connection request.
    pub private_data: [u8; 8],
    /// The session has accessed what is not the client's memory, so the queue pair has failed.
    pub has_failed: bool,
    /// Bytes of RDMA WRITEs.
    pub written_bytes: usize,
    /// The present instant.
    pub now: Instant,
}

/// The address of the first byte of each memory.
const BASE: u64 = 0x7000_0000;

impl RdmaPeer {
    /// A client as Linux's: messages of 4096 bytes, and remote invalidation.
    pub fn new() -> Self {
        Self::with(PrivateData::new(4096, true).as_bytes())
    }

    /// A client that connects with these private data.
    pub fn with(private_data: &[u8]) -> Self {
        let now = Instant::now();
        let accepted = accept(now, private_data);
        let inline = PrivateData::parse(private_data).map_or(1024, PrivateData::receive_bytes);
        let mut posted = PostedWork::default();
        posted.message_max_bytes = inline.min(4096);
        Self {
            session: accepted.session,
            posted,
            memory: Vec::new(),
            received: VecDeque::new(),
            invalidated: Vec::new(),
            private_data: accepted.private_data,
            has_failed: false,
            written_bytes: 0,
            now,
        }
    }

    /// Registers memory. Returns the segment that is all of it.
    pub fn register(&mut self, bytes: &[u8]) -> Segment {
        self.memory.push(bytes.to_vec());
        Segment {
            handle: (self.memory.len() as u32).into(),
            len_bytes: (bytes.len() as u32).into(),
            offset: BASE.into(),
        }
    }

    /// The memory that a segment is all of.
    pub fn memory(&self, segment: Segment) -> &[u8] {
        &self.memory[segment.handle.get() as usize - 1]
    }

    /// Sends a message without letting the session work.
    pub fn send_only(
        &mut self,
        server: &mut TestServer,
        message: &[u8],
    ) -> Result<(), SessionError> {
        self.session.handle_message(self.now, message, None, server)
    }

    /// Sends a message, and lets the session work until it has nothing to do.
    pub fn send(&mut self, server: &mut TestServer, message: &[u8]) {
        self.send_only(server, message).expect("within the credits");
        self.work(server);
    }

    /// Lets the session work until it has nothing to do.
    pub fn work(&mut self, server: &mut TestServer) {
        while self.session.wants_transmit() && !self.has_failed {
            self.session
                .poll_transmit(self.now, server, &mut self.posted);
            let work = self.posted.take();
            assert!(
                !work.is_empty() || !self.session.wants_transmit(),
                "the session is stuck"
            );
            for work in work {
                self.carry_out(work, server);
            }
        }
    }

    /// Executes the calls that wait, in their order, and lets the session work.
    pub fn finish_waiting(&mut self, server: &mut TestServer) {
        while !server.waiting.is_empty() {
            server.finish(0);
        }
        self.wake(server);
    }

    /// Wakes the session, and lets it work until it has nothing to do.
    pub fn wake(&mut self, server: &mut TestServer) {
        let woken = self.session.handle_wake(self.now, server);
        woken.expect("a wake has no error");
        self.work(server);
    }

    fn carry_out(&mut self, work: Work, server: &mut TestServer) {
        match work {
            Work::Write { to, data } => {
                self.written_bytes += data.len();
                match self.at(to) {
                    Some(memory) => memory.copy_from_slice(&data),
                    None => self.has_failed = true,
                }
            }
            Work::Read { tag, from } => {
                let Some(data) = self.at(from).map(|memory| memory.to_vec()) else {
                    self.has_failed = true;
                    return;
                };
                let handled = self.session.handle_read(self.now, tag, &data, server);
                handled.expect("it was asked for");
            }
            Work::Send {
                message,
                invalidate,
            } => {
                self.received.push_back(message);
                self.invalidated.extend(invalidate.map(|key| key.0));
            }
        }
    }

    fn at(&mut self, buffer: RemoteBuffer) -> Option<&mut [u8]> {
        let memory = self
            .memory
            .get_mut((buffer.key.0 as usize).checked_sub(1)?)?;
        let start = usize::try_from(buffer.address.checked_sub(BASE)?).ok()?;
        memory.get_mut(start..start.checked_add(buffer.len_bytes as usize)?)
    }

    /// The next message that was received: its header, and what follows.
    pub fn receive(&mut self) -> Option<(RdmaHeader, Vec<u8>)> {
        let message = self.received.pop_front()?;
        Some(RdmaHeader::decode(&message))
    }

    /// Whether no call is in progress.
    pub fn is_idle(&self) -> bool {
        self.session.is_idle()
    }
}

impl Default for RdmaPeer {
    fn default() -> Self {
        Self::new()
    }
}
