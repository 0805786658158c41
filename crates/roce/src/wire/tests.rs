//! Golden bytes in both directions, and properties of every parser.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::cm::{
    CommId, Drep, Dreq, Gid, IpCmHeader, MESSAGE_LEN_BYTES, Message, Mra, MraMessage, Path, Rej,
    RejReason, RejectedMessage, Rep, Req, Rtu, ServiceId, TimeCode,
};
use super::*;
use crate::Flow;
use crate::tests::hex;

fn flow(local: &str, remote: &str) -> Flow {
    let parse = |s: &str| s.parse::<SocketAddr>().unwrap();
    Flow::new(parse(local), parse(remote)).unwrap()
}

fn icrc_of(flow: Flow, identification: u16, body: &[u8]) -> [u8; ICRC_LEN_BYTES] {
    let len = (body.len() + ICRC_LEN_BYTES) as u16;
    let mut icrc = Icrc::begin(&IpHeader::new(flow, identification), len);
    let (bth, rest) = Bth::read_from_prefix(body).unwrap();
    icrc.update_bth(&bth);
    icrc.update(rest);
    icrc.to_wire()
}

/// A congestion notification packet that a ConnectX-4 Lx sent; from scapy's tests.
const CNP_OF_AN_ADAPTER: &str = "8100FFFF 40000118 00000000 00000000 00000000 00000000 00000000";
/// An acknowledgement.
const ACK: &str = "1140FFFF 00000011 00112233 1F000001";

#[test]
fn the_icrc_of_an_adapters_packet_is_found_again() {
    let path = flow("10.0.17.1:0", "10.0.18.1:4791");
    let sum = icrc_of(path, 0x718C, &hex(CNP_OF_AN_ADAPTER));
    assert_eq!(sum, *hex("82FD002A"));
}

#[test]
fn the_icrc_covers_the_ipv4_identification() {
    let path = flow("10.9.0.2:49443", "10.9.0.1:4791");
    assert_eq!(icrc_of(path, 0, &hex(ACK)), *hex("D468FF27"));
    assert_eq!(icrc_of(path, 1, &hex(ACK)), *hex("7D637669"));
}

#[test]
fn the_icrc_over_ipv6_has_its_golden_bytes() {
    let path = flow("[fd09::2]:49443", "[fd09::1]:4791");
    assert_eq!(icrc_of(path, 0, &hex(ACK)), *hex("4C633EAD"));
    let mapped = flow("[::ffff:10.9.0.2]:49443", "[::ffff:10.9.0.1]:4791");
    assert_eq!(icrc_of(mapped, 0, &hex(ACK)), *hex("D468FF27"));
}

#[test]
fn congestion_bits_are_not_covered() {
    let path = flow("10.9.0.2:49443", "10.9.0.1:4791");
    let mut marked = hex(ACK);
    marked[4] = 0xC0;
    assert_eq!(icrc_of(path, 0, &marked), *hex("D468FF27"));
}

#[test]
fn a_known_or_missing_identification_is_verified() {
    let path = flow("10.0.17.1:0", "10.0.18.1:4791");
    let datagram = hex(&format!("{CNP_OF_AN_ADAPTER}82FD002A"));
    assert!(verify(path, Ipv4Identification::Known(0x718C), &datagram));
    assert!(verify(path, Ipv4Identification::Unknown, &datagram));
    assert!(!verify(path, Ipv4Identification::Known(0x718D), &datagram));
    for likely in [0, 1, 0x718C, 0x718D] {
        assert!(verify(path, Ipv4Identification::Likely(likely), &datagram));
    }
    for bit in 0..datagram.len() * 8 {
        let mut flipped = datagram.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let masked = bit / 8 == 4;
        for identification in [Ipv4Identification::Unknown, Ipv4Identification::Likely(1)] {
            let accepted = verify(path, identification, &flipped);
            assert_eq!(accepted, masked, "bit {bit}");
        }
    }
    let elsewhere = flow("10.0.17.2:0", "10.0.18.1:4791");
    assert!(!verify(elsewhere, Ipv4Identification::Unknown, &datagram));
}

/// As long as the longest packets are: beyond 26 KB there are bits for which it does not hold.
#[test]
fn every_flipped_bit_is_seen_where_the_identification_is_unknown() {
    let path = flow("10.9.0.2:49443", "10.9.0.1:4791");
    let mut datagram = vec![0x5A; size_of::<Bth>() + PathMtu::B4096.bytes() as usize];
    datagram.extend(icrc_of(path, 0x4AAA, &datagram));
    assert!(verify(path, Ipv4Identification::Unknown, &datagram));
    let masked = std::mem::offset_of!(Bth, congestion);
    for at in (0..datagram.len()).filter(|at| *at != masked) {
        for bit in 0..8 {
            datagram[at] ^= 1 << bit;
            let is_seen = !verify(path, Ipv4Identification::Unknown, &datagram);
            assert!(is_seen, "bit {bit} of byte {at}");
            datagram[at] ^= 1 << bit;
        }
    }
}

#[test]
fn flows_are_of_one_family() {
    let v4: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let v6: SocketAddr = "[fd00::1]:1".parse().unwrap();
    assert!(Flow::new(v4, v6).is_none());
    let there = flow("10.0.0.1:7", "10.0.0.2:4791");
    assert_eq!(there.reversed().reversed(), there);
    assert!(there.same_addresses(&flow("10.0.0.1:8", "10.0.0.2:9")));
    assert!(!there.same_addresses(&there.reversed()));
}

#[test]
fn bth_has_its_golden_bytes() {
    let bth = Bth::new(0x17, Qpn::new(0x0012_3456), Psn::new(0x00AB_CDEF))
        .with_pad_for(5)
        .with_solicited_event()
        .with_ack_request();
    assert_eq!(bth.as_bytes(), hex("17F0FFFF 00123456 80ABCDEF"));
    assert_eq!((bth.pad_len_bytes(), bth.transport_version()), (3, 0));
    assert!(bth.is_solicited() && bth.wants_ack() && bth.is_default_partition());
    assert_eq!(bth.dest(), Qpn::new(0x0012_3456));
    assert_eq!(bth.psn(), Psn::new(0x00AB_CDEF));
}

#[test]
fn extended_headers_have_their_golden_bytes() {
    let reth = Reth::new(0x0102_0304_0506_0708, Rkey(0x1122_3344), 0x0001_0000);
    assert_eq!(reth.as_bytes(), hex("0102030405060708 11223344 00010000"));
    let deth = Deth::new(QKEY_GSI, Qpn::GSI);
    assert_eq!(deth.as_bytes(), hex("80010000 00000001"));
    let aeth = |syndrome| Aeth::new(syndrome, 7).as_bytes().to_vec();
    assert_eq!(aeth(Syndrome::Ack), hex("1F000007"));
    assert_eq!(
        aeth(Syndrome::Nak(NakCode::PsnSequenceError)),
        hex("60000007")
    );
    assert_eq!(
        aeth(Syndrome::Nak(NakCode::RemoteOperationalError)),
        hex("63000007")
    );
    let atomic = AtomicEth::read_from_bytes(&hex(
        "0000000000001000 00000099 0000000000000005 0000000000000006",
    ))
    .unwrap();
    assert_eq!(
        (
            atomic.va.get(),
            atomic.rkey.get(),
            atomic.swap_or_add.get(),
            atomic.compare.get()
        ),
        (0x1000, 0x99, 5, 6)
    );
}

#[test]
fn receiver_not_ready_times_are_those_of_their_codes() {
    let time = |code: u8| match Aeth::read_from_bytes(&[0x20 | code, 0, 0, 0])
        .unwrap()
        .syndrome()
    {
        Some(Syndrome::RnrNak(timer)) => timer.duration(),
        other => panic!("{other:?}"),
    };
    assert_eq!(time(0), Duration::from_micros(655_360));
    assert_eq!(time(1), Duration::from_micros(10));
    assert_eq!(time(14), Duration::from_micros(1280));
    assert_eq!(time(31), Duration::from_micros(491_520));
    let least = |us| RnrTimer::at_least(Duration::from_micros(us)).duration();
    assert_eq!(least(0), Duration::from_micros(10));
    assert_eq!(least(600), Duration::from_micros(640));
    assert_eq!(least(500_000), Duration::from_micros(655_360));
    assert_eq!(least(9_000_000), Duration::from_micros(655_360));
}

#[test]
fn reserved_syndromes_are_none() {
    for syndrome in [0x40, 0x5F, 0x64, 0x7F] {
        let aeth = Aeth::read_from_bytes(&[syndrome, 0, 0, 0]).unwrap();
        assert_eq!(aeth.syndrome(), None, "{syndrome:#x}");
    }
}

#[test]
fn every_opcode_is_its_own_inverse() {
    let known: Vec<u8> = (0..=255)
        .filter(|code| Opcode::from_wire(*code).is_some())
        .collect();
    let mut right: Vec<u8> = (0..=0x14).chain([0x16, 0x17]).collect();
    right.extend([0x64, 0x81]);
    assert_eq!(known, right);
    for code in known {
        assert_eq!(Opcode::from_wire(code).unwrap().to_wire(), code);
    }
}

#[test]
fn sequence_numbers_wrap_with_their_psn() {
    assert_eq!(Psn::new(2).to_sequence(0x00FF_FFFE), Some(0x0100_0002));
    assert_eq!(
        Psn::new(0x00FF_FFFE).to_sequence(0x0100_0002),
        Some(0x00FF_FFFE)
    );
    assert_eq!(Psn::new(5).to_sequence(5), Some(5));
    assert_eq!(Psn::new(0x00FF_FFFF).to_sequence(0), None);
    assert_eq!(Psn::from_sequence(0x0100_0002), Psn::new(2));
}

#[test]
fn path_mtus_leave_room_for_headers() {
    let for_network = PathMtu::for_network;
    assert_eq!(for_network(1500), Some(PathMtu::B1024));
    assert_eq!(for_network(4191), Some(PathMtu::B2048));
    assert_eq!(for_network(4192), Some(PathMtu::B4096));
    assert_eq!(for_network(9000), Some(PathMtu::B4096));
    assert_eq!(for_network(65_536), Some(PathMtu::B4096));
    assert_eq!(for_network(351), None);
    assert_eq!(for_network(0), None);
    assert_eq!((PathMtu::from_wire(0), PathMtu::from_wire(6)), (None, None));
    assert_eq!(PathMtu::B1024.packets(0), 1);
    assert_eq!(PathMtu::B1024.packets(1024), 1);
    assert_eq!(PathMtu::B1024.packets(1025), 2);
}

fn malformed(datagram: &[u8]) -> Malformed {
    Packet::parse(datagram).unwrap_err()
}

#[test]
fn what_is_no_packet_says_why() {
    let good = hex("0470FFFF 00000011 80000001 AABB CC00 00000000");
    let packet = Packet::parse(&good).unwrap();
    assert_eq!(packet.payload, [0xAA]);
    assert_eq!(packet.opcode.to_wire(), 4);
    assert_eq!(malformed(&good[..15]), Malformed::TooShort);
    assert_eq!(malformed(&good[..18]), Malformed::Unaligned(2));
    assert_eq!(malformed(&good[..16]), Malformed::TooShort, "only pad");
    assert_eq!(malformed(&vec![0; 62_000]), Malformed::TooLong);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        malformed(&bytes)
    };
    assert_eq!(with(0, 0x15), Malformed::Opcode(0x15));
    assert_eq!(with(1, 0x71), Malformed::Version(1));
    assert_eq!(with(0, 0x06), Malformed::TooShort, "RETH is missing");
    let stray = hex("1140FFFF 00000011 00112233 1F000001 00000000 00000000");
    assert_eq!(malformed(&stray), Malformed::Payload(4));
}

#[test]
fn an_acknowledgement_is_parsed() {
    let datagram = hex(&format!("{ACK}D468FF27"));
    let packet = Packet::parse(&datagram).unwrap();
    assert_eq!(packet.opcode, Opcode::Acknowledge);
    assert_eq!(packet.bth.psn(), Psn::new(0x0011_2233));
    let Extended::Acknowledge(aeth) = packet.extended else {
        panic!("{:?}", packet.extended);
    };
    assert_eq!((aeth.syndrome(), aeth.msn.get()), (Some(Syndrome::Ack), 1));
}

#[test]
fn a_request_has_its_golden_fields() {
    let local = Gid::from_ip("10.9.0.1".parse().unwrap());
    let remote = Gid::from_ip("fd09::2".parse().unwrap());
    let mut req = Req::reliable(
        ServiceId::tcp(4420),
        Path::roce(local, remote, TimeCode::new(17)),
    );
    req.local_comm_id = 0x0102_0304.into();
    req.ca_guid = 0xA1A2_A3A4_A5A6_A7A8.into();
    req.qpn = U24::new(0x11);
    req.responder_resources = 128;
    req.initiator_depth = 16;
    req.starting_psn = U24::new(0x00AB_CDEF);
    req.set_cm_timeouts(TimeCode::new(20));
    req.set_retry_counts(7, 6);
    req.set_path_mtu(PathMtu::B4096);
    req.set_cm_retries_max(15);
    let mad = Message::Req(req).to_mad(0x0000_00AA_BBCC_DDEE);
    assert_eq!(
        mad[..24],
        *hex("01070203 0000 0000 000000AABBCCDDEE 0010 0000 00000000")
    );
    let body = &mad[24..];
    assert_eq!(body[..16], *hex("01020304 00000000 0000000001061144"));
    assert_eq!(body[16..32], *hex("A1A2A3A4A5A6A7A8 00000000 00000000"));
    assert_eq!(body[32..44], *hex("000011 80 000000 10 000000 A0"));
    assert_eq!(body[44..52], *hex("ABCDEF A7 FFFF 56 F0"));
    assert_eq!(body[52..56], *hex("FFFFFFFF"));
    assert_eq!(body[56..72], *hex("00000000000000000000FFFF0A090001"));
    assert_eq!(body[72..88], *hex("FD090000000000000000000000000002"));
    assert_eq!(body[88..96], *hex("00000000 00 40 00 88"));
    assert!(body[96..].iter().all(|b| *b == 0));
    let (tid, parsed) = Message::parse(&mad).unwrap();
    assert_eq!((tid, parsed), (0x0000_00AA_BBCC_DDEE, Message::Req(req)));
    assert_eq!(req.service().tcp_port(), Some(4420));
    assert_eq!(req.path_mtu(), Some(PathMtu::B4096));
    assert_eq!((req.retry_count(), req.rnr_retry_count()), (7, 6));
    assert_eq!(req.cm_retries_max(), 15);
    assert_eq!(req.local_cm_timeout(), TimeCode::new(20));
    assert_eq!(req.remote_cm_timeout(), TimeCode::new(20));
    assert!(req.is_reliable_connected());
    assert_eq!(req.primary.remote_gid.to_ip().to_string(), "fd09::2");
    assert_eq!(req.primary.local_gid.to_ip().to_string(), "10.9.0.1");
}

#[test]
fn a_reply_has_its_golden_fields() {
    let mut body = hex(
        "0A0B0C0D 01020304 00000000 000012 00 000000 00 123456 00 04 03 78 E0 B1B2B3B4B5B6B7B8",
    );
    body.resize(MESSAGE_LEN_BYTES, 0);
    body[36] = 0x77;
    let rep = Rep::read_from_bytes(&body).unwrap();
    assert_eq!(
        (rep.local(), rep.remote()),
        (CommId(0x0A0B_0C0D), CommId(0x0102_0304))
    );
    assert_eq!(
        (rep.qpn(), rep.starting_psn()),
        (Qpn::new(0x12), Psn::new(0x12_3456))
    );
    assert_eq!((rep.responder_resources, rep.initiator_depth), (4, 3));
    assert_eq!(rep.rnr_retry_count(), 7);
    assert_eq!(rep.ca_guid.get(), 0xB1B2_B3B4_B5B6_B7B8);
    assert_eq!(rep.private_data[0], 0x77);
    let mad = Message::Rep(rep).to_mad(9);
    assert_eq!(mad[16..18], [0, 0x13]);
    assert_eq!(mad[24..], body);
}

#[test]
fn short_messages_have_their_golden_fields() {
    let (ours, theirs) = (CommId(0x0102_0304), CommId(0x0506_0708));
    let both = hex("0102030405060708");
    let mad = |message: Message| message.to_mad(0);
    let rtu = mad(Message::Rtu(Rtu::new(ours, theirs)));
    assert_eq!((&rtu[16..18], &rtu[24..32]), (&[0, 0x14][..], &both[..]));
    let dreq = mad(Message::Dreq(Dreq::new(ours, theirs, Qpn::new(0x11))));
    assert_eq!(dreq[16..18], [0, 0x15]);
    assert_eq!(dreq[24..36], *hex("0102030405060708 00001100"));
    let drep = mad(Message::Drep(Drep::new(ours, theirs)));
    assert_eq!((&drep[16..18], &drep[24..32]), (&[0, 0x16][..], &both[..]));
    let mra = Mra::new(ours, theirs, MraMessage::Rep, TimeCode::new(24));
    let mra = mad(Message::Mra(mra));
    assert_eq!(mra[16..18], [0, 0x11]);
    assert_eq!(mra[24..34], *hex("0102030405060708 40C0"));
    let rej = Rej::new(
        ours,
        theirs,
        RejectedMessage::Rep,
        RejReason::CONSUMER,
        &[0x55],
    );
    let rej = mad(Message::Rej(rej));
    assert_eq!(rej[16..18], [0, 0x12]);
    assert_eq!(rej[24..36], *hex("0102030405060708 40 00 001C"));
    assert_eq!((rej[24 + 84], rej[24 + 85]), (0x55, 0));
}

#[test]
fn rdma_cm_headers_have_their_golden_bytes() {
    let v4 = IpCmHeader::new(
        "10.9.0.2:55410".parse().unwrap(),
        "10.9.0.1".parse().unwrap(),
    );
    let golden = hex("0040D872 0000000000000000000000000A090002 0000000000000000000000000A090001");
    assert_eq!(v4.as_bytes(), golden);
    let (source, dest) = v4.addresses().unwrap();
    assert_eq!(
        (source.to_string(), dest.to_string()),
        ("10.9.0.2:55410".into(), "10.9.0.1".into())
    );
    let v6 = IpCmHeader::new("[fd09::2]:1".parse().unwrap(), "fd09::1".parse().unwrap());
    assert_eq!(v6.as_bytes()[..6], *hex("00600001FD09"));
    assert_eq!(v6.addresses().unwrap().1.to_string(), "fd09::1");
    for (version, ip_version) in [(1, 0x40), (0, 0x50), (0, 0)] {
        let odd = IpCmHeader {
            version,
            ip_version,
            ..v4
        };
        assert_eq!(odd.addresses(), None);
    }
}

#[test]
fn foreign_mads_are_refused() {
    let mad = Message::Rtu(Rtu::new(CommId(1), CommId(2))).to_mad(0);
    assert!(Message::parse(&mad[..255]).is_err());
    for at in 0..4 {
        let mut odd = mad;
        odd[at] ^= 0x10;
        assert_eq!(Message::parse(&odd), Err(cm::BadMad::Class));
    }
    let mut odd = mad;
    odd[17] = 0x17;
    assert_eq!(Message::parse(&odd), Err(cm::BadMad::Attribute(0x17)));
}

proptest! {
    #[test]
    fn parsing_never_panics_and_payload_lies_inside(
        opcode in prop_oneof![0u8..0x18, Just(0x64), Just(0x81), any::<u8>()],
        flags in any::<u8>(),
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = vec![opcode, flags & 0xF0];
        bytes.extend(rest);
        if let Ok(packet) = Packet::parse(&bytes) {
            let headers = 12 + packet.opcode.extended_len_bytes();
            let pad = packet.bth.pad_len_bytes() as usize;
            prop_assert_eq!(headers + packet.payload.len() + pad + 4, bytes.len());
        }
    }

    #[test]
    fn mads_survive_the_round_trip(attribute in 0u16..0x20, body in proptest::collection::vec(any::<u8>(), 232)) {
        let mut mad = [0; MAD_LEN_BYTES];
        mad[..24].copy_from_slice(MadHeader::communication(attribute, 5).as_bytes());
        mad[24..].copy_from_slice(&body);
        if let Ok((tid, message)) = Message::parse(&mad) {
            prop_assert_eq!(message.to_mad(tid), mad);
        } else {
            prop_assert!(!(0x10..0x17).contains(&attribute));
        }
    }

    #[test]
    fn any_identification_is_solved(
        identification in any::<u16>(),
        body in proptest::collection::vec(any::<u8>(), 12..4200),
        flip in any::<prop::sample::Index>(),
    ) {
        let body = &body[..body.len().min(Packet::LEN_MAX_BYTES - 4)];
        let path = flow("10.9.0.2:49443", "10.9.0.1:4791");
        let mut datagram = body.to_vec();
        datagram.extend(icrc_of(path, identification, body));
        prop_assert!(verify(path, Ipv4Identification::Unknown, &datagram));
        prop_assert!(verify(path, Ipv4Identification::Known(identification), &datagram));
        // A burst of up to 8 bits never passes a check of 16.
        let at = flip.index(datagram.len());
        if at != 4 {
            datagram[at] ^= 0xA5;
            prop_assert!(!verify(path, Ipv4Identification::Known(identification), &datagram));
        }
    }
}
