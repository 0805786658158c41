//! What the server reports about itself: values of one moment.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use ::nfs::ClientInfo as NfsClientInfo;
use fabric::LinkLayer;
use volume::filters::FilterSpec;
use volume::{
    Availability, CacheStatistics, Damage, MirrorInfo, PathInfo, ReplicationInfo, VolumeSpec,
    WriteLock,
};

use crate::{
    ClientNameInfo, FileStatistics, HostDefinition, HostName, IoStatistics, PortalDefinition,
    RdmaProvider, RdmaSegmentation, RdmaStatistics, ShareDefinition, ShareName, TargetDefinition,
    TargetName, Transport, VolumeName,
};

/// A volume as it is now.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Its name.
    pub name: VolumeName,
    /// What it is, with its present size.
    pub spec: VolumeSpec,
    /// When it was created, or, for a snapshot, taken.
    pub created: SystemTime,
    /// Bytes of memory or space that its blocks take.
    pub used_bytes: u64,
    /// Whether writes are refused.
    pub lock: WriteLock,
    /// Whether commands of hosts are executed.
    pub availability: Availability,
    /// Why it executes nothing, if it could not be opened.
    pub problem: Option<String>,
    /// What cannot be read, because the file that it was restored from is damaged.
    pub damage: Damage,
    /// The ways to its disk, if that is on another machine.
    pub paths: Vec<PathInfo>,
    /// What it has done as a cache, if it is one.
    pub cache: Option<CacheStatistics>,
    /// How its members are, if it is a mirror.
    pub mirror: Option<MirrorInfo>,
    /// How its copies are, if it is replicated.
    pub replication: Option<ReplicationInfo>,
    /// Its filters.
    pub filters: FilterSpec,
    /// Where it is attached.
    pub attachments: Vec<Attachment>,
    /// What hosts have done to it.
    pub statistics: IoStatistics,
}

/// A place where a volume is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The target.
    pub target: TargetName,
    /// The namespace ID there.
    pub nsid: u32,
}

/// A target as it is now.
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// What was defined.
    pub definition: TargetDefinition,
    /// How many sessions it has.
    pub sessions: usize,
    /// What hosts have done through it.
    pub statistics: IoStatistics,
}

/// A share as it is now.
#[derive(Clone, Debug)]
pub struct ShareInfo {
    /// What was defined.
    pub definition: ShareDefinition,
    /// When it was created or last erased.
    pub created: SystemTime,
    /// Bytes of memory that its files take, with their names and attributes.
    pub used_bytes: u64,
    /// How many bytes more they may take.
    pub free_bytes: u64,
    /// How many files it has, besides its root.
    pub files: u64,
    /// How many sessions have used it and are still open.
    pub sessions: usize,
    /// Why it is not served, and how to fix that; `None` if it is.
    pub problem: Option<String>,
    /// The clients that are named by host name, with their addresses.
    pub client_names: Vec<ClientNameInfo>,
    /// What clients have done to it.
    pub statistics: FileStatistics,
}

/// A host as it is now.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// What was defined.
    pub definition: HostDefinition,
    /// The targets whose lists name it.
    pub targets: Vec<TargetName>,
}

/// An open portal as it is now.
#[derive(Clone, Debug)]
pub struct PortalInfo {
    /// Where it listens; the port is the real one.
    pub definition: PortalDefinition,
    /// The number of its open connections.
    pub connections: usize,
    /// The RDMA provider; `None` for transports without RDMA.
    pub rdma: Option<RdmaInfo>,
    /// The packet counters of its address, for all portals there; only with software RDMA.
    pub rdma_statistics: Option<RdmaStatistics>,
    /// What hosts have done through it since it was opened.
    pub statistics: IoStatistics,
}

/// A thread that drives connections: a reactor, or an RDMA thread.
#[derive(Clone, Debug)]
pub struct ThreadInfo {
    /// Its name; that of an RDMA thread ends with its address.
    pub name: String,
    /// The number of its open connections.
    pub connections: usize,
    /// CPU time since its start.
    pub cpu_time: Duration,
    /// What hosts have done through it since its start.
    pub statistics: IoStatistics,
}

/// The RDMA provider of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaInfo {
    /// An adapter, or software.
    pub provider: RdmaProvider,
    /// The link layer; `None` if the system does not report it.
    pub link_layer: Option<LinkLayer>,
    /// Whether segmentation offload (GSO) is used; only with software RDMA.
    pub segmentation: Option<RdmaSegmentation>,
    /// Why this provider was chosen: a sentence for users.
    pub reason: String,
}

/// A session: a host connected to a target through a portal. For NVMe this is a controller with all
/// its queues, for iSCSI a session with all its connections. For NFS it is one connection of a
/// client, which may use several shares.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Its number, never used twice while the server runs.
    pub id: SessionId,
    /// The target; none for a session with the discovery service, and for NFS.
    pub target: Option<TargetName>,
    /// The name that the host sent; for NFS, its address.
    pub host: HostName,
    /// The address of the host's first connection.
    pub peer: SocketAddr,
    /// The local address of that connection.
    pub local: SocketAddr,
    /// What it is to its protocol.
    pub protocol: SessionProtocol,
    /// How many connections (queues) it has.
    pub connections: usize,
    /// When it began.
    pub since: SystemTime,
    /// What it has done; for NFS, reads, writes and commits of files.
    pub statistics: IoStatistics,
}

/// What a session is to its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionProtocol {
    /// A controller.
    Nvme {
        /// Over TCP, or over RDMA.
        transport: Transport,
        /// The controller ID.
        controller: u16,
    },
    /// An iSCSI session.
    Iscsi {
        /// Over TCP, or over RDMA.
        transport: Transport,
        /// The initiator's part of the session ID.
        isid: [u8; 6],
        /// The target's part; 0 for discovery.
        tsih: u16,
        /// Its state.
        state: IscsiState,
        /// The negotiated keys of its first connection with their values, as RFC 7143 names them.
        parameters: Vec<(&'static str, String)>,
        /// Its connections, oldest first.
        connections: Vec<IscsiConnection>,
    },
    /// The channels of an SRP initiator with a target.
    Srp {
        /// Their state.
        state: IscsiState,
    },
    /// A connection of an NFS client.
    Nfs {
        /// The transport of its portal.
        transport: Transport,
        /// The shares that it has used, by name.
        shares: Vec<ShareName>,
        /// What it has done, by procedure.
        operations: FileStatistics,
        /// What clients of NFS version 4 at its address hold, by whichever connection.
        clients: Vec<NfsClientInfo>,
    },
    /// A session of BRP.
    Brp {
        /// The transport of its portal.
        transport: Transport,
        /// The unit: the volume's number in the target.
        unit: u32,
        /// How many commands its host may have in flight at most.
        tags: u16,
        /// How long its record is kept if the connection is lost.
        hold: Duration,
        /// Whether it has gone on from a connection that was lost.
        is_resumed: bool,
    },
}

impl SessionProtocol {
    /// The transport of the session's portal.
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Nvme { transport, .. }
            | Self::Iscsi { transport, .. }
            | Self::Nfs { transport, .. }
            | Self::Brp { transport, .. } => *transport,
            Self::Srp { .. } => Transport::Srp,
        }
    }
}

/// The state of a session with an iSCSI target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IscsiState {
    /// In full feature phase.
    LoggedIn,
    /// Its initiator was asked to log out and has not done so yet.
    LogoutRequested,
    /// It was dropped, and its connections are being closed; or they have just ended.
    Dropped,
}

/// A connection of an iSCSI session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiConnection {
    /// Its connection ID.
    pub cid: u16,
    /// The remote address.
    pub peer: SocketAddr,
    /// The local address of that connection.
    pub local: SocketAddr,
    /// The negotiated keys with their values.
    pub parameters: Vec<(&'static str, String)>,
}

/// A session's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A list of names, for messages.
pub(crate) fn list(names: impl Iterator<Item = impl fmt::Display>) -> String {
    let names: Vec<_> = names.map(|name| name.to_string()).collect();
    names.join(", ")
}
