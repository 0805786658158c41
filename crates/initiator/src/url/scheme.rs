//! The protocols that URLs speak.

use std::fmt;

/// The protocol that a URL speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `nvme+tcp`: NVMe/TCP.
    NvmeTcp,
    /// `nvme+rdma`: NVMe/RDMA.
    NvmeRdma,
    /// `iscsi`: iSCSI over TCP.
    Iscsi,
    /// `srp`: the SCSI RDMA Protocol.
    Srp,
    /// `brp`: the Block RDMA Protocol over TCP.
    Brp,
    /// `brp+rdma`: the same over RDMA.
    BrpRdma,
}

impl Scheme {
    /// Every scheme.
    pub(super) const ALL: [Self; 6] = [
        Self::NvmeTcp,
        Self::NvmeRdma,
        Self::Iscsi,
        Self::Srp,
        Self::Brp,
        Self::BrpRdma,
    ];

    /// The port of a URL that has none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::NvmeTcp | Self::NvmeRdma => 4420,
            Self::Iscsi => 3260,
            Self::Srp => 5555,
            Self::Brp | Self::BrpRdma => 4424,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NvmeTcp => "nvme+tcp",
            Self::NvmeRdma => "nvme+rdma",
            Self::Iscsi => "iscsi",
            Self::Srp => "srp",
            Self::Brp => "brp",
            Self::BrpRdma => "brp+rdma",
        }
    }

    /// The option for the number of connections that carry commands.
    pub(super) fn queues_option(self) -> &'static str {
        match self {
            Self::Iscsi | Self::Srp => "sessions",
            _ => "queues",
        }
    }

    /// The option for the host's own name.
    pub(super) fn own_name_option(self) -> &'static str {
        match self {
            Self::Iscsi | Self::Srp => "initiator",
            _ => "hostnqn",
        }
    }

    /// The namespace identifier, unit or LUN of a URL that has none: the first.
    pub(super) fn default_unit(self) -> u32 {
        match self {
            Self::NvmeTcp | Self::NvmeRdma | Self::Brp | Self::BrpRdma => 1,
            Self::Iscsi | Self::Srp => 0,
        }
    }

    pub(super) fn options(self) -> &'static str {
        match self {
            Self::NvmeTcp => {
                "ns, hdgst, ddgst, queues, hostnqn, tls, tls-psk-file, tls-identity, dhchap-secret-file, dhchap-ctrl-secret-file, dhchap-hash, dhchap-dhgroup, dhchap-interval"
            }
            Self::NvmeRdma => {
                "ns, rdma, local, queues, hostnqn, dhchap-secret-file, dhchap-ctrl-secret-file, dhchap-hash, dhchap-dhgroup, dhchap-interval"
            }
            Self::Iscsi => "hdgst, ddgst, sessions, initiator, chap",
            Self::Srp => "rdma, local, sessions, initiator",
            Self::Brp => "unit, step, merge, queues, hostnqn",
            Self::BrpRdma => "unit, step, merge, rdma, local, queues, hostnqn",
        }
    }

    /// A name that a target could have.
    pub(crate) fn example_target(self) -> &'static str {
        match self {
            Self::Iscsi | Self::Srp => "iqn.2026-11.com.example:rd0",
            _ => "nqn.2014-08.org.example:rd0",
        }
    }
}

impl Scheme {
    /// Whether a queue pair carries it.
    pub const fn is_rdma(self) -> bool {
        matches!(self, Self::NvmeRdma | Self::Srp | Self::BrpRdma)
    }

    /// Whether the last part of a path is a LUN.
    pub(super) const fn has_luns(self) -> bool {
        matches!(self, Self::Iscsi | Self::Srp)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
