//! The offer of packets longer than the architecture allows, between two ends of this crate.
//!
//! The architecture's packets carry at most 4096 bytes of payload. Jumbo frames and the loopback
//! device have room for [`PathMtu::B8192`]. The request for a connection offers such packets in the
//! last bytes of its private data, where other implementations see padding. The reply accepts the
//! offer with the same bytes. Without them in the reply, packets are as long as the request's path
//! MTU says.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::PathMtu;

/// The last 12 bytes of private data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct Field {
    /// [`MARK`](Self::MARK).
    mark: [u8; 7],
    /// Reserved: 0.
    flags: u8,
    /// Payload of a full packet, in bytes: 8192.
    payload_len_bytes: U32,
}

const _: () = assert!(size_of::<Field>() == 12);

impl Field {
    /// Distinguishes the field from padding.
    const MARK: [u8; 7] = *b"rampExt";

    fn new() -> Self {
        Self {
            mark: Self::MARK,
            flags: 0,
            payload_len_bytes: PathMtu::B8192.bytes().into(),
        }
    }
}

/// Puts the offer, or its acceptance, behind the first `used_bytes` bytes of `private_data`.
/// Returns `false`, and changes nothing, if there is no room.
pub fn put(private_data: &mut [u8], used_bytes: usize) -> bool {
    let start = private_data.len().saturating_sub(size_of::<Field>());
    start >= used_bytes && Field::new().write_to_suffix(private_data).is_ok()
}

/// Whether `private_data` ends with the offer, and the bytes before it. A field with any unknown
/// value is no offer: its bytes belong to the application.
pub fn split(private_data: &[u8]) -> (bool, &[u8]) {
    match Field::read_from_suffix(private_data) {
        Ok((before, field)) if field == Field::new() => (true, before),
        _ => (false, private_data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_offer_both_ways() {
        let mut data = [0xAB; 20];
        assert!(put(&mut data, 8));
        assert_eq!(data[..8], [0xAB; 8]);
        assert_eq!(data[8..], *b"rampExt\x00\x00\x00\x20\x00");
        assert_eq!(split(&data), (true, &[0xAB; 8][..]));
    }

    #[test]
    fn bytes_that_are_no_offer_stay_the_applications() {
        let mut data = [7; 20];
        assert!(!put(&mut data, 9), "no room");
        assert!(!put(&mut data[..11], 0), "no room at all");
        assert_eq!(data, [7; 20]);
        assert_eq!(split(&data), (false, &data[..]));
        assert_eq!(split(&data[..5]), (false, &data[..5]));
        assert!(put(&mut data, 8));
        for index in [8, 15, 19] {
            let mut other = data;
            other[index] ^= 2;
            assert_eq!(split(&other), (false, &other[..]), "{index}");
        }
    }

    #[test]
    fn the_offer_of_former_versions_is_none() {
        // 60 KiB packets, several in a datagram.
        let former = b"private data\0rampExt\x01\x00\x00\xF0\x00";
        assert_eq!(split(former), (false, &former[..]));
    }
}
