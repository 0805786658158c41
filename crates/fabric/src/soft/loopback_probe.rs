//! Checks that packets arrive as this machine sends them: segmented as requested, and with the same
//! ICRC.
//!
//! A packet that a socket sends to its own address takes the same path as all packets as far as the
//! interface: segmentation, filters, address translation, reassembly. Damage by an adapter shows
//! only at a peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use net::{UdpArrival, UdpRun, UdpSocket};
use roce::wire::{
    Bth, Deth, ICRC_LEN_BYTES, Icrc, IpHeader, Ipv4Identification, Opcode, PathMtu, Psn, QKEY_GSI,
    Qpn, verify,
};
use roce::{Flow, TransmitList};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes;

use super::Segmentation;

/// Results of packets that this machine sent to itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The system did not send them.
    #[error("was refused ({0})")]
    Refused(#[source] io::Error),
    /// One was sent, and never seen again.
    #[error("did not come back")]
    Lost,
    /// One arrived with other addresses than it was sent with.
    #[error("came from {source_seen} to {dest_seen}, other addresses than it left with")]
    Translated {
        /// The source address that it arrived with.
        source_seen: SocketAddr,
        /// The destination address that it arrived with.
        dest_seen: SocketAddr,
    },
    /// One arrived with other bytes, or another ICRC, than it was sent with.
    #[error("came back damaged")]
    Damaged,
}

impl Fault {
    /// How to fix it.
    const fn how_to_fix(&self) -> &'static str {
        match self {
            Self::Refused(_) | Self::Lost => {
                "if so, let the firewall pass its UDP port, and set the interface lo up (ip link set lo up)"
            }
            Self::Translated { .. } => "if so, take its UDP port out of address translation",
            Self::Damaged => {
                "find out which filter or driver of this machine changes UDP packets, and turn it off"
            }
        }
    }
}

/// Single packets arrive damaged, as they would at peers.
#[derive(Debug)]
pub(super) struct Damaged;

/// A socket, as the probe uses it.
pub(super) trait Datagrams {
    /// Sends a run.
    fn send(&mut self, run: &UdpRun, bytes: &[u8]) -> io::Result<()>;

    /// Receives what has arrived; `None` if nothing has.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<UdpArrival>>;

    /// Waits at most `at_most` for something to arrive. Returns whether anything may have.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;
}

impl Datagrams for UdpSocket {
    fn send(&mut self, run: &UdpRun, bytes: &[u8]) -> io::Result<()> {
        Self::send(self, run, std::iter::once(bytes))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<UdpArrival>> {
        Self::receive(self, buffer)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let fd = self.as_fd();
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&timeout),
        ) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// The parameters of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopbackProbe {
    /// The socket's address. An unspecified address is probed at loopback.
    pub(super) local: SocketAddr,
    /// Payload of a full packet.
    pub(super) path_mtu: PathMtu,
    /// A random number that distinguishes these packets from those of peers.
    pub(super) nonce: u64,
}

impl LoopbackProbe {
    /// How often packets are sent before they count as lost: peers may be filling the socket's
    /// buffer.
    const ATTEMPTS: u32 = 3;
    /// How long they are waited for each time.
    const TIMEOUT: Duration = Duration::from_millis(100);
    /// The most bytes of a run.
    const RUN_LEN_MAX_BYTES: usize = 62_000;

    /// Whether the system may segment runs of packets, if that is `wanted`. Returns an error if
    /// single packets are damaged. If no packet arrives at all, the probe decides nothing: a
    /// filter, or a loopback interface that is down, may stop only packets to the own address.
    pub(super) fn segmentation<D: Datagrams>(
        &self,
        socket: &mut D,
        wanted: Segmentation,
        buffer: &mut [u8],
    ) -> Result<Segmentation, Damaged> {
        match self.sent_and_received(socket, 1, buffer) {
            Ok(()) => {}
            Err(Fault::Damaged) => return Err(Damaged),
            Err(fault) => {
                let how_to_fix = fault.how_to_fix();
                tracing::warn!(
                    local = %self.local,
                    "a packet sent to the address itself {fault}: software RDMA may not work here; {how_to_fix}"
                );
                return Ok(wanted);
            }
        }
        if wanted == Segmentation::Off {
            return Ok(Segmentation::Off);
        }
        let most = Self::RUN_LEN_MAX_BYTES / self.packet(0, self.path_mtu.bytes()).len();
        let packets = most.min(TransmitList::SEGMENTS_MAX.into());
        match self.sent_and_received(socket, packets, buffer) {
            Ok(()) => Ok(Segmentation::On),
            Err(fault) => {
                tracing::warn!(
                    local = %self.local,
                    "a packet of a run {fault}: software RDMA continues without segmentation offload (GSO), which takes more CPU"
                );
                Ok(Segmentation::Off)
            }
        }
    }

    /// Sends a run of `packets` packets to the socket itself until all have arrived undamaged.
    fn sent_and_received<D: Datagrams>(
        &self,
        socket: &mut D,
        packets: usize,
        buffer: &mut [u8],
    ) -> Result<(), Fault> {
        let packets: Vec<Vec<u8>> = (0..packets)
            .map(|index| {
                // The last of a run may be shorter, and is.
                let is_last = index > 0 && index + 1 == packets;
                let full = self.path_mtu.bytes();
                self.packet(index as u16, if is_last { full / 2 } else { full })
            })
            .collect();
        let run = UdpRun {
            source: self.own().ip(),
            dest: self.own(),
            segment_len_bytes: (packets.len() > 1).then_some(packets[0].len() as u16),
        };
        let bytes = packets.concat();
        let mut fault = Fault::Lost;
        for _ in 0..Self::ATTEMPTS {
            if let Err(error) = socket.send(&run, &bytes) {
                fault = Fault::Refused(error);
                continue;
            }
            if self.received(socket, &packets, buffer)? {
                return Ok(());
            }
            fault = Fault::Lost;
        }
        Err(fault)
    }

    /// Whether all `packets` arrive in time. Other packets are dropped: their senders retransmit
    /// them.
    fn received<D: Datagrams>(
        &self,
        socket: &mut D,
        packets: &[Vec<u8>],
        buffer: &mut [u8],
    ) -> Result<bool, Fault> {
        let deadline = Instant::now() + Self::TIMEOUT;
        // Runs have 64 packets at most.
        let (mut seen, all) = (0_u64, u64::MAX >> (64 - packets.len()));
        while seen != all {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            match socket.receive(buffer).map_err(Fault::Refused)? {
                Some(arrival) => seen |= self.judge(&arrival, buffer, packets)?,
                None if socket.wait(left).map_err(Fault::Refused)? => {}
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Which of the packets an arrival has brought, as bits.
    fn judge(
        &self,
        arrival: &UdpArrival,
        buffer: &[u8],
        packets: &[Vec<u8>],
    ) -> Result<u64, Fault> {
        let bytes = &buffer[..arrival.len_bytes];
        let segment_len = arrival.segment_len_bytes.map_or(bytes.len(), usize::from);
        let mut brought = 0;
        for (place, datagram) in (0..).zip(bytes.chunks(segment_len.max(1))) {
            let Some((nonce, index)) = marks(datagram) else {
                continue;
            };
            if nonce != self.nonce {
                continue;
            }
            if !self.is_own(arrival.source) || !self.is_own(arrival.dest) {
                return Err(Fault::Translated {
                    source_seen: arrival.source,
                    dest_seen: arrival.dest,
                });
            }
            let sent = usize::try_from(index).ok().and_then(|at| packets.get(at));
            let identification = Ipv4Identification::Likely(place);
            if sent.is_none_or(|sent| sent != datagram)
                || !verify(self.flow(), identification, datagram)
            {
                return Err(Fault::Damaged);
            }
            brought |= 1 << index;
        }
        Ok(brought)
    }

    /// A management datagram that every end ignores. Its payload is the nonce, its index, and
    /// numbers derived from both.
    fn packet(&self, index: u16, payload_len: u32) -> Vec<u8> {
        let opcode = Opcode::DatagramSend.to_wire();
        let bth = Bth::new(opcode, Qpn::GSI, Psn::new(index.into()));
        let deth = Deth::new(QKEY_GSI, Qpn::GSI);
        let mut number = self.nonce ^ u64::from(index);
        let mut payload = [self.nonce.to_ne_bytes(), u64::from(index).to_ne_bytes()].concat();
        while payload.len() < payload_len as usize {
            number = number.wrapping_mul(MULTIPLIER).wrapping_add(1);
            payload.extend(number.to_ne_bytes());
        }
        let len = HEADERS_LEN_BYTES + payload.len() + ICRC_LEN_BYTES;
        let mut icrc = Icrc::begin(&IpHeader::new(self.flow(), index), len as u16);
        icrc.update_bth(&bth);
        icrc.update(deth.as_bytes());
        icrc.update(&payload);
        [bth.as_bytes(), deth.as_bytes(), &payload, &icrc.to_wire()].concat()
    }

    /// From the socket to itself.
    fn flow(&self) -> Flow {
        let own = self.own();
        Flow::new(own, own).expect("an address is of its own family")
    }

    /// Whether this is the socket's address. Scopes of IPv6 addresses are not compared, since not
    /// every call returns them.
    fn is_own(&self, seen: SocketAddr) -> bool {
        let own = self.own();
        (seen.ip(), seen.port()) == (own.ip(), own.port())
    }

    /// The address by which the socket can be reached from this machine.
    const fn own(&self) -> SocketAddr {
        let loopback = match self.local.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            _ => return self.local,
        };
        SocketAddr::new(loopback, self.local.port())
    }
}

/// The nonce and the position in a packet's payload.
fn marks(datagram: &[u8]) -> Option<(u64, u64)> {
    let payload = datagram.get(HEADERS_LEN_BYTES..)?;
    let (nonce, rest) = payload.split_first_chunk()?;
    Some((
        u64::from_ne_bytes(*nonce),
        u64::from_ne_bytes(*rest.first_chunk()?),
    ))
}

const HEADERS_LEN_BYTES: usize = size_of::<Bth>() + size_of::<Deth>();
/// That of Knuth's linear congruential generator MMIX.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

#[cfg(test)]
mod tests;
