//! A small iSER initiator: it builds messages, and has memory that a target reads and writes.

use std::collections::VecDeque;
use std::time::Instant;

use block::Completion;
use session::testing::{PostedWork, Work};
use session::{MessageSession as _, RemoteBuffer, RemoteKey, Session as _};
use zerocopy::{FromBytes, IntoBytes};

use super::{TestBackend, TestTarget};
use crate::iser::wire::{ControlHeader, Layout, Message, ShortControlHeader, Tag, opcode};
use crate::iser::{PeerError, TargetConfig, TargetSession, accept};
use crate::text::TextBuilder;
use crate::wire::{Bhs, FINAL, NO_TASK_TAG, request};

/// Builds the messages of an initiator.
#[derive(Clone, Debug)]
pub struct IserInitiator {
    /// CmdSN of the next numbered PDU.
    pub cmd_sn: u32,
}

impl Default for IserInitiator {
    fn default() -> Self {
        Self { cmd_sn: 1 }
    }
}

impl IserInitiator {
    /// The login keys of Linux's initiator.
    pub const KEYS: [(&'static str, &'static str); 9] = [
        ("InitiatorName", "iqn.2026-11.com.example:host"),
        ("TargetName", TestTarget::NAME),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "262144"),
        ("InitiatorRecvDataSegmentLength", "262144"),
        ("TargetRecvDataSegmentLength", "262144"),
        ("RDMAExtensions", "Yes"),
    ];

    /// A message: iSER header, PDU.
    pub fn message(
        mut bhs: [u8; 48],
        segment: &[u8],
        write: Option<Tag>,
        read: Option<Tag>,
    ) -> Vec<u8> {
        bhs[5..8].copy_from_slice(&(segment.len() as u32).to_be_bytes()[1..]);
        let mut message = ControlHeader::new(write, read).as_bytes().to_vec();
        message.extend_from_slice(&bhs);
        message.extend_from_slice(segment);
        message
    }

    /// A login in one step, with these keys.
    pub fn login(&self, keys: &[(&str, &str)]) -> Vec<u8> {
        let mut text = TextBuilder::default();
        for (key, value) in keys {
            text.push(key, value);
        }
        let mut bhs = [0; 48];
        bhs[..2].copy_from_slice(&[request::LOGIN | 0x40, 0x87]);
        bhs[13] = 1;
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        Self::message(bhs, &text.into_bytes(), None, None)
    }

    /// A SCSI Command of LUN 0, whose data `write` and `read` name.
    pub fn command(
        &mut self,
        (itt, flags): (u32, u8),
        cdb: &[u8],
        expected_len: u32,
        immediate: &[u8],
        (write, read): (Option<Tag>, Option<Tag>),
    ) -> Vec<u8> {
        let mut bhs = self.numbered(request::SCSI_COMMAND, flags, itt);
        bhs[20..24].copy_from_slice(&expected_len.to_be_bytes());
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        Self::message(bhs, immediate, write, read)
    }

    /// Another numbered PDU without data; `specific` are its bytes 20 to 23.
    pub fn control(&mut self, opcode: u8, byte_1: u8, itt: u32, specific: u32) -> Vec<u8> {
        let mut bhs = self.numbered(opcode, byte_1, itt);
        bhs[20..24].copy_from_slice(&specific.to_be_bytes());
        Self::message(bhs, &[], None, None)
    }

    /// A Data-Out with unsolicited data.
    pub fn data_out(itt: u32, sn: u32, offset: u32, is_final: bool, data: &[u8]) -> Vec<u8> {
        let mut bhs = [0; 48];
        bhs[0] = request::DATA_OUT;
        bhs[1] = if is_final { FINAL } else { 0 };
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[20..24].copy_from_slice(&NO_TASK_TAG.to_be_bytes());
        bhs[36..40].copy_from_slice(&sn.to_be_bytes());
        bhs[40..44].copy_from_slice(&offset.to_be_bytes());
        Self::message(bhs, data, None, None)
    }

    fn numbered(&mut self, opcode: u8, byte_1: u8, itt: u32) -> [u8; 48] {
        let mut bhs = [0; 48];
        bhs[..2].copy_from_slice(&[opcode, byte_1]);
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.cmd_sn = self.cmd_sn.wrapping_add(u32::from(opcode & 0x40 == 0));
        bhs
    }
}

/// A message of [`IserInitiator`] with its header in this layout. Panics if the layout cannot
/// express it: a buffer does not begin at offset 0.
pub fn laid_out(message: &[u8], layout: Layout) -> Vec<u8> {
    if layout == Layout::Expanded {
        return message.to_vec();
    }
    if message[0] >> 4 != opcode::CONTROL {
        return message[..message.len().min(layout.header_len())].to_vec();
    }
    let (header, pdu) = ControlHeader::read_from_prefix(message).expect("a whole header");
    assert_eq!((header.write_base.get(), header.read_base.get()), (0, 0));
    let short = ShortControlHeader {
        flags: header.flags,
        reserved: header.reserved,
        write_stag: header.write_stag,
        read_stag: header.read_stag,
    };
    [short.as_bytes(), pdu].concat()
}

/// A PDU that the target sent.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its header.
    pub bhs: Bhs,
    /// Its data segment.
    pub segment: Vec<u8>,
    /// The key that it invalidated.
    pub invalidated: Option<RemoteKey>,
}

impl Received {
    /// Parses a target's message. Panics if it is not a control-type PDU.
    pub fn parse(message: &[u8], layout: Layout, invalidated: Option<RemoteKey>) -> Self {
        let Ok(Message::Control(header, pdu)) = Message::parse(message, layout) else {
            panic!("targets send control-type PDUs");
        };
        assert_eq!(
            (header.write(), header.read()),
            (None, None),
            "targets name no buffers"
        );
        let (bhs, segment) = Bhs::read_from_prefix(pdu).expect("a whole header");
        assert_eq!(segment.len(), bhs.data_segment_len.get() as usize);
        Self {
            bhs,
            segment: segment.to_vec(),
            invalidated,
        }
    }

    /// Status of a SCSI Response, or Response of a task management or logout response.
    pub fn status(&self) -> (u8, u8) {
        (self.bhs.specific_2[0], self.bhs.specific_2[1])
    }
}

/// A session and its initiator's memory, in one place.
pub struct IserBed {
    /// The session.
    pub session: TargetSession<TestBackend>,
    /// Its backend.
    pub backend: TestBackend,
    /// Its send queue.
    pub posted: PostedWork,
    /// How the initiator lays headers out.
    pub layout: Layout,
    /// The initiator's memory: key, address of its first byte, bytes.
    pub memory: Vec<(u32, u64, Vec<u8>)>,
    /// The PDUs that the target sent.
    pub inbox: VecDeque<Received>,
    /// RDMA READs whose data have not been given to the session: their tags and data.
    pub reads: VecDeque<(u64, Vec<u8>)>,
    /// Reads wait in `reads` until [`finish_read`](Self::finish_read).
    pub holds_reads: bool,
    /// Requests that the initiator's adapter rejected: a connection ends with the first.
    pub refused: Vec<RemoteBuffer>,
    /// Messages that are not PDUs.
    pub others: Vec<Vec<u8>>,
    /// The time.
    pub now: Instant,
}

impl IserBed {
    /// A connection to `target` whose request had this private data.
    pub fn new(target: &TestTarget, private_data: &[u8], config: TargetConfig) -> Self {
        let mut posted = PostedWork::default();
        posted.message_max_bytes = TargetConfig::SEND_LEN_MAX_BYTES;
        Self {
            session: TargetSession::new(accept(private_data).0, config),
            backend: target.backend(),
            posted,
            layout: Layout::Expanded,
            memory: Vec::new(),
            inbox: VecDeque::new(),
            reads: VecDeque::new(),
            holds_reads: false,
            refused: Vec::new(),
            others: Vec::new(),
            now: Instant::now(),
        }
    }

    /// Passes a message of [`IserInitiator`] to the session and carries out the requests that the
    /// session posts.
    pub fn send(&mut self, message: &[u8]) -> Result<(), PeerError> {
        self.send_bytes(&laid_out(message, self.layout))
    }

    /// The same with the bytes of a message.
    pub fn send_bytes(&mut self, message: &[u8]) -> Result<(), PeerError> {
        assert!(
            message.len() <= TargetConfig::RECEIVE_LEN_BYTES as usize,
            "the message fits a receive"
        );
        let (session, backend) = (&mut self.session, &mut self.backend);
        let taken = session.handle_message(self.now, message, None, backend);
        self.run().and(taken)
    }

    /// Carries out requests that the session posts, until it posts no more.
    pub fn run(&mut self) -> Result<(), PeerError> {
        loop {
            let (session, backend) = (&mut self.session, &mut self.backend);
            session.poll_transmit(self.now, backend, &mut self.posted);
            let work = self.posted.take();
            let is_done = work.is_empty();
            for work in work {
                self.carry_out(work);
            }
            if self.holds_reads || self.reads.is_empty() {
                if is_done {
                    return Ok(());
                }
                continue;
            }
            self.finish_read()?;
        }
    }

    /// A volume completes a command that waits for it.
    pub fn complete(&mut self, completion: Completion) {
        let (session, backend) = (&mut self.session, &mut self.backend);
        let taken = session.handle_completion(self.now, completion, backend);
        self.run()
            .and(taken)
            .expect("completions end no connection");
    }

    /// Passes the data of the oldest read to the session.
    pub fn finish_read(&mut self) -> Result<(), PeerError> {
        let Some((tag, data)) = self.reads.pop_front() else {
            return Ok(());
        };
        let (session, backend) = (&mut self.session, &mut self.backend);
        session.handle_read(self.now, tag, &data, backend)
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Write { to, data } => match self.reach(to) {
                Some(room) => room.copy_from_slice(&data),
                None => self.refused.push(to),
            },
            Work::Read { tag, from } => match self.reach(from).map(|bytes| bytes.to_vec()) {
                Some(data) => self.reads.push_back((tag, data)),
                None => self.refused.push(from),
            },
            Work::Send {
                message,
                invalidate,
            } => {
                if let Some(RemoteKey(key)) = invalidate {
                    self.memory.retain(|(other, ..)| *other != key);
                }
                if message[0] >> 4 == 1 {
                    let received = Received::parse(&message, self.layout, invalidate);
                    self.inbox.push_back(received);
                } else {
                    self.others.push(message);
                }
            }
        }
    }

    /// The memory that a request accesses; `None` if it is not the initiator's.
    fn reach(&mut self, buffer: RemoteBuffer) -> Option<&mut [u8]> {
        let RemoteKey(key) = buffer.key;
        let (_, base, bytes) = self.memory.iter_mut().find(|(other, ..)| *other == key)?;
        let offset = usize::try_from(buffer.address.checked_sub(*base)?).ok()?;
        let end = offset.checked_add(buffer.len_bytes as usize)?;
        bytes.get_mut(offset..end)
    }
}
