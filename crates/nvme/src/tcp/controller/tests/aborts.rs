use block::Admission;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::controller::{CopyRange, DatasetRange};

fn abort(cid: u16, queue: u16, victim: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode::ABORT, Cid(cid), Nsid::NONE);
    sqe.cdw10 = U32::new(u32::from(victim) << 16 | u32::from(queue));
    sqe.sgl1 = Sgl::transport(0);
    sqe
}

fn wake(peer: &mut Peer) {
    peer.session
        .handle_wake(peer.now, &mut peer.backend)
        .expect("nothing is wrong");
    peer.drain();
}

fn submit(peer: &mut Peer, sqe: &Sqe, data: &[u8]) {
    let capsule = peer.capsule(sqe, data);
    peer.send(&capsule).expect("a good capsule");
}

/// The result of Abort of command `victim` of the I/O queue: bit 0 of DW0.
pub(super) fn abort_result(io: &mut Peer, admin: &mut Peer, victim: u16) -> u32 {
    submit(admin, &abort(77, 1, victim), &[]);
    assert!(admin.pdus().is_empty(), "the I/O queue was not asked yet");
    wake(io);
    wake(admin);
    let pdus = admin.pdus();
    let cqe = pdus[0].cqe();
    assert_eq!(cqe.cid(), Cid(77));
    assert!(cqe.status().is_success());
    cqe.dw0()
}

#[test]
fn a_delayed_command_is_aborted_and_abort_reports_it() {
    let volume = volume();
    let (mut io, mut admin) = peer(&volume);
    let later = io.now + Duration::from_secs(3600);
    volume.set_admission(Admission::NotBefore(later));
    submit(&mut io, &read(5, 0, 8), &[]);
    submit(&mut io, &read(6, 0, 8), &[]);
    assert!(io.pdus().is_empty());
    assert_eq!(abort_result(&mut io, &mut admin, 5), 0);
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::CapsuleResp], "no data are sent");
    assert_eq!(pdus[0].cqe().cid(), Cid(5));
    assert_code(pdus[0].cqe().status(), StatusCode::AbortRequested);
    assert_eq!(abort_result(&mut io, &mut admin, 5), 1, "it is gone");
    // The identifier is free again, the other command continues, and what was aborted does not come
    // back.
    volume.set_admission(Admission::Now);
    assert!(io.command(&read(5, 1, 1), &[]).1.is_success());
    io.advance(Duration::from_secs(3600)).expect("one is due");
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::C2hData]);
    assert_eq!(pdus[0].data_header().cccid.get(), 6);
}

#[test]
fn long_work_is_aborted_midway() {
    let volume = volume();
    let (mut io, mut admin) = peer(&volume);
    let mut list = Vec::new();
    for _ in 0..128 {
        let mut range = CopyRange::new_zeroed();
        range.lba = U64::new(0);
        range.nlb = U16::new(511);
        list.extend_from_slice(range.as_bytes());
    }
    let mut copy = Sqe::new(opcode::COPY, Cid(9), Nsid(1));
    copy.sgl1 = Sgl::in_capsule(0, list.len() as u32);
    copy.cdw12 = U32::new(127);
    volume.resize(128 * 512);
    submit(&mut io, &copy, &list);
    assert!(io.pdus().is_empty(), "it takes several turns");
    assert_eq!(abort_result(&mut io, &mut admin, 9), 0);
    assert_code(io.pdus()[0].cqe().status(), StatusCode::AbortRequested);
    assert!(io.session.is_idle());
}

#[test]
fn a_command_whose_data_are_awaited_is_not_aborted() {
    let volume = volume();
    let (mut io, mut admin) = peer(&volume);
    submit(&mut io, &write_by_r2t(4, 0, 8), &[]);
    let ttag = io.pdus()[0].data_header().ttag.get();
    assert_eq!(abort_result(&mut io, &mut admin, 4), 1);
    let data = io.h2c_data(Cid(4), ttag, 0, PduFlags::LAST, &[7; 8 * 512]);
    io.send(&data).expect("good data");
    assert!(io.pdus()[0].cqe().status().is_success());
    assert_eq!(volume.contents()[..8 * 512], [7; 8 * 512]);
}

#[test]
fn an_abort_whose_queue_ends_is_answered_and_more_than_the_limit_are_refused() {
    let volume = volume();
    let (mut io, mut admin) = peer(&volume);
    for cid in 0..u16::from(Limits::ABORTS_MAX) {
        submit(&mut admin, &abort(cid, 1, 5), &[]);
    }
    assert!(admin.pdus().is_empty());
    submit(&mut admin, &abort(50, 1, 5), &[]);
    assert_code(
        admin.pdus()[0].cqe().status(),
        StatusCode::AbortLimitExceeded,
    );
    submit(&mut admin, &abort(51, 9, 5), &[]);
    assert_eq!(admin.pdus()[0].cqe().dw0(), 1, "there is no such queue");
    io.session.handle_close(io.now, &mut io.backend);
    wake(&mut admin);
    let results: Vec<_> = admin.pdus().iter().map(|pdu| pdu.cqe().dw0()).collect();
    assert_eq!(results, [1; Limits::ABORTS_MAX as usize]);
}

#[test]
fn filters_count_the_bytes_of_ranges() {
    let volume = volume();
    let (mut io, _admin) = peer(&volume);
    let ranges: Vec<u8> = [(0, 8), (100, 24)]
        .into_iter()
        .flat_map(|(lba, blocks)| {
            let range = DatasetRange {
                context_attributes: U32::ZERO,
                blocks: U32::new(blocks),
                lba: U64::new(lba),
            };
            range.as_bytes().to_vec()
        })
        .collect();
    let mut deallocate = Sqe::new(opcode::DATASET_MANAGEMENT, Cid(1), Nsid(1));
    deallocate.sgl1 = Sgl::in_capsule(0, 32);
    deallocate.cdw10 = U32::new(1);
    deallocate.cdw11 = U32::new(1 << 2);
    assert!(io.command(&deallocate, &ranges).1.is_success());
    assert_eq!(volume.admitted_bytes(), 32 * 512);

    let mut range = CopyRange::new_zeroed();
    range.nlb = U16::new(15);
    let mut copy = Sqe::new(opcode::COPY, Cid(2), Nsid(1));
    copy.sgl1 = Sgl::in_capsule(0, 32);
    copy.set_cdw10_11(200);
    assert!(io.command(&copy, range.as_bytes()).1.is_success());
    assert_eq!(volume.admitted_bytes(), (32 + 16) * 512);

    volume.set_admission(Admission::Fail(block::Status::WriteError, None));
    let before = volume.contents();
    let (_, status) = io.command(&copy, range.as_bytes());
    assert_code(status, StatusCode::WriteFault);
    assert!(volume.contents() == before, "nothing was copied");
    volume.set_admission(Admission::NotBefore(io.now + Duration::from_secs(9)));
    submit(&mut io, &copy, range.as_bytes());
    assert!(io.pdus().is_empty(), "it is held back");
    io.advance(Duration::from_secs(9)).expect("it is due");
    assert!(io.pdus()[0].cqe().status().is_success());
}
