//! Why a connection over RDMA could not be made.

use std::{fmt, io, net::IpAddr};

use fabric::verbs::{QpFailure, RejReason};
use fabric::{FabricError, HwError};
use nvme::rdma::wire::{ConnectReject, RejectStatus};
use srp::wire::{LoginReject, RejectReason};

/// Why a connection over RDMA could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// No adapter has the local address of the route to the controller.
    #[error("no RDMA adapter reaches the target: {0}; use rdma=soft, which needs none")]
    NoAdapter(#[source] HwError),
    /// No route leads to the controller.
    #[error("no route to the target: {0}; check the address and this machine's routes")]
    NoRoute(#[source] io::Error),
    /// The local address cannot be used.
    #[error("cannot use UDP port 4791 of {local}: {source}{}", hint(source))]
    Bind {
        /// The address.
        local: IpAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// No address of loopback was free.
    #[error(
        "UDP port 4791 is in use on all tried addresses of 127.0.0.0/8; give an address with local="
    )]
    NoLoopback,
    /// The provider returned an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The peer rejected the connection.
    #[error("the target rejected the connection: {0}")]
    Rejected(Rejection),
    /// The peer does not respond.
    #[error(
        "no response over RDMA (UDP port 4791); check the address, and that the target has a portal for RDMA"
    )]
    Unreachable,
    /// The private data of the peer's reply are invalid.
    #[error("the reply has {len_bytes} bytes of private data that are not NVMe/RDMA private data")]
    Reply {
        /// Their length.
        len_bytes: usize,
    },
    /// The queue pair failed before the connection was made.
    #[error("the connection failed: {0}")]
    Failed(QpFailure),
}

impl RdmaError {
    /// Whether the user can fix it with another URL or at another address.
    pub(super) fn is_mistake(&self) -> bool {
        match self {
            Self::NoAdapter(_)
            | Self::NoRoute(_)
            | Self::Bind { .. }
            | Self::NoLoopback
            | Self::Unreachable => true,
            Self::Rejected(rejection) => {
                rejection.reason == RejReason::INVALID_SERVICE_ID || rejection.is_unknown_target()
            }
            Self::Fabric(_) | Self::Reply { .. } | Self::Failed(_) => false,
        }
    }
}

/// Why a peer rejected a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub(crate) reason: RejReason,
    /// The protocol's own reason.
    pub(crate) why: Option<RejectionCode>,
}

/// A protocol's own reason for rejecting a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionCode {
    /// NVMe/RDMA's (STS).
    Nvme(u16),
    /// SRP's (REASON of SRP_LOGIN_REJ).
    Srp(u32),
}

impl Rejection {
    /// What a rejected request was answered with.
    pub(crate) fn new(reason: RejReason, private_data: &[u8]) -> Self {
        let nvme = || {
            let reject = ConnectReject::parse(private_data)?;
            Some(RejectionCode::Nvme(reject.status.get()))
        };
        let srp = || {
            let reject = LoginReject::parse(private_data)?;
            Some(RejectionCode::Srp(reject.reason.get()))
        };
        let is_own = reason == RejReason::CONSUMER;
        Self {
            reason,
            why: is_own.then(|| srp().or_else(nvme)).flatten(),
        }
    }

    /// Whether SRP's login named a target port that does not exist or is not for this initiator.
    fn is_unknown_target(self) -> bool {
        self.why == Some(RejectionCode::Srp(RejectReason::Association as u32))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, self.why) {
            (RejReason::INVALID_SERVICE_ID, _) => f.write_str(
                "no RDMA portal listens at this port; `ramport portal ls` on the target lists its portals",
            ),
            (_, Some(RejectionCode::Srp(code))) => f.write_str(&login_rejected(code)),
            (_, Some(RejectionCode::Nvme(status))) => match RejectStatus::from_wire(status) {
                Some(known) => write!(f, "{known}"),
                None => write!(f, "NVMe status {status:#x}"),
            },
            (RejReason::NO_RESOURCES, _) => f.write_str("it has no resources for another connection"),
            (RejReason::INVALID_MTU, _) => f.write_str(
                "the requested path MTU exceeds what it supports; give the interfaces at both ends the same MTU (ip link set INTERFACE mtu BYTES)",
            ),
            (reason, _) => write!(f, "reason {}", reason.0),
        }
    }
}

/// A reason of SRP_LOGIN_REJ, with how to fix it.
fn login_rejected(code: u32) -> String {
    let text = match RejectReason::from_code(code) {
        None | Some(RejectReason::Unspecified) => return format!("SRP reason {code:#010x}"),
        Some(RejectReason::Resources) => "it has no resources for another channel",
        Some(RejectReason::RequestLength) => "it takes no messages as long as this initiator's",
        Some(RejectReason::Association) => {
            "no target of this portal has that name, or the initiator may not use it over SRP; \
             allow its port identifier there (ramport session ls shows those of others), or set initiator="
        }
        Some(RejectReason::Formats) => "it does not support direct data buffer descriptors",
        Some(RejectReason::Channels) => "the nexus has as many channels as it may have",
    };
    text.to_owned()
}

/// How to fix an address that cannot be used.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program serves or uses RDMA there, so name another address of this machine with local="
        }
        io::ErrorKind::AddrNotAvailable => "; local= takes an address of this machine",
        _ => "",
    }
}
