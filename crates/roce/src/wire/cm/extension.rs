//! What two ends of this crate's may agree on beyond the architecture.
//!
//! - *Long packets.* The architecture's have 4096 bytes of payload at most. Where the network takes more (loopback, jumbo frames), so
//!   may these.
//! - *Trains*, between two addresses of loopback: several packets in a datagram, without ICRC ([`Framing::Train`]).
//!
//! The request for a connection offers them in the last bytes of its private data, where peers that do not know of them see padding,
//! and the reply says in the same place what was agreed on. A reply that says nothing means what the request says otherwise.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Framing, PathMtu};

/// An offer in a request, what holds in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Payload of a full packet: one of [`PathMtu::LONG`].
    pub path_mtu: PathMtu,
    /// How packets stand in datagrams; trains need the longest path MTU.
    pub framing: Framing,
}

/// The last 12 bytes of private data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct Field {
    /// [`MARK`](Self::MARK).
    mark: [u8; 7],
    /// Bit 0: trains. Others are 0.
    flags: u8,
    /// Payload of a full packet, in bytes.
    payload_len_bytes: U32,
}

const _: () = assert!(size_of::<Field>() == 12);

impl Field {
    /// What tells it from padding.
    const MARK: [u8; 7] = *b"rampExt";
    const TRAINS: u8 = 1;
}

impl Extension {
    /// Long packets as they are offered or taken; trains only where whole ones pass.
    pub fn new(path_mtu: PathMtu, framing: Framing) -> Self {
        let framing = match path_mtu {
            PathMtu::B61440 => framing,
            _ => Framing::Sealed,
        };
        Self { path_mtu, framing }
    }

    /// What both of two ends take.
    pub(crate) fn meet(self, other: Self) -> Self {
        let framing = if self.framing == other.framing {
            self.framing
        } else {
            Framing::Sealed
        };
        Self::new(self.path_mtu.min(other.path_mtu), framing)
    }

    /// Puts it behind the first `used` bytes of `private_data`, where packets are long and there is room; whether it did.
    pub fn put(self, private_data: &mut [u8], used: usize) -> bool {
        let start = private_data.len().saturating_sub(size_of::<Field>());
        if !PathMtu::LONG.contains(&self.path_mtu) || start < used {
            return false;
        }
        let field = Field {
            mark: Field::MARK,
            flags: match self.framing {
                Framing::Sealed => 0,
                Framing::Train => Field::TRAINS,
            },
            payload_len_bytes: self.path_mtu.bytes().into(),
        };
        field.write_to_suffix(private_data).is_ok()
    }

    /// What private data say, and the bytes before it.
    pub fn split(private_data: &[u8]) -> (Option<Self>, &[u8]) {
        let Ok((before, field)) = Field::read_from_suffix(private_data) else {
            return (None, private_data);
        };
        match Self::from_field(&field) {
            Some(extension) => (Some(extension), before),
            None => (None, private_data),
        }
    }

    fn from_field(field: &Field) -> Option<Self> {
        if field.mark != Field::MARK {
            return None;
        }
        let framing = match field.flags {
            0 => Framing::Sealed,
            Field::TRAINS => Framing::Train,
            _ => return None,
        };
        let path_mtu = PathMtu::LONG
            .into_iter()
            .find(|mtu| mtu.bytes() == field.payload_len_bytes.get())?;
        Some(Self::new(path_mtu, framing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Extension = Extension {
        path_mtu: PathMtu::B61440,
        framing: Framing::Train,
    };

    #[test]
    fn golden_offer_both_ways() {
        let mut data = [0xAB; 20];
        assert!(LONGEST.put(&mut data, 8));
        assert_eq!(data[..8], [0xAB; 8]);
        assert_eq!(data[8..], *b"rampExt\x01\x00\x00\xF0\x00");
        assert_eq!(Extension::split(&data), (Some(LONGEST), &[0xAB; 8][..]));
    }

    #[test]
    fn what_is_no_offer_stays_the_applications() {
        let mut data = [7; 20];
        let standard = Extension {
            path_mtu: PathMtu::B4096,
            ..LONGEST
        };
        assert!(!LONGEST.put(&mut data, 9), "no room");
        assert!(!LONGEST.put(&mut data[..11], 0), "no room at all");
        assert!(!standard.put(&mut data, 0), "not long");
        assert_eq!(data, [7; 20]);
        assert_eq!(Extension::split(&data), (None, &data[..]));
        assert_eq!(Extension::split(&data[..5]), (None, &data[..5]));
        assert!(LONGEST.put(&mut data, 8));
        for index in [8, 15, 19] {
            let mut other = data;
            other[index] ^= 2;
            assert_eq!(Extension::split(&other), (None, &other[..]), "{index}");
        }
    }
}
