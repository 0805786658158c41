use std::collections::VecDeque;

use super::*;

/// A socket that returns what it sent, after a fault was applied.
struct Twisted<F> {
    twist: F,
    came: VecDeque<(UdpArrival, Vec<u8>)>,
    runs_sent: usize,
}

impl<F: FnMut(&mut UdpArrival, &mut Vec<u8>) -> Fate> Twisted<F> {
    fn by(twist: F) -> Self {
        Self {
            twist,
            came: VecDeque::new(),
            runs_sent: 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Comes,
    IsLost,
    IsRefused,
}

impl<F: FnMut(&mut UdpArrival, &mut Vec<u8>) -> Fate> Datagrams for Twisted<F> {
    fn send(&mut self, run: &UdpRun, bytes: &[u8]) -> io::Result<()> {
        self.runs_sent += 1;
        let mut bytes = bytes.to_vec();
        let mut arrival = UdpArrival {
            len_bytes: bytes.len(),
            source: run.dest,
            dest: run.dest,
            segment_len_bytes: run.segment_len_bytes,
            congestion_experienced: false,
        };
        match (self.twist)(&mut arrival, &mut bytes) {
            Fate::Comes => {
                arrival.len_bytes = bytes.len();
                self.came.push_back((arrival, bytes));
            }
            Fate::IsLost => {}
            Fate::IsRefused => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<UdpArrival>> {
        Ok(self.came.pop_front().map(|(arrival, bytes)| {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            arrival
        }))
    }

    fn wait(&mut self, _at_most: Duration) -> io::Result<bool> {
        Ok(!self.came.is_empty())
    }
}

const PROOFS: [(&str, PathMtu); 4] = [
    ("192.0.2.1:4791", PathMtu::B4096),
    ("192.0.2.1:4791", PathMtu::B256),
    ("[2001:db8::1]:4791", PathMtu::B1024),
    ("0.0.0.0:4791", PathMtu::B1024),
];

fn proofs() -> impl Iterator<Item = LoopbackProbe> {
    PROOFS.into_iter().map(|(local, path_mtu)| LoopbackProbe {
        local: local.parse().expect("an address"),
        path_mtu,
        nonce: 0x0123_4567_89AB_CDEF,
    })
}

fn prove(
    probe: LoopbackProbe,
    wanted: Segmentation,
    twist: impl FnMut(&mut UdpArrival, &mut Vec<u8>) -> Fate,
) -> (Result<Segmentation, Damaged>, usize) {
    let mut socket = Twisted::by(twist);
    let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
    let probed = probe.segmentation(&mut socket, wanted, &mut buffer);
    (probed, socket.runs_sent)
}

#[test]
fn what_comes_whole_is_used() {
    for probe in proofs() {
        for wanted in [Segmentation::On, Segmentation::Off] {
            let (probed, runs) = prove(probe, wanted, |_, _| Fate::Comes);
            assert_eq!(probed.expect("all is well"), wanted);
            assert_eq!(runs, if wanted == Segmentation::On { 2 } else { 1 });
        }
    }
}

#[test]
fn runs_that_are_refused_cut_short_damaged_or_lost_switch_segmentation_off() {
    type Twist = fn(&mut UdpArrival, &mut Vec<u8>) -> Fate;
    let twists: [Twist; 6] = [
        |_, _| Fate::IsRefused,
        |_, _| Fate::IsLost,
        |arrival, bytes| {
            // Only the first of them.
            bytes.truncate(arrival.segment_len_bytes.map_or(0, usize::from));
            arrival.segment_len_bytes = None;
            Fate::Comes
        },
        |arrival, bytes| {
            // All but the last.
            let len = arrival.segment_len_bytes.map_or(1, usize::from);
            bytes.truncate(bytes.len() / len * len);
            Fate::Comes
        },
        |_, bytes| {
            let at = bytes.len() * 2 / 3;
            bytes[at] ^= 1;
            Fate::Comes
        },
        |arrival, _| {
            // In one piece, as it was never sent.
            arrival.segment_len_bytes = None;
            Fate::Comes
        },
    ];
    for probe in proofs() {
        for (number, twist) in twists.into_iter().enumerate() {
            let (probed, _) = prove(probe, Segmentation::On, |arrival, bytes| {
                if arrival.segment_len_bytes.is_none() {
                    return Fate::Comes;
                }
                twist(arrival, bytes)
            });
            assert_eq!(
                probed.expect("single packets come"),
                Segmentation::Off,
                "twist {number} at {probe:?}"
            );
        }
    }
}

#[test]
fn single_packets_that_are_damaged_are_an_error() {
    for probe in proofs() {
        for wanted in [Segmentation::On, Segmentation::Off] {
            for at in [0, 1, 40, 250] {
                let (probed, runs) = prove(probe, wanted, |_, bytes| {
                    bytes[at] ^= 0x10;
                    Fate::Comes
                });
                assert!(probed.is_err(), "byte {at} at {probe:?}: {probed:?}");
                assert_eq!(runs, 1);
            }
        }
    }
}

#[test]
fn single_packets_that_do_not_come_prove_nothing() {
    let elsewhere: SocketAddr = "198.51.100.7:1024".parse().expect("an address");
    for probe in proofs() {
        for wanted in [Segmentation::On, Segmentation::Off] {
            let (probed, runs) = prove(probe, wanted, |_, _| Fate::IsLost);
            assert_eq!(probed.expect("it may be so for us alone"), wanted);
            assert_eq!(runs, 3, "it was sent again");
            let (probed, runs) = prove(probe, wanted, |_, _| Fate::IsRefused);
            assert_eq!(probed.expect("it may be so for us alone"), wanted);
            assert_eq!(runs, 3, "it was sent again");
            let (probed, _) = prove(probe, wanted, |arrival, _| {
                arrival.source = elsewhere;
                Fate::Comes
            });
            assert_eq!(probed.expect("it may be so for us alone"), wanted);
        }
    }
}

#[test]
fn interfaces_of_link_local_addresses_are_not_compared() {
    let probe = LoopbackProbe {
        local: "[fe80::1%3]:4791".parse().expect("an address"),
        path_mtu: PathMtu::B1024,
        nonce: 7,
    };
    let (probed, runs) = prove(probe, Segmentation::On, |arrival, _| {
        assert_eq!(arrival.source, probe.local, "it goes out there");
        arrival.dest = SocketAddr::new(arrival.dest.ip(), arrival.dest.port());
        Fate::Comes
    });
    assert_eq!(probed.expect("all came"), Segmentation::On);
    assert_eq!(runs, 2);
}

#[test]
fn a_packet_that_is_lost_once_is_sent_again() {
    for probe in proofs() {
        let mut turn = 0;
        let (probed, runs) = prove(probe, Segmentation::On, |_, _| {
            turn += 1;
            if turn % 2 == 1 {
                Fate::IsLost
            } else {
                Fate::Comes
            }
        });
        assert_eq!(probed.expect("all came in the end"), Segmentation::On);
        assert_eq!(runs, 4);
    }
}

#[test]
fn packets_of_peers_do_not_affect_the_probe() {
    for probe in proofs() {
        let stranger = LoopbackProbe {
            nonce: !probe.nonce,
            ..probe
        };
        let mut socket = Twisted::by(|_: &mut UdpArrival, _: &mut Vec<u8>| Fate::Comes);
        for junk in [
            vec![],
            vec![0; 30],
            stranger.packet(0, 256),
            vec![0xFF; 500],
        ] {
            let arrival = UdpArrival {
                len_bytes: junk.len(),
                source: "203.0.113.9:4791".parse().expect("an address"),
                dest: probe.own(),
                segment_len_bytes: None,
                congestion_experienced: false,
            };
            socket.came.push_back((arrival, junk));
        }
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        let probed = probe.segmentation(&mut socket, Segmentation::On, &mut buffer);
        assert_eq!(probed.expect("all came"), Segmentation::On);
        assert_eq!(socket.runs_sent, 2);
    }
}
