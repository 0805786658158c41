//! Control messages (`cmsg(3)`), byte by byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::packet_info;

/// Control data of a message. A control message is a header (length, level, type), then data; the
/// next starts at a multiple of 8.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; Self::LEN_MAX_BYTES],
    len: usize,
}

/// What control data say about received datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) dest: Option<IpAddr>,
    pub(super) segment_len_bytes: Option<u16>,
    pub(super) traffic_class: u8,
}

const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = size_of::<usize>();
const _: () = assert!(HEADER_LEN == ALIGN + 8);

impl Default for Control {
    /// None.
    fn default() -> Self {
        Self {
            bytes: [0; Self::LEN_MAX_BYTES],
            len: 0,
        }
    }
}

impl Control {
    const LEN_MAX_BYTES: usize = 256;

    /// Room for the system's control data.
    pub(super) fn room() -> Self {
        Self {
            len: Self::LEN_MAX_BYTES,
            ..Self::default()
        }
    }

    pub(super) const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The system wrote `len` bytes.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(Self::LEN_MAX_BYTES);
    }

    /// Appends a control message.
    ///
    /// # Panics
    /// If it does not fit. Two short ones do.
    pub(super) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = HEADER_LEN + data.len();
        let at = &mut self.bytes[self.len..][..len];
        at[..ALIGN].copy_from_slice(&len.to_ne_bytes());
        at[ALIGN..ALIGN + 4].copy_from_slice(&level.to_ne_bytes());
        at[ALIGN + 4..HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
        at[HEADER_LEN..].copy_from_slice(data);
        self.len += len.next_multiple_of(ALIGN);
    }

    /// The source address of the datagrams.
    pub(super) fn push_source(&mut self, source: IpAddr) {
        let (info, len) = packet_info(source);
        match source {
            IpAddr::V4(_) => self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info[..len]),
            IpAddr::V6(_) => self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info[..len]),
        }
    }

    /// The system's values.
    pub(super) fn arrival(&self) -> Arrival {
        let mut arrival = Arrival::default();
        let mut rest = &self.bytes[..self.len];
        while let Some((level, kind, data, after)) = split(rest) {
            arrival.take(level, kind, data);
            rest = after;
        }
        arrival
    }
}

impl Arrival {
    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        let int = || data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let len = int().and_then(|len| u16::try_from(len).ok());
                self.segment_len_bytes = len.filter(|len| *len > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.traffic_class = data.first().copied().unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let class = int().and_then(|class| u8::try_from(class).ok());
                self.traffic_class = class.unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let ip = data.get(8..).and_then(|ip| ip.first_chunk::<4>());
                self.dest = ip.map(|ip| Ipv4Addr::from(*ip).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip = data.first_chunk::<16>();
                self.dest = ip.map(|ip| Ipv6Addr::from(*ip).into());
            }
            _ => {}
        }
    }
}

/// The first control message: level, type, data, and the messages behind it.
fn split(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let level = i32::from_ne_bytes(*bytes.get(ALIGN..)?.first_chunk()?);
    let kind = i32::from_ne_bytes(*bytes.get(ALIGN + 4..)?.first_chunk()?);
    let data = bytes.get(HEADER_LEN..len)?;
    let after = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    Some((level, kind, data, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_are_written() {
        let mut control = Control::default();
        let v6: IpAddr = "fd00::7".parse().unwrap();
        control.push_source(v6);
        control.push(libc::SOL_UDP, libc::UDP_GRO, &1234i32.to_ne_bytes());
        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &3i32.to_ne_bytes());
        let arrival = control.arrival();
        assert_eq!(arrival.dest, Some(v6));
        assert_eq!(arrival.segment_len_bytes, Some(1234));
        assert_eq!(arrival.traffic_class, 3);
        for len in 0..control.len() {
            control.set_len(len);
            control.arrival();
        }
    }
}
