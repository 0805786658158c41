//! The whole session, driven byte by byte.

mod aborts;
mod authentication;
mod commands;
mod digests;
mod fused;
mod model;
mod reservations;
mod transfers;
mod violations;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use block::BlockSize;
use session::Session;
use zerocopy::little_endian::U32;

use super::*;
use crate::controller::{Limits, SqFlow};
use crate::tcp::wire::{PduFlags, PduType};
use crate::testing::{Chunks, Pdu, Peer, VecVolume, io_peer};
use crate::wire::fabrics::ConnectSqe;
use crate::wire::{Cid, Nsid, Sgl, Sqe, Status, StatusCode, opcode};

/// Blocks of the volumes under test.
const BLOCKS: u64 = 4096;

fn volume() -> Arc<VecVolume> {
    let volume = VecVolume::new(BlockSize::B512, BLOCKS);
    let bytes: Vec<u8> = (0..BLOCKS as u32 * 512)
        .map(|i| (i / 512 + i) as u8)
        .collect();
    volume.fill(0, &bytes);
    Arc::new(volume)
}

fn peer(volume: &Arc<VecVolume>) -> (Peer, Peer) {
    io_peer(ControllerConfig::default(), &[Arc::clone(volume)], 128)
}

fn transfer(opcode: u8, cid: u16, lba: u64, blocks: u32, sgl: Sgl) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    sqe.set_cdw10_11(lba);
    sqe.cdw12 = U32::new(blocks - 1);
    sqe.sgl1 = sgl;
    sqe
}

fn read(cid: u16, lba: u64, blocks: u32) -> Sqe {
    transfer(opcode::READ, cid, lba, blocks, Sgl::transport(blocks * 512))
}

fn write_in_capsule(cid: u16, lba: u64, blocks: u32) -> Sqe {
    let sgl = Sgl::in_capsule(0, blocks * 512);
    transfer(opcode::WRITE, cid, lba, blocks, sgl)
}

fn write_by_r2t(cid: u16, lba: u64, blocks: u32) -> Sqe {
    let sgl = Sgl::transport(blocks * 512);
    transfer(opcode::WRITE, cid, lba, blocks, sgl)
}

fn assert_code(status: Status, code: StatusCode) {
    assert_eq!(status.code(), Some(code), "{status:?}");
}

fn types(pdus: &[Pdu]) -> Vec<PduType> {
    pdus.iter().map(|pdu| pdu.pdu_type).collect()
}

#[test]
fn reads_give_the_volumes_bytes_in_any_length() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    for blocks in [1, 2, 8, 31, 32, 33, 200, 2048] {
        let (data, status) = io.command(&read(7, 3, blocks), &[]);
        assert!(status.is_success(), "{blocks} blocks: {status:?}");
        assert_eq!(data, volume.contents()[3 * 512..][..blocks as usize * 512]);
    }
}

#[test]
fn writes_in_the_capsule_and_by_r2t_reach_the_volume() {
    for chunks in [
        Chunks::Whole,
        Chunks::Of(1),
        Chunks::Of(700),
        Chunks::Random(5),
    ] {
        let volume = volume();
        let (mut io, _admin) = peer(&volume);
        io.chunks = chunks;
        let data = vec![0xa5; 8192];
        let (_, status) = io.command(&write_in_capsule(1, 16, 16), &data);
        assert!(status.is_success(), "{status:?}");
        assert_eq!(volume.contents()[16 * 512..][..8192], data);
        let data = vec![0x5a; 1 << 20];
        let status = io.write_by_r2t(&write_by_r2t(2, 64, 2048), &data, 100_000);
        assert!(status.is_success(), "{status:?}");
        assert_eq!(volume.contents()[64 * 512..][..1 << 20], data);
    }
}

#[test]
fn a_host_that_does_not_connect_in_time_is_dropped() {
    let (mut io, _admin) = peer(&volume());
    io.advance(Duration::from_secs(60))
        .expect("it is connected");
    let subsystem = crate::testing::subsystem::<VecVolume>(Limits::default(), &[]);
    let mut late = Peer::new(ControllerConfig::default(), subsystem, 9);
    let error = late.advance(Duration::from_secs(30));
    assert_eq!(error, Err(SessionError::ConnectTimeout));
    assert!(late.session.is_closing());
}

#[test]
fn success_replaces_the_response_only_if_flow_control_is_off() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    assert_eq!(io.session.queue().sq_flow(), SqFlow::Disabled);
    let capsule = io.capsule(&read(1, 0, 1), &[]);
    io.send(&capsule).expect("a good capsule");
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::C2hData]);
    assert_eq!(pdus[0].flags, PduFlags::LAST | PduFlags::SUCCESS);

    let (mut io, _admin) = flow_controlled(&volume);
    let capsule = io.capsule(&read(1, 0, 1), &[]);
    io.send(&capsule).expect("a good capsule");
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::C2hData, PduType::CapsuleResp]);
    assert_eq!(pdus[0].flags, PduFlags::LAST);
}

/// An I/O queue of 4 entries with SQ flow control.
fn flow_controlled(volume: &Arc<VecVolume>) -> (Peer, Peer) {
    let (mut first, mut admin) = peer(volume);
    first.session.handle_close(first.now, &mut first.backend);
    let controller = admin.session.queue().connection().expect("connected");
    let controller = controller.controller.0;
    admin.drain();
    let subsystem = admin.backend.subsystem();
    let mut io = Peer::new(ControllerConfig::default(), subsystem, 3);
    io.initialize(Pda(0), Dgst::NONE, 1);
    let cqe = io.connect_with(ConnectSqe::new(Cid(0), 1, 4), controller);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    assert_eq!(cqe.sq_head.get(), 1, "Connect was the first entry");
    (io, admin)
}

#[test]
fn sq_head_counts_entries_and_wraps() {
    let (mut io, _admin) = flow_controlled(&volume());
    let mut heads = Vec::new();
    for cid in 0..6 {
        let capsule = io.capsule(&Sqe::new(opcode::FLUSH, Cid(cid), Nsid(1)), &[]);
        io.send(&capsule).expect("a good capsule");
        heads.push(io.pdus()[0].cqe().sq_head.get());
    }
    assert_eq!(heads, [2, 3, 0, 1, 2, 3]);
}

#[test]
fn connect_says_by_sq_head_that_flow_control_is_off() {
    let (_, admin) = peer(&volume());
    let subsystem = admin.backend.subsystem();
    let mut io = Peer::new(ControllerConfig::default(), subsystem, 3);
    io.initialize(Pda(0), Dgst::NONE, 1);
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = io.connect(2, controller.controller.0, 16);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    assert_eq!(cqe.sq_head.get(), 0xFFFF);
    let capsule = io.capsule(&Sqe::new(opcode::FLUSH, Cid(0), Nsid(1)), &[]);
    io.send(&capsule).expect("a good capsule");
    assert_eq!(io.pdus()[0].cqe().sq_head.get(), 0, "reserved afterwards");
}

#[test]
fn any_chunking_gives_the_same_bytes() {
    for dgst in (0..4).map(Dgst) {
        let whole = busy_session(dgst, Chunks::Whole);
        for chunks in [
            Chunks::Of(1),
            Chunks::Of(7),
            Chunks::Of(128),
            Chunks::Random(3),
            Chunks::Random(99),
        ] {
            let cut = busy_session(dgst, chunks);
            assert!(
                cut.0 == whole.0,
                "{chunks:?}: the session says other things"
            );
            assert!(cut.1 == whole.1, "{chunks:?}: the volumes differ");
        }
    }
}

/// A session's output for reads and writes of all kinds, and the volume's contents afterwards.
fn busy_session(dgst: Dgst, chunks: Chunks) -> (Vec<u8>, Vec<u8>) {
    let volume = volume();
    let (mut io, _admin) = digested(&volume, dgst, Pda(3));
    io.chunks = chunks;
    let mut bytes = Vec::new();
    for cid in 0..8u16 {
        let lba = u64::from(cid) * 16;
        bytes.extend(io.capsule(&read(cid, lba, 1 + u32::from(cid) * 8), &[]));
        let data = vec![cid as u8; 3 * 512];
        bytes.extend(io.capsule(&write_in_capsule(100 + cid, lba, 3), &data));
        bytes.extend(io.capsule(&write_by_r2t(200 + cid, lba + 8, 4), &[]));
    }
    io.feed(&bytes).expect("good PDUs");
    io.drain();
    let mut answers = Vec::new();
    for pdu in io.pdus() {
        if pdu.pdu_type == PduType::R2t {
            let r2t = pdu.data_header();
            let (cid, ttag) = (Cid(r2t.cccid.get()), r2t.ttag.get());
            let (start, end) = (vec![1; 700], vec![2; 2048 - 700]);
            answers.extend(io.h2c_data(cid, ttag, 0, PduFlags::NONE, &start));
            answers.extend(io.h2c_data(cid, ttag, 700, PduFlags::LAST, &end));
        }
    }
    io.feed(&answers).expect("good PDUs");
    io.drain();
    assert!(types(&io.pdus()).contains(&PduType::CapsuleResp));
    (io.received().to_vec(), volume.contents())
}

/// An I/O queue with these digests and this HPDA.
fn digested(volume: &Arc<VecVolume>, dgst: Dgst, hpda: Pda) -> (Peer, Peer) {
    let (_, admin) = peer(volume);
    let mut io = Peer::new(ControllerConfig::default(), admin.backend.subsystem(), 3);
    let icresp = io.initialize(hpda, dgst, 1);
    assert_eq!(icresp.dgst, dgst);
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = io.connect(2, controller.controller.0, 128);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    (io, admin)
}
