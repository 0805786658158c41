//! What hostile initiators do to a target after their login.

use std::net::SocketAddr;

use fabric::verbs::{Data, Remote, Rkey, SendOp};
use iscsi::iser::wire::Tag;
use iscsi::testing::IserInitiator;
use iscsi::wire::{NO_TASK_TAG, request};

use super::peer::{Addresses, GOOD, Peer, READ, WRITE, cdb_10};

/// Hostile initiators: their address, and the target that they attack.
pub struct Attackers<'a> {
    pub from: SocketAddr,
    pub portal: SocketAddr,
    pub target: &'a str,
}

impl Attackers<'_> {
    /// Carries out each attack once, with keys that depend on the round.
    pub fn attack(&self, round: u32) {
        for (attack, guess) in ATTACKS.into_iter().zip(round..) {
            let peer = Peer::connect(self.from, self.portal, Addresses::InFull);
            let mut peer = peer.expect("accepted");
            let status = peer.log_in("iqn.2026-11.com.example:other", self.target);
            assert_eq!(status, GOOD);
            attack.carry_out(&mut peer, guess.wrapping_mul(0x0101_0101));
        }
    }
}

/// What an initiator does after its login.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Writes with a guessed key to a guessed address.
    Write,
    /// Reads from there.
    Read,
    /// Invalidates a guessed key.
    Invalidate,
    /// Sends a message that is shorter than an iSER header.
    NoHeader,
    /// Sends a header without a PDU.
    NoPdu,
    /// Sends a header of an unknown kind.
    UnknownKind,
    /// Sends Hello in full feature phase.
    Hello,
    /// Sends a PDU whose data segment ends behind its message.
    SegmentBeyond,
    /// Sends a PDU whose additional header segments end behind its message.
    HeadersBeyond,
    /// Sends data of a task that does not exist.
    DataOfNoTask,
    /// Names unregistered memory as the source of a write.
    WrongSource,
    /// Names unregistered memory as the destination of a read.
    WrongSink,
    /// Sends more commands than its window allows.
    Overrun,
}

const ATTACKS: [Attack; 13] = [
    Attack::Write,
    Attack::Read,
    Attack::Invalidate,
    Attack::NoHeader,
    Attack::NoPdu,
    Attack::UnknownKind,
    Attack::Hello,
    Attack::SegmentBeyond,
    Attack::HeadersBeyond,
    Attack::DataOfNoTask,
    Attack::WrongSource,
    Attack::WrongSink,
    Attack::Overrun,
];
/// The length of commands.
const LEN: u32 = 4096;
const BLOCKS: u16 = 8;

impl Attack {
    /// Carries the attack out, and waits until the target has closed the connection or has
    /// answered.
    fn carry_out(self, peer: &mut Peer, guess: u32) {
        let remote = Remote {
            va: u64::from(guess) << 12,
            rkey: Rkey(guess),
        };
        match self {
            Self::Write => peer.post(SendOp::Write(Data::Gather(peer.gather(16)), remote)),
            Self::Read => peer.post(SendOp::Read(peer.gather(4096), remote)),
            Self::Invalidate => peer.post(SendOp::SendInvalidate(
                Data::Gather(peer.gather(16)),
                remote.rkey,
            )),
            _ => {
                let tag = Tag {
                    stag: guess,
                    base: remote.va,
                };
                for message in self.messages(&mut peer.initiator, tag) {
                    peer.send(&message);
                }
            }
        }
        peer.until_over(&format!("an answer to {self:?}, or the end,"));
    }

    /// The messages of an attack by messages. `tag` is of memory that is not registered.
    fn messages(self, initiator: &mut IserInitiator, tag: Tag) -> Vec<Vec<u8>> {
        let mut no_op = |itt| initiator.control(request::NOP_OUT, 0x80, itt, NO_TASK_TAG);
        match self {
            Self::Write | Self::Read | Self::Invalidate => Vec::new(),
            Self::NoHeader => vec![vec![0x10, 0, 0]],
            Self::NoPdu => vec![no_op(5)[..28].to_vec()],
            Self::UnknownKind => vec![with(no_op(5), 0, &[0x70])],
            Self::Hello => vec![[0x20, 0xAA, 0, 16].repeat(7)],
            Self::SegmentBeyond => vec![with(no_op(5), 28 + 5, &[0, 0x10, 0])],
            Self::HeadersBeyond => vec![with(no_op(5), 28 + 4, &[0xFF])],
            // The data may be late, of a task that was aborted, so the target drops them.
            Self::DataOfNoTask => {
                vec![IserInitiator::data_out(77, 0, 0, true, &[1; 512]), no_op(5)]
            }
            Self::WrongSource => {
                let write = cdb_10(0x2A, 64, BLOCKS);
                vec![initiator.command((9, WRITE), &write, LEN, &[], (Some(tag), None))]
            }
            Self::WrongSink => {
                let read = cdb_10(0x28, 64, BLOCKS);
                vec![initiator.command((9, READ), &read, LEN, &[], (None, Some(tag)))]
            }
            Self::Overrun => (0..200).map(no_op).collect(),
        }
    }
}

/// The message with other bytes from `at` on.
fn with(mut message: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    message[at..at + bytes.len()].copy_from_slice(bytes);
    message
}
