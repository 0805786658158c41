//! An initiator's messages, and a channel between it and a target.

use std::collections::VecDeque;
use std::time::Instant;

use block::Completion;
use session::testing::{PostedWork, Work};
use session::{MessageSession as _, RemoteBuffer, RemoteKey, Session as _};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::TestBackend;
use crate::target::{TargetConfig, TargetSession, accept};
use crate::wire::{
    ChannelFlags, Command, CreditRequest, CreditResponse, Descriptor, Direction, IndirectTable,
    Login, ManagementRequest, PortId, ResponseHeader, Violation, opcode,
};

/// Where immediate data begin in a message: as Linux's initiator places them.
const IMMEDIATE_OFFSET: u16 = 68;

/// A login as Linux's initiator sends it, with immediate data.
pub fn login(initiator: PortId, target: PortId) -> Login {
    Login {
        tag: [0; 8],
        formats: U16::new(0x0006),
        flags: ChannelFlags::IMMEDIATE,
        opcode: opcode::LOGIN_REQ,
        request_len_bytes: U32::new(8260),
        initiator,
        target,
        immediate_offset: U16::new(IMMEDIATE_OFFSET),
        reserved: [0; 6],
    }
}

/// How a command names its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By one descriptor.
    Direct,
    /// By a table, of which the message holds this many descriptors.
    Indirect {
        /// Where the whole table is.
        table: RemoteBuffer,
        /// Descriptors in the message.
        listed: u8,
    },
    /// They are in the message.
    Immediate,
}

/// An SRP_CMD of LUN 0 without data.
fn header(tag: u64, cdb: &[u8]) -> Command {
    let mut command = Command::new_zeroed();
    command.opcode = opcode::CMD;
    command.tag = tag.to_ne_bytes();
    command.cdb[..cdb.len()].copy_from_slice(cdb);
    command
}

/// An SRP_CMD of LUN 0. Its data are in `buffers`, or are `immediate`.
pub fn command(
    tag: u64,
    cdb: &[u8],
    data: Option<(Direction, Form)>,
    buffers: &[RemoteBuffer],
    immediate: &[u8],
) -> Vec<u8> {
    let mut command = header(tag, cdb);
    let Some((direction, form)) = data else {
        return command.as_bytes().to_vec();
    };
    let (format, rest) = match form {
        Form::Direct => (1, Descriptor::of(buffers[0]).as_bytes().to_vec()),
        Form::Immediate => {
            let mut rest = (immediate.len() as u32).to_be_bytes().to_vec();
            rest.resize(usize::from(IMMEDIATE_OFFSET) - size_of::<Command>(), 0);
            rest.extend_from_slice(immediate);
            (3, rest)
        }
        Form::Indirect { table, listed } => {
            let lens = buffers.iter().map(|buffer| buffer.len_bytes);
            let header = IndirectTable {
                table: Descriptor::of(table),
                len_bytes: U32::new(lens.fold(0, u32::wrapping_add)),
            };
            let mut rest = header.as_bytes().to_vec();
            for buffer in buffers.iter().take(listed.into()) {
                rest.extend_from_slice(Descriptor::of(*buffer).as_bytes());
            }
            match direction {
                Direction::In => command.data_in_descriptors = listed,
                Direction::Out => command.data_out_descriptors = listed,
            }
            (2, rest)
        }
    };
    command.formats = match direction {
        Direction::In => format,
        Direction::Out => format << 4,
    };
    [command.as_bytes(), &rest].concat()
}

/// An SRP_TSK_MGMT of LUN 0.
pub fn management(tag: u64, function: u8, task: u64) -> Vec<u8> {
    let mut request = ManagementRequest::new_zeroed();
    request.opcode = opcode::TSK_MGMT;
    request.tag = tag.to_ne_bytes();
    request.function = function;
    request.task_tag = task.to_ne_bytes();
    request.as_bytes().to_vec()
}

/// An SRP_RSP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its fixed part.
    pub header: ResponseHeader,
    /// Response data or sense data.
    pub data: Vec<u8>,
}

impl Answer {
    /// The request's tag.
    pub fn tag(&self) -> u64 {
        u64::from_ne_bytes(self.header.tag)
    }

    /// Sense key, and additional sense code with its qualifier.
    pub fn sense(&self) -> Option<(u8, u16)> {
        let is_valid = self.header.flags & ResponseHeader::SENSE_VALID != 0;
        is_valid.then(|| {
            let code = u16::from_be_bytes([self.data[12], self.data[13]]);
            (self.data[2] & 0x0F, code)
        })
    }
}

/// A channel, and an initiator's memory, which the target reads and writes. What the target posts
/// is carried out in order.
pub struct SrpBed {
    /// The target's end.
    pub target: TargetSession<TestBackend>,
    /// What the target's end uses.
    pub backend: TestBackend,
    /// The initiator's memory.
    pub memory: Vec<u8>,
    /// RDMA READs stay outstanding.
    pub holds_reads: bool,
    /// The bounds of the send queue.
    pub posted: PostedWork,
    outstanding: VecDeque<(u64, RemoteBuffer)>,
    answers: Vec<Answer>,
    /// Whether the target has logged the channel out.
    pub is_logged_out: bool,
    /// How many requests the initiator may still send.
    pub credits: u32,
    /// How many SRP_CRED_REQ the target has sent.
    pub credit_requests: u32,
    /// The time.
    pub now: Instant,
}

impl SrpBed {
    /// The key of the memory.
    pub const KEY: RemoteKey = RemoteKey(0x1234);
    /// The address of the memory.
    pub const ADDRESS: u64 = 0x1_0000;

    /// An open channel, with `memory_bytes` bytes of memory.
    ///
    /// # Panics
    /// If the login is rejected.
    pub fn new(mut backend: TestBackend, memory_bytes: usize) -> Self {
        let config = TargetConfig {
            requests_max: 8,
            ..TargetConfig::default()
        };
        let accepted = accept(&login(PortId([1; 16]), PortId([2; 16])), config);
        let accepted = accepted.expect("a login like Linux's");
        let response = accepted.response(None);
        backend.clear_attention();
        Self {
            target: TargetSession::new(&accepted, &mut backend),
            backend,
            memory: vec![0; memory_bytes],
            holds_reads: false,
            posted: PostedWork::default(),
            outstanding: VecDeque::new(),
            answers: Vec::new(),
            is_logged_out: false,
            credits: response.request_limit.get(),
            credit_requests: 0,
            now: Instant::now(),
        }
    }

    /// A part of the memory.
    pub fn buffer(offset: u64, len_bytes: u32) -> RemoteBuffer {
        RemoteBuffer {
            address: Self::ADDRESS + offset,
            key: Self::KEY,
            len_bytes,
        }
    }

    /// Sends a message to the target.
    ///
    /// # Errors
    /// If it ends the channel.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Violation> {
        self.credits = self.credits.wrapping_sub(1);
        self.target
            .handle_message(self.now, message, None, &mut self.backend)
    }

    /// Carries everything out that is to be done now, and returns the answers.
    ///
    /// # Errors
    /// If something ends the channel.
    pub fn run(&mut self) -> Result<Vec<Answer>, Violation> {
        loop {
            if self.backend.take_wake() {
                self.target.handle_wake(self.now, &mut self.backend)?;
            }
            if self
                .target
                .poll_timeout()
                .is_some_and(|due| due <= self.now)
            {
                self.target.handle_timeout(self.now, &mut self.backend)?;
            }
            if self.target.wants_transmit() {
                self.target
                    .poll_transmit(self.now, &mut self.backend, &mut self.posted);
            }
            let work = self.posted.take();
            let is_idle = work.is_empty();
            for one in work {
                self.carry_out(one)?;
            }
            if !self.holds_reads && !self.outstanding.is_empty() {
                self.finish_read()?;
            } else if is_idle && !self.has_more() {
                return Ok(std::mem::take(&mut self.answers));
            }
        }
    }

    fn has_more(&self) -> bool {
        self.target
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
    }

    /// RDMA READs that are outstanding.
    pub fn reads(&self) -> usize {
        self.outstanding.len()
    }

    /// The oldest RDMA READ is done.
    ///
    /// # Errors
    /// If it ends the channel.
    pub fn finish_read(&mut self) -> Result<(), Violation> {
        let Some((tag, from)) = self.outstanding.pop_front() else {
            return Ok(());
        };
        let data = self.memory[Self::range(from)].to_vec();
        self.target
            .handle_read(self.now, tag, &data, &mut self.backend)
    }

    /// A volume has answered.
    ///
    /// # Errors
    /// If it ends the channel.
    pub fn complete(&mut self, completion: Completion) -> Result<(), Violation> {
        self.target
            .handle_completion(self.now, completion, &mut self.backend)
    }

    fn range(buffer: RemoteBuffer) -> std::ops::Range<usize> {
        assert_eq!(
            buffer.key,
            Self::KEY,
            "the target uses the keys that it got"
        );
        let start = buffer.address - Self::ADDRESS;
        start as usize..(start + u64::from(buffer.len_bytes)) as usize
    }

    fn carry_out(&mut self, work: Work) -> Result<(), Violation> {
        match work {
            Work::Write { to, data } => self.memory[Self::range(to)].copy_from_slice(&data),
            Work::Read { tag, from } => self.outstanding.push_back((tag, from)),
            Work::Send { message, .. } if message[0] == opcode::T_LOGOUT => {
                self.is_logged_out = true;
            }
            Work::Send { message, .. } if message[0] == opcode::CRED_REQ => {
                let request = CreditRequest::read_from_bytes(&message).expect("a whole request");
                self.credits += request.request_limit_delta.get();
                self.credit_requests += 1;
                let mut response = CreditResponse::new_zeroed();
                (response.opcode, response.tag) = (opcode::CRED_RSP, request.tag);
                let (now, backend) = (self.now, &mut self.backend);
                self.target
                    .handle_message(now, response.as_bytes(), None, backend)?;
            }
            Work::Send { message, .. } => {
                let (header, data) =
                    ResponseHeader::read_from_prefix(&message).expect("a whole response");
                assert_eq!(header.opcode, opcode::RSP);
                self.credits += header.request_limit_delta.get();
                self.answers.push(Answer {
                    header,
                    data: data.to_vec(),
                });
            }
        }
        Ok(())
    }
}
