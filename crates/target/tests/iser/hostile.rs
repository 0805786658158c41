//! Peers that mean harm beside an initiator that works: each ends, or is told, and the initiator notices nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use fabric::verbs::{Data, Remote, Rkey, SendOp};

use super::*;

/// What a peer does after its login.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Writes where it guesses that memory is.
    Write,
    /// Reads there.
    Read,
    /// Makes a key worthless that it guesses.
    Invalidate,
    /// Sends a message that is no header.
    NoHeader,
    /// Sends a header without a PDU.
    NoPdu,
    /// Sends a header of a kind that there is not.
    UnknownKind,
    /// Says Hello in full feature phase.
    Hello,
    /// Sends a PDU whose segment ends behind its message.
    SegmentBeyond,
    /// Sends a PDU whose additional headers do.
    HeadersBeyond,
    /// Sends data of a task that there is not.
    DataOfNoTask,
    /// Has data fetched from memory that it does not lend.
    WrongSource,
    /// Has data put there.
    WrongSink,
    /// Sends more commands than its window has.
    Overrun,
}

const HARMS: [Harm; 13] = [
    Harm::Write,
    Harm::Read,
    Harm::Invalidate,
    Harm::NoHeader,
    Harm::NoPdu,
    Harm::UnknownKind,
    Harm::Hello,
    Harm::SegmentBeyond,
    Harm::HeadersBeyond,
    Harm::DataOfNoTask,
    Harm::WrongSource,
    Harm::WrongSink,
    Harm::Overrun,
];
/// How often each is done.
const ROUNDS: u32 = 20;
/// How often the initiator writes and reads meanwhile, at the least.
const TRANSFERS: u32 = 50;
/// The length of its commands.
const LEN: u32 = 4096;
const BLOCKS: u16 = 8;

impl Harm {
    /// Does it, and waits until the target has ended the connection or has answered.
    fn do_it(self, peer: &mut Peer, guess: u32) {
        let remote = Remote {
            va: u64::from(guess) << 12,
            rkey: Rkey(guess),
        };
        let tag = Some(Tag {
            stag: guess,
            base: remote.va,
        });
        let no_op = |peer: &mut Peer| {
            peer.initiator
                .control(request::NOP_OUT, 0x80, 5, NO_TASK_TAG)
        };
        match self {
            Self::Write => peer.post(SendOp::Write(Data::Gather(peer.gather(16)), remote)),
            Self::Read => peer.post(SendOp::Read(peer.gather(4096), remote)),
            Self::Invalidate => peer.post(SendOp::SendInvalidate(
                Data::Gather(peer.gather(16)),
                remote.rkey,
            )),
            Self::NoHeader => peer.send(&[0x10, 0, 0]),
            Self::NoPdu => {
                let message = no_op(peer);
                peer.send(&message[..28]);
            }
            Self::UnknownKind => {
                let mut message = no_op(peer);
                message[0] = 0x70;
                peer.send(&message);
            }
            Self::Hello => peer.send(&[0x20, 0xAA, 0, 16].repeat(7)),
            Self::SegmentBeyond => {
                let mut message = no_op(peer);
                message[28 + 5..28 + 8].copy_from_slice(&[0, 0x10, 0]);
                peer.send(&message);
            }
            Self::HeadersBeyond => {
                let mut message = no_op(peer);
                message[28 + 4] = 0xFF;
                peer.send(&message);
            }
            Self::DataOfNoTask => {
                // It may be late data of a task that was aborted, so it is dropped.
                peer.send(&IserInitiator::data_out(77, 0, 0, true, &[1; 512]));
                let message = no_op(peer);
                peer.send(&message);
            }
            Self::WrongSource => {
                let write = cdb_10(0x2A, 64, BLOCKS);
                let to = peer
                    .initiator
                    .command((9, WRITE), &write, LEN, &[], (tag, None));
                peer.send(&to);
            }
            Self::WrongSink => {
                let read = cdb_10(0x28, 64, BLOCKS);
                let from = peer
                    .initiator
                    .command((9, READ), &read, LEN, &[], (None, tag));
                peer.send(&from);
            }
            Self::Overrun => {
                for itt in 0..200 {
                    let message = peer
                        .initiator
                        .control(request::NOP_OUT, 0x80, itt, NO_TASK_TAG);
                    peer.send(&message);
                }
            }
        }
        peer.until_over(&format!("an answer to {self:?}, or the end,"));
    }
}

#[test]
fn an_initiator_beside_hostile_peers_notices_nothing() {
    let fixture = Fixture::new();
    let mut io = fixture.ready();
    let harmful = SocketAddr::new(Ipv4Addr::new(127, 36, 0, 3).into(), fixture.udp_port);
    let to = fixture.portal.address;
    let transfers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let harms = scope.spawn(|| {
            let mut round = 0;
            while round < ROUNDS || transfers.load(Ordering::Relaxed) < TRANSFERS {
                for (harm, guess) in HARMS.into_iter().zip(round..) {
                    let peer = Peer::connect(harmful, to, Addresses::InFull).expect("taken");
                    let (mut peer, status) = log_in_as("iqn.2026-11.com.example:other", peer);
                    assert_eq!(status, GOOD);
                    harm.do_it(&mut peer, guess.wrapping_mul(0x0101_0101));
                }
                round += 1;
            }
        });
        while !harms.is_finished() {
            let mark = transfers.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
            io.data()[..LEN as usize].fill(mark);
            let from = io.register(LEN.into());
            let write = cdb_10(0x2A, 64, BLOCKS);
            assert_eq!(
                command(&mut io, WRITE, &write, LEN, &[], (Some(from), None)),
                GOOD
            );
            io.data()[..LEN as usize].fill(!mark);
            let into = io.register(LEN.into());
            let read = cdb_10(0x28, 64, BLOCKS);
            assert_eq!(
                command(&mut io, READ, &read, LEN, &[], (None, Some(into))),
                GOOD
            );
            assert!(io.data()[..LEN as usize].iter().all(|&byte| byte == mark));
        }
    });
    assert!(transfers.into_inner() >= TRANSFERS);
}
