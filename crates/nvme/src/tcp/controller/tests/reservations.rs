use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::*;
use crate::testing::{host, subsystem};
use crate::wire::reservation::ReservationKeys;

const EXCLUSIVE_ACCESS: u32 = 2 << 8;

fn reservation(opcode: u8, cid: u16, cdw10: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, Cid(cid), Nsid(1));
    sqe.sgl1 = Sgl::in_capsule(0, 16);
    sqe.cdw10 = U32::new(cdw10);
    sqe
}

fn keys(current: u64, other: u64) -> ReservationKeys {
    ReservationKeys {
        current: U64::new(current),
        other: U64::new(other),
    }
}

/// Two hosts of one volume, the first of them registered by key 1: I/O queues, and admin queues to
/// keep.
fn hosts(volume: &Arc<VecVolume>) -> ([Peer; 2], [Peer; 2]) {
    let subsystem = subsystem(Limits::default(), &[Arc::clone(volume)]);
    let config = ControllerConfig::default();
    let (mut first, first_admin) = host(config, &subsystem, [1; 16], 1, 32);
    let (second, second_admin) = host(config, &subsystem, [2; 16], 3, 32);
    let register = reservation(opcode::RESERVATION_REGISTER, 1, 0);
    let (_, status) = first.command(&register, keys(0, 1).as_bytes());
    assert!(status.is_success(), "{status}");
    ([first, second], [first_admin, second_admin])
}

fn wake(peer: &mut Peer) {
    peer.session
        .handle_wake(peer.now, &mut peer.backend)
        .expect("nothing is wrong");
    peer.drain();
}

#[test]
fn a_write_whose_data_come_after_the_reservation_is_not_done() {
    let volume = volume();
    let before = volume.contents();
    let ([mut first, mut second], _admins) = hosts(&volume);
    let write = write_by_r2t(5, 0, 32);
    let capsule = second.capsule(&write, &[]);
    second.send(&capsule).expect("a good capsule");
    let r2t = second.pdus()[0].data_header();
    let acquire = reservation(opcode::RESERVATION_ACQUIRE, 2, EXCLUSIVE_ACCESS);
    let capsule = first.capsule(&acquire, keys(1, 0).as_bytes());
    first.send(&capsule).expect("a good capsule");
    assert!(
        first.pdus().is_empty(),
        "the other host has not noticed yet"
    );
    wake(&mut second);
    wake(&mut first);
    assert!(first.pdus()[0].cqe().status().is_success());
    let data = second.h2c_data(Cid(5), r2t.ttag.get(), 0, PduFlags::LAST, &[9; 32 * 512]);
    second.send(&data).expect("good data");
    let status = second.pdus()[0].cqe().status();
    assert_eq!(status.code(), Some(StatusCode::ReservationConflict));
    assert_eq!(volume.contents(), before);
    let (_, status) = second.command(&read(6, 0, 1), &[]);
    assert_eq!(status.code(), Some(StatusCode::ReservationConflict));
    let (_, status) = first.command(&read(7, 0, 1), &[]);
    assert!(status.is_success());
}

#[test]
fn a_reservation_does_not_wait_for_a_connection_that_ends() {
    let ([mut first, mut second], _admins) = hosts(&volume());
    let acquire = reservation(opcode::RESERVATION_ACQUIRE, 2, EXCLUSIVE_ACCESS);
    let capsule = first.capsule(&acquire, keys(1, 0).as_bytes());
    first.send(&capsule).expect("a good capsule");
    assert!(first.pdus().is_empty());
    second.session.handle_close(second.now, &mut second.backend);
    wake(&mut first);
    assert!(first.pdus()[0].cqe().status().is_success());
}

#[test]
fn release_takes_its_key_from_the_room_for_two_that_linux_sends() {
    let ([mut first, mut second], _admins) = hosts(&volume());
    let acquire = reservation(opcode::RESERVATION_ACQUIRE, 2, EXCLUSIVE_ACCESS);
    let capsule = first.capsule(&acquire, keys(1, 0).as_bytes());
    first.send(&capsule).expect("a good capsule");
    wake(&mut second);
    wake(&mut first);
    assert!(first.pdus()[0].cqe().status().is_success());
    let release = reservation(opcode::RESERVATION_RELEASE, 3, EXCLUSIVE_ACCESS);
    let (_, status) = first.command(&release, keys(1, 0).as_bytes());
    assert!(status.is_success(), "{status}");
    let (_, status) = second.command(&read(6, 0, 1), &[]);
    assert!(status.is_success(), "{status}");
}
