//! Long packets: an agreement of two ends of this crate's.
//!
//! The architecture's packets have 4096 bytes of payload at most. Where the network takes more (loopback, jumbo frames), two ends of
//! this crate's may agree on more: the request for a connection offers it in the last bytes of its private data, where peers that do
//! not know of it see padding, and the reply says in the same place what was agreed on. A reply that says nothing means the path MTU
//! of the request.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::PathMtu;

/// The last 12 bytes of private data: an offer in a request, what holds in a reply.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LongPackets {
    /// [`MARK`](Self::MARK).
    mark: [u8; 8],
    /// Payload of a full packet, in bytes.
    payload_len_bytes: U32,
}

const _: () = assert!(size_of::<LongPackets>() == 12);

impl LongPackets {
    /// What tells it from padding.
    const MARK: [u8; 8] = *b"rmpLong1";

    /// Puts it behind the first `used` bytes of `private_data`, where `mtu` is a long one and there is room; whether it did.
    pub fn put(private_data: &mut [u8], used: usize, mtu: PathMtu) -> bool {
        let start = private_data.len().saturating_sub(size_of::<Self>());
        if !PathMtu::LONG.contains(&mtu) || start < used {
            return false;
        }
        let said = Self {
            mark: Self::MARK,
            payload_len_bytes: mtu.bytes().into(),
        };
        said.write_to_suffix(private_data).is_ok()
    }

    /// What private data say, and the bytes before it.
    pub fn split(private_data: &[u8]) -> (Option<PathMtu>, &[u8]) {
        let Ok((before, said)) = Self::read_from_suffix(private_data) else {
            return (None, private_data);
        };
        let mtu = PathMtu::LONG
            .into_iter()
            .find(|mtu| mtu.bytes() == said.payload_len_bytes.get());
        match mtu.filter(|_| said.mark == Self::MARK) {
            Some(mtu) => (Some(mtu), before),
            None => (None, private_data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_offer_both_ways() {
        let mut data = [0xAB; 20];
        assert!(LongPackets::put(&mut data, 8, PathMtu::B61440));
        assert_eq!(data[..8], [0xAB; 8]);
        assert_eq!(data[8..], *b"rmpLong1\x00\x00\xF0\x00");
        let (mtu, before) = LongPackets::split(&data);
        assert_eq!((mtu, before), (Some(PathMtu::B61440), &[0xAB; 8][..]));
    }

    #[test]
    fn what_is_no_offer_stays_the_applications() {
        let mut data = [7; 20];
        assert!(!LongPackets::put(&mut data, 9, PathMtu::B8192), "no room");
        assert!(!LongPackets::put(&mut data, 0, PathMtu::B4096), "not long");
        assert!(!LongPackets::put(&mut data[..11], 0, PathMtu::B8192));
        assert_eq!(data, [7; 20]);
        assert_eq!(LongPackets::split(&data), (None, &data[..]));
        assert_eq!(LongPackets::split(&data[..5]), (None, &data[..5]));
        assert!(LongPackets::put(&mut data, 8, PathMtu::B8192));
        data[19] = 1;
        assert_eq!(LongPackets::split(&data), (None, &data[..]));
    }
}
