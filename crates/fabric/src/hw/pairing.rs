//! Connections without librdmacm: both ends have named their queue pairs by other means.
//!
//! Read first: `ibv_modify_qp(3)`, which lists the attributes of each state.

use std::net::{IpAddr, Ipv6Addr};

use roce::CmError;
use roce::wire::RnrTimer;

use super::adapter::Hw;
use super::queue_pairs::Pair;
use super::regions::remote_rights;
use super::sys::{ibv_ah_attr, ibv_qp_attr, qp_attr_mask as mask, qp_state};
use crate::FabricError;
use crate::HwError;
use crate::devices::roce_gid_index;
use crate::provider::{PeerQp, RETRIES};
use crate::verbs::{QpState, Qpn};

/// 4.096 µs · 2^14, about 67 ms, until a packet without an answer is sent again.
const ACK_TIMEOUT: u8 = 14;
/// Routers on the way.
const HOP_LIMIT: u8 = 64;

impl Hw {
    /// Brings a new queue pair to its states.
    pub(super) fn pair_with(&mut self, qpn: Qpn, with: &PeerQp) -> Result<(), FabricError> {
        let local = self.address;
        if local.is_ipv4() != with.address.is_ipv4() {
            let peer = with.address;
            return Err(FabricError::Family { local, peer });
        }
        let port_num = self.anchor.device_port();
        let sgid_index = roce_gid_index(self.device(), port_num, gid(local))
            .ok_or(HwError::NoSuchAddress(local))?;
        let way = ibv_ah_attr {
            dgid: words(gid(with.address)),
            sgid_index,
            hop_limit: HOP_LIMIT,
            is_global: 1,
            port_num,
            ..ibv_ah_attr::default()
        };
        let serial = self.unconnected(qpn)?;
        let caps = self.context.caps;
        let pair = self.pairs.get_mut(serial).ok_or(CmError::QueuePair)?;
        let (responder, initiator) = (
            (pair.config.responder_resources).min(caps.responder_resources_max),
            (pair.config.initiator_depth).min(caps.initiator_depth_max),
        );
        to_init(pair, port_num)?;
        to_receive(pair, with, way, responder)?;
        to_send(pair, with, initiator)?;
        pair.initiator_depth = initiator;
        pair.state = QpState::ReadyToSend;
        Ok(())
    }
}

fn to_init(pair: &Pair, port_num: u8) -> Result<(), HwError> {
    let attr = ibv_qp_attr {
        qp_state: qp_state::INIT,
        qp_access_flags: remote_rights(pair.config.access),
        port_num,
        ..ibv_qp_attr::default()
    };
    let set = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
    pair.qp.modify(&attr, set)
}

fn to_receive(pair: &Pair, with: &PeerQp, way: ibv_ah_attr, responder: u8) -> Result<(), HwError> {
    let attr = ibv_qp_attr {
        qp_state: qp_state::RTR,
        path_mtu: u32::from(with.path_mtu as u8),
        dest_qp_num: with.qpn.get(),
        rq_psn: with.recv_psn.get(),
        max_dest_rd_atomic: responder,
        min_rnr_timer: RnrTimer::at_least(pair.config.rnr_wait).code(),
        ah_attr: way,
        ..ibv_qp_attr::default()
    };
    let set = mask::STATE
        | mask::AV
        | mask::PATH_MTU
        | mask::DEST_QPN
        | mask::RQ_PSN
        | mask::MAX_DEST_RD_ATOMIC
        | mask::MIN_RNR_TIMER;
    pair.qp.modify(&attr, set)
}

fn to_send(pair: &Pair, with: &PeerQp, initiator: u8) -> Result<(), HwError> {
    let attr = ibv_qp_attr {
        qp_state: qp_state::RTS,
        sq_psn: with.send_psn.get(),
        timeout: ACK_TIMEOUT,
        retry_cnt: RETRIES,
        rnr_retry: RETRIES,
        max_rd_atomic: initiator,
        ..ibv_qp_attr::default()
    };
    let set = mask::STATE
        | mask::TIMEOUT
        | mask::RETRY_CNT
        | mask::RNR_RETRY
        | mask::SQ_PSN
        | mask::MAX_QP_RD_ATOMIC;
    pair.qp.modify(&attr, set)
}

/// The GID of an address over RoCE.
const fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// A GID as verbs have it: two numbers in the network's order.
fn words(gid: Ipv6Addr) -> [u64; 2] {
    let octets = gid.octets();
    let (high, low) = octets.split_at(8);
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().expect("8 of 16 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_in_the_networks_order() {
        let of_v4 = gid("192.0.2.1".parse().expect("an address"));
        let bytes = words(of_v4).map(u64::to_ne_bytes).concat();
        assert_eq!(bytes[..10], [0; 10]);
        assert_eq!(bytes[10..], [0xFF, 0xFF, 192, 0, 2, 1]);
    }
}
