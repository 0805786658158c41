//! The parameters of an endpoint and of its connection manager.

use std::time::Duration;

use crate::wire::{PathMtu, UDP_PORT};

/// The parameters of an end.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// The most queue pairs.
    pub qps_max: u32,
    /// The most memory regions.
    pub regions_max: usize,
    /// Queue pair numbers and communication identifiers are `number_offset` plus multiples of
    /// `number_stride`. They distinguish several ends that share an address.
    pub number_stride: u32,
    /// See [`number_stride`](Self::number_stride); less than it.
    pub number_offset: u32,
    /// The channel adapter GUID: not zero, and new for each run of the program.
    pub ca_guid: u64,
    /// The UDP port that both ends listen at: [`UDP_PORT`](crate::wire::UDP_PORT) but in tests.
    pub udp_port: u16,
    /// The largest path MTU that is accepted.
    pub path_mtu_max: PathMtu,
    /// Bounds of the connection manager.
    pub cm: CmLimits,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            qps_max: 4096,
            regions_max: 1 << 16,
            number_stride: 1,
            number_offset: 0,
            ca_guid: 1,
            udp_port: UDP_PORT,
            path_mtu_max: PathMtu::B4096,
            cm: CmLimits::default(),
        }
    }
}

/// Bounds of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmLimits {
    /// Connections, whatever their state, those in time-wait not counted.
    pub connections_max: usize,
    /// The same per peer.
    pub connections_per_peer_max: usize,
    /// Connections that peers requested and that are not yet established.
    pub half_open_max: usize,
    /// The same per peer.
    pub half_open_per_peer_max: usize,
    /// How long the numbers of an ended connection are remembered.
    pub time_wait: Duration,
    /// How many ended connections are remembered.
    pub time_wait_max: usize,
}

impl Default for CmLimits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_peer_max: 1024,
            half_open_max: 256,
            half_open_per_peer_max: 64,
            time_wait: Duration::from_secs(2),
            time_wait_max: 1024,
        }
    }
}
