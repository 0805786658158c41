//! The host's end: a session with a controller whose PDUs are determined by the input, and the
//! reader of discovery logs.

use block::{Blocks, Extent, Lba};
use session::{Segment, SendList};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::take;
use crate::host::{
    BufferRange, Buffers, Command, CommandKey, LogReader, LogStep, Outcome, Transfer, io,
};
use crate::tcp::wire::{
    CapsuleResp, CommonHeader, DataPdu, Dgst, Digest, HLEN_MAX_BYTES, IcResp, Layout, Pda,
    PduFlags, PduType, R2t, Receiver,
};
use crate::tcp::{HostConfig, HostError, HostSession};
use crate::wire::log::GetLogPage;
use crate::wire::{Cid, Cqe, Nsid, Status};

const KEYS: u16 = 6;
/// Lengths of the commands by key: even keys read, odd ones write.
const LENS: [u32; KEYS as usize] = [512, 512, 20_480, 20_480, 65_536, 12_288];
const SLOT_BYTES: usize = 65_536;
const MAXH2CDATA: u32 = 8192;

/// A host session that receives everything at once, and one that receives the same bytes in pieces,
/// partly in place: both must behave alike. The input determines digests, alignment, the length of
/// pieces, and the controller's PDUs.
pub fn host_session(input: &[u8]) {
    let Some(([terms, chunk], script)) = input.split_first_chunk() else {
        return;
    };
    let dgst = Dgst(terms & 3);
    let cpda = Pda(terms >> 3);
    let mut whole = Fixture::new(dgst, usize::MAX);
    let mut pieces = Fixture::new(dgst, 1 + usize::from(*chunk));
    let mut controller = Controller::new(dgst);
    let hello = IcResp::new(cpda, dgst, MAXH2CDATA);
    let mut bytes = hello.as_bytes().to_vec();
    let mut script = script;
    for fixture in [&mut whole, &mut pieces] {
        fixture.layout = Layout { dgst, pda: cpda };
        fixture.emit();
    }
    loop {
        let ended = whole.feed(&bytes);
        assert_eq!(ended, pieces.feed(&bytes), "pieces change what happens");
        assert_eq!(whole.done, pieces.done, "pieces change outcomes");
        whole.check_done();
        pieces.check_done();
        let sent = whole.emit();
        assert_eq!(sent, pieces.emit(), "pieces change what is sent");
        for slot in 0..KEYS {
            assert_eq!(whole.buffers.slot(slot), pieces.buffers.slot(slot));
        }
        if ended.is_some() {
            assert!(whole.session.is_closing());
            return;
        }
        controller.learn(&sent, whole.layout);
        match controller.next(&mut script) {
            Some(next) => bytes = next,
            None => return,
        }
    }
}

struct Fixture {
    session: HostSession,
    buffers: Buffers,
    done: Vec<Outcome>,
    in_flight: [bool; KEYS as usize],
    list: SendList,
    layout: Layout,
    piece_bytes: usize,
    is_greeted: bool,
}

impl Fixture {
    fn new(dgst: Dgst, piece_bytes: usize) -> Self {
        Self {
            session: HostSession::new(HostConfig {
                dgst,
                keys: KEYS,
                in_flight_max: KEYS,
                in_capsule_max_bytes: 8192,
            }),
            buffers: Buffers::new(KEYS, SLOT_BYTES),
            done: Vec::new(),
            in_flight: [false; KEYS as usize],
            list: SendList::with_capacity(64 * 1024),
            layout: Layout::default(),
            piece_bytes,
            is_greeted: false,
        }
    }

    /// Submits a command for every key that has none.
    fn submit(&mut self) {
        for key in 0..KEYS {
            if self.in_flight[usize::from(key)] {
                continue;
            }
            let command = command(key);
            let submitted = self
                .session
                .submit(CommandKey(key), &command, &self.buffers);
            self.in_flight[usize::from(key)] = submitted.is_ok();
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Option<HostError> {
        self.done.clear();
        let mut rest = bytes;
        while !rest.is_empty() {
            let place = self
                .session
                .direct()
                .filter(|_| self.piece_bytes < usize::MAX);
            let len = rest.len().min(self.piece_bytes);
            let len = place.map_or(len, |place| len.min(place.len_bytes as usize));
            let (piece, tail) = rest.split_at(len);
            rest = tail;
            if let Some(place) = place {
                let len_bytes = len as u32;
                let part = BufferRange { len_bytes, ..place };
                self.buffers.range_mut(part).copy_from_slice(piece);
                self.session
                    .handle_placed(len_bytes, &self.buffers, &mut self.done);
            } else if let Err(error) =
                self.session
                    .handle_bytes(piece, &mut self.buffers, &mut self.done)
            {
                return Some(error);
            }
        }
        None
    }

    /// Each command ends once.
    fn check_done(&mut self) {
        for outcome in &self.done {
            let in_flight = &mut self.in_flight[usize::from(outcome.key.0)];
            assert!(*in_flight, "a command ended twice");
            *in_flight = false;
        }
    }

    /// The bytes that the session sends, after new commands have replaced those that have ended.
    fn emit(&mut self) -> Vec<u8> {
        if self.is_greeted {
            self.submit();
        }
        self.is_greeted = true;
        let mut bytes = Vec::new();
        while self.session.wants_transmit() {
            self.session.poll_transmit(&self.buffers, &mut self.list);
            for segment in self.list.segments() {
                bytes.extend_from_slice(match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Place(place) => self.buffers.at(place.range.offset, place.range.len),
                });
            }
            let len = self.list.len_bytes();
            assert!(len > 0, "wants_transmit was true");
            self.list.consume(len);
            let before = self.done.len();
            self.session.handle_sent(len, &mut self.done);
            assert_eq!(
                before,
                self.done.len(),
                "all that was emitted had been sent"
            );
        }
        bytes
    }
}

fn command(key: u16) -> Command {
    let len_bytes = LENS[usize::from(key)];
    let extent = Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512));
    let data = BufferRange::first(key, len_bytes);
    if key.is_multiple_of(2) {
        io::read(Nsid(1), extent, data)
    } else {
        io::write(Nsid(1), extent, data)
    }
}

/// The host's commands as the controller sees them, so that most of its PDUs are valid.
struct Controller {
    layout: Layout,
    cids: [u16; KEYS as usize],
    /// The progress of each command's data that the controller has sent.
    offsets: [u32; KEYS as usize],
}

impl Controller {
    fn new(dgst: Dgst) -> Self {
        Self {
            layout: Layout { dgst, pda: Pda(0) },
            cids: [0; KEYS as usize],
            offsets: [0; KEYS as usize],
        }
    }

    /// Receives PDUs of the host, which must be well-formed.
    fn learn(&mut self, mut sent: &[u8], layout: Layout) {
        while let Ok((ch, _)) = CommonHeader::read_from_prefix(sent) {
            let shape = ch
                .shape(Receiver::Controller, layout)
                .expect("the host keeps to the protocol");
            if shape.pdu_type == PduType::CapsuleCmd {
                let cid = u16::from_le_bytes([sent[10], sent[11]]);
                let key = usize::from(cid % CommandKey::COUNT_MAX);
                self.cids[key] = cid;
                self.offsets[key] = 0;
            }
            sent = &sent[shape.plen_bytes()..];
        }
        assert!(sent.is_empty(), "whole PDUs");
    }

    /// The next PDU to send.
    fn next(&mut self, script: &mut &[u8]) -> Option<Vec<u8>> {
        let [step, key, a, b] = take(script)?;
        let index = usize::from(key % KEYS as u8);
        // One key in 32 is wrong, and one field in 16 of the others.
        let cid = self.cids[index] ^ if key >= 248 { 0x1000 } else { 0 };
        let odd = if step >= 240 { u32::from(a) << 4 } else { 0 };
        let offset = self.offsets[index];
        let left = LENS[index].saturating_sub(offset);
        let len = match a & 3 {
            0 => left,
            _ => (u32::from(b) + 1) * 64,
        }
        .min(left);
        let mut bytes = match step % 8 {
            0..=3 => self.data(cid, offset ^ odd, len, b, index),
            4 | 5 => self.r2t(cid, offset ^ odd, len, b, index),
            6 => self.response(cid, a),
            _ => {
                let len = usize::from(a).min(script.len());
                let (raw, rest) = script.split_at(len);
                *script = rest;
                raw.to_vec()
            }
        };
        if step & 0x78 == 0x78 {
            let at = usize::from(b) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at.min(HLEN_MAX_BYTES)) {
                *byte ^= a;
            }
        }
        Some(bytes)
    }

    fn data(&mut self, cid: u16, datao: u32, len: u32, b: u8, index: usize) -> Vec<u8> {
        let is_last = self.offsets[index] + len == LENS[index];
        self.offsets[index] += len;
        let flags = match b & 3 {
            _ if !is_last => PduFlags::NONE,
            0 => PduFlags::LAST,
            1 => PduFlags::SUCCESS,
            _ => PduFlags::LAST | PduFlags::SUCCESS,
        };
        let pdu = DataPdu {
            ch: self.layout.common_header(PduType::C2hData, flags, len),
            cccid: U16::new(cid),
            ttag: U16::ZERO,
            datao: U32::new(datao),
            datal: U32::new(len),
            reserved: [0; 4],
        };
        let data = vec![b; len as usize];
        let mut bytes = self.with_digest(pdu.as_bytes());
        bytes.extend_from_slice(&data);
        if self.layout.dgst.data() && len > 0 {
            // One data digest in 64 is wrong.
            let digest = Digest::of(&data).to_wire();
            bytes.extend(digest.map(|byte| byte ^ u8::from(b % 64 == 63)));
        }
        bytes
    }

    fn r2t(&mut self, cid: u16, r2to: u32, len: u32, b: u8, index: usize) -> Vec<u8> {
        self.offsets[index] += len;
        let pdu = R2t {
            ch: self.layout.common_header(PduType::R2t, PduFlags::NONE, 0),
            cccid: U16::new(cid),
            ttag: U16::new(b.into()),
            r2to: U32::new(r2to),
            r2tl: U32::new(len),
            reserved: [0; 4],
        };
        self.with_digest(pdu.as_bytes())
    }

    fn response(&self, cid: u16, a: u8) -> Vec<u8> {
        let status = Status::from_field(u16::from(a & 7) * 0x81);
        let pdu = CapsuleResp {
            ch: self
                .layout
                .common_header(PduType::CapsuleResp, PduFlags::NONE, 0),
            cqe: zerocopy::transmute!(Cqe::new(Cid(cid), status, 0)),
        };
        self.with_digest(pdu.as_bytes())
    }

    fn with_digest(&self, header: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.layout.dgst.header() {
            bytes.extend_from_slice(&Digest::of(header).to_wire());
        }
        bytes
    }
}

/// A discovery log that changes: its bytes are the input, from an offset that grows by the first
/// byte with each read.
pub fn discovery_log(input: &[u8]) {
    const BUFFER_BYTES: usize = 4096;
    const OK: Outcome = Outcome {
        key: CommandKey(0),
        status: Status::SUCCESS,
        result: 0,
    };
    let Some((&drift, log)) = input.split_first() else {
        return;
    };
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    let mut reads = 0u64;
    while let LogStep::Submit(command) = reader.poll() {
        let get = GetLogPage::parse(&command.sqe);
        let Transfer::ToHost(range) = command.transfer else {
            panic!("a log comes to the host");
        };
        assert_eq!(u64::from(range.len_bytes), get.len_bytes);
        assert!(range.len_bytes as usize <= BUFFER_BYTES);
        let mut buffer = [0; BUFFER_BYTES];
        let at = (get.offset_bytes + reads * u64::from(drift / 128)) as usize;
        let from = log.get(at..).unwrap_or_default();
        let len = from.len().min(get.len_bytes as usize);
        buffer[..len].copy_from_slice(&from[..len]);
        if reader.handle_outcome(&OK, &buffer).is_err() {
            return;
        }
        reads += 1;
        let reads_max = (LogReader::ENTRIES_MAX + 2) * u64::from(LogReader::RESTARTS_MAX + 1);
        assert!(reads <= reads_max, "reading a log ends");
    }
    for entry in reader.into_entries() {
        let _ = (entry.address(), entry.service(), entry.subsystem_nqn.name());
    }
}
