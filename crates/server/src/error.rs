//! Errors of requests, each with how to fix the request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use volume::{ByteSize, RestoreError, SaveError, WriteError};

use crate::{
    CopyFailure, HostName, PortalDefinition, RdmaChoice, RdmaProvider, SessionId, ShareName,
    TargetName, VolumeName,
};

/// Why the server rejected a request. Nothing has changed when this is returned.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No such volume.
    #[error("there is no volume {0}; `ramport volume ls` lists those that exist")]
    UnknownVolume(VolumeName),
    /// No such target.
    #[error("there is no target {0}; `ramport target ls` lists those that exist")]
    UnknownTarget(TargetName),
    /// No such host.
    #[error("there is no host {0}; define it first with `ramport host create {0}`")]
    UnknownHost(HostName),
    /// No such portal.
    #[error("there is no portal {0}; `ramport portal ls` lists those that exist")]
    UnknownPortal(PortalDefinition),
    /// No such share.
    #[error("there is no share {0}; `ramport share ls` lists those that exist")]
    UnknownShare(ShareName),
    /// No such referral.
    #[error("there is no referral to {0}; `ramport referral ls` lists those that exist")]
    UnknownReferral(PortalDefinition),
    /// No such session.
    #[error("there is no session {0}; it may have ended")]
    UnknownSession(SessionId),
    /// No such namespace.
    #[error(
        "target {target} has no volume {nsid}; `ramport target show {target}` lists its volumes with their numbers"
    )]
    UnknownNamespace {
        /// The target.
        target: TargetName,
        /// The namespace ID.
        nsid: u32,
    },
    /// The name is taken.
    #[error("volume {0} already exists; remove it first or choose another name")]
    VolumeExists(VolumeName),
    /// The name is taken.
    #[error("target {0} already exists; change it, or choose another name")]
    TargetExists(TargetName),
    /// The name is taken.
    #[error("share {0} already exists; change it, or choose another name")]
    ShareExists(ShareName),
    /// The name is taken.
    #[error("host {0} already exists; change it, or choose another name")]
    HostExists(HostName),
    /// The portal exists already.
    #[error("portal {0} already exists")]
    PortalExists(PortalDefinition),
    /// The referral exists already.
    #[error("a referral to {0} already exists")]
    ReferralExists(PortalDefinition),
    /// The referral leads to this server.
    #[error(
        "{0} is a portal of this server, which discovery lists anyway; refer to another machine"
    )]
    ReferralToSelf(PortalDefinition),
    /// Its protocol has no referrals.
    #[error("a referral to {0} is not possible: only NVMe discovery supports referrals")]
    ReferralProtocol(PortalDefinition),
    /// No host can reach the referral's address.
    #[error(
        "hosts cannot reach {0}; give the address and port of a discovery service, such as nvme+tcp://192.0.2.7:8009"
    )]
    ReferralAddress(PortalDefinition),
    /// The namespace ID is taken.
    #[error("number {nsid} of {target} is already used by volume {volume}; choose another number")]
    NamespaceExists {
        /// The target.
        target: TargetName,
        /// The namespace ID.
        nsid: u32,
        /// The volume behind it.
        volume: VolumeName,
    },
    /// Namespace IDs and LUNs go up to a limit.
    #[error(
        "number {nsid} is out of range; volumes of this target have numbers from {min} to {max}"
    )]
    NamespaceId {
        /// What was given.
        nsid: u32,
        /// The lowest: 1 for namespace IDs, 0 for LUNs.
        min: u32,
        /// The highest.
        max: u32,
    },
    /// No namespace ID or LUN is free.
    #[error("target {target} already has {max} volumes, the maximum; use another target")]
    NamespacesFull {
        /// The target.
        target: TargetName,
        /// The limit.
        max: u32,
    },
    /// The capacity is not a whole number of blocks, or is out of bounds.
    #[error(
        "size {} is out of range; choose a multiple of {block_bytes} bytes from {} to {}", ByteSize(*len_bytes), ByteSize(*min_bytes), ByteSize(*max_bytes)
    )]
    VolumeSize {
        /// What was given.
        len_bytes: u64,
        /// The block size.
        block_bytes: u64,
        /// The smallest capacity.
        min_bytes: u64,
        /// The largest capacity.
        max_bytes: u64,
    },
    /// The budget has no room.
    #[error(
        "{} are needed, but only {} of the memory budget are free; remove or shrink volumes, make this one thin, or raise --memory", ByteSize(*needed_bytes), ByteSize(*free_bytes)
    )]
    OverBudget {
        /// What the request needs.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// The machine has no memory, though the budget has room.
    #[error("cannot allocate memory for {volume}: {source}")]
    Memory {
        /// The volume.
        volume: VolumeName,
        /// What the system said.
        source: volume::MemoryError,
    },
    /// The same for a share.
    #[error("cannot allocate memory for share {share}: {source}")]
    ShareMemory {
        /// The share.
        share: ShareName,
        /// What the system said.
        source: volume::MemoryError,
    },
    /// A directory cannot be served as a share.
    #[error("share {share} cannot serve {}: {fault}", path.display())]
    SharePath {
        /// The share.
        share: ShareName,
        /// The directory.
        path: PathBuf,
        /// Why.
        fault: SharePathFault,
    },
    /// A directory would be served twice, by handles that do not fit each other.
    #[error(
        "share {share} cannot serve {}: share {other} serves {}, and one contains the other; use one share, or directories side by side", path.display(), other_path.display()
    )]
    ShareOverlaps {
        /// The share.
        share: ShareName,
        /// The directory.
        path: PathBuf,
        /// The other share.
        other: ShareName,
        /// Its directory.
        other_path: PathBuf,
    },
    /// Files in a directory of this machine are not removed by a command for shares.
    #[error(
        "share {share} serves {}, whose files are not removed this way; remove them on this machine, or through a client", path.display()
    )]
    ShareNotErasable {
        /// The share.
        share: ShareName,
        /// The directory.
        path: PathBuf,
    },
    /// What was asked for is not possible with the kind of a volume, or with its state.
    #[error("volume {volume}: {source}")]
    Volume {
        /// The volume.
        volume: VolumeName,
        /// Why.
        source: volume::VolumeError,
    },
    /// A copy was not made, or not finished.
    #[error(transparent)]
    Copy(#[from] CopyFailure),
    /// A volume was not saved.
    #[error("volume {volume} is not saved: {source}")]
    Save {
        /// The volume.
        volume: VolumeName,
        /// Why.
        source: Box<volume::SaveError>,
    },
    /// A volume was not restored.
    #[error("volume {volume} is not restored: {source}")]
    Restore {
        /// The volume.
        volume: VolumeName,
        /// Why.
        source: Box<volume::RestoreError>,
    },
    /// A snapshot or a clone of something that does not exist.
    #[error(
        "volume {volume} is made of {of}, which does not exist; `ramport volume ls` lists volumes"
    )]
    UnknownParent {
        /// The volume.
        volume: VolumeName,
        /// What it is to be made of.
        of: String,
    },
    /// Two snapshots of one moment would be the same.
    #[error("volume {0} is named twice; take one snapshot of each volume")]
    SnapshotTwice(VolumeName),
    /// Others are made of the volume.
    #[error("volume {volume} cannot be removed before what is made of it: {children}")]
    HasChildren {
        /// The volume.
        volume: VolumeName,
        /// Its snapshots, or its clones, as a readable list.
        children: String,
    },
    /// Another volume holds the volume.
    #[error(
        "volume {volume} is a member of {holder}, which alone may use it; remove {holder} first"
    )]
    Held {
        /// The volume.
        volume: VolumeName,
        /// The volume that holds it.
        holder: VolumeName,
    },
    /// A mirror is to be removed such that it can be created again.
    #[error(
        "member {member} of mirror {mirror} is out of sync, so the mirror could not be restored if another part of the change failed; wait until it is in sync, or remove {mirror} in a change of its own"
    )]
    OutOfSync {
        /// The mirror.
        mirror: VolumeName,
        /// The first member that is out of sync.
        member: String,
    },
    /// Targets offer a volume that another is to hold.
    #[error(
        "volume {volume} cannot become a member of {holder} while {targets} offers it; detach it first"
    )]
    MemberOffered {
        /// The volume.
        volume: VolumeName,
        /// The volume that is to hold it.
        holder: VolumeName,
        /// The targets, as a readable list.
        targets: String,
    },
    /// A volume would be made of itself.
    #[error("volume {0} cannot be a member of itself, also not by way of others")]
    MemberOfItself(VolumeName),
    /// Hosts use the volume.
    #[error(
        "volume {volume} is attached to {targets}{}", how_to_detach(*sessions)
    )]
    VolumeInUse {
        /// The volume.
        volume: VolumeName,
        /// The targets, as a readable list.
        targets: String,
        /// How many sessions.
        sessions: usize,
    },
    /// Shrinking discards data.
    #[error(
        "shrinking {volume} from {} to {} discards the data beyond", ByteSize(*from_bytes), ByteSize(*to_bytes)
    )]
    ShrinkLosesData {
        /// The volume.
        volume: VolumeName,
        /// Its capacity.
        from_bytes: u64,
        /// The new capacity.
        to_bytes: u64,
    },
    /// Hosts use the target.
    #[error("target {target} has {sessions} sessions; end them first")]
    TargetInUse {
        /// The target.
        target: TargetName,
        /// How many sessions.
        sessions: usize,
    },
    /// Clients use the share.
    #[error(
        "share {share} is used by {sessions} sessions; unmount it on its clients, or end the sessions"
    )]
    ShareInUse {
        /// The share.
        share: ShareName,
        /// How many sessions.
        sessions: usize,
    },
    /// A target's list names the host.
    #[error("host {host} is on the host list of {target}; remove it from the list first")]
    HostInUse {
        /// The host.
        host: HostName,
        /// The first such target.
        target: TargetName,
    },
    /// A target would be open to the network without an explicit setting.
    #[error(
        "target {target} has no host list, and portal {portal} is reachable from other machines; list its hosts (--host NAME) or use --allow-any-host"
    )]
    OpenToNetwork {
        /// The target.
        target: TargetName,
        /// The portal.
        portal: PortalDefinition,
    },
    /// A share would be open to the network without an explicit setting.
    #[error(
        "share {share} has no client list, and portal {portal} is reachable from other machines; list its clients (--client 192.0.2.0/24), or allow every address (--client 0.0.0.0/0 --client ::/0)"
    )]
    ShareOpenToNetwork {
        /// The share.
        share: ShareName,
        /// The portal.
        portal: PortalDefinition,
    },
    /// The CHAP settings are invalid.
    #[error("{owner}: {fault}")]
    Chap {
        /// Whose it is.
        owner: crate::ChapOwner,
        /// What is wrong.
        fault: crate::ChapFault,
    },
    /// The secret of a host for NVMe is invalid.
    #[error("host {host}: {fault}")]
    DhChap {
        /// The host.
        host: HostName,
        /// What is wrong.
        fault: crate::DhChapSecretError,
    },
    /// The TLS key of a host is invalid.
    #[error("host {host}: {fault}")]
    TlsKey {
        /// The host.
        host: HostName,
        /// What is wrong.
        fault: crate::TlsKeyError,
    },
    /// TLS for a transport that has none.
    #[error("{0} has tls=, which is only for nvme+tcp portals of this server; leave it out")]
    NoTls(PortalDefinition),
    /// TLS cannot be offered.
    #[error("cannot offer TLS at {portal}: {source}")]
    Tls {
        /// The portal.
        portal: PortalDefinition,
        /// The reason.
        source: tls::ProviderError,
    },
    /// Portal groups or CHAP for a target that is not an iSCSI target.
    #[error(
        "target {0} has portal groups or CHAP, which only iSCSI targets have; leave them out, or use a name such as iqn.2025-01.com.example:rd0"
    )]
    LoginPolicy(TargetName),
    /// A host that is identified by its address has none.
    #[error("host {0} is identified by its address but has none; give --address")]
    HostWithoutAddress(HostName),
    /// The system refused the address.
    #[error(
        "cannot listen on {address}: {source}; choose an address of this machine and a free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A portal over RDMA without a port.
    #[error("{0} needs a port other than 0, because hosts find RDMA portals by port")]
    RdmaPort(PortalDefinition),
    /// RDMA cannot be served at the address.
    #[error("cannot serve {portal}: {source}{}", hint_for(portal))]
    Rdma {
        /// The portal.
        portal: PortalDefinition,
        /// The reason.
        source: Box<fabric::runtime::RuntimeError>,
    },
    /// Other portals at the address have another provider of RDMA.
    #[error(
        "cannot serve {portal}: other RDMA portals at its address use {served}, and an address has one provider; remove them first, or change all at once with `ramport apply`"
    )]
    RdmaProvider {
        /// The portal.
        portal: PortalDefinition,
        /// The provider of the other portals.
        served: RdmaProvider,
    },
    /// A provider of RDMA for a transport that has none.
    #[error("{0} has rdma=, which is only for portals of this server; leave it out")]
    NoRdma(PortalDefinition),
    /// Authentication required at a portal whose protocol has none.
    #[error(
        "{0} has auth=required, which only NVMe and iSCSI portals of this server have (BRP has no authentication, and sec=sys of NFS proves nothing); leave it out"
    )]
    NoAuthentication(PortalDefinition),
    /// Targets have identifiers that are derived from something else.
    #[error(
        "machine cannot change while there are targets, since it changes the identifiers of their disks; remove the targets first, or leave machine out"
    )]
    MachineInUse,
    /// A limit of the server.
    #[error("there are already {max} {what}, the maximum of this server")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A thread may still execute commands on a volume that is to be rolled back.
    #[error(
        "volume {volume} cannot be rolled back or restored now, because a thread has been in one turn of commands for more than {} s and may still write to it; nothing was changed; if the thread hangs, restart the daemon", waited.as_secs()
    )]
    StillExecuting {
        /// The volume.
        volume: VolumeName,
        /// How long the thread was waited for.
        waited: Duration,
    },
    /// The change is made, but a thread may still execute commands as if it were not.
    #[error(
        "the change is made, but commands that began before it may still be executed: a thread has been in one turn of commands for more than {} s; if it hangs, restart the daemon", waited.as_secs()
    )]
    Unfinished {
        /// How long the thread was waited for.
        waited: Duration,
    },
}

/// The category of a [`ServerError`], for callers that map it to codes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A named object does not exist.
    NotFound,
    /// It conflicts with an existing object.
    Conflict,
    /// A value is out of bounds.
    Invalid,
    /// Memory or another limit is used up.
    Exhausted,
    /// The server cannot do this at present.
    Unavailable,
    /// It is done, but what it promises does not hold yet.
    Unfinished,
}

/// Why a directory cannot be served as a share.
#[derive(Debug, thiserror::Error)]
pub enum SharePathFault {
    /// It cannot be opened.
    #[error("{0}; choose an existing directory that the user of the daemon may read")]
    Open(#[from] dir_tree::OpenError),
    /// The process may not change its entries.
    #[error(
        "the user of the daemon may not write it; change its owner or mode, or share it with --options ro"
    )]
    NotWritable,
}

impl ServerError {
    /// That of memory that was not allocated: the budget's, or what `other` makes of the rest.
    pub(crate) fn of_memory(
        error: volume::MemoryError,
        other: impl FnOnce(volume::MemoryError) -> Self,
    ) -> Self {
        match error {
            volume::MemoryError::OverBudget {
                wanted_bytes,
                free_bytes,
                ..
            } => Self::OverBudget {
                needed_bytes: wanted_bytes,
                free_bytes,
            },
            source => other(source),
        }
    }

    /// Its kind. Most are conflicts: what is asked for contradicts what there is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownVolume(_)
            | Self::UnknownParent { .. }
            | Self::UnknownTarget(_)
            | Self::UnknownHost(_)
            | Self::UnknownPortal(_)
            | Self::UnknownReferral(_)
            | Self::UnknownShare(_)
            | Self::UnknownSession(_)
            | Self::UnknownNamespace { .. } => ErrorKind::NotFound,
            Self::NamespaceId { .. }
            | Self::SnapshotTwice(_)
            | Self::MemberOfItself(_)
            | Self::VolumeSize { .. }
            | Self::HostWithoutAddress(_)
            | Self::SharePath { .. }
            | Self::ShareNotErasable { .. }
            | Self::ReferralAddress(_)
            | Self::ReferralProtocol(_)
            | Self::Chap { .. }
            | Self::DhChap { .. }
            | Self::LoginPolicy(_)
            | Self::Listen { .. }
            | Self::RdmaPort(_)
            | Self::NoRdma(_)
            | Self::TlsKey { .. }
            | Self::NoTls(_)
            | Self::Tls { .. }
            | Self::NoAuthentication(_)
            | Self::Rdma { .. } => ErrorKind::Invalid,
            Self::OverBudget { .. }
            | Self::Memory { .. }
            | Self::ShareMemory { .. }
            | Self::NamespacesFull { .. }
            | Self::TooMany { .. } => ErrorKind::Exhausted,
            Self::Save { source, .. } => save_kind(source),
            Self::Restore { source, .. } => restore_kind(source),
            Self::Copy(CopyFailure::Copy { error, .. }) if error.is_failure() => {
                ErrorKind::Unavailable
            }
            Self::Stopping | Self::StillExecuting { .. } => ErrorKind::Unavailable,
            Self::Unfinished { .. } => ErrorKind::Unfinished,
            _ => ErrorKind::Conflict,
        }
    }

    /// Whether the request would have succeeded with [`Force::Yes`](crate::Force::Yes).
    pub fn needs_force(&self) -> bool {
        match self {
            Self::VolumeInUse { .. }
            | Self::ShrinkLosesData { .. }
            | Self::TargetInUse { .. }
            | Self::ShareInUse { .. }
            | Self::Copy(CopyFailure::HoldsData(_)) => true,
            Self::Save { source, .. } => {
                matches!(**source, SaveError::File(WriteError::OtherSave { .. }))
            }
            _ => false,
        }
    }

    /// Whether a portal cannot be opened in the present state of this machine, but may be opened
    /// later.
    pub fn leaves_portal_closed(&self) -> bool {
        matches!(
            self,
            Self::Listen { .. } | Self::Rdma { .. } | Self::RdmaProvider { .. }
        )
    }
}

fn save_kind(error: &SaveError) -> ErrorKind {
    match error {
        SaveError::GaveWay => ErrorKind::Exhausted,
        SaveError::Thread(_) | SaveError::File(WriteError::File { .. } | WriteError::Cancelled) => {
            ErrorKind::Unavailable
        }
        SaveError::NotInMemory { .. } | SaveError::Gone | SaveError::File(_) => ErrorKind::Conflict,
    }
}

fn restore_kind(error: &RestoreError) -> ErrorKind {
    match error {
        RestoreError::File { .. } => ErrorKind::Invalid,
        RestoreError::Memory(_) | RestoreError::Write(_) => ErrorKind::Exhausted,
        RestoreError::Cancelled => ErrorKind::Unavailable,
        RestoreError::Spoiled { cause } => restore_kind(cause),
        _ => ErrorKind::Conflict,
    }
}

/// How to fix the request if an adapter was requested and is not available.
fn hint_for(portal: &PortalDefinition) -> &'static str {
    match portal.rdma {
        RdmaChoice::Hw => "; `ramport fabric ls` tells of adapters, and rdma=soft needs none",
        RdmaChoice::Auto | RdmaChoice::Soft => "",
    }
}

/// How to fix the request if targets offer the volume, which `sessions` sessions use.
fn how_to_detach(sessions: usize) -> String {
    match sessions {
        0 => "; detach it first".to_owned(),
        _ => format!(", which {sessions} sessions use; end them, or detach the volume"),
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A reactor could not be started.
    #[error("cannot start the reactors: {0}")]
    Reactors(#[from] net::StartError),
    /// The memory of the machine could not be determined.
    #[error("cannot determine the available memory: {0}; set --memory")]
    AvailableMemory(#[source] io::Error),
    /// The thread that computes key exchanges could not be started.
    #[error("cannot start the thread of key exchanges: {0}")]
    KeyExchange(#[source] io::Error),
    /// The thread that frees memory of removed files could not be started.
    #[error("cannot start the thread that frees memory of removed files: {0}")]
    Freeing(#[source] io::Error),
    /// The thread that tells clients of locks could not be started.
    #[error("cannot start the thread that tells clients of locks: {0}")]
    LockCallbacks(#[source] io::Error),
    /// The thread that notes clients of NFS could not be started.
    #[error("cannot start the thread that notes clients of NFS: {0}")]
    ClientRecords(#[source] io::Error),
    /// The thread that looks host names up could not be started.
    #[error("cannot start the thread that looks up host names of clients: {0}")]
    ClientNames(#[source] io::Error),
    /// The thread that speaks to the portmapper could not be started.
    #[error("cannot start the thread that speaks to the portmapper: {0}")]
    Portmapper(#[source] io::Error),
    /// The thread that notifies hosts of other ways to volumes could not be started.
    #[error("cannot start the thread that notifies hosts of other paths to volumes: {0}")]
    PathNotices(#[source] io::Error),
}

impl StartError {
    /// Whether the user can fix it with another request.
    pub fn is_mistake(&self) -> bool {
        use net::StartError::{Core, Thread, ThreadCount};
        match self {
            Self::Reactors(ThreadCount { .. } | Core { .. }) => true,
            Self::Reactors(Thread(_))
            | Self::AvailableMemory(_)
            | Self::KeyExchange(_)
            | Self::Freeing(_)
            | Self::LockCallbacks(_)
            | Self::ClientRecords(_)
            | Self::ClientNames(_)
            | Self::Portmapper(_)
            | Self::PathNotices(_) => false,
        }
    }
}

/// What the user should know about a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The target's name does not have the form of an NQN.
    #[error(
        "{0} does not have the form of an NQN (nqn.2025-01.com.example:name); Linux, SPDK and QEMU accept it, some hosts do not"
    )]
    NotAnNqn(TargetName),
}

#[cfg(test)]
mod tests;
