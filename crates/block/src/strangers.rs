//! Strangers: peers that have connected and have yet to prove who they are. One rule, for every
//! protocol, says which of them makes room if there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Addresses that count as one peer: over IPv6 those with the same 64 bits of network, since a host
/// chooses the other 64 freely. On one link, all hosts have the same.
pub fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

/// A connection of a stranger.
#[derive(Clone, Copy, Debug)]
pub struct Stranger<N> {
    /// Its number: the lower, the older.
    pub number: N,
    /// The network that it came from ([`network_of`]).
    pub network: IpAddr,
    /// What it holds of what is short, in any unit.
    pub held: u64,
}

/// Which connection makes room: the oldest one of the network whose connections together hold most.
/// Of networks that hold as much, the one with the oldest connection.
pub fn oldest_of_the_greediest<N: Copy + Ord>(
    strangers: impl Iterator<Item = Stranger<N>>,
) -> Option<N> {
    let mut networks: BTreeMap<IpAddr, (u64, Reverse<N>)> = BTreeMap::new();
    for Stranger {
        number,
        network,
        held,
    } in strangers
    {
        let entry = networks.entry(network).or_insert((0, Reverse(number)));
        *entry = (entry.0 + held, entry.1.max(Reverse(number)));
    }
    let (_, Reverse(oldest)) = networks.into_values().max()?;
    Some(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let network = |text| network_of(address(text));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_ne!(network("fe80::1"), network("fe80::2"));
    }

    #[test]
    fn the_oldest_of_the_network_that_holds_most_makes_room() {
        let of = |number: u64, network, held| Stranger {
            number,
            network: address(network),
            held,
        };
        let few_that_hold_much = [
            of(1, "192.0.2.1", 1),
            of(2, "192.0.2.1", 1),
            of(4, "192.0.2.2", 5),
            of(3, "192.0.2.2", 5),
        ];
        let oldest =
            |strangers: &[Stranger<u64>]| oldest_of_the_greediest(strangers.iter().copied());
        assert_eq!(oldest(&few_that_hold_much), Some(3));
        let as_much = [of(6, "192.0.2.1", 2), of(5, "192.0.2.2", 2)];
        assert_eq!(oldest(&as_much), Some(5));
        assert_eq!(oldest(&[]), None);
    }
}
