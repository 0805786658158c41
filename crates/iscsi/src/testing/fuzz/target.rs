//! The target's end: a connection from its first byte on, and one that is logged in, driven by a
//! script.

use std::time::{Duration, Instant};

use block::Admission;
use session::{Session as _, StreamSession as _};
use zerocopy::IntoBytes as _;

use super::{pdus, take, test_target, wire};
use crate::PeerError;
use crate::tcp::TargetSession;
use crate::testing::{TestBackend, TestTarget};
use crate::text::TextBuilder;
use crate::wire::command::ScsiResponse;
use crate::wire::data::{DataIn, R2t, STATUS_PRESENT};
use crate::wire::{Bhs, FINAL, NO_TASK_TAG, request, response};

/// Blocks of the volume.
const BLOCKS: u64 = 256;
/// Bytes of a block.
const BLOCK_BYTES: u32 = 512;
/// Task tags that scripts use.
const TAGS: u8 = 16;
/// The lengths that the initiator declares and offers, in bytes.
const SEGMENT_BYTES_MAX: usize = 4096;
const BURST_BYTES_MAX: u32 = 8192;
const FIRST_BURST_BYTES_MAX: usize = 2048;

/// A connection from its first byte on, whole and in pieces that the first byte chooses.
pub fn connection(input: &[u8]) {
    let Some((&chunk, bytes)) = input.split_first() else {
        return;
    };
    let whole = run_connection(usize::MAX, bytes);
    let cut = run_connection(1 + usize::from(chunk), bytes);
    assert_eq!(whole, cut, "chunking changes what happens");
}

fn run_connection(chunk: usize, bytes: &[u8]) -> (Option<PeerError>, Vec<u8>) {
    let mut backend = test_target(BLOCKS).backend();
    let mut connection = TargetSession::new();
    let now = Instant::now();
    let error = bytes
        .chunks(chunk)
        .find_map(|piece| connection.handle_bytes(now, piece, &mut backend).err());
    let sent = backend.drain(now, &mut connection);
    connection.handle_close(now, &mut backend);
    (error, sent)
}

/// A connection that is logged in, driven by a script of steps: commands with odd fields, data for
/// the received R2Ts, task management, bare bytes, time, and changes of the volume.
pub fn commands(input: &[u8]) {
    let Some(([config, chunk], mut script)) = input.split_first_chunk() else {
        return;
    };
    let mut run = Run::new(*config, *chunk);
    while run.step(&mut script).is_some() {}
    run.connection.handle_close(run.now, &mut run.backend);
}

struct Run {
    target: TestTarget,
    connection: TargetSession<TestBackend>,
    backend: TestBackend,
    now: Instant,
    chunk: usize,
    digests: bool,
    cmd_sn: u32,
    /// R2Ts that have not been answered; their R2TSN counts the Data-Out PDUs of the answer.
    r2ts: Vec<R2t>,
    /// By tag: commands that were sent and have not ended.
    outstanding: [u32; TAGS as usize],
    /// The script has sent something whose effects it does not track.
    is_raw: bool,
}

impl Run {
    fn new(config: u8, chunk: u8) -> Self {
        let target = test_target(BLOCKS);
        let mut run = Self {
            backend: target.backend(),
            target,
            connection: TargetSession::new(),
            now: Instant::now(),
            chunk: match chunk {
                0 => usize::MAX,
                len => usize::from(len),
            },
            digests: false,
            cmd_sn: 1,
            r2ts: Vec::new(),
            outstanding: [0; TAGS as usize],
            is_raw: false,
        };
        run.log_in(config);
        run
    }

    fn log_in(&mut self, config: u8) {
        let yes_no = |bit| if config & bit != 0 { "Yes" } else { "No" };
        let digest = if config & 1 != 0 { "CRC32C" } else { "None" };
        let mut text = TextBuilder::default();
        for (key, value) in [
            ("InitiatorName", "iqn.i"),
            ("TargetName", TestTarget::NAME),
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("InitialR2T", yes_no(2)),
            ("ImmediateData", yes_no(4)),
            ("MaxRecvDataSegmentLength", &SEGMENT_BYTES_MAX.to_string()),
            ("MaxBurstLength", &BURST_BYTES_MAX.to_string()),
            ("FirstBurstLength", &FIRST_BURST_BYTES_MAX.to_string()),
            ("MaxOutstandingR2T", if config & 8 != 0 { "4" } else { "1" }),
        ] {
            text.push(key, value);
        }
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = 0x87;
        header[13] = 1;
        header[27] = 1;
        let login = wire(header, &text.into_bytes(), false);
        let taken = self
            .connection
            .handle_bytes(self.now, &login, &mut self.backend);
        taken.expect("a sensible login");
        let answer = self.backend.drain(self.now, &mut self.connection);
        assert_eq!(answer[36], 0, "the login succeeds");
        self.digests = config & 1 != 0;
    }

    /// Carries out the next step; `None` at the end of the script or of the connection.
    fn step(&mut self, script: &mut &[u8]) -> Option<()> {
        let [step, a, b, c] = take(script)?;
        match step % 8 {
            0..=2 => {
                let fields = take(script)?;
                self.command(step, [a, b, c], fields)
            }
            3 | 4 => self.data_out([step, a, b, c]),
            5 => {
                let len = usize::from(a).min(script.len());
                let (bytes, rest) = script.split_at(len);
                *script = rest;
                self.is_raw = true;
                self.send(bytes)
            }
            6 => self.control([a, b, c]),
            _ => self.change(a, b),
        }
    }

    /// NOP-Out, task management, text, logout, SNACK.
    fn control(&mut self, [a, b, c]: [u8; 3]) -> Option<()> {
        const OPCODES: [u8; 5] = [
            request::NOP_OUT,
            request::TASK_MANAGEMENT,
            request::TEXT,
            request::LOGOUT,
            request::SNACK,
        ];
        let opcode = OPCODES[usize::from(a) % OPCODES.len()];
        let mut header = [0; 48];
        header[0] = opcode | (b & 0x40);
        header[1] = FINAL | (b & 0x0F);
        header[19] = c | 0x80;
        header[20..24].copy_from_slice(&NO_TASK_TAG.to_be_bytes());
        if opcode == request::TASK_MANAGEMENT {
            header[20..24].copy_from_slice(&u32::from(c % TAGS).to_be_bytes());
            // Aborted commands have no response.
            self.is_raw = true;
        }
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.cmd_sn += u32::from(b & 0x40 == 0 && opcode != request::SNACK);
        let segment: &[u8] = match opcode {
            request::TEXT if c & 1 == 0 => b"SendTargets=\0",
            request::NOP_OUT => &[0x55; 40][..usize::from(c % 40)],
            _ => &[],
        };
        let bytes = wire(header, segment, self.digests);
        self.send(&bytes)
    }

    /// A command whose fields are mostly in range.
    fn command(&mut self, step: u8, [a, b, c]: [u8; 3], fields: [u8; 8]) -> Option<()> {
        let [_, _, _, expected, immediate, _, numbering, damage] = fields;
        let (cdb, right, writes) = odd_cdb([b, c], fields);
        let is_immediate = step & 0x40 != 0;
        // One number in 32 is wrong.
        let is_wrong = numbering >= 248;
        let tag = a % TAGS;
        let expected_len = match expected >> 6 {
            0 => right.wrapping_add(u32::from(expected)).wrapping_sub(8),
            _ => right,
        };
        let mut header = [0; 48];
        header[0] = request::SCSI_COMMAND | (step & 0x40);
        header[1] = if b & 0x80 != 0 { 0 } else { FINAL } | if writes { 0x21 } else { 0x41 };
        header[9] = u8::from(damage > 250);
        header[19] = tag;
        header[20..24].copy_from_slice(&expected_len.to_be_bytes());
        header[24..28].copy_from_slice(&(self.cmd_sn + u32::from(is_wrong)).to_be_bytes());
        header[32..].copy_from_slice(&cdb);
        self.cmd_sn += u32::from(!is_wrong && !is_immediate);
        let data = match (writes, immediate & 3) {
            (true, 1) => vec![c; (right as usize).min(FIRST_BURST_BYTES_MAX)],
            (true, 2) => vec![c; usize::from(immediate) * 16],
            _ => Vec::new(),
        };
        self.outstanding[usize::from(tag)] += u32::from(!is_wrong || is_immediate);
        let mut bytes = wire(header, &data, self.digests);
        if damage == 7 {
            *bytes.last_mut()? ^= 1;
        }
        self.send(&bytes)
    }

    /// Answers an R2T, wholly or in part, or sends data that were not requested.
    fn data_out(&mut self, [step, a, b, c]: [u8; 4]) -> Option<()> {
        let index = usize::from(a) % self.r2ts.len().max(1);
        let mut header = [0; 48];
        header[0] = request::DATA_OUT;
        let len = match self.r2ts.get_mut(index) {
            Some(r2t) if step & 0x40 == 0 => {
                let left = r2t.desired_len.get();
                let len = match b {
                    0..=127 => left,
                    _ => left.min(u32::from(b) * 16 + u32::from(c & 3)),
                };
                header[16..20].copy_from_slice(r2t.itt.as_bytes());
                header[20..24].copy_from_slice(r2t.ttt.as_bytes());
                header[36..40].copy_from_slice(r2t.r2t_sn.as_bytes());
                header[40..44].copy_from_slice(r2t.buffer_offset.as_bytes());
                r2t.buffer_offset.set(r2t.buffer_offset.get() + len);
                r2t.desired_len.set(left - len);
                r2t.r2t_sn.set(r2t.r2t_sn.get() + 1);
                if len == left {
                    header[1] = FINAL;
                    self.r2ts.remove(index);
                }
                len
            }
            _ => {
                header[1] = b & FINAL;
                header[19] = a % TAGS;
                header[20..24].copy_from_slice(&NO_TASK_TAG.to_be_bytes());
                header[42] = c & 0x0F;
                u32::from(b) * 16
            }
        };
        let mut bytes = wire(header, &vec![c; len as usize], self.digests);
        if step & 0x80 != 0 {
            *bytes.last_mut()? ^= a;
            self.is_raw = true;
        }
        self.send(&bytes)
    }

    fn change(&mut self, a: u8, b: u8) -> Option<()> {
        let volume = self.target.volume(0);
        match a % 6 {
            0 => volume.resize(u64::from(b) + 1),
            1 => volume.set_read_only(b & 1 == 1),
            2 => {
                let until = self.now + Duration::from_micros(b.into());
                volume.set_admission(Admission::NotBefore(until));
            }
            3 => volume.set_admission(Admission::Now),
            4 => volume.set_failure((b & 1 == 1).then_some(block::Status::CapacityExceeded)),
            _ => self.now += Duration::from_millis(u64::from(b) * 100),
        }
        let woken = self.connection.handle_wake(self.now, &mut self.backend);
        let late = self.connection.handle_timeout(self.now, &mut self.backend);
        self.check(woken.and(late))
    }

    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let taken = bytes.chunks(self.chunk).try_for_each(|piece| {
            self.connection
                .handle_bytes(self.now, piece, &mut self.backend)
        });
        self.check(taken)
    }

    /// Every PDU is well-formed and belongs to a command; each command ends once at most.
    fn check(&mut self, taken: Result<(), PeerError>) -> Option<()> {
        let sent = self.backend.drain(self.now, &mut self.connection);
        for (bhs, data) in pdus(&sent, self.digests) {
            self.check_pdu(&bhs, &data);
        }
        taken.ok()?;
        (!self.connection.is_closing()).then_some(())
    }

    fn check_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        let ended = match bhs.opcode() {
            response::SCSI_RESPONSE => Some(bhs.cast::<ScsiResponse>().itt.get()),
            response::DATA_IN => {
                let header: &DataIn = bhs.cast();
                assert!(data.len() <= SEGMENT_BYTES_MAX, "more than was declared");
                let has_status = header.flags & STATUS_PRESENT != 0;
                assert!(!has_status || bhs.is_final());
                has_status.then(|| header.itt.get())
            }
            response::R2T => {
                let mut r2t: R2t = *bhs.cast();
                assert!((1..=BURST_BYTES_MAX).contains(&r2t.desired_len.get()));
                r2t.r2t_sn.set(0);
                self.r2ts.push(r2t);
                None
            }
            response::NOP_IN
            | response::TASK_MANAGEMENT
            | response::TEXT
            | response::LOGOUT
            | response::ASYNC
            | response::REJECT => None,
            other => panic!("opcode {other:#x} was not expected"),
        };
        let Some(tag) = ended else { return };
        self.r2ts.retain(|r2t| r2t.itt.get() != tag);
        match self.outstanding.get_mut(tag as usize) {
            Some(outstanding) if *outstanding > 0 => *outstanding -= 1,
            _ => assert!(self.is_raw, "ended twice"),
        }
    }
}

/// A CDB, the length of its data in bytes, and whether it writes.
pub(super) fn odd_cdb(more: [u8; 2], fields: [u8; 8]) -> ([u8; 16], u32, bool) {
    const OPCODES: [u8; 16] = [
        0x00, 0x28, 0x2A, 0x88, 0x8A, 0x89, 0x93, 0x42, 0x35, 0x8F, 0x9E, 0xA0, 0x12, 0x5F, 0x1A,
        0x08,
    ];
    let [opcode, lba, blocks, _, _, x, y, _] = fields;
    let opcode = OPCODES[usize::from(opcode) % OPCODES.len()];
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    let len = u32::from(blocks) * BLOCK_BYTES;
    let right = match opcode {
        0x28 | 0x2A => {
            (cdb[5], cdb[8]) = (lba, blocks);
            len
        }
        0x88 | 0x8A | 0x89 | 0x8F | 0x93 => {
            (cdb[9], cdb[13]) = (lba, blocks);
            match opcode {
                0x89 => len * 2,
                0x93 => {
                    cdb[1] = x & 9;
                    BLOCK_BYTES
                }
                0x8F => {
                    cdb[1] = x & 6;
                    len
                }
                _ => len,
            }
        }
        _ => {
            cdb[1..9].copy_from_slice(&[x, y, lba, blocks, more[0], more[1], 0, blocks]);
            u32::from(blocks)
        }
    };
    let writes = matches!(opcode, 0x2A | 0x8A | 0x89 | 0x93 | 0x42 | 0x8F | 0x5F);
    (cdb, right, writes)
}
