//! The session in virtual time, against a host in memory.

mod authentication;
mod waiting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::BlockSize;
use session::{MessageSession, Session};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::{ControllerConfig, ControllerSession, SessionError};
use crate::controller::Limits;
use crate::rdma::wire::{ConnectRequest, RejectStatus};
use crate::testing::{RdmaHost, TestBackend, VecVolume, rdma_host, subsystem};
use crate::wire::fabrics::ConnectData;
use crate::wire::identify::{IdentifyController, cns};
use crate::wire::{Cid, Invalidate, Nsid, Sgl, Sqe, Status, StatusCode, opcode};

const BLOCK: usize = 512;

type Edit = fn(&mut ConnectRequest);

fn volume() -> Arc<VecVolume> {
    Arc::new(VecVolume::new(BlockSize::B512, 4096))
}

/// A read or write of whole blocks.
fn command(opcode: u8, cid: u16, lba: u64, blocks: usize, sgl: Sgl) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    sqe.set_cdw10_11(lba);
    sqe.cdw12 = U32::new(blocks as u32 - 1);
    sqe.sgl1 = sgl;
    sqe
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

#[test]
fn data_move_in_the_capsule_and_by_key() {
    let volume = volume();
    let (mut io, _admin) = rdma_host(&[Arc::clone(&volume)], 16);
    let inside = pattern(8 * BLOCK, 1);
    let sqe = command(opcode::WRITE, 1, 0, 8, Sgl::in_capsule(0, 4096));
    assert!(io.status(&sqe, &inside).is_success());
    // 1 MiB, in pieces of 64 KiB.
    let len = 1 << 20;
    let long = pattern(len, 2);
    io.memory[512..512 + len].copy_from_slice(&long);
    let sqe = command(opcode::WRITE, 2, 8, len / BLOCK, RdmaHost::keyed(512, len));
    assert!(io.status(&sqe, &[]).is_success());
    let written = volume.contents();
    assert_eq!(written[..4096], inside);
    assert_eq!(written[4096..4096 + len], long);
    let to = 2 << 20;
    io.expose(to..to + len);
    let sqe = command(opcode::READ, 3, 8, len / BLOCK, RdmaHost::keyed(to, len));
    assert!(io.status(&sqe, &[]).is_success());
    assert_eq!(io.memory[to..to + len], long);
}

#[test]
fn several_descriptors_split_data_anywhere() {
    let volume = volume();
    let (mut io, _admin) = rdma_host(&[Arc::clone(&volume)], 16);
    io.out.depth_max = 1;
    let data = pattern(20 * BLOCK, 9);
    // Block boundaries are crossed, stretches are shorter than a block, and one is empty.
    let parts = [
        (100, 700),
        (5000, 3),
        (9000, 0),
        (12_000, 1000),
        (20_000, 8537),
    ];
    let list: Vec<u8> = parts
        .iter()
        .flat_map(|&(at, len)| RdmaHost::keyed(at, len).as_bytes().to_vec())
        .collect();
    let segment = Sgl::last_segment(0, list.len() as u32);
    let scatter = |memory: &mut [u8], data: &[u8]| {
        let mut rest = data;
        for (at, len) in parts {
            let (part, later) = rest.split_at(len);
            memory[at..at + len].copy_from_slice(part);
            rest = later;
        }
    };
    scatter(&mut io.memory, &data);
    io.exposed = parts.iter().map(|&(at, len)| at..at + len).collect();
    let write = command(opcode::WRITE, 1, 3, 20, segment);
    assert!(io.status(&write, &list).is_success());
    assert_eq!(volume.contents()[3 * BLOCK..23 * BLOCK], data);
    io.memory.fill(0);
    let read = command(opcode::READ, 2, 3, 20, segment);
    assert!(io.status(&read, &list).is_success());
    let mut expected = vec![0; io.memory.len()];
    scatter(&mut expected, &data);
    assert_eq!(io.memory, expected);
}

#[test]
fn the_response_invalidates_the_key_if_the_host_says_so() {
    let (mut io, _admin) = rdma_host(&[volume()], 16);
    let keyed = |invalidate| Sgl::keyed(RdmaHost::ADDRESS, 512, RdmaHost::KEY, invalidate);
    let read = |cid, sgl| command(opcode::READ, cid, 0, 1, sgl);
    let response = io.command(&read(1, keyed(Invalidate::Yes)), &[]);
    assert_eq!(response.invalidated, Some(RdmaHost::KEY));
    let response = io.command(&read(2, keyed(Invalidate::No)), &[]);
    assert_eq!(response.invalidated, None);
    let beyond = command(opcode::READ, 3, 1 << 40, 1, keyed(Invalidate::Yes));
    let response = io.command(&beyond, &[]);
    assert_eq!(response.invalidated, Some(RdmaHost::KEY), "on failure, too");
    assert_eq!(response.cqe.status(), StatusCode::LbaOutOfRange.into());
}

#[test]
fn wrong_descriptors_fail_only_their_command() {
    use StatusCode::{DataSglLengthInvalid, InvalidSglSegmentDescriptor, SglDescriptorTypeInvalid};
    let (mut io, _admin) = rdma_host(&[volume()], 16);
    let two = [RdmaHost::keyed(0, 256), Sgl::in_capsule(0, 256)];
    let two = two.as_bytes();
    let many = [RdmaHost::keyed(0, 32); 17];
    let many = many.as_bytes();
    let high = Sgl::keyed(u64::MAX - 100, 512, 1, Invalidate::No);
    let last = Sgl::last_segment;
    let too_many = StatusCode::InvalidNumberOfSglDescriptors;
    let cases: [(Sgl, &[u8], StatusCode); 11] = [
        (Sgl::transport(512), &[], SglDescriptorTypeInvalid),
        (Sgl::default(), &[], SglDescriptorTypeInvalid),
        (RdmaHost::keyed(0, 511), &[], DataSglLengthInvalid),
        (RdmaHost::keyed(0, 0xFF_FFFF), &[], DataSglLengthInvalid),
        (high, &[], DataSglLengthInvalid),
        (Sgl::in_capsule(0, 512), &[1; 511], DataSglLengthInvalid),
        (
            Sgl::in_capsule(513, 512),
            &[1; 512],
            StatusCode::SglOffsetInvalid,
        ),
        (last(0, 0), &[], InvalidSglSegmentDescriptor),
        (last(0, 24), &[0; 24], InvalidSglSegmentDescriptor),
        (last(0, 32), two, SglDescriptorTypeInvalid),
        (last(0, 272), many, too_many),
    ];
    for (cid, (sgl, in_capsule, code)) in (1..).zip(cases) {
        let write = command(opcode::WRITE, cid, 0, 1, sgl);
        assert_eq!(io.status(&write, in_capsule), Status::from(code), "{sgl:?}");
    }
    let read = command(opcode::READ, 20, 0, 1, Sgl::in_capsule(0, 512));
    let status = io.status(&read, &[0; 512]);
    assert_eq!(status, Status::from(SglDescriptorTypeInvalid));
    let good = command(opcode::WRITE, 21, 0, 1, RdmaHost::keyed(0, 512));
    assert!(io.status(&good, &[]).is_success());
}

#[test]
fn commands_may_come_and_end_in_any_order_with_any_room() {
    for seed in 1..40_u64 {
        let volume = volume();
        let (mut io, _admin) = rdma_host(&[Arc::clone(&volume)], 9);
        io.out.depth_max = 1 + (seed % 4) as usize;
        io.out.piece_max_bytes = 4096;
        let mut random = seed;
        let mut next = |bound: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % bound
        };
        // Each command has 16 KiB of the volume and of the memory to itself.
        let mut model = vec![0; 8 * 16384];
        let mut open = Vec::new();
        for round in 0..200_u16 {
            if open.len() < 8 && next(2) == 0 {
                let place = (0..8)
                    .find(|place| !open.contains(place))
                    .expect("one is free");
                let (start, blocks) = (place * 16384, 1 + next(32));
                let len = blocks * BLOCK;
                let data = pattern(len, round as u8);
                model[start..start + len].copy_from_slice(&data);
                io.memory[start..start + len].copy_from_slice(&data);
                let sgl = RdmaHost::keyed(start, len);
                let lba = (start / BLOCK) as u64;
                let write = command(opcode::WRITE, place as u16, lba, blocks, sgl);
                io.send(&write, &[]).expect("a good capsule");
                open.push(place);
            } else {
                io.answer_read().expect("data that were asked for");
            }
            for response in io.responses() {
                assert!(response.cqe.status().is_success());
                let place = usize::from(response.cqe.cid.get());
                let at = open.iter().position(|&other| other == place);
                open.remove(at.expect("each is answered once"));
            }
        }
        while io.answer_read().expect("data that were asked for") {}
        assert_eq!(io.responses().len(), open.len());
        assert!(io.session.is_idle());
        assert_eq!(volume.contents()[..model.len()], model);
    }
}

#[test]
fn the_controller_says_what_holds_over_rdma() {
    let (_io, mut admin) = rdma_host(&[volume()], 16);
    let mut sqe = Sqe::new(0x06, Cid(9), Nsid(0));
    sqe.cdw10 = U32::new(u32::from(cns::CONTROLLER));
    sqe.sgl1 = RdmaHost::keyed(8192, 4096);
    assert!(admin.status(&sqe, &[]).is_success());
    let (identify, _) = IdentifyController::ref_from_prefix(&admin.memory[8192..]).expect("4096");
    assert_eq!(identify.command_capsule_units.get(), (64 + 4096) / 16);
    assert_eq!(identify.response_capsule_units.get(), 1);
    assert_eq!(identify.in_capsule_data_offset_units.get(), 0);
    assert_eq!(identify.sgl_descriptors_max, 16);
    assert_eq!(identify.sgls.get(), 1 << 20 | 1 << 2 | 1);
    // Where the host has room for less than the reply, nothing is written.
    admin.exposed.clear();
    sqe.sgl1 = RdmaHost::keyed(8192, 4095);
    let status = admin.status(&sqe, &[]);
    assert_eq!(status, Status::from(StatusCode::DataSglLengthInvalid));
}

#[test]
fn requests_for_connections_are_checked_in_order() {
    let now = Instant::now();
    let status = |private_data: &[u8], reads: u8| {
        let config = ControllerConfig::default();
        ControllerSession::<TestBackend>::accept(now, &config, private_data, reads).map(
            |accepted| {
                (
                    accepted.receives,
                    accepted.receive_len_bytes,
                    accepted.reads,
                )
            },
        )
    };
    let request = |edit: Edit| {
        let mut request = ConnectRequest::new(1, 128);
        edit(&mut request);
        request.as_bytes().to_vec()
    };
    assert_eq!(status(&request(|_| ()), 255), Ok((128, 4160, 64)));
    let padded = [request(|_| ()), vec![0; 24]].concat();
    assert_eq!(status(&padded, 4), Ok((128, 4160, 4)));
    assert_eq!(status(&padded[..31], 4), Err(RejectStatus::InvalidLength));
    let wrong: [(Edit, RejectStatus); 6] = [
        (
            |r| r.record_format = U16::new(1),
            RejectStatus::InvalidRecordFormat,
        ),
        (|r| r.queue = U16::new(129), RejectStatus::InvalidQueueId),
        (
            |r| r.host_sends_minus_1 = U16::new(0),
            RejectStatus::InvalidHostSends,
        ),
        (
            |r| r.host_sends_minus_1 = U16::new(0xFFFF),
            RejectStatus::InvalidHostSends,
        ),
        (
            |r| r.host_receives = U16::new(0),
            RejectStatus::InvalidHostReceives,
        ),
        (|r| r.queue = U16::new(0), RejectStatus::InvalidInboundReads),
    ];
    for (edit, reject) in wrong {
        assert_eq!(status(&request(edit), 0), Err(reject));
    }
}

#[test]
fn a_message_that_is_no_capsule_ends_the_connection() {
    let (mut io, _admin) = rdma_host(&[volume()], 16);
    let error = io.send_bytes(&[0; 63]).expect_err("too short");
    assert_eq!(error, SessionError::ShortCapsule { len_bytes: 63 });
    assert!(io.session.is_closing() && !io.session.wants_transmit());
    let error = io.send_bytes(&[0; 64]);
    assert_eq!(error, Ok(()), "what comes afterwards is ignored");
    assert!(io.responses().is_empty());
}

#[test]
fn a_host_that_overruns_its_queue_is_ended() {
    let (mut io, _admin) = rdma_host(&[volume()], 4);
    for cid in 0..4 {
        let write = command(opcode::WRITE, cid, 0, 1, RdmaHost::keyed(0, 512));
        io.send(&write, &[]).expect("a slot is free");
    }
    let write = command(opcode::WRITE, 4, 0, 1, RdmaHost::keyed(0, 512));
    let error = io.send(&write, &[]).expect_err("the fifth of four");
    assert!(matches!(error, SessionError::QueueFull(_)), "{error:?}");
}

#[test]
fn a_host_that_acknowledges_no_response_is_ended() {
    let (mut io, _admin) = rdma_host(&[volume()], 4);
    io.out.depth_max = 0;
    let submitted = (0..100)
        .map(|cid| {
            command(
                opcode::FLUSH,
                cid,
                0,
                1,
                Sgl::keyed(0, 0, 0, Invalidate::No),
            )
        })
        .take_while(|flush| io.send(flush, &[]).is_ok())
        .count();
    assert_eq!(submitted, 8, "four whose responses wait, four in the queue");
}

#[test]
fn unrequested_data_end_the_connection() {
    let (mut io, _admin) = rdma_host(&[volume()], 4);
    let result = io
        .session
        .handle_read(io.now, 3, &[0; 512], &mut io.backend);
    assert_eq!(result, Err(SessionError::UnexpectedData));
}

#[test]
fn connect_must_be_for_the_requested_queue() {
    let entries = 16;
    let cases = [
        (1, 1, 32, true),
        (1, 2, 16, true),
        (1, 1, 16, false),
        (1, 1, 8, false),
    ];
    for (asked, queue, sq_entries, is_refused) in cases {
        let (io, _admin) = rdma_host(&[volume()], 16);
        let connection = io.session.queue().connection().expect("connected");
        let mut other = RdmaHost::new(io.backend.subsystem(), 9, asked + 1, entries);
        let result = other.connect(queue + 1, connection.controller.0, sq_entries);
        if is_refused {
            assert_eq!(
                result,
                Err(SessionError::OtherQueue),
                "{queue} {sq_entries}"
            );
        } else {
            assert!(result.expect("good").status().is_success());
        }
    }
}

#[test]
fn a_queue_belongs_to_a_controller_of_its_transport() {
    let (tcp, _admin) =
        crate::testing::io_peer(crate::tcp::ControllerConfig::default(), &[volume()], 8);
    let connection = tcp.session.queue().connection().expect("connected");
    let mut io = RdmaHost::new(tcp.backend.subsystem(), 9, 2, 8);
    let cqe = io.connect(2, connection.controller.0, 8).expect("good");
    let status = cqe.status();
    assert_eq!(status, Status::from(StatusCode::ConnectInvalidParameters));
}

#[test]
fn a_host_that_does_not_connect_in_time_is_ended() {
    let mut host = RdmaHost::new(subsystem(Limits::default(), &[volume()]), 1, 0, 32);
    let due = host.session.poll_timeout().expect("a deadline");
    assert!(due <= host.now + Duration::from_secs(30));
    let result = host.session.handle_timeout(due, &mut host.backend);
    assert_eq!(result, Err(SessionError::ConnectTimeout));
    let mut host = RdmaHost::new(subsystem(Limits::default(), &[volume()]), 1, 0, 32);
    let any = ConnectData::CONTROLLER_ANY;
    host.connect(0, any, 32).expect("good");
    assert_eq!(host.session.handle_timeout(due, &mut host.backend), Ok(()));
}

#[test]
fn a_deleted_controller_ends_its_connections() {
    let (mut io, _admin) = rdma_host(&[volume()], 4);
    let controller = io
        .session
        .queue()
        .connection()
        .expect("connected")
        .controller;
    let subsystem = io.backend.subsystem();
    subsystem
        .lock()
        .expect("unpoisoned")
        .delete_controller(controller);
    io.session
        .handle_wake(io.now, &mut io.backend)
        .expect("no fault of the host's");
    assert!(io.session.is_closing() && !io.session.wants_transmit());
}
