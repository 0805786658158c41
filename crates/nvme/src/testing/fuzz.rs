//! The functions of fuzz targets. `cargo test` runs the same functions over the corpora.

mod auth;
mod host;
mod rdma;
mod rdma_host;

use std::sync::Arc;
use std::time::Duration;

use block::{Admission, BlockSize};
use session::Session;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::peer::{Chunks, Pdu, Peer};
use super::{VecVolume, io_peer, subsystem};
use crate::controller::Limits;
use crate::tcp::wire::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataPdu, Dgst, Fes, IcReq, IcResp, Layout, Pda,
    PduFlags, PduType, R2t, Receiver, TermReq,
};
use crate::tcp::{ControllerConfig, SessionError};
use crate::wire::{Cid, Cqe, Nsid, Sgl, Sqe};

pub use auth::auth_messages;
pub use host::{discovery_log, host_session};
pub use rdma::rdma_session;
pub use rdma_host::rdma_host_session;

/// Blocks of the volume.
const BLOCKS: u64 = 256;
/// Command identifiers that scripts use.
const CIDS: u8 = 16;
/// Entries of the queue.
const ENTRIES: u16 = 8;

/// Every PDU parser: digests and alignment from the first two bytes, a PDU from the rest.
pub fn pdu(input: &[u8]) {
    let Some(([dgst, pda], bytes)) = input.split_first_chunk() else {
        return;
    };
    let layout = Layout {
        dgst: Dgst(*dgst),
        pda: Pda(*pda % 32),
    };
    let Ok((ch, _)) = CommonHeader::read_from_prefix(bytes) else {
        return;
    };
    for receiver in [Receiver::Controller, Receiver::Host] {
        match ch.shape(receiver, layout) {
            Ok(shape) => {
                assert_eq!(shape.plen_bytes(), ch.plen.get() as usize);
                assert!(shape.header_bytes <= shape.data_offset_bytes);
                assert_eq!(shape.pdu_type as u8, ch.pdu_type);
                header(shape.pdu_type, bytes);
            }
            Err(violation) => assert_eq!(violation.fes, Fes::InvalidPduHeaderField),
        }
    }
}

/// A whole header is written back as it was read.
fn header(pdu_type: PduType, bytes: &[u8]) {
    fn same<T>(bytes: &[u8]) -> Option<T>
    where
        T: FromBytes + IntoBytes + zerocopy::Immutable,
    {
        let (pdu, _) = T::read_from_prefix(bytes).ok()?;
        assert_eq!(pdu.as_bytes(), &bytes[..size_of::<T>()]);
        Some(pdu)
    }
    match pdu_type {
        PduType::IcReq => {
            if let Some(icreq) = same::<IcReq>(bytes) {
                assert!(icreq.r2ts_max() >= 1 && icreq.hpda.bytes() >= 4);
            }
        }
        PduType::IcResp => {
            same::<IcResp>(bytes);
        }
        PduType::H2cTermReq | PduType::C2hTermReq => {
            if let Some(term) = same::<TermReq>(bytes) {
                let known = Fes::from_u16(term.fes.get());
                assert!(known.is_none_or(|fes| fes as u16 == term.fes.get()));
            }
        }
        PduType::CapsuleCmd => {
            if let Some(capsule) = same::<CapsuleCmd>(bytes) {
                let sqe: Sqe = zerocopy::transmute!(capsule.sqe);
                let _ = (sqe.fuse(), sqe.psdt(), sqe.sgl1.kind());
            }
        }
        PduType::CapsuleResp => {
            if let Some(response) = same::<CapsuleResp>(bytes) {
                let cqe: Cqe = zerocopy::transmute!(response.cqe);
                let _ = (cqe.status().to_string(), cqe.dw0());
            }
        }
        PduType::H2cData | PduType::C2hData => {
            same::<DataPdu>(bytes);
        }
        PduType::R2t => {
            same::<R2t>(bytes);
        }
    }
}

/// A connection from its first byte on, in chunks that the first byte chooses.
pub fn session(input: &[u8]) {
    let Some((&chunk, bytes)) = input.split_first() else {
        return;
    };
    let whole = run_session(Chunks::Whole, bytes);
    let cut = run_session(Chunks::Of(1 + usize::from(chunk)), bytes);
    assert_eq!(whole, cut, "chunking changes what happens");
}

fn run_session(chunks: Chunks, bytes: &[u8]) -> (Option<SessionError>, Vec<u8>) {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let subsystem = subsystem(Limits::default(), &[volume]);
    let mut peer = Peer::new(ControllerConfig::default(), subsystem, 1);
    peer.chunks = chunks;
    let error = peer.feed(bytes).err();
    peer.drain();
    peer.session.handle_close(peer.now, &mut peer.backend);
    (error, peer.received().to_vec())
}

/// A connected I/O queue, driven by a script of steps: commands with odd fields, data for received
/// R2Ts, bare bytes, time, and changes of the volume.
pub fn queue(input: &[u8]) {
    let Some(([config, chunk], script)) = input.split_first_chunk() else {
        return;
    };
    let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let target = ControllerConfig {
        r2t_max_bytes: 4096 << (config & 3),
        place_min_bytes: 2048,
        ..ControllerConfig::default()
    };
    let (_, admin) = io_peer(target, &[Arc::clone(&volume)], ENTRIES);
    let mut io = Peer::new(target, admin.backend.subsystem(), 3);
    io.initialize(
        Pda(config >> 4),
        Dgst(config >> 2 & 3),
        1 + u32::from(*chunk & 3),
    );
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = io.connect(2, controller.controller.0, ENTRIES);
    assert!(cqe.status().is_success());
    io.chunks = match chunk >> 2 {
        0 => Chunks::Whole,
        len => Chunks::Of(usize::from(len)),
    };
    let mut run = Run {
        io,
        volume,
        r2ts: Vec::new(),
        outstanding: [0; CIDS as usize],
        is_raw: false,
    };
    let mut script = script;
    while run.step(&mut script).is_some() {}
    run.io.session.handle_close(run.io.now, &mut run.io.backend);
}

struct Run {
    io: Peer,
    volume: Arc<VecVolume>,
    /// R2Ts that have not been answered.
    r2ts: Vec<DataPdu>,
    /// Commands by identifier that were sent and not completed.
    outstanding: [u32; CIDS as usize],
    /// Bare bytes were sent, which may have been commands that the script does not track.
    is_raw: bool,
}

impl Run {
    /// Carries out the next step; `None` at the end of the script or of the connection.
    fn step(&mut self, script: &mut &[u8]) -> Option<()> {
        let [step, a, b, c] = take(script)?;
        match step % 8 {
            0..=2 => {
                let sqe = odd_command([step, a, b, c], take(script)?);
                let data = vec![c; capsule_len(&sqe, a)];
                self.outstanding[usize::from(sqe.cid().0)] += 1;
                let bytes = self.io.capsule(&sqe, &data);
                self.send(&bytes)
            }
            3 | 4 => self.answer([step, a, b, c]),
            5 => {
                let len = usize::from(a).min(script.len());
                let (bytes, rest) = script.split_at(len);
                *script = rest;
                self.is_raw = true;
                self.send(bytes)
            }
            6 => {
                let by = Duration::from_micros(u64::from(a));
                let result = self.io.advance(by);
                self.check(result)
            }
            _ => {
                self.change(a, b);
                Some(())
            }
        }
    }

    /// Answers an R2T, wholly or in part.
    fn answer(&mut self, [step, a, b, c]: [u8; 4]) -> Option<()> {
        let index = usize::from(a) % self.r2ts.len().max(1);
        let Some(r2t) = self.r2ts.get_mut(index) else {
            return Some(());
        };
        let left = r2t.datal.get();
        let len = match b {
            0..=127 => left,
            _ => left.min(u32::from(b) * 16 + u32::from(c & 3)),
        };
        let (cid, ttag) = (Cid(r2t.cccid.get()), r2t.ttag.get());
        let offset = r2t.datao.get();
        r2t.datao.set(offset + len);
        r2t.datal.set(left - len);
        let mut flags = PduFlags::NONE;
        if len == left {
            flags = PduFlags::LAST;
            self.r2ts.remove(index);
        }
        let data = vec![c; len as usize];
        let mut bytes = self.io.h2c_data(cid, ttag, offset, flags, &data);
        if step & 0x80 != 0 {
            *bytes.last_mut()? ^= a;
        }
        self.send(&bytes)
    }

    fn change(&mut self, a: u8, b: u8) {
        match a % 5 {
            0 => self.volume.resize(u64::from(b) + 1),
            1 => self.volume.set_read_only(b & 1 == 1),
            2 => {
                let until = self.io.now + Duration::from_micros(u64::from(b));
                self.volume.set_admission(Admission::NotBefore(until));
            }
            3 => self.volume.set_admission(Admission::Now),
            _ => {
                let failure = (b & 1 == 1).then_some(block::Status::CapacityExceeded);
                self.volume.set_failure(failure);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let result = self.io.send(bytes);
        self.check(result)
    }

    /// Every PDU is well-formed and belongs to a command; each command is completed once at most.
    fn check(&mut self, result: Result<(), SessionError>) -> Option<()> {
        for pdu in self.io.pdus() {
            self.check_pdu(&pdu, result.is_err());
        }
        result.ok()?;
        assert!(!self.io.session.wants_transmit());
        (!self.io.session.is_closing()).then_some(())
    }

    fn check_pdu(&mut self, pdu: &Pdu, is_over: bool) {
        let completed = match pdu.pdu_type {
            PduType::CapsuleResp => Some(pdu.cqe().cid.get()),
            PduType::C2hData => {
                let header = pdu.data_header();
                assert_eq!(header.datal.get() as usize, pdu.data.len());
                let is_completed = pdu.flags.contains(PduFlags::SUCCESS);
                is_completed.then_some(header.cccid.get())
            }
            PduType::R2t => {
                self.r2ts.push(pdu.data_header());
                None
            }
            PduType::C2hTermReq => {
                assert!(is_over, "a termination is the last word");
                None
            }
            other => panic!("{other:?} was not expected"),
        };
        let Some(cid) = completed.map(usize::from) else {
            return;
        };
        match self.outstanding.get_mut(cid) {
            Some(outstanding) if *outstanding > 0 => *outstanding -= 1,
            _ => assert!(self.is_raw, "completed twice"),
        }
    }
}

/// The length of the data in the capsule.
fn capsule_len(sqe: &Sqe, a: u8) -> usize {
    let len = sqe.sgl1.len_bytes.get() as usize;
    match (sqe.sgl1.identifier, a) {
        (_, 255) => 4,
        (1, _) => len.min(8192),
        _ => 0,
    }
}

/// A command whose fields are mostly in range.
fn odd_command(step: [u8; 4], fields: [u8; 8]) -> Sqe {
    const OPCODES: [u8; 16] = [
        0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0C, 0x19, 0x01, 0x02, 0x01, 0x02, 0x0D, 0x0E, 0x7F,
        0x04,
    ];
    let [_, a, _, _] = step;
    let [opcode, fuse, cid, nsid, lba, blocks, sgl, extra] = fields;
    let mut sqe = Sqe::new(
        OPCODES[usize::from(opcode) % OPCODES.len()],
        Cid(u16::from(cid % CIDS)),
        Nsid(if nsid < 240 { 1 } else { u32::from(nsid) }),
    );
    sqe.flags |= match fuse {
        0..=63 => 1,
        64..=127 => 2,
        128 => 3,
        129 => 0x80,
        _ => 0,
    };
    sqe.set_cdw10_11(u64::from(lba));
    sqe.cdw12 = U32::new(u32::from(blocks) | if extra > 250 { 1 << 28 } else { 0 });
    if sqe.opcode == 0x09 {
        sqe.cdw11 = U32::new(u32::from(extra & 7));
    }
    let right = match sqe.opcode {
        0x09 => (u32::from(lba) + 1) * 16,
        0x19 => (u32::from(blocks) + 1) * 32,
        _ => (u32::from(blocks) + 1) * 512,
    };
    let len = match sgl >> 6 {
        0 => right.wrapping_add(u32::from(a)),
        _ => right,
    };
    sqe.sgl1 = match sgl & 7 {
        0..=2 => Sgl::transport(len),
        3..=5 => Sgl::in_capsule(0, len),
        6 => Sgl::in_capsule(u64::from(a), len),
        _ => Sgl::default(),
    };
    sqe
}

fn take<const N: usize>(script: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = script.split_first_chunk()?;
    *script = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use block::testing::replay;

    #[test]
    fn corpora_pass() {
        assert!(replay("nvme_pdu", super::pdu) > 0);
        assert!(replay("nvme_session", super::session) > 0);
        assert!(replay("nvme_queue", super::queue) > 0);
        assert!(replay("nvme_host_session", super::host_session) > 0);
        assert!(replay("nvme_rdma_session", super::rdma_session) > 0);
        assert!(replay("nvme_rdma_host_session", super::rdma_host_session) > 0);
        assert!(replay("nvme_auth_messages", super::auth_messages) > 0);
        assert!(replay("nvme_discovery_log", super::discovery_log) > 0);
    }
}
