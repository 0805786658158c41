//! Golden vectors in both directions that another implementation made: packets of Linux's.

use std::net::SocketAddr;

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::wire::cm::{
    CommId, Dreq, Gid, IpCmHeader, Message, Path, Req, Rtu, ServiceId, TimeCode,
};
use crate::wire::{
    Aeth, Bth, Deth, Extended, Ipv4Identification, Opcode, Packet, Position, Psn, QKEY_GSI,
    SendTail, Syndrome, U24, verify,
};
use crate::{Flow, Received};

const TEXT: &str = include_str!("captured.txt");
const IPV4_HEADER_LEN_BYTES: usize = 20;
const IPV6_HEADER_LEN_BYTES: usize = 40;
const UDP_HEADER_LEN_BYTES: usize = 8;

/// A captured packet.
pub(super) struct Captured {
    /// From its sender to its receiver.
    pub(super) flow: Flow,
    /// IPv4's identification; 0 over IPv6.
    identification: u16,
    /// UDP's payload, ICRC included.
    pub(super) datagram: Vec<u8>,
}

impl Captured {
    pub(super) fn new(name: &str) -> Self {
        let mut lines = TEXT.lines().skip_while(|line| *line != name).skip(1);
        let words = lines
            .by_ref()
            .take_while(|line| line.starts_with(' '))
            .flat_map(str::split_whitespace);
        let bytes: Vec<u8> = words.flat_map(expand).collect();
        let (ip, rest, identification) = match bytes[0] >> 4 {
            4 => {
                let (ip, rest) = bytes.split_at(IPV4_HEADER_LEN_BYTES);
                (ip, rest, u16::from_be_bytes([ip[4], ip[5]]))
            }
            6 => {
                let (ip, rest) = bytes.split_at(IPV6_HEADER_LEN_BYTES);
                (ip, rest, 0)
            }
            other => panic!("{name}: IP version {other}"),
        };
        let (udp, datagram) = rest.split_at(UDP_HEADER_LEN_BYTES);
        let len = u16::from_be_bytes([udp[4], udp[5]]);
        assert_eq!(usize::from(len), rest.len(), "{name} is whole");
        Self {
            flow: flow(ip, udp),
            identification,
            datagram: datagram.to_vec(),
        }
    }

    /// As a UDP socket gives it.
    pub(super) fn received(&self) -> Received<'_> {
        Received {
            flow: self.flow,
            bytes: &self.datagram,
            segment_len_bytes: None,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: false,
        }
    }

    pub(super) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.datagram).unwrap()
    }

    /// The transaction and the message of a management datagram.
    pub(super) fn message(&self) -> (u64, Message) {
        Message::parse(self.packet().payload).unwrap()
    }

    fn verifies(&self, datagram: &[u8]) -> bool {
        let known = Ipv4Identification::Known(self.identification);
        verify(self.flow, known, datagram)
    }
}

/// The bytes of a word: hexadecimal digits, or a number of zeros.
fn expand(word: &str) -> Vec<u8> {
    match word.strip_prefix("00*") {
        Some(count) => vec![0; count.parse().unwrap()],
        None => hex(word),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    TEXT.lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// The addresses at the end of an IP header, and the ports at the start of a UDP header.
fn flow(ip: &[u8], udp: &[u8]) -> Flow {
    let ends = |ip: &[u8], port: &[u8]| {
        let port = u16::from_be_bytes([port[0], port[1]]);
        match <[u8; 4]>::try_from(ip) {
            Ok(v4) => SocketAddr::from((v4, port)),
            Err(_) => SocketAddr::from((<[u8; 16]>::try_from(ip).unwrap(), port)),
        }
    };
    let address_len = if ip.len() == IPV4_HEADER_LEN_BYTES {
        4
    } else {
        16
    };
    let (rest, dest) = ip.split_at(ip.len() - address_len);
    let source = &rest[rest.len() - address_len..];
    Flow::new(ends(source, &udp[..2]), ends(dest, &udp[2..4])).unwrap()
}

#[test]
fn every_icrc_of_linux_is_right_and_a_flipped_bit_is_seen() {
    // Far enough apart that a packet of 4 KiB costs no seconds; odd, so that each bit of a byte has
    // its turn.
    const STEP_BITS: usize = 37;
    // Forward and backward congestion notification, which the ICRC does not cover.
    const MASKED_BYTE: usize = std::mem::offset_of!(Bth, congestion);
    let mut checked = 0;
    for name in names() {
        let captured = Captured::new(name);
        let mut datagram = captured.datagram.clone();
        assert!(captured.verifies(&datagram), "{name}");
        assert!(
            verify(captured.flow, Ipv4Identification::Unknown, &datagram),
            "{name}"
        );
        let is_v4 = captured.flow.local().is_ipv4();
        let other = Ipv4Identification::Known(captured.identification ^ 1);
        assert_eq!(verify(captured.flow, other, &datagram), !is_v4, "{name}");
        for bit in (0..datagram.len() * 8).step_by(STEP_BITS) {
            let (at, mask) = (bit / 8, 1 << (bit % 8));
            datagram[at] ^= mask;
            let is_masked = at == MASKED_BYTE;
            assert_eq!(captured.verifies(&datagram), is_masked, "{name}: bit {bit}");
            datagram[at] ^= mask;
        }
        checked += 1;
    }
    assert_eq!(checked, 22);
}

/// What a request of Linux's says that another of its requests says otherwise.
struct Asked {
    name: &'static str,
    tid: u64,
    comm_id: u32,
    qpn: u32,
    starting_psn: u32,
    flow_label: u32,
    source: &'static str,
    dest: &'static str,
    port: u16,
    initiator_depth: u8,
    /// Bit 0 of the transport service: end-to-end flow control.
    flow_control: u8,
    rnr_retry: u8,
    private_data: &'static [u8],
}

const ASKED: [Asked; 3] = [
    Asked {
        name: "nvme4_request",
        tid: 0x0000_0002_21B3_D561,
        comm_id: 0x61D5_B321,
        qpn: 0x11,
        starting_psn: 0x00CB_B177,
        flow_label: 0x0007_B92A,
        source: "10.77.0.11:50010",
        dest: "10.77.0.1",
        port: 4420,
        initiator_depth: 0,
        flow_control: 1,
        rnr_retry: 7,
        private_data: &[0, 0, 0, 0, 0x20, 0, 0x1F],
    },
    Asked {
        name: "nvme6_request",
        tid: 0x0000_0002_21B3_D565,
        comm_id: 0x65D5_B321,
        qpn: 0x15,
        starting_psn: 0x001B_FB68,
        flow_label: 0x0000_3271,
        source: "[fd00:77::11]:34099",
        dest: "fd00:77::1",
        port: 4420,
        initiator_depth: 0,
        flow_control: 1,
        rnr_retry: 7,
        private_data: &[0, 0, 0, 0, 0x20, 0, 0x1F],
    },
    Asked {
        name: "iser4_request",
        tid: 0x0000_0002_9024_71A5,
        comm_id: 0xA571_2490,
        qpn: 0x11,
        starting_psn: 0x00AD_D0C7,
        flow_label: 0x000A_E034,
        source: "10.77.0.11:56712",
        dest: "10.77.0.1",
        port: 3260,
        initiator_depth: 1,
        flow_control: 0,
        rnr_retry: 6,
        private_data: &[0x80],
    },
];

impl Asked {
    /// The request, written by this crate.
    fn to_req(&self) -> Req {
        let source: SocketAddr = self.source.parse().unwrap();
        let dest = self.dest.parse().unwrap();
        let mut path = Path::roce(
            Gid::from_ip(source.ip()),
            Gid::from_ip(dest),
            TimeCode::new(17),
        );
        path.flow_label_rate = (self.flow_label << 12).into();
        let mut req = Req::reliable(ServiceId::tcp(self.port), path);
        req.local_comm_id = self.comm_id.into();
        req.ca_guid = 0x5054_00FF_FE14_A400.into();
        req.qpn = U24::new(self.qpn);
        req.responder_resources = 128;
        req.initiator_depth = self.initiator_depth;
        req.starting_psn = U24::new(self.starting_psn);
        req.set_cm_timeouts(TimeCode::new(20));
        req.remote_timeout |= self.flow_control;
        req.set_retry_counts(7, self.rnr_retry);
        req.set_path_mtu(PathMtu::B4096);
        req.set_cm_retries_max(15);
        let header = IpCmHeader::new(source, dest);
        let (front, rest) = req.private_data.split_at_mut(size_of::<IpCmHeader>());
        front.copy_from_slice(header.as_bytes());
        rest[..self.private_data.len()].copy_from_slice(self.private_data);
        req
    }
}

#[test]
fn requests_of_linux_are_read_and_written_alike() {
    for asked in ASKED {
        let captured = Captured::new(asked.name);
        let req = asked.to_req();
        assert_eq!(captured.message(), (asked.tid, Message::Req(req)));
        let written = Message::Req(req).to_mad(asked.tid);
        assert_eq!(written, captured.packet().payload, "{}", asked.name);
        let (header, _) = IpCmHeader::read_from_prefix(&req.private_data).unwrap();
        let addresses = (asked.source.parse().unwrap(), asked.dest.parse().unwrap());
        assert_eq!(header.addresses(), Some(addresses));
        assert!(req.is_reliable_connected());
    }
}

#[test]
fn further_messages_of_linux_are_read_and_written_alike() {
    let connections = [
        (
            "nvme4",
            0x0002_21B3_D561,
            0x61D5_B321,
            0x8B0E_DF55,
            0x3A_3000,
        ),
        (
            "nvme6",
            0x0002_21B3_D565,
            0x65D5_B321,
            0x990C_3029,
            0x25_C000,
        ),
        (
            "iser4",
            0x0002_9024_71A5,
            0xA571_2490,
            0x5D1D_CDBF,
            0x5D_E000,
        ),
    ];
    for (name, tid, local, remote, qpn) in connections {
        let (local, remote) = (CommId(local), CommId(remote));
        let rtu = Message::Rtu(Rtu::new(local, remote));
        let dreq = Message::Dreq(Dreq::new(local, remote, Qpn::new(qpn)));
        for (kind, message) in [("ready", rtu), ("disconnect", dreq)] {
            let captured = Captured::new(&format!("{name}_{kind}"));
            assert_eq!(captured.message(), (tid, message), "{name} {kind}");
            assert_eq!(message.to_mad(tid), captured.packet().payload);
        }
    }
}

/// What a packet of Linux's is expected to hold.
type Expected = (&'static str, Opcode, u32, u32, Asks, Extended, usize);

/// Whether an acknowledgement is requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Yes,
    No,
}

fn expected() -> Vec<Expected> {
    let send = |position| Opcode::Send(position, SendTail::Plain);
    let [first, last, only] = [Position::First, Position::Last, Position::Only].map(send);
    let response = Opcode::ReadResponse;
    let ack = |msn| Extended::Acknowledge(Aeth::new(Syndrome::Ack, msn));
    let datagram = Extended::Datagram(Deth::new(QKEY_GSI, Qpn::GSI));
    let (none, gsi) = (Extended::None, Opcode::DatagramSend);
    #[rustfmt::skip]
    let expected = vec![
        ("nvme4_request", gsi, 1, 0, Asks::Yes, datagram, 256),
        ("nvme4_ready", gsi, 1, 1, Asks::Yes, datagram, 256),
        ("nvme4_disconnect", gsi, 1, 2, Asks::Yes, datagram, 256),
        ("nvme4_send_only", only, 0x3A_3000, 0x52_ACDA, Asks::Yes, none, 64),
        ("nvme4_send_first", first, 0x3A_3003, 0x62_478C, Asks::No, none, 4096),
        ("nvme4_send_last", last, 0x3A_3003, 0x62_478D, Asks::Yes, none, 64),
        ("nvme4_read_response_only", response(Position::Only), 0x3A_3001, 0x2B_6ECC, Asks::No, ack(0x10), 8),
        ("nvme4_read_response_first", response(Position::First), 0x3A_3002, 0xD7_59F3, Asks::No, ack(0x11), 4096),
        ("nvme4_read_response_middle", response(Position::Middle), 0x3A_3002, 0xD7_59F4, Asks::No, none, 4096),
        ("nvme4_read_response_last", response(Position::Last), 0x3A_3002, 0xD7_59F6, Asks::No, ack(0x11), 4096),
        ("nvme4_acknowledge", Opcode::Acknowledge, 0x3A_3000, 0xCB_B17A, Asks::No, ack(4), 0),
        ("nvme6_request", gsi, 1, 12, Asks::Yes, datagram, 256),
        ("nvme6_ready", gsi, 1, 13, Asks::Yes, datagram, 256),
        ("nvme6_disconnect", gsi, 1, 14, Asks::Yes, datagram, 256),
        ("nvme6_send_only", only, 0x25_C000, 0x12_A345, Asks::Yes, none, 64),
        ("nvme6_read_response_only", response(Position::Only), 0x25_C001, 0x4F_161C, Asks::No, ack(0x10), 8),
        ("nvme6_acknowledge", Opcode::Acknowledge, 0x25_C000, 0x1B_FB6A, Asks::No, ack(3), 0),
        ("iser4_request", gsi, 1, 0, Asks::Yes, datagram, 256),
        ("iser4_ready", gsi, 1, 1, Asks::Yes, datagram, 256),
        ("iser4_disconnect", gsi, 1, 2, Asks::Yes, datagram, 256),
        ("iser4_send_only", only, 0x5D_E000, 0x0C_DE27, Asks::Yes, none, 76),
        ("iser4_acknowledge", Opcode::Acknowledge, 0x5D_E000, 0xAD_D0C7, Asks::No, ack(1), 0),
    ];
    expected
}

#[test]
fn headers_of_linux_are_read_and_written_alike() {
    let expected = expected();
    assert!(names().eq(expected.iter().map(|packet| packet.0)), "all");
    for (name, opcode, qpn, psn, asks, extended, payload_len) in expected {
        let captured = Captured::new(name);
        let packet = captured.packet();
        let (qpn, psn) = (Qpn::new(qpn), Psn::new(psn));
        assert_eq!(packet.opcode, opcode, "{name}");
        assert_eq!((packet.bth.dest(), packet.bth.psn()), (qpn, psn), "{name}");
        assert_eq!(packet.bth.wants_ack(), asks == Asks::Yes, "{name}");
        assert!(packet.bth.is_default_partition() && !packet.bth.is_solicited());
        assert_eq!(packet.extended, extended, "{name}");
        assert_eq!(packet.payload.len(), payload_len, "{name}");
        let mut bth = Bth::new(opcode.to_wire(), qpn, psn).with_pad_for(payload_len as u32);
        if asks == Asks::Yes {
            bth = bth.with_ack_request();
        }
        // Adapters say that they are in the migrated state, rdma_rxe does not.
        bth.flags = 0;
        let headers = match &extended {
            Extended::Acknowledge(aeth) => [bth.as_bytes(), aeth.as_bytes()].concat(),
            Extended::Datagram(deth) => [bth.as_bytes(), deth.as_bytes()].concat(),
            _ => bth.as_bytes().to_vec(),
        };
        assert_eq!(captured.datagram[..headers.len()], headers, "{name}");
    }
}
