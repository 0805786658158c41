//! Which thread a packet is for if several share an address: one rule, for the system's choice of a
//! socket and for our own check.
//!
//! Queue pair numbers and communication identifiers of a thread, modulo the number of threads, are
//! the thread's number. So packets to queue pairs, and all messages of the connection manager that
//! name an identifier of ours, determine the thread. A connection request names none yet; there,
//! the sum of the bytes of the sender's identifier decides. That sum is the same when the request
//! is retransmitted or withdrawn. (Linux increments the first byte of its identifiers, others the
//! last.)
//!
//! Read first: InfiniBand Architecture volume 1, chapter 12, on the messages' first fields.

use std::mem::offset_of;

use net::Instruction;
use roce::wire::{Bth, Deth, MadHeader, Qpn};

/// How packets are spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steering {
    pub(super) threads: u32,
}

impl Steering {
    /// The thread that a packet is for; the first thread if the datagram is no packet.
    pub(super) fn thread_of(self, packet: &[u8]) -> u32 {
        number_in(packet).map_or(0, |n| n % self.threads)
    }

    /// [`thread_of`](Self::thread_of), for the system.
    pub(super) fn program(self) -> [Instruction; 24] {
        use Instruction::{
            AddX, And, CopyToX, LoadByte, LoadHalf, LoadWord, Modulo, Return, SkipIf,
        };
        let is = |equal_to, then, otherwise| SkipIf {
            equal_to,
            then,
            otherwise,
        };
        [
            LoadWord { at: QPN_AT },
            And(QPN_BITS),
            is(Qpn::GSI.get(), 2, 0),
            Modulo(self.threads),
            Return,
            // All that is looked at must be there, whichever decides.
            LoadWord { at: OUR_ID_AT },
            LoadHalf { at: ATTRIBUTE_AT },
            is(REQUEST, 4, 0),
            LoadWord { at: OUR_ID_AT },
            is(0, 2, 0),
            Modulo(self.threads),
            Return,
            LoadByte { at: SENDER_ID_AT },
            CopyToX,
            LoadByte {
                at: SENDER_ID_AT + 1,
            },
            AddX,
            CopyToX,
            LoadByte {
                at: SENDER_ID_AT + 2,
            },
            AddX,
            CopyToX,
            LoadByte {
                at: SENDER_ID_AT + 3,
            },
            AddX,
            Modulo(self.threads),
            Return,
        ]
    }
}

/// The number that modulo the number of threads is the thread; `None` if the packet is too short.
fn number_in(packet: &[u8]) -> Option<u32> {
    let word = |at: u32| {
        let bytes = packet.get(at as usize..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let qpn = word(QPN_AT)? & QPN_BITS;
    if qpn != Qpn::GSI.get() {
        return Some(qpn);
    }
    let is_request = word(ATTRIBUTE_AT)? >> 16 == REQUEST;
    let (sender, ours) = (word(SENDER_ID_AT)?, word(OUR_ID_AT)?);
    if is_request || ours == 0 {
        let bytes = sender.to_be_bytes();
        return Some(bytes.into_iter().map(u32::from).sum());
    }
    Some(ours)
}

/// Reserved bits, then the destination queue pair.
const QPN_AT: u32 = offset_of!(Bth, dest_qpn) as u32 - 1;
const QPN_BITS: u32 = 0x00FF_FFFF;
const MAD_AT: u32 = (size_of::<Bth>() + size_of::<Deth>()) as u32;
const ATTRIBUTE_AT: u32 = MAD_AT + offset_of!(MadHeader, attribute) as u32;
/// Every message begins with its sender's identifier (local communication ID) and its receiver's
/// (remote communication ID), which a request does not have.
const SENDER_ID_AT: u32 = MAD_AT + size_of::<MadHeader>() as u32;
const OUR_ID_AT: u32 = SENDER_ID_AT + 4;
/// Attribute of a request for a connection (REQ).
const REQUEST: u32 = 0x10;

#[cfg(test)]
mod tests;
