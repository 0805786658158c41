//! iSCSI portals of the server: what one host does while another is served by the same core.

#[path = "../fixture/crowd.rs"]
mod crowd;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod raw;
mod replaced;
#[path = "../fixture/sockets.rs"]
mod sockets;

use std::net::SocketAddr;
use std::time::Duration;

use block::testing::{assert_not_delayed, timed};
use crowd::assert_bounded;
use initiator::{Operation, Queue};
use iscsi::{Algorithm, CHALLENGE_LEN, Challenge, Credentials};
use raw::{Fixture, MIB, OTHERS, Peer, run, wait_until};
use server::{ByteSize, ChapDefinition, ChapSecret, HostDefinition, ToldBy, VolumeSpec};

const WRITE: u8 = 0xA0;
const NO_DATA: u8 = 0x80;
/// SANITIZE's service action.
const BLOCK_ERASE: u8 = 0x02;
/// Of the volume that is written and cleared as a whole.
const LEN_BYTES: u64 = 512 * MIB;
const FILL_BLOCKS: u32 = ((16 * MIB) >> 9) as u32;
const FILLS: u32 = (LEN_BYTES >> 9) as u32 / FILL_BLOCKS;

/// The times of another session's reads that are answered before `answers` commands have their
/// responses.
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

fn write(queue: &mut Queue) {
    run(queue, Operation::Write, 0).expect("written");
}

/// What is charged for one that has not logged in.
const HALF_OPEN_BYTES: u64 = 64 << 10;

/// A host that has to prove a secret.
fn host_with_a_secret() -> HostDefinition {
    HostDefinition {
        name: "iqn.2026-11.com.example:secret".parse().expect("a name"),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: Some(ChapDefinition {
            user: "alice".to_owned(),
            secret: ChapSecret::new("a secret of alice").expect("long enough"),
            mutual: None,
        }),
        dhchap: None,
        tls: None,
    }
}

/// A login that ends with the challenge, which it returns, or before it if the portal refuses the
/// connection.
fn challenged(address: SocketAddr) -> (Peer, Vec<u8>) {
    let mut challenge = Vec::new();
    let mut peer = Peer::connect(address);
    let names = format!("InitiatorName=iqn.2026-11.com.example:secret\0TargetName={OTHERS}\0");
    for text in [names + "AuthMethod=CHAP\0", "CHAP_A=5\0".to_owned()] {
        let mut header = raw::login();
        // SecurityNegotiation, and no transit.
        header[1] = 0;
        peer.send(header, text.as_bytes());
        if let Some(answer) = peer.receive() {
            assert_eq!((answer.header[0], answer.header[36]), (0x23, 0));
            challenge = answer.data;
        }
    }
    (peer, challenge)
}

/// What alice answers a challenge with, by MD5.
fn chap_response(challenge: &[u8], secret: &str) -> String {
    let text = std::str::from_utf8(challenge).expect("text");
    let value = |key: &str| {
        let mut pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(found, _)| *found == key);
        found.expect("the key").1
    };
    let alice = Credentials {
        name: "alice".to_owned(),
        secret: secret.as_bytes().to_vec().into(),
    };
    let own = Challenge::new(Algorithm::Md5, 0, [0; CHALLENGE_LEN]);
    let response = own.answer(value("CHAP_I"), value("CHAP_C"), &alice);
    response.expect("a challenge of the right form")
}

#[test]
fn a_thousand_half_open_logins_are_bounded_and_end_and_disturb_no_session() {
    let fixture = Fixture::alone(128 * MIB, &VolumeSpec::thin(ByteSize(MIB)));
    let host = host_with_a_secret();
    fixture.server.create_host(host).expect("a host");
    let (_device, mut queue) = fixture.attach();
    write(&mut queue);
    let begin = |number: usize| {
        // Nothing, a part of a header, a login whose text does not come, or the middle of CHAP.
        let peer = match number % 4 {
            3 => challenged(fixture.address).0,
            part => {
                let mut peer = Peer::connect(fixture.address);
                peer.send_raw(&raw::login()[..part * 24]);
                peer
            }
        };
        peer.stream
    };
    let probe = || write(&mut queue);
    let bounds = (HALF_OPEN_BYTES, raw::PATIENCE);
    let writes = assert_bounded(&fixture.server, bounds, begin, probe);
    assert_not_delayed(&writes, || write(&mut queue));
    let late = Peer::log_in(fixture.address, "late", "");
    assert_eq!(fixture.server.sessions().len(), 2, "logins are taken again");
    drop(late);
}

#[test]
fn a_chap_secret_that_is_revoked_during_a_login_proves_nothing() {
    let fixture = Fixture::new(64 * MIB, &VolumeSpec::thin(ByteSize(MIB)));
    let host = host_with_a_secret();
    fixture.server.create_host(host.clone()).expect("a host");
    for changes in [false, true] {
        let (mut peer, challenge) = challenged(fixture.address);
        if changes {
            let mut changed = host.clone();
            let chap = changed.chap.as_mut().expect("set");
            chap.secret = ChapSecret::new("another of alice").expect("long enough");
            fixture.server.change_host(changed).expect("changes");
        }
        let response = chap_response(&challenge, "a secret of alice");
        let mut header = raw::login();
        header[1] = 0x81;
        let text = format!("CHAP_N=alice\0CHAP_R={response}\0");
        peer.send(header, text.as_bytes());
        let answer = peer.receive().expect("an answer");
        // Status class 2, detail 1: authentication failure.
        let status = if changes { (2, 1) } else { (0, 0) };
        assert_eq!((answer.header[36], answer.header[37]), status);
    }
}
