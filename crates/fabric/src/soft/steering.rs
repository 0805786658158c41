//! Which thread a packet is for, where several share an address: a rule for the system's choice of a socket, and for ours.
//!
//! Each thread's queue pair numbers and communication identifiers leave the thread's number when divided by how many threads
//! there are. So packets to queue pairs, and all messages of the connection manager that name an identifier of ours, tell
//! the thread. A request for a connection names none yet: the sum of the bytes of its sender's identifier decides. That is the
//! same when the request is sent again, or taken back; and Linux counts in the first byte, others in the last.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 12, on the messages' first fields.

use std::mem::offset_of;

use net::Instruction;
use roce::wire::{Bth, Deth, MadHeader, Qpn};

/// How packets are spread over so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steering {
    pub(super) threads: u32,
}

impl Steering {
    /// The thread that a packet is for. What is no packet is the first one's.
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

/// What tells the thread when divided by how many there are; `None` where it is not there.
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
/// Every message begins with its sender's identifier (local communication ID) and that of the end it goes to (remote
/// communication ID), which a request does not have.
const SENDER_ID_AT: u32 = MAD_AT + size_of::<MadHeader>() as u32;
const OUR_ID_AT: u32 = SENDER_ID_AT + 4;
/// Attribute of a request for a connection (REQ).
const REQUEST: u32 = 0x10;

#[cfg(test)]
mod tests;
