//! iSCSI portals of the server: what one host does while another is served by the same core.

#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod raw;
mod replaced;

use std::time::{Duration, Instant};

use block::testing::{assert_not_delayed, timed};
use initiator::{Operation, Queue};
use raw::{Fixture, MIB, Peer, run, wait_until};
use server::{ByteSize, VolumeSpec};

const WRITE: u8 = 0xA0;
const NO_DATA: u8 = 0x80;
/// SANITIZE's service action.
const BLOCK_ERASE: u8 = 0x02;
/// Of the volume that is written and cleared as a whole.
const LEN_BYTES: u64 = 512 * MIB;
const FILL_BLOCKS: u32 = ((16 * MIB) >> 9) as u32;
const FILLS: u32 = (LEN_BYTES >> 9) as u32 / FILL_BLOCKS;

/// The times of another session's reads that are answered before `answers` commands have their responses.
fn reads_beside(queue: &mut Queue, peer: &mut Peer, answers: usize) -> Vec<Duration> {
    let mut reads = Vec::new();
    for _ in 0..answers {
        while !peer.has_answer() {
            reads.push(timed(|| read(queue)));
        }
        let answer = peer.receive().expect("an answer");
        assert_eq!((answer.header[0], answer.header[3]), (0x21, 0));
    }
    reads
}

fn read(queue: &mut Queue) {
    run(queue, Operation::Read, 8).expect("read");
}

/// Fills the whole volume, by as many outstanding commands as needed (MAXIMUM WRITE SAME LENGTH).
fn fill(peer: &mut Peer) {
    for number in 0..FILLS {
        let mut write_same = [0; 16];
        write_same[0] = 0x93;
        write_same[6..10].copy_from_slice(&(number * FILL_BLOCKS).to_be_bytes());
        write_same[10..14].copy_from_slice(&FILL_BLOCKS.to_be_bytes());
        peer.command(100 + number, WRITE, &write_same, 512, &[7; 512]);
    }
}

#[test]
fn commands_that_cover_a_whole_volume_keep_no_other_session_waiting() {
    let fixture = Fixture::alone(
        LEN_BYTES + 128 * MIB,
        &VolumeSpec::thick(ByteSize(LEN_BYTES)),
    );
    let (_device, mut queue) = fixture.attach();
    let mut peer = Peer::log_in(fixture.address, "long", "");
    // The power-on unit attention.
    peer.command(0, NO_DATA, &[0; 6], 0, &[]);
    assert_eq!(peer.receive().expect("an answer").header[3], 2);
    let blocks = (LEN_BYTES >> 9) as u32;
    fill(&mut peer);
    let filled = reads_beside(&mut queue, &mut peer, FILLS as usize);

    // Two descriptors that both cover everything.
    let mut list = [0; 40];
    (list[1], list[3]) = (38, 32);
    for at in [16, 32] {
        list[at..at + 4].copy_from_slice(&blocks.to_be_bytes());
    }
    peer.command(2, WRITE, &[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], 40, &list);
    let unmapped = reads_beside(&mut queue, &mut peer, 1);

    peer.command(
        3,
        NO_DATA,
        &[0x48, BLOCK_ERASE, 0, 0, 0, 0, 0, 0, 0, 0],
        0,
        &[],
    );
    let sanitized = reads_beside(&mut queue, &mut peer, 1);
    let counts = [&filled, &unmapped, &sanitized].map(Vec::len);
    assert!(
        counts[0] >= 8 && counts[1] >= 8 && counts[2] >= 4,
        "{counts:?} reads"
    );
    let reads = [filled, unmapped, sanitized].concat();
    assert_not_delayed(&reads, || read(&mut queue));
}

#[test]
fn a_session_that_ends_takes_what_it_had_begun_with_it() {
    let fixture = Fixture::new(
        LEN_BYTES + 128 * MIB,
        &VolumeSpec::thin(ByteSize(LEN_BYTES)),
    );
    let before = fixture.server.capacity().used_bytes;
    let mut peer = Peer::log_in(fixture.address, "long", "");
    peer.command(0, NO_DATA, &[0; 6], 0, &[]);
    assert_eq!(peer.receive().expect("an answer").header[3], 2);
    fill(&mut peer);
    drop(peer);
    wait_until(|| fixture.server.sessions().is_empty());
    // What was written by then stays, and no more comes.
    let stays = fixture.server.capacity().used_bytes;
    let (device, mut queue) = fixture.attach();
    for _ in 0..100 {
        run(&mut queue, Operation::Read, 0).expect("read");
    }
    drop((queue, device));
    wait_until(|| fixture.server.sessions().is_empty());
    wait_until(|| fixture.server.capacity().used_bytes <= stays);
    assert!(stays < before + LEN_BYTES, "it was cut short");
}

/// More than may be half open at once.
const FLOOD: usize = 600;
/// What is charged for one.
const HALF_OPEN_BYTES: u64 = 64 << 10;
const HALF_OPEN_MAX: u64 = 512;

fn write(queue: &mut Queue) {
    run(queue, Operation::Write, 0).expect("written");
}

#[test]
fn half_open_logins_are_bounded_and_disturb_no_session() {
    let fixture = Fixture::alone(128 * MIB, &VolumeSpec::thin(ByteSize(MIB)));
    let (_device, mut queue) = fixture.attach();
    run(&mut queue, Operation::Write, 0).expect("written");
    let before = fixture.server.capacity().used_bytes;
    let started = Instant::now();
    let mut peers = Vec::new();
    let mut writes = Vec::new();
    for number in 0..FLOOD {
        let mut peer = Peer::connect(fixture.address);
        // Nothing, a part of a header, a login whose text does not come.
        let login = raw::login();
        peer.send_raw(&login[..number % 3 * 24]);
        peers.push(peer);
        if number % 10 == 0 {
            writes.push(timed(|| write(&mut queue)));
        }
    }
    wait_until(|| peers.iter().filter(|peer| peer.has_answer()).count() >= FLOOD - 512);
    let used = fixture.server.capacity().used_bytes;
    let most = before + HALF_OPEN_MAX * HALF_OPEN_BYTES;
    assert!(used <= most, "{used} bytes, not {most}");
    run(&mut queue, Operation::Read, 0).expect("read");
    assert_eq!(fixture.server.sessions().len(), 1);
    drop(peers);
    assert_not_delayed(&writes, || write(&mut queue));
    wait_until(|| fixture.server.capacity().used_bytes <= before);
    let late = Peer::log_in(fixture.address, "late", "");
    assert_eq!(fixture.server.sessions().len(), 2, "logins are taken again");
    assert!(started.elapsed() < raw::PATIENCE);
    drop(late);
}
