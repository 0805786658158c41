use std::time::{Duration, Instant};

use net::{UdpOptions, UdpRun, UdpSocket};
use roce::wire::cm::{
    CommId, Drep, Dreq, Gid, Message, Mra, MraMessage, Path, Rej, RejReason, RejectedMessage, Rep,
    Req, Rtu, ServiceId, TimeCode,
};
use roce::wire::{Opcode, Psn, QKEY_GSI};
use zerocopy::{FromZeros, IntoBytes};

use super::*;

const TID: u64 = 9;

fn to_queue_pair(qpn: u32) -> Vec<u8> {
    let opcode = Opcode::DatagramSend.to_wire();
    let bth = Bth::new(opcode, Qpn::new(qpn), Psn::new(5));
    [bth.as_bytes(), &[0; 12]].concat()
}

fn packet(message: &Message) -> Vec<u8> {
    let bth = Bth::new(Opcode::DatagramSend.to_wire(), Qpn::GSI, Psn::new(5));
    let deth = Deth::new(QKEY_GSI, Qpn::GSI);
    let mad = message.to_mad(TID);
    [bth.as_bytes(), deth.as_bytes(), &mad, &[0; 4]].concat()
}

fn request(id: u32) -> Vec<u8> {
    let nowhere = Gid::from_ip([0, 0, 0, 0].into());
    let path = Path::roce(nowhere, nowhere, TimeCode::new(15));
    let mut req = Req::reliable(ServiceId::tcp(4420), path);
    req.local_comm_id = id.into();
    packet(&Message::Req(req))
}

fn rejection(sender: u32, ours: u32) -> Vec<u8> {
    packet(&Message::Rej(Rej::new(
        CommId(sender),
        CommId(ours),
        RejectedMessage::Other,
        RejReason::TIMEOUT,
        &[],
    )))
}

/// All messages that name an identifier of ours.
fn answers(sender: u32, ours: u32) -> Vec<Vec<u8>> {
    let (local, remote) = (CommId(sender), CommId(ours));
    let rep = Rep {
        local_comm_id: sender.into(),
        remote_comm_id: ours.into(),
        ..Rep::new_zeroed()
    };
    let mra = Mra::new(local, remote, MraMessage::Rep, TimeCode::new(20));
    let messages = [
        Message::Rep(rep),
        Message::Mra(mra),
        Message::Rtu(Rtu::new(local, remote)),
        Message::Dreq(Dreq::new(local, remote, Qpn::new(77))),
        Message::Drep(Drep::new(local, remote)),
    ];
    let mut packets: Vec<_> = messages.iter().map(packet).collect();
    packets.push(rejection(sender, ours));
    packets
}

#[test]
fn packets_and_messages_go_to_the_thread_that_their_numbers_name() {
    for threads in [2, 3, 4, 7, 16] {
        let steering = Steering { threads };
        for number in [2, 3, 77, 0x0012_3456, 0x00FF_FFFF, 0] {
            let owner = steering.thread_of(&to_queue_pair(number));
            assert_eq!(owner, number % threads);
        }
        for ours in [1, 2, 0xDEAD_BEEF, u32::MAX] {
            for packet in answers(0x0102_0304, ours) {
                assert_eq!(steering.thread_of(&packet), ours % threads);
            }
        }
    }
}

#[test]
fn what_a_requester_sends_before_it_knows_us_goes_to_one_thread() {
    for threads in [2, 3, 4, 7, 16] {
        let steering = Steering { threads };
        for id in [1, 0x0100_0000, 0xFFFF_FFFF, 0x0102_0304] {
            let owner = steering.thread_of(&request(id));
            assert!(owner < threads);
            assert_eq!(owner, steering.thread_of(&rejection(id, 0)));
        }
    }
}

#[test]
fn requests_are_spread_whichever_byte_their_senders_count_in() {
    let steering = Steering { threads: 4 };
    for shift in [0, 8, 16, 24] {
        let mut of_thread = [0; 4];
        for count in 0..64_u32 {
            let id = 0x5A5A_5A5A ^ (count << shift);
            of_thread[steering.thread_of(&request(id)) as usize] += 1;
        }
        assert!(
            of_thread.iter().all(|n| (8..=24).contains(n)),
            "{of_thread:?}"
        );
    }
}

#[test]
fn the_system_chooses_as_we_do() {
    for (place, from) in [("127.38.0.1:0", "127.38.0.2:0"), ("[::1]:0", "[::1]:0")] {
        for threads in [2, 3, 16] {
            let steering = Steering { threads };
            let options = UdpOptions::default();
            let first = UdpSocket::bind(place.parse().expect("an address"), &options);
            let mut sockets = vec![first.expect("loopback is here")];
            while sockets.len() < threads as usize {
                let next = sockets[0].beside(&options).expect("it is allowed");
                sockets.push(next);
            }
            sockets[0].steer(&steering.program()).expect("it is taken");
            let mut sender = UdpSocket::bind(from.parse().expect("an address"), &options)
                .expect("loopback is here");
            for packet in samples() {
                let chosen = chosen(&mut sender, &sockets, &packet);
                assert_eq!(chosen, steering.thread_of(&packet), "{packet:02x?}");
            }
        }
    }
}

/// Packets of all kinds, whole and cut off anywhere that matters; and what is none.
fn samples() -> Vec<Vec<u8>> {
    let mut samples = vec![
        request(0x0102_0304),
        request(u32::MAX),
        rejection(0x1234, 0),
    ];
    samples.extend((0..20).map(|n| to_queue_pair(n * 0x0001_2345)));
    samples.extend(answers(0x0506_0708, 0xDEAD_BEEF));
    let whole = [
        request(0xFEDC_BA98),
        rejection(0xFEDC_BA98, 0x7654_3213),
        to_queue_pair(0x00AB_CDEF),
    ];
    for packet in &whole {
        samples.extend((1..packet.len().min(60)).map(|len| packet[..len].to_vec()));
    }
    samples.extend((1..90).map(|len| vec![0xFF; len]));
    samples
}

/// Which of the sockets a datagram comes to.
fn chosen(sender: &mut UdpSocket, sockets: &[UdpSocket], packet: &[u8]) -> u32 {
    let run = UdpRun {
        source: sender.local_addr().ip(),
        dest: sockets[0].local_addr(),
        segment_len_bytes: None,
    };
    let piece = std::iter::once(packet);
    sender.send(&run, piece).expect("it is sent");
    let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        for (index, socket) in (0..).zip(sockets) {
            let arrival = socket.receive(&mut buffer).expect("the socket works");
            if let Some(arrival) = arrival {
                assert_eq!(&buffer[..arrival.len_bytes], packet);
                return index;
            }
        }
    }
    panic!("it did not come");
}
