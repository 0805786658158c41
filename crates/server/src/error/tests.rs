//! Messages of the errors of this crate.

use block::every_variant;
use block::testing::messages;

use super::*;
use crate::DhChapSecretError;
use crate::{
    AddressRangeFault, ChapFault, ChapOwner, CopyPlace, IdentityFault, NameFault, PortalAuth,
    PortalGroup, ShareClientFault, TlsPolicy, Transport,
};

fn volume() -> VolumeName {
    "rd0".parse().expect("a name")
}

fn target() -> TargetName {
    "iqn.2025-01.com.example:rd0".parse().expect("a name")
}

fn host() -> HostName {
    "iqn.1993-08.org.debian:01:9b8e2c".parse().expect("a name")
}

fn portal(transport: Transport, rdma: RdmaChoice) -> PortalDefinition {
    PortalDefinition {
        transport,
        address: SocketAddr::from(([192, 0, 2, 1], 4420)),
        group: PortalGroup::default(),
        rdma,
        auth: PortalAuth::default(),
        tls: TlsPolicy::Off,
    }
}

fn required() -> PortalDefinition {
    PortalDefinition {
        auth: PortalAuth::Required,
        ..portal(Transport::Nfs, RdmaChoice::Auto)
    }
}

fn tcp() -> PortalDefinition {
    portal(Transport::NvmeTcp, RdmaChoice::Auto)
}

fn share_path(fault: SharePathFault) -> ServerError {
    ServerError::SharePath {
        share: share(),
        path: "/srv/db".into(),
        fault,
    }
}

fn share() -> ShareName {
    "db".parse().expect("a name")
}

fn open_share() -> ServerError {
    ServerError::ShareOpenToNetwork {
        share: share(),
        portal: portal(Transport::Nfs, RdmaChoice::Auto),
    }
}

fn in_use() -> io::Error {
    io::Error::other("Address already in use")
}

fn volume_size() -> ServerError {
    ServerError::VolumeSize {
        len_bytes: 1 << 10,
        block_bytes: 512,
        min_bytes: 1 << 20,
        max_bytes: 64 << 40,
    }
}

fn volume_in_use(sessions: usize) -> ServerError {
    ServerError::VolumeInUse {
        volume: volume(),
        targets: target().to_string(),
        sessions,
    }
}

fn half_rolled_back() -> ServerError {
    ServerError::Volume {
        volume: volume(),
        source: volume::VolumeError::HalfRolledBack(block::Status::CapacityExceeded),
    }
}

fn memory() -> ServerError {
    ServerError::Memory {
        volume: volume(),
        source: volume::MemoryError::Host(io::Error::other("Cannot allocate memory")),
    }
}

fn share_memory() -> ServerError {
    ServerError::ShareMemory {
        share: share(),
        source: volume::MemoryError::Host(io::Error::other("Cannot allocate memory")),
    }
}

fn member_offered() -> ServerError {
    ServerError::MemberOffered {
        volume: volume(),
        holder: "l0".parse().expect("a name"),
        targets: target().to_string(),
    }
}

fn holds_data() -> CopyFailure {
    CopyFailure::HoldsData(CopyPlace::Volume(volume()))
}

fn shrink_loses_data() -> ServerError {
    ServerError::ShrinkLosesData {
        volume: volume(),
        from_bytes: 2 << 30,
        to_bytes: 1 << 30,
    }
}

fn rdma(rdma: RdmaChoice) -> ServerError {
    ServerError::Rdma {
        portal: portal(Transport::NvmeRdma, rdma),
        source: Box::new(fabric::runtime::RuntimeError::Silent),
    }
}

fn wrong_checksum() -> ServerError {
    ServerError::DhChap {
        host: host(),
        fault: DhChapSecretError::Checksum,
    }
}

fn short_secret() -> ServerError {
    ServerError::Chap {
        owner: ChapOwner::Host(host()),
        fault: ChapFault::SecretLength,
    }
}

fn other_provider() -> ServerError {
    ServerError::RdmaProvider {
        portal: portal(Transport::Iser, RdmaChoice::Hw),
        served: RdmaProvider::Soft,
    }
}

#[test]
fn messages_of_rejected_requests() {
    let errors = every_variant!(ServerError {
        ServerError::UnknownVolume(_) => [ServerError::UnknownVolume(volume())],
        ServerError::UnknownTarget(_) => [ServerError::UnknownTarget(target())], ServerError::UnknownHost(_) => [ServerError::UnknownHost(host())], ServerError::UnknownPortal(_) => [ServerError::UnknownPortal(tcp())],
        ServerError::UnknownReferral(_) => [ServerError::UnknownReferral(tcp())],
        ServerError::UnknownShare(_) => [ServerError::UnknownShare(share())], ServerError::UnknownSession(_) => [ServerError::UnknownSession(SessionId(3))],
        ServerError::UnknownNamespace { .. } => [ServerError::UnknownNamespace { target: target(), nsid: 7 }],
        ServerError::VolumeExists(_) => [ServerError::VolumeExists(volume())],
        ServerError::TargetExists(_) => [ServerError::TargetExists(target())],
        ServerError::HostExists(_) => [ServerError::HostExists(host())], ServerError::ShareExists(_) => [ServerError::ShareExists(share())],
        ServerError::PortalExists(_) => [ServerError::PortalExists(tcp())], ServerError::ReferralExists(_) => [ServerError::ReferralExists(tcp())],
        ServerError::ReferralToSelf(_) => [ServerError::ReferralToSelf(tcp())],
        ServerError::ReferralProtocol(_) => [ServerError::ReferralProtocol(portal(Transport::Iscsi, RdmaChoice::Auto))],
        ServerError::ReferralAddress(_) => [ServerError::ReferralAddress(tcp())],
        ServerError::NamespaceExists { .. } => [ServerError::NamespaceExists { target: target(), nsid: 1, volume: volume() }],
        ServerError::NamespaceId { .. } => [ServerError::NamespaceId { nsid: 0, min: 1, max: 1024 }], ServerError::NamespacesFull { .. } => [ServerError::NamespacesFull { target: target(), max: 1024 }],
        ServerError::VolumeSize { .. } => [volume_size()],
        ServerError::OverBudget { .. } => [ServerError::OverBudget { needed_bytes: 50 << 30, free_bytes: 8 << 30 }],
        ServerError::Memory { .. } => [memory()], ServerError::ShareMemory { .. } => [share_memory()],
        ServerError::Volume { .. } => [half_rolled_back()],
        ServerError::Copy(_) => [ServerError::Copy(holds_data())],
        ServerError::Save { .. } => [ServerError::Save { volume: volume(), source: Box::new(SaveError::GaveWay) }],
        ServerError::Restore { .. } => [ServerError::Restore { volume: volume(), source: Box::new(RestoreError::Cancelled) }],
        ServerError::UnknownParent { .. } => [ServerError::UnknownParent { volume: volume(), of: "s1".to_owned() }],
        ServerError::SnapshotTwice(_) => [ServerError::SnapshotTwice(volume())],
        ServerError::HasChildren { .. } => [ServerError::HasChildren { volume: volume(), children: "s1, s2".to_owned() }],
        ServerError::OutOfSync { .. } => [ServerError::OutOfSync { mirror: volume(), member: "b".to_owned() }],
        ServerError::Held { .. } => [ServerError::Held { volume: volume(), holder: "l0".parse().expect("a name") }],
        ServerError::MemberOffered { .. } => [member_offered()],
        ServerError::MemberOfItself(_) => [ServerError::MemberOfItself(volume())],
        ServerError::VolumeInUse { .. } => [volume_in_use(2), volume_in_use(0)],
        ServerError::ShrinkLosesData { .. } => [shrink_loses_data()],
        ServerError::TargetInUse { .. } => [ServerError::TargetInUse { target: target(), sessions: 2 }],
        ServerError::SharePath { .. } => [share_path(SharePathFault::NotWritable), share_path(SharePathFault::Open(dir_tree::OpenError::Missing)), share_path(SharePathFault::Open(dir_tree::OpenError::NotDirectory))],
        ServerError::ShareOverlaps { .. } => [ServerError::ShareOverlaps { share: share(), path: "/srv/db".into(), other: "all".parse().expect("a name"), other_path: "/srv".into() }],
        ServerError::ShareNotErasable { .. } => [ServerError::ShareNotErasable { share: share(), path: "/srv/db".into() }],
        ServerError::ShareInUse { .. } => [ServerError::ShareInUse { share: share(), sessions: 2 }],
        ServerError::HostInUse { .. } => [ServerError::HostInUse { host: host(), target: target() }],
        ServerError::OpenToNetwork { .. } => [ServerError::OpenToNetwork { target: target(), portal: tcp() }],
        ServerError::ShareOpenToNetwork { .. } => [open_share()],
        ServerError::DhChap { .. } => [wrong_checksum()],
        ServerError::Chap { .. } => [short_secret()],
        ServerError::LoginPolicy(_) => [ServerError::LoginPolicy("nqn.2025-01.com.example:rd0".parse().expect("a name"))],
        ServerError::HostWithoutAddress(_) => [ServerError::HostWithoutAddress(host())],
        ServerError::Listen { .. } => [ServerError::Listen { address: tcp().address, source: in_use() }],
        ServerError::RdmaPort(_) => [ServerError::RdmaPort(portal(Transport::NvmeRdma, RdmaChoice::Auto))],
        ServerError::Rdma { .. } => [rdma(RdmaChoice::Auto), rdma(RdmaChoice::Hw)],
        ServerError::RdmaProvider { .. } => [other_provider()],
        ServerError::NoRdma(_) => [ServerError::NoRdma(portal(Transport::NvmeRdma, RdmaChoice::Hw))],
        ServerError::TlsKey { .. } => [ServerError::TlsKey { host: host(), fault: crate::TlsKeyError::Checksum }],
        ServerError::NoTls(_) => [ServerError::NoTls(PortalDefinition { tls: TlsPolicy::Required, ..portal(Transport::Iscsi, RdmaChoice::Auto) })],
        ServerError::Tls { .. } => [ServerError::Tls { portal: tcp(), source: tls::ProviderError::Static }],
        ServerError::NoAuthentication(_) => [ServerError::NoAuthentication(required())], ServerError::MachineInUse => [ServerError::MachineInUse],
        ServerError::TooMany { .. } => [ServerError::TooMany { what: "targets", max: 4096 }],
        ServerError::Stopping => [ServerError::Stopping],
        ServerError::StillExecuting { .. } => [ServerError::StillExecuting { volume: volume(), waited: Duration::from_secs(5) }],
        ServerError::Unfinished { .. } => [ServerError::Unfinished { waited: Duration::from_secs(5) }],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_failed_starts() {
    let errors = every_variant!(StartError {
        StartError::Reactors(_) => [
            StartError::Reactors(net::StartError::ThreadCount { count: 0 }),
            StartError::Reactors(net::StartError::Core { core: 99, source: io::Error::other("Invalid argument") }),
            StartError::Reactors(net::StartError::Thread(io::Error::other("Too many open files"))),
        ],
        StartError::KeyExchange(_) => [StartError::KeyExchange(io::Error::other("Too many open files"))],
        StartError::Freeing(_) => [StartError::Freeing(io::Error::other("Too many open files"))],
        StartError::LockCallbacks(_) => [StartError::LockCallbacks(io::Error::other("Too many open files"))],
        StartError::ClientNames(_) => [StartError::ClientNames(io::Error::other("Too many open files"))],
        StartError::ClientRecords(_) => [StartError::ClientRecords(io::Error::other("Too many open files"))],
        StartError::Portmapper(_) => [StartError::Portmapper(io::Error::other("Too many open files"))],
        StartError::PathNotices(_) => [StartError::PathNotices(io::Error::other("Too many open files"))],
        StartError::AvailableMemory(_) => [StartError::AvailableMemory(io::Error::other("No such file or directory"))],
    });
    let warnings = every_variant!(Warning {
        Warning::NotAnNqn(_) => [Warning::NotAnNqn("nvmet-rd0".parse().expect("a name"))],
    });
    insta::assert_snapshot!(messages(&errors) + &messages(&warnings));
}

#[test]
fn messages_of_values_that_cannot_be() {
    let names = every_variant!(NameFault {
        NameFault::Empty => [NameFault::Empty],
        NameFault::TooLong { .. } => [NameFault::TooLong { max_bytes: 64 }],
        NameFault::Character { .. } => [NameFault::Character { character: '/', allowed: "letters and digits" }],
        NameFault::NotAnIqn => [NameFault::NotAnIqn],
        NameFault::Dots => [NameFault::Dots],
        NameFault::Reserved => [NameFault::Reserved],
    });
    let chap = every_variant!(ChapFault {
        ChapFault::SecretLength => [ChapFault::SecretLength],
        ChapFault::UserLength => [ChapFault::UserLength],
        ChapFault::SameSecret => [ChapFault::SameSecret],
    });
    let ranges = every_variant!(AddressRangeFault {
        AddressRangeFault::Address => [AddressRangeFault::Address],
        AddressRangeFault::Prefix { .. } => [AddressRangeFault::Prefix { max_bits: 32 }],
    });
    let clients = every_variant!(ShareClientFault {
        ShareClientFault::Range(_) => [ShareClientFault::Range(AddressRangeFault::Address)],
        ShareClientFault::Pattern => [ShareClientFault::Pattern],
        ShareClientFault::Netgroup => [ShareClientFault::Netgroup],
        ShareClientFault::Name => [ShareClientFault::Name],
    });
    let identities = every_variant!(IdentityFault {
        IdentityFault::Uuid => [IdentityFault::Uuid],
        IdentityFault::Digits { .. } => [IdentityFault::Digits { digits: 16 }],
        IdentityFault::Zero => [IdentityFault::Zero],
        IdentityFault::Naa => [IdentityFault::Naa],
        IdentityFault::Serial => [IdentityFault::Serial],
    });
    let all = [
        messages(&names),
        messages(&chap),
        messages(&ranges),
        messages(&clients),
        messages(&identities),
    ];
    insta::assert_snapshot!(all.concat());
}

#[test]
fn messages_of_copies() {
    let failures = every_variant!(CopyFailure {
        CopyFailure::NoServer(_) => [CopyFailure::NoServer(volume())],
        CopyFailure::Open { .. } => [CopyFailure::Open {
            place: CopyPlace::File("/srv/a".into()),
            error: volume::VolumeError::Gone,
        }],
        CopyFailure::Same(_) => [CopyFailure::Same(CopyPlace::Volume(volume()))],
        CopyFailure::HoldsData(_) => [holds_data()],
        CopyFailure::Copy { .. } => [CopyFailure::Copy {
            source_place: CopyPlace::Url("nvme+tcp://h/nqn.x:y".to_owned()),
            destination: CopyPlace::Volume(volume()),
            error: crate::CopyError::Differs { at_bytes: 512 },
        }],
    });
    insta::assert_snapshot!(messages(&failures));
}
