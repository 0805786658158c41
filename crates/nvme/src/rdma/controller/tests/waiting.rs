//! Commands on a volume that answers late.

use block::testing::LateVolume;

use super::*;

const LEN: usize = 8 * BLOCK;

fn late() -> (Arc<LateVolume>, RdmaHost, RdmaHost) {
    let volume = Arc::new(LateVolume::new(BlockSize::B512, 4096));
    let (io, admin) = rdma_host(&[Arc::clone(&volume)], 16);
    (volume, io, admin)
}

/// The oldest command that waits for the volume continues.
fn go_on(volume: &LateVolume, io: &mut RdmaHost, result: Result<(), block::Status>) {
    let completion = volume.complete(volume.waiting()[0], result);
    io.complete(completion);
}

/// The status of the only command that was completed since the last call.
fn status(io: &mut RdmaHost) -> Status {
    let responses = io.responses();
    assert_eq!(responses.len(), 1);
    responses[0].cqe.status()
}

#[test]
fn a_read_is_copied_out_when_its_blocks_are_in_memory() {
    let (volume, mut io, _admin) = late();
    let data = pattern(LEN, 3);
    volume.disk().fill(0, &data);
    let sqe = command(opcode::READ, 1, 0, 8, RdmaHost::keyed(0, LEN));
    io.send(&sqe, &[]).expect("a good capsule");
    assert!(io.responses().is_empty() && !io.session.is_idle());
    go_on(&volume, &mut io, Ok(()));
    assert!(status(&mut io).is_success());
    assert_eq!(io.memory[..LEN], data);
    assert!(io.session.is_idle() && volume.leases() == 0);
}

#[test]
fn data_are_read_from_the_host_when_the_volume_is_ready() {
    let (volume, mut io, _admin) = late();
    let data = pattern(LEN, 4);
    io.memory[..LEN].copy_from_slice(&data);
    let sqe = command(opcode::WRITE, 1, 0, 8, RdmaHost::keyed(0, LEN));
    io.send(&sqe, &[]).expect("a good capsule");
    assert!(!io.answer_read().expect("good"), "no RDMA READ yet");
    go_on(&volume, &mut io, Ok(()));
    assert!(io.answer_read().expect("good"), "now there is one");
    assert_eq!(volume.disk().contents()[..LEN], data);
    assert!(io.responses().is_empty(), "not yet safe");
    go_on(&volume, &mut io, Ok(()));
    assert!(status(&mut io).is_success());
    assert!(io.session.is_idle() && volume.leases() == 0);
}

#[test]
fn data_of_a_capsule_are_kept_and_charged_until_the_volume_is_ready() {
    let (volume, mut io, _admin) = late();
    let data = pattern(LEN, 5);
    let sqe = command(opcode::WRITE, 1, 0, 8, Sgl::in_capsule(0, LEN as u32));
    io.send(&sqe, &data).expect("a good capsule");
    assert_eq!(io.backend.charged_bytes, LEN as u64);
    go_on(&volume, &mut io, Ok(()));
    assert_eq!(io.backend.charged_bytes, 0);
    assert_eq!(volume.disk().contents()[..LEN], data);
    go_on(&volume, &mut io, Err(block::Status::WriteError));
    assert_eq!(status(&mut io).code(), Some(StatusCode::WriteFault));
}

#[test]
fn a_command_that_could_not_be_made_ready_moves_no_data() {
    let (volume, mut io, _admin) = late();
    let sqe = command(opcode::WRITE, 1, 0, 8, RdmaHost::keyed(0, LEN));
    io.send(&sqe, &[]).expect("a good capsule");
    go_on(&volume, &mut io, Err(block::Status::ReadError));
    assert!(!io.answer_read().expect("good"), "no RDMA READ");
    assert_eq!(
        status(&mut io).code(),
        Some(StatusCode::UnrecoveredReadError)
    );
    assert_eq!(volume.leases(), 0);
}

#[test]
fn the_end_of_a_connection_ends_its_leases() {
    let (volume, mut io, _admin) = late();
    let sqe = command(opcode::READ, 1, 0, 8, RdmaHost::keyed(0, LEN));
    io.send(&sqe, &[]).expect("a good capsule");
    let ticket = volume.waiting()[0];
    io.session.handle_close(io.now, &mut io.backend);
    assert_eq!(volume.leases(), 0);
    io.complete(volume.complete(ticket, Ok(())));
    assert!(io.responses().is_empty());
}
