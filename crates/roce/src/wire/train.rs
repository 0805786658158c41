//! Trains: several packets of one queue pair in one datagram, between two ends in one machine that agree on them
//! ([`Extension`](super::cm::Extension)).
//!
//! ```text
//!  BTH … payload pad LEN │ BTH … payload pad LEN │ …
//! ```
//!
//! Each packet is as ever, but for its last 4 bytes: where others have the ICRC, these have their own length, so that a train is
//! cut from its end. The first packet begins the datagram, so whatever looks for a queue pair number finds it where it always is.

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use super::{Bth, ICRC_LEN_BYTES};

/// How the packets of a connection stand in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// One in each, sealed with the ICRC, as the architecture says.
    #[default]
    Sealed,
    /// Several in each, without ICRC: of two ends in one machine that agree on it. Nothing is on the way of their packets that could
    /// damage them, and the system sums them as little, those of TCP included.
    Train,
}

/// Where the packets of a train are; made once, for the train at hand.
#[derive(Debug)]
pub(crate) struct Train {
    /// Starts of packets, from the last to the first.
    starts: Vec<u16>,
    end: u16,
}

/// A datagram that is no train: its lengths do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTrain;

impl Train {
    /// The longest: 60 KiB of payload and what goes with them, in a UDP datagram over IPv4 or IPv6 ([`PathMtu::for_network`]).
    pub(crate) const LEN_MAX_BYTES: usize = 65_000;
    /// BTH and length.
    const PACKET_MIN_BYTES: usize = size_of::<Bth>() + ICRC_LEN_BYTES;

    /// Room for the longest.
    pub(crate) fn new() -> Self {
        Self {
            starts: Vec::with_capacity(Self::LEN_MAX_BYTES / Self::PACKET_MIN_BYTES),
            end: 0,
        }
    }

    /// The last 4 bytes of a packet that has `len_bytes` with them.
    pub(crate) fn seal(len_bytes: u16) -> [u8; ICRC_LEN_BYTES] {
        u32::from(len_bytes).to_be_bytes()
    }

    /// Finds the packets of a datagram. Nothing of it is taken where the lengths do not lead to its start exactly.
    pub(crate) fn cut(&mut self, datagram: &[u8]) -> Result<(), NoTrain> {
        self.starts.clear();
        if datagram.len() > Self::LEN_MAX_BYTES {
            return Err(NoTrain);
        }
        self.end = datagram.len() as u16;
        let mut rest = datagram;
        while !rest.is_empty() {
            let (_, len) = U32::read_from_suffix(rest).map_err(|_| NoTrain)?;
            let len = len.get() as usize;
            // Not shorter than any packet, so this ends, and there is room for all of them.
            if len < Self::PACKET_MIN_BYTES || len % 4 != 0 || len > rest.len() {
                self.starts.clear();
                return Err(NoTrain);
            }
            rest = &rest[..rest.len() - len];
            self.starts.push(rest.len() as u16);
        }
        Ok(())
    }

    /// The packet that comes next, from the first on, of the datagram that was cut; `None` after the last.
    pub(crate) fn next<'a>(&mut self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.starts.pop()?;
        let end = self.starts.last().copied().unwrap_or(self.end);
        datagram.get(usize::from(start)..usize::from(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(fill: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![fill; len - ICRC_LEN_BYTES];
        bytes.extend(Train::seal(len as u16));
        bytes
    }

    fn cut(datagram: &[u8]) -> Option<Vec<&[u8]>> {
        let mut train = Train::new();
        train.cut(datagram).ok()?;
        Some(std::iter::from_fn(|| train.next(datagram)).collect())
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let packets = [packet(1, 16), packet(2, 4128), packet(3, 20)];
        for count in 1..=3 {
            assert_eq!(cut(&packets[..count].concat()).unwrap(), packets[..count]);
        }
        let shortest = packet(4, 16).repeat(Train::LEN_MAX_BYTES / 16);
        assert_eq!(cut(&shortest).unwrap().len(), Train::LEN_MAX_BYTES / 16);
        assert_eq!(cut(&[]).unwrap(), [[0_u8; 0]; 0]);
    }

    #[test]
    fn nothing_is_taken_of_what_does_not_add_up() {
        let good = [packet(1, 16), packet(2, 64)].concat();
        assert_eq!(cut(&good[1..]), None, "its first byte is missing");
        assert_eq!(cut(&good[..79]), None, "its last byte is missing");
        assert_eq!(cut(&[0; 64]), None, "a length of 0");
        assert_eq!(cut(&[0, 0, 0, 4]), None, "shorter than any packet");
        assert_eq!(cut(&good[2..18]), None, "not aligned");
        assert_eq!(cut(&[0, 1]), None, "no length at all");
        for (at, len) in [(76, 84_u32), (76, 15), (76, 66), (76, u32::MAX), (12, 20)] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&len.to_be_bytes());
            assert_eq!(cut(&bad), None, "{len} at {at}");
        }
        let long = packet(4, 16).repeat(Train::LEN_MAX_BYTES / 16 + 1);
        assert_eq!(cut(&long), None, "longer than any");
    }
}
