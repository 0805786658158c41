//! How definitions can be invalid.

use server::{
    ChapFault, ChapOwner, DhChapSecretError, HostName, ShareName, TargetName, TlsKeyError,
    VolumeName,
};
use volume::SpecError;
use volume::filters::FaultError;

use super::parent_fault::ParentFault;
use super::{HIDDEN_SECRET, SavingFault, ShareFault};

/// How definitions contradict themselves or each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionFault {
    /// A target has both `any_host` and a list of hosts.
    #[error("target {target} has both any_host and hosts; keep one of them")]
    TwoPolicies {
        /// The target.
        target: TargetName,
    },
    /// A target names a volume that does not exist.
    #[error(
        "namespace {nsid} of target {target} is volume {volume}, which is not defined; define it or remove the namespace"
    )]
    UndefinedVolume {
        /// The target.
        target: TargetName,
        /// The namespace ID.
        nsid: u32,
        /// The volume.
        volume: VolumeName,
    },
    /// A target offers a volume that another volume holds.
    #[error(
        "namespace {nsid} of target {target} is volume {volume}, which is a member of {holder} and has no other use; offer {holder} instead"
    )]
    HeldVolume {
        /// The target.
        target: TargetName,
        /// The namespace ID.
        nsid: u32,
        /// The volume.
        volume: VolumeName,
        /// The volume that holds it.
        holder: VolumeName,
    },
    /// A target has a volume under two numbers. Both would have the same identifiers, and hosts
    /// reject such disks or take them for one.
    #[error(
        "target {target} has volume {volume} as {first} and as {second}; a target can have a volume once: keep one number, or use another target"
    )]
    VolumeTwice {
        /// The target.
        target: TargetName,
        /// The volume.
        volume: VolumeName,
        /// Its lowest number.
        first: u32,
        /// Another number.
        second: u32,
    },
    /// A target's list names a host that does not exist.
    #[error(
        "target {target} lists host {host}, which is not defined; define it or remove it from the list"
    )]
    UndefinedHost {
        /// The target.
        target: TargetName,
        /// The host.
        host: HostName,
    },
    /// A host is identified by its address but has none.
    #[error("host {host} is identified by its address but has none; give addresses")]
    HostWithoutAddress {
        /// The host.
        host: HostName,
    },
    /// The CHAP settings are invalid.
    #[error("{owner}: {fault}")]
    Chap {
        /// The owner of the secret.
        owner: ChapOwner,
        /// What is wrong.
        fault: ChapFault,
    },
    /// CHAP for a host with an NQN. NVMe does not use CHAP.
    #[error(
        "host {host} has chap, but its name is an NQN and NVMe does not use CHAP; remove chap, or use the initiator's name (iqn.…)"
    )]
    ChapOverNvme {
        /// The host.
        host: HostName,
    },
    /// A DH-HMAC-CHAP secret is invalid.
    #[error("host {host}: {fault}")]
    DhChap {
        /// The host.
        host: HostName,
        /// What is wrong.
        fault: DhChapSecretError,
    },
    /// DH-HMAC-CHAP for a host with an IQN. iSCSI does not use it.
    #[error(
        "host {host} has dhchap, but its name is an IQN and iSCSI does not use DH-HMAC-CHAP; use chap, or the host's NQN"
    )]
    DhChapOverIscsi {
        /// The host.
        host: HostName,
    },
    /// A key for TLS is invalid.
    #[error("host {host}: {fault}")]
    TlsKey {
        /// The host.
        host: HostName,
        /// What is wrong.
        fault: TlsKeyError,
    },
    /// A key for TLS of a host that sends no NQN.
    #[error(
        "host {host} has tls, which is only for NVMe hosts that are identified by their name; use the host's NQN and leave out told_by"
    )]
    TlsWithoutNqn {
        /// The host.
        host: HostName,
    },
    /// A secret is hidden, and no secret is stored.
    #[error("{owner} has no stored secret that {hidden:?} could refer to; write the secret", hidden = HIDDEN_SECRET)]
    HiddenSecret {
        /// The owner of the secret.
        owner: ChapOwner,
    },
    /// A secret is in a file, which only `ramport apply` reads.
    #[error("{owner} has secret_file, which only `ramport apply` reads; send the secret itself")]
    UnreadSecret {
        /// The owner of the secret.
        owner: ChapOwner,
    },
    /// Portal groups or CHAP for a target that is not an iSCSI target.
    #[error(
        "target {target} has portal_groups or chap, which only iSCSI targets have; remove them"
    )]
    LoginPolicy {
        /// The target.
        target: TargetName,
    },
    /// Namespace IDs begin with 1.
    #[error(
        "namespace 0 of target {target} is not possible: namespace IDs start at 1; only LUNs (of targets named iqn.…) start at 0"
    )]
    NamespaceZero {
        /// The target.
        target: TargetName,
    },
    /// A LUN map refers to a host or a number that the target does not have.
    #[error(
        "target {target} maps LUN {lun} of host {host} to number {number}; the target must be an iSCSI target, list the host, and have a volume at that number"
    )]
    LunMap {
        /// The target.
        target: TargetName,
        /// The host.
        host: HostName,
        /// The LUN.
        lun: u32,
        /// The number in the target.
        number: u32,
    },
    /// Two volumes would have an identifier in common, and hosts would take them for one disk.
    #[error(
        "volume {volume} would have the {kind} {id} of volume {other}; choose another value, or remove it"
    )]
    SameIdentifier {
        /// The volume.
        volume: VolumeName,
        /// The volume that has the identifier.
        other: VolumeName,
        /// The kind of the identifier, such as `uuid`.
        kind: &'static str,
        /// Its value.
        id: String,
    },
    /// What a snapshot or a clone is made of does not fit.
    #[error("volume {volume}: {fault}")]
    Parent {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: ParentFault,
    },
    /// The size or block size of a volume is invalid.
    #[error("volume {volume}: {fault}")]
    Volume {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: SpecError,
    },
    /// It cannot be saved so.
    #[error("volume {volume}: {fault}")]
    Saving {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: SavingFault,
    },
    /// A rule has two rates.
    #[error("a fault rule of volume {volume} has both every and per_million; keep one of them")]
    TwoFaultRates {
        /// The volume.
        volume: VolumeName,
    },
    /// The filters of a volume are invalid.
    #[error("filters of volume {volume}: {fault}")]
    Filters {
        /// The volume.
        volume: VolumeName,
        /// What is wrong.
        fault: FaultError,
    },
    /// A share cannot be so.
    #[error("share {share}: {fault}")]
    Share {
        /// The share.
        share: ShareName,
        /// What is wrong.
        fault: ShareFault,
    },
}

impl DefinitionFault {
    pub(crate) fn parent(volume: &VolumeName, fault: ParentFault) -> Self {
        Self::Parent {
            volume: volume.clone(),
            fault,
        }
    }

    pub(crate) fn share(share: &ShareName, fault: ShareFault) -> Self {
        Self::Share {
            share: share.clone(),
            fault,
        }
    }
}
