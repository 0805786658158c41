//! Commands on a volume that answers late.

use block::OpKind;
use block::testing::{LateVolume, Lateness};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::aborts::abort_result;
use super::*;
use crate::controller::{CopyRange, DatasetRange};

fn late() -> (Arc<LateVolume>, Peer, Peer) {
    let volume = Arc::new(LateVolume::new(BlockSize::B512, BLOCKS));
    let bytes: Vec<u8> = (0..BLOCKS as u32 * 512)
        .map(|i| (i / 512 + i) as u8)
        .collect();
    volume.disk().fill(0, &bytes);
    let (io, admin) = io_peer(ControllerConfig::default(), &[Arc::clone(&volume)], 32);
    (volume, io, admin)
}

fn submit(io: &mut Peer, sqe: &Sqe, data: &[u8]) {
    let capsule = io.capsule(sqe, data);
    io.send(&capsule).expect("a good capsule");
}

/// The oldest command that waits for the volume continues.
fn go_on(volume: &LateVolume, io: &mut Peer, result: Result<(), block::Status>) {
    let completion = volume.complete(volume.waiting()[0], result);
    io.complete(completion);
}

/// The status of the only command that was completed since the last call.
fn status(io: &mut Peer) -> Status {
    let pdus = io.pdus();
    assert_eq!(types(&pdus), [PduType::CapsuleResp]);
    pdus[0].cqe().status()
}

fn is_at_rest(volume: &LateVolume, io: &Peer) {
    assert_eq!(volume.leases(), 0, "leases end with their commands");
    assert_eq!(io.backend.charged_bytes, 0);
    assert!(io.session.is_idle());
}

#[test]
fn a_read_is_answered_when_its_blocks_are_in_memory() {
    let (volume, mut io, _admin) = late();
    submit(&mut io, &read(1, 3, 64), &[]);
    assert!(io.pdus().is_empty() && !io.session.is_idle());
    go_on(&volume, &mut io, Ok(()));
    let pdus = io.pdus();
    let data: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.data.clone()).collect();
    assert_eq!(data, volume.disk().contents()[3 * 512..67 * 512]);
    is_at_rest(&volume, &io);
}

#[test]
fn data_are_requested_when_the_volume_is_ready_and_acknowledged_when_they_are_safe() {
    let (volume, mut io, _admin) = late();
    submit(&mut io, &write_by_r2t(1, 8, 8), &[]);
    assert!(io.pdus().is_empty(), "no R2T yet");
    assert_eq!(io.backend.charged_bytes, 0, "nothing is kept");
    go_on(&volume, &mut io, Ok(()));
    let r2t = io.pdus()[0].data_header();
    let data = io.h2c_data(Cid(1), r2t.ttag.get(), 0, PduFlags::LAST, &[7; 4096]);
    io.send(&data).expect("good data");
    assert!(io.pdus().is_empty(), "not yet safe");
    assert_eq!(volume.disk().contents()[8 * 512..][..4096], [7; 4096]);
    go_on(&volume, &mut io, Ok(()));
    assert!(status(&mut io).is_success());
    is_at_rest(&volume, &io);
}

#[test]
fn data_of_a_capsule_are_kept_and_charged_until_the_volume_is_ready() {
    for chunks in [
        Chunks::Whole,
        Chunks::Of(1),
        Chunks::Of(700),
        Chunks::Random(5),
    ] {
        let (volume, mut io, _admin) = late();
        io.chunks = chunks;
        let before = volume.disk().contents();
        submit(&mut io, &write_in_capsule(1, 8, 8), &[7; 4096]);
        assert_eq!(io.backend.charged_bytes, 4096);
        assert_eq!(volume.disk().contents(), before);
        go_on(&volume, &mut io, Ok(()));
        assert_eq!(io.backend.charged_bytes, 0);
        assert_eq!(volume.disk().contents()[8 * 512..][..4096], [7; 4096]);
        assert!(io.pdus().is_empty(), "not yet safe");
        go_on(&volume, &mut io, Ok(()));
        assert!(status(&mut io).is_success());
        is_at_rest(&volume, &io);
    }
}

#[test]
fn a_volume_may_become_ready_while_the_capsule_arrives() {
    for cut in [73, 500, 72 + 512, 2000] {
        let (volume, mut io, _admin) = late();
        let capsule = io.capsule(&write_in_capsule(1, 8, 8), &[7; 4096]);
        io.send(&capsule[..cut]).expect("half a capsule");
        go_on(&volume, &mut io, Ok(()));
        io.send(&capsule[cut..]).expect("the other half");
        assert_eq!(volume.disk().contents()[8 * 512..][..4096], [7; 4096]);
        go_on(&volume, &mut io, Ok(()));
        assert!(status(&mut io).is_success());
        is_at_rest(&volume, &io);
    }
}

#[test]
fn failures_of_the_volume_are_the_commands() {
    let (volume, mut io, _admin) = late();
    let before = volume.disk().contents();
    submit(&mut io, &read(1, 0, 8), &[]);
    go_on(&volume, &mut io, Err(block::Status::ReadError));
    assert_code(status(&mut io), StatusCode::UnrecoveredReadError);
    for sqe in [write_in_capsule(2, 0, 8), write_by_r2t(2, 0, 8)] {
        let data = if sqe.sgl1 == Sgl::transport(4096) {
            &[][..]
        } else {
            &[7; 4096]
        };
        submit(&mut io, &sqe, data);
        go_on(&volume, &mut io, Err(block::Status::ReadError));
        assert_code(status(&mut io), StatusCode::UnrecoveredReadError);
    }
    assert_eq!(volume.disk().contents(), before);
    submit(&mut io, &write_in_capsule(3, 0, 8), &[7; 4096]);
    go_on(&volume, &mut io, Ok(()));
    go_on(&volume, &mut io, Err(block::Status::WriteError));
    assert_code(status(&mut io), StatusCode::WriteFault);
    volume.set_lateness(Lateness::Settling);
    volume.set_settle_error(Some(block::Status::WriteError));
    submit(&mut io, &write_in_capsule(4, 0, 8), &[7; 4096]);
    assert_code(status(&mut io), StatusCode::WriteFault);
    is_at_rest(&volume, &io);
}

#[test]
fn every_command_without_data_waits() {
    let (volume, mut io, _admin) = late();
    volume.disk().fill(0, &vec![1; 512 * 64]);
    let mut range = DatasetRange::new_zeroed();
    (range.lba, range.blocks) = (U64::new(4), U32::new(4));
    let mut copied = CopyRange::new_zeroed();
    (copied.lba, copied.nlb) = (U64::new(16), U16::new(3));
    let list = |opcode, bytes: &[u8]| {
        let mut sqe = Sqe::new(opcode, Cid(1), Nsid(1));
        sqe.sgl1 = Sgl::in_capsule(0, bytes.len() as u32);
        sqe
    };
    let mut deallocate = list(opcode::DATASET_MANAGEMENT, range.as_bytes());
    deallocate.cdw11 = U32::new(1 << 2);
    let copy = list(opcode::COPY, copied.as_bytes());
    let bare = |opcode| transfer(opcode, 1, 12, 4, Sgl::transport(0));
    for (sqe, data, settles) in [
        (bare(opcode::WRITE_ZEROES), &[][..], true),
        (bare(opcode::VERIFY), &[], false),
        (Sqe::new(opcode::FLUSH, Cid(1), Nsid(1)), &[], true),
        (deallocate, range.as_bytes(), true),
        (copy, copied.as_bytes(), true),
    ] {
        submit(&mut io, &sqe, data);
        assert!(io.pdus().is_empty(), "{:#x}", sqe.opcode);
        go_on(&volume, &mut io, Ok(()));
        if settles {
            assert!(io.pdus().is_empty(), "{:#x}", sqe.opcode);
            go_on(&volume, &mut io, Ok(()));
        }
        assert!(status(&mut io).is_success());
        is_at_rest(&volume, &io);
    }
    let contents = volume.disk().contents();
    assert!(
        contents[4 * 512..8 * 512].iter().all(|&byte| byte == 0),
        "deallocated"
    );
    assert!(
        contents[12 * 512..16 * 512].iter().all(|&byte| byte == 0),
        "zeroed"
    );
    assert!(contents[..4 * 512].iter().all(|&byte| byte == 1), "copied");
}

#[test]
fn a_pair_is_one_operation_whichever_half_is_ready_first() {
    let half = |opcode, fuse, cid| {
        let mut sqe = transfer(opcode, cid, 40, 2, Sgl::in_capsule(0, 1024));
        sqe.flags |= fuse;
        sqe
    };
    for first_ready in [0, 1] {
        let (volume, mut io, _admin) = late();
        let old = volume.disk().contents()[40 * 512..][..1024].to_vec();
        submit(&mut io, &half(opcode::COMPARE, 0b01, 1), &old);
        submit(&mut io, &half(opcode::WRITE, 0b10, 2), &[9; 1024]);
        let ticket = volume.waiting()[first_ready];
        io.complete(volume.complete(ticket, Ok(())));
        assert_eq!(volume.disk().contents()[40 * 512..][..1024], old);
        go_on(&volume, &mut io, Ok(()));
        assert_eq!(volume.disk().contents()[40 * 512..][..1024], [9; 1024]);
        go_on(&volume, &mut io, Ok(()));
        let statuses: Vec<_> = io.pdus().iter().map(|pdu| pdu.cqe().status()).collect();
        assert_eq!(statuses, [Status::SUCCESS; 2]);
        is_at_rest(&volume, &io);
    }
}

#[test]
fn a_pair_fails_as_a_whole_where_one_half_is_not_ready() {
    let half = |opcode, fuse, cid, sgl| {
        let mut sqe = transfer(opcode, cid, 40, 2, sgl);
        sqe.flags |= fuse;
        sqe
    };
    for failing in [0, 1] {
        let (volume, mut io, _admin) = late();
        let before = volume.disk().contents();
        // The second half's data would have to be asked for.
        submit(
            &mut io,
            &half(opcode::COMPARE, 0b01, 1, Sgl::in_capsule(0, 1024)),
            &before[40 * 512..][..1024],
        );
        submit(
            &mut io,
            &half(opcode::WRITE, 0b10, 2, Sgl::transport(1024)),
            &[],
        );
        let tickets = volume.waiting();
        io.complete(volume.complete(tickets[failing], Err(block::Status::ReadError)));
        io.complete(volume.complete(tickets[1 - failing], Ok(())));
        let mut pdus = io.pdus();
        if failing == 0 {
            // Its data were requested before it was known that the pair fails.
            let ttag = pdus.remove(0).data_header().ttag.get();
            let data = io.h2c_data(Cid(2), ttag, 0, PduFlags::LAST, &[9; 1024]);
            io.send(&data).expect("good data");
            pdus = io.pdus();
        }
        let codes: Vec<_> = pdus
            .iter()
            .map(|pdu| pdu.cqe().status().code().expect("known"))
            .collect();
        let expected = [
            StatusCode::UnrecoveredReadError,
            StatusCode::AbortedFailedFused,
        ];
        assert_eq!(codes, [expected[failing], expected[1 - failing]]);
        assert_eq!(volume.disk().contents(), before);
        is_at_rest(&volume, &io);
    }
}

#[test]
fn a_waiting_command_is_aborted_and_its_late_completion_ignored() {
    let (volume, mut io, mut admin) = late();
    let before = volume.disk().contents();
    // While its blocks are brought into memory.
    submit(&mut io, &write_in_capsule(5, 0, 8), &[7; 4096]);
    assert_eq!(abort_result(&mut io, &mut admin, 5), 0);
    assert_code(status(&mut io), StatusCode::AbortRequested);
    is_at_rest(&volume, &io);
    // The next command has the same slot and identifier.
    submit(&mut io, &write_in_capsule(5, 8, 8), &[8; 4096]);
    go_on(&volume, &mut io, Ok(()));
    assert_eq!(volume.disk().contents(), before, "that was the first one's");
    go_on(&volume, &mut io, Ok(()));
    assert_eq!(volume.disk().contents()[8 * 512..][..4096], [8; 4096]);
    // While its effects are made safe.
    assert_eq!(abort_result(&mut io, &mut admin, 5), 0);
    assert_code(status(&mut io), StatusCode::AbortRequested);
    go_on(&volume, &mut io, Ok(()));
    assert!(io.pdus().is_empty());
    is_at_rest(&volume, &io);
}

#[test]
fn the_end_of_a_connection_ends_its_leases() {
    let (volume, mut io, _admin) = late();
    submit(&mut io, &read(1, 0, 8), &[]);
    submit(&mut io, &write_in_capsule(2, 0, 8), &[7; 4096]);
    submit(&mut io, &write_by_r2t(3, 0, 8), &[]);
    assert_eq!(volume.leases(), 3);
    io.session.handle_close(io.now, &mut io.backend);
    assert_eq!(volume.leases(), 0);
    let before = volume.disk().contents();
    for ticket in volume.waiting() {
        let completion = volume.complete(ticket, Ok(()));
        io.session
            .handle_completion(io.now, completion, &mut io.backend)
            .expect("it changes nothing");
    }
    assert_eq!(volume.disk().contents(), before);
}

#[test]
fn a_controller_reset_ends_the_connection_though_commands_wait() {
    let (volume, mut io, mut admin) = late();
    submit(&mut io, &read(1, 0, 8), &[]);
    admin.session.handle_close(admin.now, &mut admin.backend);
    io.session
        .handle_wake(io.now, &mut io.backend)
        .expect("nothing is wrong");
    assert!(io.session.is_closing(), "it does not wait for the volume");
    io.session.handle_close(io.now, &mut io.backend);
    assert_eq!(volume.leases(), 0);
}

#[test]
fn a_resize_and_a_lock_hold_for_commands_that_wait() {
    let (volume, mut io, _admin) = late();
    submit(&mut io, &write_in_capsule(1, BLOCKS - 8, 8), &[7; 4096]);
    volume.disk().resize(BLOCKS / 2);
    go_on(&volume, &mut io, Ok(()));
    assert_code(status(&mut io), StatusCode::LbaOutOfRange);
    submit(
        &mut io,
        &transfer(
            opcode::WRITE_ZEROES,
            1,
            BLOCKS / 2 - 8,
            8,
            Sgl::transport(0),
        ),
        &[],
    );
    volume.disk().resize(BLOCKS / 4);
    go_on(&volume, &mut io, Ok(()));
    assert_code(status(&mut io), StatusCode::LbaOutOfRange);
    submit(&mut io, &write_in_capsule(1, 0, 8), &[7; 4096]);
    volume.disk().set_read_only(true);
    go_on(&volume, &mut io, Ok(()));
    assert_code(status(&mut io), StatusCode::NamespaceWriteProtected);
    is_at_rest(&volume, &io);
}

#[test]
fn commands_that_wait_for_a_removed_namespace_fail() {
    let (volume, mut io, _admin) = late();
    submit(&mut io, &read(1, 0, 8), &[]);
    submit(&mut io, &write_in_capsule(2, 0, 8), &[7; 4096]);
    go_on(&volume, &mut io, Ok(()));
    submit(&mut io, &write_in_capsule(3, 8, 8), &[7; 4096]);
    io.pdus();
    let subsystem = io.backend.subsystem();
    let removed = subsystem.lock().expect("a lock").remove_namespace(Nsid(1));
    removed.expect("it was there");
    io.session
        .handle_wake(io.now, &mut io.backend)
        .expect("nothing is wrong");
    io.drain();
    let codes: Vec<_> = io
        .pdus()
        .iter()
        .map(|pdu| pdu.cqe().status().code())
        .collect();
    assert_eq!(codes, [Some(StatusCode::InvalidNamespaceOrFormat); 2]);
    is_at_rest(&volume, &io);
}

#[test]
fn commands_are_refused_where_memory_for_their_data_or_leases_is_used_up() {
    let (volume, mut io, _admin) = late();
    let busy = Status::from(block::Status::Busy);
    io.backend.charged_max_bytes = 4096;
    submit(&mut io, &write_in_capsule(1, 0, 8), &[7; 4096]);
    submit(&mut io, &write_in_capsule(2, 8, 1), &[7; 512]);
    assert_eq!(status(&mut io), busy);
    assert_eq!((volume.leases(), io.backend.charged_bytes), (1, 4096));
    volume.set_leases_max(1);
    submit(&mut io, &read(3, 0, 8), &[]);
    assert_eq!(status(&mut io), busy);
    go_on(&volume, &mut io, Ok(()));
    let aborted = volume.waiting();
    assert_eq!(
        aborted.len(),
        2,
        "the refused command's lease has ended, its completion has not come"
    );
}

#[test]
fn commands_go_on_in_any_order_and_all_are_answered() {
    for seed in 1..200_u64 {
        let (volume, mut io, _admin) = late();
        let mut random = seed;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut open = std::collections::BTreeMap::new();
        for cid in 0..24_u16 {
            let lba = u64::from(cid) * 8;
            let kind = [OpKind::Read, OpKind::Write][next(2) as usize];
            let lateness =
                [Lateness::Settling, Lateness::Filling, Lateness::Both][next(3) as usize];
            volume.set_lateness(lateness);
            match kind {
                OpKind::Read => submit(&mut io, &read(cid, lba, 8), &[]),
                _ => submit(&mut io, &write_in_capsule(cid, lba, 8), &[cid as u8; 4096]),
            }
            open.insert(cid, kind);
            volume.set_lateness(Lateness::Both);
            if next(3) == 0 {
                step(&volume, &mut io, next(64));
            }
        }
        while !volume.waiting().is_empty() {
            step(&volume, &mut io, next(64));
        }
        for pdu in io.pdus() {
            let (cid, is_last) = match pdu.pdu_type {
                PduType::CapsuleResp => (pdu.cqe().cid.get(), true),
                _ => (
                    pdu.data_header().cccid.get(),
                    pdu.flags.contains(PduFlags::SUCCESS),
                ),
            };
            assert!(
                !is_last || open.remove(&cid).is_some(),
                "seed {seed}: {cid} was answered twice"
            );
        }
        assert!(open.is_empty(), "seed {seed}: {open:?} were not answered");
        is_at_rest(&volume, &io);
    }
}

/// One of the commands that wait continues.
fn step(volume: &LateVolume, io: &mut Peer, choice: u64) {
    let waiting = volume.waiting();
    if !waiting.is_empty() {
        let ticket = waiting[choice as usize % waiting.len()];
        io.complete(volume.complete(ticket, Ok(())));
    }
}

#[test]
fn a_server_that_stops_keeps_idle_queues_open_until_the_others_of_their_controller_were_idle() {
    let (volume, mut io, mut admin) = late();
    let subsystem = admin.backend.subsystem();
    let mut other = Peer::new(ControllerConfig::default(), Arc::clone(&subsystem), 3);
    other.initialize(Pda(0), Dgst::NONE, 1);
    let controller = admin.session.queue().connection().expect("connected");
    let cqe = other.connect(2, controller.controller.0, 16);
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
    let woken = || {
        let mut subsystem = subsystem.lock().expect("no panic");
        std::iter::from_fn(move || subsystem.poll_wake()).count()
    };
    let may_close = |peer: &mut Peer| peer.session.may_close(&mut peer.backend);
    submit(&mut io, &read(1, 3, 64), &[]);
    woken();
    assert!(!may_close(&mut io) && !may_close(&mut other) && !may_close(&mut admin));
    assert_eq!(woken(), 0);
    go_on(&volume, &mut io, Ok(()));
    io.pdus();
    assert!(may_close(&mut io));
    assert_eq!(woken(), 2, "both I/O queues");
    // Another command does not take that back, but its queue is not closed before its end.
    submit(&mut io, &read(1, 3, 64), &[]);
    assert!(!may_close(&mut io) && may_close(&mut other) && !may_close(&mut admin));
    for peer in [&mut io, &mut other] {
        peer.session.handle_close(peer.now, &mut peer.backend);
    }
    assert!(may_close(&mut admin));
}

#[test]
fn a_queue_that_ends_is_not_waited_for_by_a_server_that_stops() {
    let (_volume, mut io, mut admin) = late();
    let mut other = Peer::new(ControllerConfig::default(), admin.backend.subsystem(), 3);
    other.initialize(Pda(0), Dgst::NONE, 1);
    let controller = admin.session.queue().connection().expect("connected");
    other.connect(2, controller.controller.0, 16);
    let may_close = |peer: &mut Peer| peer.session.may_close(&mut peer.backend);
    submit(&mut io, &read(1, 3, 64), &[]);
    assert!(!may_close(&mut other));
    io.session.handle_close(io.now, &mut io.backend);
    assert!(may_close(&mut other) && !may_close(&mut admin));
}
