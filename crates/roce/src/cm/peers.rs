//! How many connections each peer has.

use std::collections::HashMap;
use std::net::IpAddr;

use block::network_of;

/// Counts per peer. There are as many entries as peers with connections.
#[derive(Debug, Default)]
pub(super) struct Peers {
    counts: HashMap<IpAddr, Counts>,
    half_open: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) all: usize,
    pub(super) half_open: usize,
}

impl Peers {
    pub(super) fn of(&self, peer: IpAddr) -> Counts {
        self.counts
            .get(&network_of(peer))
            .copied()
            .unwrap_or_default()
    }

    /// Half-open connections of all peers.
    pub(super) const fn half_open(&self) -> usize {
        self.half_open
    }

    pub(super) fn add(&mut self, peer: IpAddr, is_half_open: bool) {
        let counts = self.counts.entry(network_of(peer)).or_default();
        counts.all += 1;
        if is_half_open {
            counts.half_open += 1;
            self.half_open += 1;
        }
    }

    /// A half-open connection is made.
    pub(super) fn complete(&mut self, peer: IpAddr) {
        if let Some(counts) = self.counts.get_mut(&network_of(peer)) {
            counts.half_open -= 1;
            self.half_open -= 1;
        }
    }

    pub(super) fn remove(&mut self, peer: IpAddr, is_half_open: bool) {
        if is_half_open {
            self.complete(peer);
        }
        let peer = network_of(peer);
        if let Some(counts) = self.counts.get_mut(&peer) {
            counts.all -= 1;
            if counts.all == 0 {
                self.counts.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_connections_and_networks() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut peers = Peers::default();
        peers.add(ip("fd00::1"), true);
        peers.add(ip("fd00::2"), true);
        peers.add(ip("fd00:0:0:1::2"), false);
        assert_eq!(peers.of(ip("fd00::3")).half_open, 2);
        assert_eq!(peers.of(ip("fd00:0:0:1::9")).all, 1);
        peers.add(ip("fe80::1"), false);
        assert_eq!(peers.of(ip("fe80::2")).all, 0);
        peers.complete(ip("fd00::1"));
        assert_eq!((peers.half_open(), peers.of(ip("fd00::1")).all), (1, 2));
        peers.remove(ip("fd00::1"), false);
        peers.remove(ip("fd00::2"), true);
        assert_eq!((peers.half_open(), peers.of(ip("fd00::1")).all), (0, 0));
        assert_eq!(peers.counts.len(), 2);
    }
}
