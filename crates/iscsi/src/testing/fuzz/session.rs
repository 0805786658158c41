//! The initiator's end: a session with a target whose PDUs are determined by the input.

use block::{Blocks, Extent, Lba};
use scsi::host::{CommandKey, Outcome, io};
use session::{BufferRange, Buffers, Segment, SendList};
use zerocopy::IntoBytes as _;
use zerocopy::big_endian::U32;

use super::{authentication, pdus, take, wire};
use crate::initiator::{Session, SessionConfig, SessionError};
use crate::params::Digest;
use crate::testing::TestTarget;
use crate::text::TextBuilder;
use crate::wire::command::ScsiCommand;
use crate::wire::{FINAL, NO_TASK_TAG, request, response};

const KEYS: u16 = 6;
/// Lengths of the commands by key: even keys read, odd ones write.
const LENS: [u32; KEYS as usize] = [512, 512, 20_480, 20_480, 65_536, 12_288];
const SLOT_BYTES: usize = 65_536;

fn config(digests: bool) -> SessionConfig {
    let digest = if digests {
        Digest::Crc32c
    } else {
        Digest::None
    };
    SessionConfig {
        initiator: "iqn.i".into(),
        target: Some(TestTarget::NAME.into()),
        lun: 0,
        isid: [0x80, 0, 0, 0, 0, 0],
        credentials: None,
        target_credentials: None,
        challenge: [3; 17],
        header_digest: digest,
        data_digest: digest,
        keys: KEYS,
    }
}

/// Login Responses whose flags, status and texts are the input, to an initiator with or without
/// CHAP.
pub fn login_answers(input: &[u8]) {
    let Some((&kind, mut script)) = input.split_first() else {
        return;
    };
    let mut config = config(kind & 4 != 0);
    if kind & 1 != 0 {
        let known = authentication();
        config.credentials = known.initiator;
        config.target_credentials = known.target.filter(|_| kind & 2 != 0);
    }
    let is_mutual = config.target_credentials.is_some();
    let mut fixture = Fixture::new(&config, 1 + usize::from(kind >> 3));
    fixture.emit();
    while let Some([flags, class, len]) = take(&mut script) {
        let (text, rest) = script.split_at(script.len().min(len.into()));
        script = rest;
        let bytes = login_response(flags, class, text);
        if fixture.feed(&bytes).is_some() {
            assert!(fixture.session.is_closing());
            return;
        }
        if fixture.session.is_logged_in() {
            assert!(!is_mutual, "the input cannot know what proves a target");
            return;
        }
        let sent = fixture.emit();
        assert!(!sent.is_empty(), "each response is answered");
        assert_eq!(sent[0], 0x43);
    }
}

fn login_response(flags: u8, class: u8, text: &[u8]) -> Vec<u8> {
    let mut header = [0; 48];
    header[0] = response::LOGIN;
    header[1] = flags;
    header[16..20].copy_from_slice(&0xFF01u32.to_be_bytes());
    header[31] = 1;
    header[35] = 8;
    header[36] = class & 3;
    wire(header, text, false)
}

/// A session that receives everything at once, and one that receives the same bytes in pieces,
/// partly in place: both must behave alike. The input determines digests, negotiated values, the
/// length of pieces, and the target's PDUs.
pub fn session(input: &[u8]) {
    let Some(([terms, chunk], mut script)) = input.split_first_chunk() else {
        return;
    };
    let digests = terms & 1 != 0;
    let mut whole = Fixture::new(&config(digests), usize::MAX);
    let mut pieces = Fixture::new(&config(digests), 1 + usize::from(*chunk));
    for fixture in [&mut whole, &mut pieces] {
        fixture.log_in(*terms);
    }
    let mut target = Target::new(digests);
    let mut bytes = Vec::new();
    loop {
        let ended = whole.feed(&bytes);
        assert_eq!(ended, pieces.feed(&bytes), "pieces change what happens");
        assert_eq!(whole.done, pieces.done, "pieces change outcomes");
        whole.check_done();
        pieces.check_done();
        if ended.is_some() || whole.session.is_closing() {
            assert!(whole.session.is_closing() && pieces.session.is_closing());
            return;
        }
        let sent = whole.emit();
        assert_eq!(sent, pieces.emit(), "pieces change what is sent");
        for slot in 0..KEYS {
            assert_eq!(whole.buffers.slot(slot), pieces.buffers.slot(slot));
        }
        target.learn(&sent);
        match target.next(&mut script) {
            Some(next) => bytes = next,
            None => return,
        }
    }
}

struct Fixture {
    session: Session,
    buffers: Buffers,
    done: Vec<Outcome>,
    in_flight: [bool; KEYS as usize],
    list: SendList,
    piece_bytes: usize,
}

impl Fixture {
    fn new(config: &SessionConfig, piece_bytes: usize) -> Self {
        Self {
            session: Session::new(config).expect("a sensible configuration"),
            buffers: Buffers::new(KEYS, SLOT_BYTES),
            done: Vec::new(),
            in_flight: [false; KEYS as usize],
            list: SendList::with_capacity(64 * 1024),
            piece_bytes,
        }
    }

    fn log_in(&mut self, terms: u8) {
        let yes_no = |bit| if terms & bit != 0 { "Yes" } else { "No" };
        let digest = if terms & 1 != 0 { "CRC32C" } else { "None" };
        let mut text = TextBuilder::default();
        for (key, value) in [
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("InitialR2T", yes_no(2)),
            ("ImmediateData", yes_no(4)),
            (
                "MaxRecvDataSegmentLength",
                if terms & 8 != 0 { "512" } else { "8192" },
            ),
            ("FirstBurstLength", "4096"),
            ("MaxBurstLength", "16384"),
            ("MaxOutstandingR2T", if terms & 16 != 0 { "4" } else { "1" }),
        ] {
            text.push(key, value);
        }
        self.emit();
        let security = login_response(0x81, 0, b"AuthMethod=None\0");
        let operational = login_response(0x87, 0, &text.into_bytes());
        for bytes in [security, operational] {
            assert_eq!(self.feed(&bytes), None);
            self.emit();
        }
        assert!(self.session.is_logged_in());
    }

    /// Submits a command for every key that has none.
    fn submit(&mut self) {
        for key in 0..KEYS {
            if self.in_flight[usize::from(key)] {
                continue;
            }
            let len_bytes = LENS[usize::from(key)];
            let extent = Extent::new(Lba(0), Blocks(u64::from(len_bytes) / 512));
            let data = BufferRange::first(key, len_bytes);
            let command = if key % 2 == 0 {
                io::read(extent, data)
            } else {
                io::write(extent, data)
            };
            let taken = self
                .session
                .submit(CommandKey(key), &command, &self.buffers);
            self.in_flight[usize::from(key)] = taken.is_ok();
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Option<SessionError> {
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
            let taken = match place {
                Some(place) => {
                    let len_bytes = len as u32;
                    let part = BufferRange { len_bytes, ..place };
                    self.buffers.range_mut(part).copy_from_slice(piece);
                    self.session
                        .handle_placed(len_bytes, &self.buffers, &mut self.done)
                }
                None => self
                    .session
                    .handle_bytes(piece, &mut self.buffers, &mut self.done),
            };
            if let Err(error) = taken {
                return Some(error);
            }
        }
        None
    }

    /// Each command ends once, and no read is longer than requested.
    fn check_done(&mut self) {
        for outcome in &self.done {
            let key = usize::from(outcome.key.0);
            assert!(self.in_flight[key], "a command ended twice");
            self.in_flight[key] = false;
            assert!(outcome.result.is_err() || outcome.result.is_ok_and(|len| len <= LENS[key]));
        }
    }

    /// The bytes that the session sends, after new commands have replaced those that have ended.
    fn emit(&mut self) -> Vec<u8> {
        if self.session.is_logged_in() {
            self.submit();
        }
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
        while self.session.poll_event().is_some() {}
        bytes
    }
}

/// The initiator's commands as the target sees them, so that most of its PDUs are valid.
struct Target {
    digests: bool,
    tags: [u32; KEYS as usize],
    /// The progress of each command's data, and the number of its PDUs.
    offsets: [u32; KEYS as usize],
    numbers: [u32; KEYS as usize],
    cmd_sn: u32,
}

impl Target {
    fn new(digests: bool) -> Self {
        Self {
            digests,
            tags: [0; KEYS as usize],
            offsets: [0; KEYS as usize],
            numbers: [0; KEYS as usize],
            cmd_sn: 0,
        }
    }

    /// Receives PDUs of the initiator, which must be well-formed and inside of the window.
    fn learn(&mut self, sent: &[u8]) {
        for (bhs, data) in pdus(sent, self.digests) {
            let key = usize::from(bhs.itt.get() as u16);
            match bhs.opcode() {
                request::SCSI_COMMAND => {
                    let command: &ScsiCommand = bhs.cast();
                    assert_eq!(command.expected_len.get(), LENS[key]);
                    self.tags[key] = command.itt.get();
                    self.offsets[key] = data.len() as u32;
                    self.numbers[key] = 0;
                    self.cmd_sn = command.cmd_sn.get();
                }
                // Unsolicited data advance the offset.
                request::DATA_OUT if bhs.specific_20[..4] == NO_TASK_TAG.to_be_bytes() => {
                    self.offsets[key] += data.len() as u32;
                }
                request::DATA_OUT | request::NOP_OUT | request::LOGOUT | request::TEXT => {}
                other => panic!("opcode {other:#x} was not expected"),
            }
        }
    }

    /// The next PDU to send.
    fn next(&mut self, script: &mut &[u8]) -> Option<Vec<u8>> {
        let [step, key, a, b] = take(script)?;
        let index = usize::from(key % KEYS as u8);
        // One key in 32 is wrong, and one field in 16 of the others.
        let tag = self.tags[index] ^ if key >= 248 { 0x1_0000 } else { 0 };
        let odd = if step >= 240 { u32::from(a) << 4 } else { 0 };
        let left = LENS[index].saturating_sub(self.offsets[index]);
        let len = match a & 3 {
            0 => left,
            _ => (u32::from(b) + 1) * 64,
        }
        .min(left);
        let mut header = [0; 48];
        header[1] = FINAL;
        header[16..20].copy_from_slice(U32::new(tag).as_bytes());
        header[28..32].copy_from_slice(U32::new(self.cmd_sn + 1).as_bytes());
        // Sometimes the window is closed.
        let window = if a == 77 { 0 } else { 32 };
        header[32..36].copy_from_slice(U32::new(self.cmd_sn + window).as_bytes());
        let segment = match step % 8 {
            0..=2 => self.data_in(&mut header, index, odd, len, b),
            3 => {
                header[0] = response::R2T;
                header[23] = b;
                self.number(&mut header, index, odd);
                let len = len.min(16_384);
                header[44..48].copy_from_slice(U32::new(len).as_bytes());
                self.offsets[index] += len;
                Vec::new()
            }
            4 => {
                header[0] = response::SCSI_RESPONSE;
                header[1] |= a & 6;
                header[2] = u8::from(b == 99);
                header[3] = [0, 2, 8, 0x18][usize::from(a & 3)];
                header[47] = b;
                match a & 3 {
                    1 => vec![0, 18, 0x70, 0, a >> 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, b, a],
                    _ => Vec::new(),
                }
            }
            5 => other(&mut header, a, b),
            6 => {
                let len = usize::from(a).min(script.len());
                let (raw, rest) = script.split_at(len);
                *script = rest;
                return Some(raw.to_vec());
            }
            _ => Vec::new(),
        };
        if step & 0x78 == 0x78 {
            header[usize::from(b) % 48] ^= a;
        }
        let mut bytes = wire(header, &segment, self.digests);
        if step & 0x80 != 0 && b == 255 {
            *bytes.last_mut()? ^= 1;
        }
        Some(bytes)
    }

    fn data_in(
        &mut self,
        header: &mut [u8; 48],
        index: usize,
        odd: u32,
        len: u32,
        b: u8,
    ) -> Vec<u8> {
        header[0] = response::DATA_IN;
        header[20..24].copy_from_slice(&NO_TASK_TAG.to_be_bytes());
        self.number(header, index, odd);
        let is_last = self.offsets[index] + len == LENS[index];
        self.offsets[index] += len;
        header[1] = match b & 3 {
            0 => 0,
            1 => FINAL,
            _ if is_last => FINAL | 1,
            _ => 0,
        };
        vec![b; len as usize]
    }

    /// DataSN or R2TSN, and Buffer Offset.
    fn number(&mut self, header: &mut [u8; 48], index: usize, odd: u32) {
        header[36..40].copy_from_slice(U32::new(self.numbers[index]).as_bytes());
        header[40..44].copy_from_slice(U32::new(self.offsets[index] ^ odd).as_bytes());
        self.numbers[index] += 1;
    }
}

/// PDUs that do not belong to a command.
fn other(header: &mut [u8; 48], a: u8, b: u8) -> Vec<u8> {
    header[16..24].fill(0xFF);
    match a % 6 {
        0 => {
            header[0] = response::NOP_IN;
            header[23] = b;
        }
        1 => {
            header[0] = response::ASYNC;
            header[36] = b % 5;
            return vec![0, 14, 0x70, 0, 6, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x2A, 9];
        }
        2 => {
            header[0] = response::REJECT;
            header[2] = b % 13;
            let mut rejected = vec![0; 48];
            rejected[0] = a & 0x03;
            rejected[19] = b % KEYS as u8;
            return rejected;
        }
        3 => {
            header[0] = response::LOGOUT;
            header[16..20].copy_from_slice(&0xFF03u32.to_be_bytes());
        }
        4 => {
            header[0] = response::TASK_MANAGEMENT;
            header[16..20].copy_from_slice(&[0, 0, 0x80, b % KEYS as u8]);
        }
        _ => {
            header[0] = response::TEXT;
            return b"TargetName=iqn.a\0".to_vec();
        }
    }
    Vec::new()
}
