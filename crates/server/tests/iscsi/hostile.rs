//! What some hosts send wrong, or too much of, while another's I/O is verified on the same core.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use block::testing::{assert_not_delayed, timed};
use initiator::{Operation, Queue, Slot};
use server::{ByteSize, VolumeSpec};

use crate::raw::{BLOCKS, Fixture, MIB, Peer, login, run, wait_until};

const READ: u8 = 0xC0;
const WRITE: u8 = 0xA0;
/// Reject, and its reason for a wrong data digest.
const REJECT: u8 = 0x3F;
const DATA_DIGEST: u8 = 0x02;
const DIGESTS: &str = "HeaderDigest=CRC32C\0DataDigest=CRC32C\0";

/// Writes, reads and compares until it is stopped; how long each round took.
fn verify(queue: &mut Queue, rounds: &AtomicUsize, ends: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        times.push(timed(|| write_and_read(queue, times.len())));
        rounds.store(times.len(), Ordering::Relaxed);
    }
    times
}

/// Each command has to succeed.
fn write_and_read(queue: &mut Queue, round: usize) {
    let len = BLOCKS as usize * 512;
    let lba = round as u64 % 64 * BLOCKS;
    let byte = |at: usize| (at * 7 + round) as u8;
    for (at, place) in queue.buffer_mut(Slot(0))[..len].iter_mut().enumerate() {
        *place = byte(at);
    }
    run(queue, Operation::Write, lba).expect("written");
    queue.buffer_mut(Slot(0)).fill(0);
    run(queue, Operation::Read, lba).expect("read");
    let read = &queue.buffer(Slot(0))[..len];
    assert!(read.iter().enumerate().all(|(at, have)| *have == byte(at)));
}

/// Runs `attack` beside a session whose I/O is verified, while the attack lasts and while what it
/// gives is kept. The session continues over the same connection without delay, and what was
/// charged comes back.
fn beside_a_session<T>(fixture: &Fixture, attack: impl FnOnce() -> T) {
    let server = &fixture.server;
    let (_device, mut queue) = fixture.attach();
    let (rounds, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Its memory is taken, and its room to gather.
    (0..64).for_each(|at| run(&mut queue, Operation::Write, at * BLOCKS).expect("written"));
    let session = server.sessions()[0].id;
    let before = server.capacity().used_bytes;
    let times = thread::scope(|scope| {
        let verifies = scope.spawn(|| verify(&mut queue, &rounds, &ends));
        let end = AtEnd(&ends);
        let kept = attack();
        let by_then = rounds.load(Ordering::Relaxed);
        wait_until(|| rounds.load(Ordering::Relaxed) >= by_then + 20 || verifies.is_finished());
        drop((kept, end));
        verifies.join().expect("it has noticed nothing")
    });
    assert_not_delayed(&times, || write_and_read(&mut queue, 0));
    wait_until(|| server.sessions().len() == 1);
    assert_eq!(server.sessions()[0].id, session);
    wait_until(|| server.portals()[0].connections == 1);
    wait_until(|| server.capacity().used_bytes <= before);
}

/// Sets it when dropped, by a panic too.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A generator of bytes (xorshift), the same for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> usize {
        (self.next() >> 16).wrapping_rem(bound) as usize
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn some(&mut self, max: u64) -> Vec<u8> {
        (0..self.below(max)).map(|_| self.next() as u8).collect()
    }
}

/// Bytes that are nothing, before a login.
fn noise(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::connect(fixture.address);
    peer.send_raw(&random.some(4096));
    peer.finish();
}

/// Logins with wrong fields, and texts that are none.
fn wrong_logins(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::connect(fixture.address);
    for _ in 0..=random.below(4) {
        let mut header = login();
        for _ in 0..random.below(4) {
            header[random.below(48)] = random.next() as u8;
        }
        let mut text = b"InitiatorName=iqn.a\0TargetName=iqn.b\0SessionType=Normal\0".to_vec();
        for _ in 0..random.below(8) {
            let at = random.below(text.len() as u64);
            text[at] = random.next() as u8;
        }
        text.extend(random.some(64));
        peer.send(header, &text);
    }
    peer.finish();
}

/// Any PDU with any CDB, numbered rightly or not.
fn wrong_requests(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::log_in(fixture.address, "requests", "");
    for _ in 0..40 {
        let mut header: [u8; 48] = random.bytes();
        if random.below(4) > 0 {
            (header[0], header[4]) = ([0x01, 0x02, 0x05, 0x04, 0x00, 0x10][random.below(6)], 0);
            header[24..28].copy_from_slice(&peer.cmd_sn.to_be_bytes());
            peer.cmd_sn += 1;
        }
        header[4] = 0;
        let data = random.some(1024);
        peer.send(header, &data);
    }
    peer.finish();
}

/// Headers that announce more than there is, or may be.
fn wrong_lengths(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::log_in(fixture.address, "lengths", "");
    let mut header = peer.command_header(1, WRITE, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 8], 4096);
    header[4..8].copy_from_slice(&random.bytes::<4>());
    peer.send_raw(&header);
    peer.send_raw(&random.some(4096));
    peer.finish();
}

/// Data-out that were not requested, or at the wrong offset, or too many.
fn wrong_data_out(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::log_in(fixture.address, "data", "InitialR2T=No\0");
    peer.command(
        1,
        WRITE & 0x7F,
        &[0x2A, 0, 0, 0, 0, 0, 0, 0, 64],
        32 << 10,
        &[],
    );
    for _ in 0..8 {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x05, (random.next() as u8) & 0x80);
        header[19] = random.below(3) as u8;
        let ttt = [u32::MAX, 0, random.next() as u32][random.below(3)];
        header[20..24].copy_from_slice(&ttt.to_be_bytes());
        header[39] = random.below(3) as u8;
        header[42] = random.below(8) as u8;
        peer.send(header, &random.some(8192));
    }
    peer.finish();
}

/// With digests: of a header, which ends the connection, or of data, which ends their command.
fn wrong_digests(fixture: &Fixture, random: &mut Random) {
    let mut peer = Peer::log_in(fixture.address, "digests", DIGESTS);
    let mut header = peer.command_header(7, WRITE, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1], 512);
    header[6] = 2;
    let (wrong_header, wrong_data) = match random.below(2) {
        0 => (1, 0),
        _ => (0, 1),
    };
    let crc = crc32c(&header) ^ wrong_header;
    peer.send_raw(&header);
    peer.send_raw(&crc.to_le_bytes());
    let data: [u8; 512] = random.bytes();
    peer.send_raw(&data);
    peer.send_raw(&(crc32c(&data) ^ wrong_data).to_le_bytes());
    if wrong_header != 0 {
        assert!(peer.receive().is_none(), "the connection was closed");
        return;
    }
    let answer = peer.receive().expect("an answer");
    assert_eq!((answer.header[0], answer.header[2]), (REJECT, DATA_DIGEST));
    peer.finish();
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82F6_3B78);
        }
    }
    !crc
}

#[test]
fn wrong_input_of_every_kind_harms_its_own_connection_alone() {
    let kinds = [
        noise,
        wrong_logins,
        wrong_requests,
        wrong_lengths,
        wrong_data_out,
        wrong_digests,
    ];
    let fixture = Fixture::alone(64 * MIB, &VolumeSpec::thin(ByteSize(MIB)));
    beside_a_session(&fixture, || {
        for seed in 0..300 {
            kinds[seed % kinds.len()](&fixture, &mut Random::new(seed as u64));
        }
    });
}

/// The number of hosts that request much memory.
const GREEDY: usize = 24;
const BUDGET_BYTES: u64 = 64 * MIB;

#[test]
fn hosts_that_keep_much_waiting_get_no_more_than_the_budget_has() {
    let fixture = Fixture::alone(BUDGET_BYTES, &VolumeSpec::thin(ByteSize(8 * MIB)));
    let server = &fixture.server;
    beside_a_session(&fixture, || {
        let log_in = |number| Peer::log_in(fixture.address, &format!("greedy{number}"), "");
        let mut peers: Vec<_> = (0..GREEDY).map(log_in).collect();
        let mut refused = 0;
        for peer in &mut peers {
            // VERIFY of 4 MiB with data that never come: they are to be gathered.
            for itt in 0..8 {
                let verify = [0xAF, 0x02, 0, 0, 0, 0, 0, 0, 0x20, 0];
                peer.command(itt, WRITE, &verify, 4 << 20, &[1; 4096]);
                assert!(server.capacity().used_bytes <= BUDGET_BYTES);
            }
            // Each is answered, or asked to continue: the unit attention, R2Ts, TASK SET FULL.
            for _ in 0..8 {
                let answer = peer.receive().expect("an answer");
                refused += usize::from((answer.header[0], answer.header[3]) == (0x21, 0x28));
            }
        }
        assert!(refused > 0, "the budget has a bound");
        assert!(server.capacity().used_bytes <= BUDGET_BYTES);
        peers
    });
}

#[test]
fn hosts_that_read_nothing_of_what_they_ask_for_cost_one_list_each() {
    let fixture = Fixture::alone(BUDGET_BYTES, &VolumeSpec::thin(ByteSize(8 * MIB)));
    let server = &fixture.server;
    beside_a_session(&fixture, || {
        let before = server.capacity().used_bytes;
        let log_in = |number| Peer::log_in(fixture.address, &format!("deaf{number}"), "");
        let mut peers: Vec<_> = (0..GREEDY).map(log_in).collect();
        for peer in &mut peers {
            for itt in 0..200 {
                peer.command(itt, READ, &[0x28, 0, 0, 0, 0, 0, 0, 0x08, 0], 1 << 20, &[]);
            }
        }
        // A connection, and what it has not been able to send.
        let most = before + GREEDY as u64 * 1024 * 1024;
        wait_until(|| {
            let used = server.capacity().used_bytes;
            assert!(used <= most, "{used} bytes, not {most}");
            peers.iter().all(Peer::has_answer)
        });
        peers
    });
}
