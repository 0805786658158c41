//! Messages of the errors of this crate.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use block::every_variant;
use block::testing::messages;
use hyper::StatusCode;
use server::{ChapFault, ChapOwner, DhChapSecretError, HostName, TargetName};
use volume::filters::FaultError;
use volume::{Damage, SpecError};

use super::*;
use crate::store::{LineFault, Place};
use crate::{
    ClientError, Definitions, DefinitionsError, ListenError, OptionFault, ParentFault, Period,
    Portal, PortalFault, SavingFault, SecretFileError, ShareFault, TokenError, TokensError,
    VolumeKind, parse,
};

fn holder() -> VolumeName {
    "l0".parse().expect("a name")
}

fn damage() -> Damage {
    Damage {
        ranges: vec![block::ByteRange {
            offset: 0,
            len: 256 << 10,
        }],
        total_bytes: 256 << 10,
    }
}

fn volume() -> VolumeName {
    "rd0".parse().expect("a name")
}

fn share() -> ShareName {
    "db".parse().expect("a name")
}

fn target() -> TargetName {
    "nqn.2025-01.com.example:rd0".parse().expect("a name")
}

fn host() -> HostName {
    "iqn.1993-08.org.debian:01:9b8e2c".parse().expect("a name")
}

fn path() -> PathBuf {
    "/var/lib/ramport/state".into()
}

fn saving(fault: SavingFault) -> DefinitionFault {
    DefinitionFault::Saving {
        volume: volume(),
        fault,
    }
}

fn denied() -> io::Error {
    io::Error::other("Permission denied")
}

fn unsaved() -> StoreError {
    StoreError::Io {
        action: "write",
        path: path(),
        source: io::Error::other("No space left on device"),
    }
}

#[test]
fn messages_of_rejected_changes() {
    let portal: Portal = parse("nvme+tcp://192.0.2.1:4420").expect("a portal");
    let errors = every_variant!(EngineError {
        EngineError::Server(_) => [EngineError::Server(ServerError::VolumeExists(volume()))],
        EngineError::Definition(_) => [EngineError::Definition(DefinitionFault::TwoPolicies { target: target() })],
        EngineError::Plan(_) => [EngineError::Plan(PlanError::Kind(volume()))],
        EngineError::Text(_) => [EngineError::Text(parse::<VolumeName>("a/b").expect_err("no name"))],
        EngineError::Store(_) => [EngineError::Store(unsaved())],
        EngineError::Busy { .. } => [EngineError::Busy { volume: volume(), action: "creation" }],
        EngineError::OfCluster { .. } => [EngineError::OfCluster { volume: volume() }],
        EngineError::MirrorOverwrites { .. } => [EngineError::MirrorOverwrites { volume: volume(), mirror: "m0".parse().expect("a name") }],
        EngineError::HoldsData { .. } => [EngineError::HoldsData { volume: volume(), used_bytes: 2 << 20 }],
        EngineError::HoldsFiles { .. } => [EngineError::HoldsFiles { share: share(), files: 12, used_bytes: 2 << 20 }],
        EngineError::ContentsLost { .. } => [EngineError::ContentsLost { volume: volume() }],
        EngineError::DiscardsChanges { .. } => [EngineError::DiscardsChanges {
            volume: volume(),
            snapshot: "s1".parse().expect("a name"),
            changed_bytes: 64 << 10,
        }],
        EngineError::PortalInUse { .. } => [EngineError::PortalInUse { portal: portal.0, connections: 3 }],
        EngineError::Restoring { .. } => [EngineError::Restoring { volume: volume() }],
        EngineError::Damaged { .. } => [EngineError::Damaged { volume: volume(), damage: damage() }],
        EngineError::Overwrites { .. } => [EngineError::Overwrites { volume: volume(), used_bytes: 2 << 20 }],
        EngineError::NoSaveFile { .. } => [EngineError::NoSaveFile { volume: volume() }],
        EngineError::RelativeFile { .. } => [EngineError::RelativeFile { path: "rd0.save".into() }],
        EngineError::NoSaveFolder { .. } => [EngineError::NoSaveFolder { volume: volume(), to: "/srv/saves".to_owned() }],
        EngineError::Thread(_) => [EngineError::Thread(io::Error::other("Resource temporarily unavailable"))],
        EngineError::LosesData { .. } => [EngineError::LosesData { names: "volume rd0, share db".to_owned() }],
    });
    let plans = every_variant!(PlanError {
        PlanError::BlockSize(_) => [PlanError::BlockSize(volume())],
        PlanError::Kind(_) => [PlanError::Kind(volume())],
        PlanError::SnapshotSize(_) => [PlanError::SnapshotSize(volume())],
        PlanError::Shrink(_) => [PlanError::Shrink(volume())],
        PlanError::SizeOfMembers(_) => [PlanError::SizeOfMembers(volume())],
        PlanError::CacheShrinks(_) => [PlanError::CacheShrinks(volume())],
        PlanError::ReplicatedSize(_) => [PlanError::ReplicatedSize(volume())],
        PlanError::HeldSize { .. } => [PlanError::HeldSize { volume: volume(), holder: holder() }],
        PlanError::ShareForm(_) => [PlanError::ShareForm(share())],
        PlanError::Identity(_) => [PlanError::Identity(volume())],
    });
    insta::assert_snapshot!(messages(&errors) + &messages(&plans));
}

#[test]
fn messages_of_failed_starts() {
    let restore = || RestoreError::Server {
        what: "volume rd0".to_owned(),
        error: Box::new(ServerError::OverBudget {
            needed_bytes: 2 << 30,
            free_bytes: 1 << 30,
        }),
    };
    let errors = every_variant!(OpenError {
        OpenError::Store(_) => [OpenError::Store(unsaved())],
        OpenError::Start(_) => [OpenError::Start(StartError::AvailableMemory(denied()))],
        OpenError::Thread(_) => [OpenError::Thread(denied())],
        OpenError::Restore(_) => [OpenError::Restore(restore())],
    });
    let restored = every_variant!(RestoreError {
        RestoreError::Server { .. } => [restore()],
        RestoreError::Plan(_) => [RestoreError::Plan(PlanError::BlockSize(volume()))],
    });
    let damaged = |place, fault| StoreError::Damaged {
        path: path(),
        line: 7,
        place,
        fault,
    };
    let json = serde_json::from_str::<u8>("{").expect_err("no number");
    let lines = every_variant!(LineFault {
        LineFault::Torn => [LineFault::Torn],
        LineFault::Checksum => [LineFault::Checksum],
        LineFault::Changes(_) => [LineFault::Changes(json)],
    });
    let stores = every_variant!(StoreError {
        StoreError::Io { .. } => [unsaved()],
        StoreError::Format { .. } => [StoreError::Format { path: path() }],
        StoreError::Damaged { .. } => [
            damaged(Place::Before, LineFault::Checksum),
            damaged(Place::Last, LineFault::Torn),
        ],
        StoreError::InUse { .. } => [StoreError::InUse { path: path() }],
    });
    let all = [
        messages(&errors),
        messages(&restored),
        messages(&stores),
        messages(&lines),
    ];
    insta::assert_snapshot!(all.concat());
}

#[test]
fn messages_of_a_rest_interface_that_is_not_offered() {
    let listening = every_variant!(ListenError {
        ListenError::InUse { .. } => [ListenError::InUse { path: "/run/ramport/ramport.sock".into() }],
        ListenError::Unix { .. } => [ListenError::Unix { path: "/run/ramport/ramport.sock".into(), source: denied() }],
        ListenError::Tcp { .. } => [ListenError::Tcp {
            address: SocketAddr::from(([192, 0, 2, 1], 8080)),
            source: denied(),
        }],
        ListenError::Tokens(_) => [ListenError::Tokens(TokensError::File { path: "/var/lib/ramport/api-tokens".into(), source: denied() })],
        ListenError::Thread(_) => [ListenError::Thread(denied())],
    });
    let tokens = every_variant!(TokenError {
        TokenError::Read { .. } => [TokenError::Read { path: "token".into(), source: denied() }],
        TokenError::Exposed { .. } => [TokenError::Exposed { path: "token".into() }],
        TokenError::Short { .. } => [TokenError::Short { path: "token".into() }],
    });
    insta::assert_snapshot!(messages(&listening) + &messages(&tokens));
}

#[test]
fn messages_of_definitions_that_cannot_be() {
    let owner = || ChapOwner::Host(host());
    let faults = every_variant!(DefinitionFault {
        DefinitionFault::TwoPolicies { .. } => [DefinitionFault::TwoPolicies { target: target() }],
        DefinitionFault::UndefinedVolume { .. } => [DefinitionFault::UndefinedVolume {
            target: target(),
            nsid: 1,
            volume: volume(),
        }],
        DefinitionFault::HeldVolume { .. } => [DefinitionFault::HeldVolume {
            target: target(),
            nsid: 1,
            volume: volume(),
            holder: holder(),
        }],
        DefinitionFault::VolumeTwice { .. } => [DefinitionFault::VolumeTwice { target: target(), volume: volume(), first: 1, second: 2 }],
        DefinitionFault::UndefinedHost { .. } => [DefinitionFault::UndefinedHost { target: target(), host: host() }],
        DefinitionFault::HostWithoutAddress { .. } => [DefinitionFault::HostWithoutAddress { host: host() }],
        DefinitionFault::Chap { .. } => [DefinitionFault::Chap { owner: owner(), fault: ChapFault::SameSecret }],
        DefinitionFault::DhChap { .. } => [DefinitionFault::DhChap { host: host(), fault: DhChapSecretError::Checksum }],
        DefinitionFault::DhChapOverIscsi { .. } => [DefinitionFault::DhChapOverIscsi { host: host() }],
        DefinitionFault::TlsKey { .. } => [DefinitionFault::TlsKey { host: host(), fault: server::TlsKeyError::Checksum }],
        DefinitionFault::TlsWithoutNqn { .. } => [DefinitionFault::TlsWithoutNqn { host: host() }],
        DefinitionFault::ChapOverNvme { .. } => [DefinitionFault::ChapOverNvme { host: host() }],
        DefinitionFault::HiddenSecret { .. } => [DefinitionFault::HiddenSecret { owner: owner() }],
        DefinitionFault::UnreadSecret { .. } => [DefinitionFault::UnreadSecret { owner: owner() }],
        DefinitionFault::LoginPolicy { .. } => [DefinitionFault::LoginPolicy { target: target() }],
        DefinitionFault::NamespaceZero { .. } => [DefinitionFault::NamespaceZero { target: target() }],
        DefinitionFault::LunMap { .. } => [DefinitionFault::LunMap { target: target(), host: host(), lun: 0, number: 1 }],
        DefinitionFault::SameIdentifier { .. } => [DefinitionFault::SameIdentifier {
            volume: "rd1".parse().expect("a name"),
            other: volume(),
            kind: "uuid",
            id: "6ba7b810-9dad-41d1-80b4-00c04fd430c8".to_owned(),
        }],
        DefinitionFault::Parent { .. } => [DefinitionFault::parent(&volume(), ParentFault::TooDeep)],
        DefinitionFault::Volume { .. } => [DefinitionFault::Volume {
            volume: volume(),
            fault: SpecError::NotWholeBlocks {
                given: ByteSize(1_048_577),
                block_bytes: 512,
                next: ByteSize(1_049_088),
            },
        }],
        DefinitionFault::Saving { .. } => [
            saving(SavingFault::Kind { kind: VolumeKind::Snapshot { of: "rd0".to_owned() } }),
            saving(SavingFault::RelativeFolder { to: "saves".to_owned() }),
            saving(SavingFault::TooOften { given: Period(Duration::from_millis(10)) }),
        ],
        DefinitionFault::TwoFaultRates { .. } => [DefinitionFault::TwoFaultRates { volume: volume() }],
        DefinitionFault::Filters { .. } => [
            DefinitionFault::Filters { volume: volume(), fault: FaultError::TooManyRules { given: 99 } },
            DefinitionFault::Filters { volume: volume(), fault: FaultError::AboveCertain { per_million: 2_000_000 } },
        ],
        DefinitionFault::Share { .. } => [DefinitionFault::share(&share(), ShareFault::Quota { given: ByteSize(8) })],
    });
    insta::assert_snapshot!(messages(&faults));
}

#[test]
fn messages_of_what_volumes_cannot_be_made_of() {
    let faults = every_variant!(ParentFault {
        ParentFault::Undefined { .. } => [ParentFault::Undefined { of: "rd1".to_owned() }],
        ParentFault::Kind { .. } => [ParentFault::Kind {
            of: "rd1".to_owned(),
            kind: volume::VolumeKind::Snapshot { of: "rd2".to_owned() },
        }],
        ParentFault::WrittenByOthers { .. } => [ParentFault::WrittenByOthers { of: "v1".to_owned() }],
        ParentFault::BlockSize { .. } => [ParentFault::BlockSize { of: "rd1".to_owned(), bytes: 4096 }],
        ParentFault::Size { .. } => [ParentFault::Size { of: "rd1".to_owned(), size: ByteSize(1 << 30) }],
        ParentFault::Circle { .. } => [ParentFault::Circle { of: "rd1".to_owned() }],
        ParentFault::DerivedSize { .. } => [ParentFault::DerivedSize {
            given: ByteSize(1 << 30),
            derived: ByteSize(2 << 30),
        }],
        ParentFault::Members(_) => [ParentFault::Members(
            volume::VolumeError::SmallMember { size: ByteSize(1 << 20), unit: ByteSize(2 << 20) }.to_string(),
        )],
        ParentFault::Held { .. } => [ParentFault::Held { of: "rd1".to_owned(), holder: holder() }],
        ParentFault::Offered { .. } => [ParentFault::Offered { of: "rd1".to_owned(), target: target() }],
        ParentFault::TooDeep => [ParentFault::TooDeep],
    });
    insta::assert_snapshot!(messages(&faults));
}

#[test]
fn messages_of_files_that_hold_no_definitions() {
    let read = |text| Definitions::from_text(text).expect_err("invalid");
    let files = every_variant!(DefinitionsError {
        DefinitionsError::Toml(_) => [
            read("[volumes.rd0]\nsize = \"50X\""),
            read("[volumes.rd0]\nsize = \"50G\"\nblock_size = 1024"),
            read("[volumes.rd0]\nsize = \"50G\"\ncolour = 1"),
            read("[hosts.h.chap]\nuser = \"h\""),
            read("[hosts.h.chap]\nuser = \"h\"\nsecret = \"a\"\nsecret_file = \"b\""),
            read("[targets.t.namespaces]\none = \"rd0\""),
        ],
        DefinitionsError::Json(_) => [read("{\"volumes\": []}")],
        DefinitionsError::Fault(_) => [read("[targets.t]\nnamespaces = { 1 = \"rd0\" }")],
    });
    let secrets = every_variant!(SecretFileError {
        SecretFileError::Read { .. } => [SecretFileError::Read { path: "secret".into(), source: denied() }],
        SecretFileError::Exposed { .. } => [SecretFileError::Exposed { path: "secret".into() }],
    });
    let portals = every_variant!(PortalFault {
        PortalFault::Scheme => [PortalFault::Scheme],
        PortalFault::Group => [PortalFault::Group],
        PortalFault::Query => [PortalFault::Query],
        PortalFault::NoAuth => [PortalFault::NoAuth],
        PortalFault::NoRdma => [PortalFault::NoRdma],
        PortalFault::NoTls => [PortalFault::NoTls],
        PortalFault::Address => [PortalFault::Address],
        PortalFault::Port => [PortalFault::Port],
    });
    let options = every_variant!(OptionFault {
        OptionFault::Unknown(_) => [OptionFault::Unknown("krb5".to_owned())],
        OptionFault::Id(_) => [OptionFault::Id("anonuid=nobody".to_owned())],
    });
    let all = [
        messages(&files),
        messages(&secrets),
        messages(&portals),
        messages(&options),
    ];
    insta::assert_snapshot!(all.concat());
}

#[test]
fn messages_of_requests_without_a_result() {
    let endpoint = || "/run/ramport/ramport.sock".to_owned();
    let errors = every_variant!(ClientError {
        ClientError::NotRunning { .. } => [ClientError::NotRunning { endpoint: endpoint() }],
        ClientError::Forbidden { .. } => [ClientError::Forbidden { endpoint: endpoint() }],
        ClientError::Refused { .. } => [ClientError::Refused {
            kind: "conflict".to_owned(),
            message: "volume rd0 already exists".to_owned(),
            needs_force: false,
        }],
        ClientError::Certificate { .. } => [ClientError::Certificate { endpoint: endpoint(), source: rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) }],
        ClientError::NoTls { .. } => [ClientError::NoTls { endpoint: endpoint() }],
        ClientError::Broken { .. } => [ClientError::Broken { endpoint: endpoint(), source: denied() }],
        ClientError::Answer { .. } => [ClientError::Answer { endpoint: endpoint(), status: StatusCode::IM_A_TEAPOT }],
    });
    insta::assert_snapshot!(messages(&errors));
}
