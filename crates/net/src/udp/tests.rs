//! Runs of datagrams over loopback.

use std::time::{Duration, Instant};

use super::*;

fn socket(address: &str) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), &UdpOptions::default()).unwrap()
}

/// The datagrams that arrive within a second.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> UdpArrival {
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        if let Some(arrival) = socket.receive(buffer).unwrap() {
            return arrival;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("nothing came");
}

#[test]
fn a_run_of_datagrams_arrives_whole_from_the_address_it_names() {
    for (from, to) in [("127.0.0.9:0", "127.0.0.8:0"), ("[::1]:0", "[::1]:0")] {
        let mut sender = socket(from);
        let receiver = socket(to);
        let run = UdpRun {
            source: sender.local_addr().ip(),
            dest: receiver.local_addr(),
            segment_len_bytes: Some(1000),
        };
        let bytes: Vec<u8> = (0..4500u32).map(|i| (i % 251) as u8).collect();
        let (first, rest) = bytes.split_at(1700);
        sender.send(&run, [first, rest].into_iter()).unwrap();
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        let mut came = Vec::new();
        while came.len() < bytes.len() {
            let arrival = receive(&receiver, &mut buffer);
            assert_eq!(arrival.source, sender.local_addr());
            assert_eq!(arrival.dest, receiver.local_addr());
            assert!(!arrival.congestion_experienced);
            let segment = arrival
                .segment_len_bytes
                .map_or(arrival.len_bytes, usize::from);
            assert!(segment == 1000 || arrival.len_bytes == 500);
            came.extend_from_slice(&buffer[..arrival.len_bytes]);
        }
        assert!(came == bytes);
        assert_eq!(receiver.receive(&mut buffer).unwrap(), None);
    }
}

#[test]
fn a_socket_at_any_address_says_to_which_and_sends_from_which() {
    let mut everywhere = socket("0.0.0.0:0");
    let mut other = socket("127.0.0.8:0");
    let here = SocketAddr::new([127, 0, 0, 7].into(), everywhere.local_addr().port());
    let there = other.local_addr();
    let mut buffer = [0; 100];
    let run = |from: SocketAddr, dest| UdpRun {
        source: from.ip(),
        dest,
        segment_len_bytes: None,
    };
    let ask = std::iter::once(&b"ask"[..]);
    other.send(&run(there, here), ask).unwrap();
    let arrival = receive(&everywhere, &mut buffer);
    assert_eq!((arrival.source, arrival.dest), (there, here));
    let answer = std::iter::once(&b"answer"[..]);
    everywhere.send(&run(here, there), answer).unwrap();
    let arrival = receive(&other, &mut buffer);
    assert_eq!((arrival.source, arrival.dest), (here, there));
}

#[test]
fn congestion_marks_are_seen() {
    let sender = std::net::UdpSocket::bind("127.0.0.9:0").unwrap();
    set(sender.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, 0b11).unwrap();
    let receiver = socket("127.0.0.8:0");
    sender.send_to(b"slow down", receiver.local_addr()).unwrap();
    let mut buffer = [0; 100];
    let arrival = receive(&receiver, &mut buffer);
    assert!(arrival.congestion_experienced);
    assert_eq!(arrival.segment_len_bytes, None);
    assert_eq!(&buffer[..arrival.len_bytes], b"slow down");
}

#[test]
fn datagrams_that_cannot_be_delivered_do_not_disturb_receiving() {
    let mut lonely = socket("127.0.0.9:0");
    let gone = socket("127.0.0.8:0").local_addr();
    let run = UdpRun {
        source: lonely.local_addr().ip(),
        dest: gone,
        segment_len_bytes: None,
    };
    let pieces = std::iter::once(&b"anyone?"[..]);
    lonely.send(&run, pieces).unwrap();
    assert_eq!(lonely.receive(&mut [0; 10]).unwrap(), None);
}

/// The longest datagram of IPv6 with its headers is longer than a packet of loopback, 65,536 bytes.
#[test]
fn a_datagram_that_is_longer_than_a_packet_is_refused_or_sent_as_fragments() {
    let receiver = socket("[::1]:0");
    let bytes = vec![7; 65_527];
    let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
    for (too_long, arrives) in [(TooLong::Refuse, false), (TooLong::Fragment, true)] {
        let options = UdpOptions {
            too_long,
            ..UdpOptions::default()
        };
        let mut sender = UdpSocket::bind("[::1]:0".parse().unwrap(), &options).unwrap();
        let run = UdpRun {
            source: sender.local_addr().ip(),
            dest: receiver.local_addr(),
            segment_len_bytes: None,
        };
        let sent = sender.send(&run, [&bytes[..]].into_iter());
        assert_eq!(sent.is_ok(), arrives, "{sent:?}");
        if arrives {
            assert_eq!(receive(&receiver, &mut buffer).len_bytes, bytes.len());
        }
    }
}
