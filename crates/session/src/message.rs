//! How a runtime drives a protocol that runs over a reliable-connected queue pair (RDMA).

use std::time::Instant;

use crate::Session;

/// A key to memory that one end has registered for the other (an R_Key, or a steering tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

/// Memory of the peer's, as the peer named it. Whether it may be reached is for the peer's end to
/// judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// The address of the first byte, or an offset if the peer's key is zero-based.
    pub address: u64,
    /// The key to it.
    pub key: RemoteKey,
    /// Its length.
    pub len_bytes: u32,
}

impl RemoteBuffer {
    /// `len_bytes` bytes of it, from `offset_bytes` on; `None` if they do not lie inside, or if the
    /// peer gave an address so high that they have none.
    pub fn piece(self, offset_bytes: u32, len_bytes: u32) -> Option<Self> {
        let end_bytes = offset_bytes.checked_add(len_bytes)?;
        if end_bytes > self.len_bytes {
            return None;
        }
        let address = self.address.checked_add(u64::from(offset_bytes))?;
        address.checked_add(u64::from(len_bytes))?;
        Some(Self {
            address,
            key: self.key,
            len_bytes,
        })
    }
}

/// What a session has posted to its send queue, and room to post more. The runtime implements it;
/// its room is bounded by the depth of the send queue, by the reads that the peer answers at once,
/// and by memory that all connections share.
///
/// What is posted is carried out in the order of posting: a message that is sent after a write
/// arrives after it. A session does not learn when a write or a message has arrived; of a read it
/// gets the data ([`MessageSession::handle_read`]), in the order of posting.
///
/// Where something does not fit, nothing has changed, and the session is polled again when there is
/// room.
pub trait WorkList {
    /// The longest write or read, in bytes: a multiple of 4096. What is longer goes in pieces.
    fn piece_max_bytes(&self) -> u32;

    /// How long the next write or read is if `left_bytes` bytes are left to move.
    fn piece_bytes(&self, left_bytes: u32) -> u32 {
        piece_bytes(left_bytes, self.piece_max_bytes())
    }

    /// Posts an RDMA WRITE of as many bytes as `to` has, at most
    /// [`piece_max_bytes`](Self::piece_max_bytes). Fill in all of them at once: they hold old
    /// bytes.
    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]>;

    /// Takes the write back that was just posted (the data could not be read after all).
    fn retract(&mut self);

    /// Posts an RDMA READ of `from`, at most [`piece_max_bytes`](Self::piece_max_bytes) bytes;
    /// whether it fitted. `tag` comes back with the data.
    #[must_use]
    fn read(&mut self, tag: u64, from: RemoteBuffer) -> bool;

    /// Posts a message of `len_bytes` bytes, no longer than the peer's receives, which invalidates
    /// the key `invalidate`, if any. Fill in all of the bytes at once: they hold old ones.
    fn send(&mut self, len_bytes: u32, invalidate: Option<RemoteKey>) -> Option<&mut [u8]>;
}

/// How long the next piece is: whole pages, except for the last piece. Pieces are about equal,
/// since a short one costs as much as a long one.
fn piece_bytes(left_bytes: u32, max_bytes: u32) -> u32 {
    left_bytes
        .div_ceil(left_bytes.div_ceil(max_bytes).max(1))
        .next_multiple_of(4096)
        .min(max_bytes)
        .min(left_bytes)
}

/// A protocol's end of one connection over a reliable-connected queue pair: messages and data that
/// were read in, requests out. It has no queue pair, clock, lock or thread, so tests feed it
/// messages in any order and virtual time.
///
/// The runtime calls [`handle_message`](Self::handle_message) with each message that came and
/// [`handle_read`](Self::handle_read) with the data of each read, then
/// [`poll_transmit`](Self::poll_transmit), and that again when there is room for more and
/// [`wants_transmit`](Session::wants_transmit). It keeps as many receives posted as were agreed on:
/// a message's receive is posted again as soon as `handle_message` has returned.
pub trait MessageSession: Session {
    /// Handles a received message. `invalidated` is the local key that the peer invalidated with
    /// it.
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        invalidated: Option<RemoteKey>,
        backend: &mut Self::Backend,
    ) -> Result<(), Self::Error>;

    /// Takes the data in that the read posted with `tag` has brought: all of its bytes.
    fn handle_read(
        &mut self,
        now: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut Self::Backend,
    ) -> Result<(), Self::Error>;

    /// Posts as much as fits of what is to be done.
    fn poll_transmit(&mut self, now: Instant, backend: &mut Self::Backend, out: &mut dyn WorkList);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_about_equal_and_whole_pages() {
        for (max_bytes, len_bytes, pieces) in [
            (61_440, 131_072, &[45_056, 45_056, 40_960][..]),
            (61_440, 61_441, &[32_768, 28_673]),
            (61_440, 61_440, &[61_440]),
            (65_536, 131_072, &[65_536, 65_536]),
            (65_536, 1, &[1]),
            (4096, 8193, &[4096, 4096, 1]),
            (4096, 0, &[]),
        ] {
            let (mut left, mut cut) = (len_bytes, Vec::new());
            while left > 0 {
                let piece = piece_bytes(left, max_bytes);
                left -= piece;
                cut.push(piece);
            }
            assert_eq!(cut, pieces, "{len_bytes} in pieces of {max_bytes}");
        }
        assert_eq!(piece_bytes(u32::MAX, 4096), 4096);
    }

    #[test]
    fn a_piece_lies_inside_of_its_buffer_and_of_all_addresses() {
        let buffer = RemoteBuffer {
            address: 0x1000,
            key: RemoteKey(7),
            len_bytes: 100,
        };
        let piece = buffer.piece(40, 60).expect("the rest");
        assert_eq!((piece.address, piece.len_bytes), (0x1028, 60));
        assert_eq!(piece.key, RemoteKey(7));
        assert_eq!(buffer.piece(40, 61), None);
        assert_eq!(buffer.piece(u32::MAX, 2), None);
        let high = RemoteBuffer {
            address: u64::MAX - 50,
            ..buffer
        };
        assert!(high.piece(0, 50).is_some());
        assert_eq!(high.piece(0, 60), None);
        assert_eq!(high.piece(60, 1), None);
    }
}
