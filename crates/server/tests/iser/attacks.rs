//! What initiators that mean harm do to a target after their login.

use std::net::SocketAddr;

use fabric::verbs::{Data, Remote, Rkey, SendOp};
use iscsi::iser::wire::Tag;
use iscsi::testing::IserInitiator;
use iscsi::wire::{NO_TASK_TAG, request};

use super::peer::{Addresses, GOOD, Peer, READ, WRITE, cdb_10};

/// Whom they harm, and from where.
pub struct Scene<'a> {
    pub from: SocketAddr,
    pub portal: SocketAddr,
    pub target: &'a str,
}

impl Scene<'_> {
    /// Each harm once, with keys that depend on the round.
    pub fn harm(&self, round: u32) {
        for (harm, guess) in HARMS.into_iter().zip(round..) {
            let peer = Peer::connect(self.from, self.portal, Addresses::InFull);
            let mut peer = peer.expect("taken");
            let status = peer.log_in("iqn.2026-11.com.example:other", self.target);
            assert_eq!(status, GOOD);
            harm.do_it(&mut peer, guess.wrapping_mul(0x0101_0101));
        }
    }
}

/// What a peer does after its login.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
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
/// The length of commands.
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
