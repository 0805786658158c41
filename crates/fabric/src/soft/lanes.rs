//! Lanes to peers, for datagrams whose IP header does not matter.

use std::io;

use net::{Piece, UdpLane};
use roce::Flow;

/// A lane for each flow of trains: a call that names no address and looks up no route is shorter.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<(Flow, UdpLane)>);

impl Lanes {
    /// Each is a file descriptor. Further flows take the common way.
    const MAX: usize = 64;

    /// Sends a datagram; `None` where there is no lane for it, or no room on it.
    pub(super) fn send<'v>(
        &mut self,
        flow: &Flow,
        pieces: impl Iterator<Item = Piece<'v>> + Clone,
    ) -> Option<io::Result<()>> {
        let lane = self.of(flow)?;
        match lane.send(pieces) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            sent => Some(sent),
        }
    }

    fn of(&mut self, flow: &Flow) -> Option<&mut UdpLane> {
        let known = self.0.iter().position(|(known, _)| known == flow);
        let index = match known {
            Some(index) => index,
            None if self.0.len() == Self::MAX => return None,
            None => {
                let lane = UdpLane::open(flow.local().ip(), flow.remote()).ok()?;
                self.0.push((*flow, lane));
                self.0.len() - 1
            }
        };
        self.0.get_mut(index).map(|(_, lane)| lane)
    }

    /// A queue pair has gone: where there are no more lanes to be had, those that are needed are opened again.
    pub(super) fn make_room(&mut self) {
        if self.0.len() == Self::MAX {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use net::{UdpOptions, UdpSocket};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 38, 4, 1));

    fn send(lanes: &mut Lanes, to: SocketAddr) -> Option<io::Result<()>> {
        send_from(lanes, HERE, to)
    }

    fn send_from(lanes: &mut Lanes, from: IpAddr, to: SocketAddr) -> Option<io::Result<()>> {
        let flow = Flow::new(SocketAddr::new(from, 25_031), to).expect("one family");
        lanes.send(&flow, [Piece::Bytes(b"train")].into_iter())
    }

    #[test]
    fn as_many_peers_as_may_be_have_lanes_and_others_when_one_has_gone() {
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        let mut peers: Vec<UdpSocket> = (0..=Lanes::MAX as u8)
            .map(|index| {
                let local = SocketAddr::new([127, 38, 4, 2 + index].into(), 25_031);
                UdpSocket::bind(local, &UdpOptions::default()).expect("the port is free")
            })
            .collect();
        let last = peers.pop().expect("one more than there are lanes");
        let mut lanes = Lanes::default();
        for _ in 0..2 {
            for peer in &peers {
                send(&mut lanes, peer.local_addr())
                    .expect("a lane")
                    .expect("it is sent");
                let came = peer.receive(&mut buffer).expect("the socket works");
                let came = came.expect("loopback hands on at once");
                assert_eq!((came.source.ip(), came.len_bytes), (HERE, 5));
            }
        }
        assert!(send(&mut lanes, last.local_addr()).is_none());
        lanes.make_room();
        assert!(send(&mut lanes, last.local_addr()).is_some());
        assert_eq!(lanes.0.len(), 1);
    }

    #[test]
    fn what_leaves_from_several_addresses_comes_from_each() {
        let there: SocketAddr = "127.38.4.101:25033".parse().expect("an address");
        let peer = UdpSocket::bind(there, &UdpOptions::default()).expect("the port is free");
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        let mut lanes = Lanes::default();
        for host in [1, 102, 1] {
            let from = Ipv4Addr::new(127, 38, 4, host).into();
            assert!(send_from(&mut lanes, from, there).expect("a lane").is_ok());
            let came = peer.receive(&mut buffer).expect("it works");
            assert_eq!(came.map(|came| came.source.ip()), Some(from));
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_told_of_and_served_when_it_is_back() {
        let there: SocketAddr = "127.38.4.100:25032".parse().expect("an address");
        let mut lanes = Lanes::default();
        // The first finds nobody, of which the system tells the second.
        assert!(send(&mut lanes, there).expect("a lane").is_ok());
        let refused = send(&mut lanes, there).expect("a lane");
        let kind = refused.expect_err("nobody is there").kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
        let peer = UdpSocket::bind(there, &UdpOptions::default()).expect("the port is free");
        assert!(send(&mut lanes, there).expect("a lane").is_ok());
        let mut buffer = vec![0; UdpSocket::ARRIVAL_LEN_MAX_BYTES];
        assert!(peer.receive(&mut buffer).expect("it works").is_some());
    }
}
