//! Messages of the errors of this crate, and of the protocols' hosts that it reports.

use std::net::{IpAddr, Ipv4Addr};

use block::every_variant;
use block::testing::messages;
use fabric::verbs::RejReason;
use fabric::{FabricError, HwError};
use iscsi::initiator::LoginError;
use nvme::auth::{HostAuthError, SecretError};
use nvme::host::{Phase, RenewalError};
use nvme::rdma::wire::RejectStatus;
use nvme::wire::auth::FailureReason;
use nvme::wire::{Nsid, StatusCode};
use srp::wire::RejectReason;

use super::rdma::RejectionCode;
use super::*;
use crate::request::CommandError;
use crate::url::{Url, UrlError};

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4420))
}

fn local() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 9).into()
}

fn os(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

fn url(text: &str) -> UrlError {
    text.parse::<Url>().expect_err(text)
}

#[test]
fn messages_of_urls_that_cannot_be() {
    let long = "n".repeat(Url::NAME_BYTES_MAX + 1);
    let with = |option: &str| url(&format!("nvme+tcp://192.0.2.1/nqn.a?{option}"));
    let rdma = |option: &str| url(&format!("nvme+rdma://192.0.2.1/nqn.a?{option}"));
    let iscsi = |option: &str| url(&format!("iscsi://192.0.2.1/iqn.a/0?{option}"));
    let errors = every_variant!(UrlError {
        UrlError::NoScheme { .. } => [url("192.0.2.1")],
        UrlError::UnknownScheme { .. } => [url("nfs://192.0.2.1")],
        UrlError::NoHost => [url("nvme+tcp:///nqn.a")],
        UrlError::Authority { .. } => [url("nvme+tcp://2001:db8::1/nqn.a"), url("nvme+tcp://[::1/nqn.a")],
        UrlError::Port { .. } => [url("nvme+tcp://192.0.2.1:70000/nqn.a")],
        UrlError::NameTooLong { .. } => [url(&format!("nvme+tcp://192.0.2.1/{long}"))],
        UrlError::Encoding { .. } => [url("nvme+tcp://192.0.2.1/nqn.a%2")],
        UrlError::UnknownOption { .. } => [with("namespace=2"), rdma("hdgst=on"), iscsi("ns=1")],
        UrlError::Lun { .. } => [url("iscsi://192.0.2.1/iqn.a/16384")],
        UrlError::User { .. } => [url("nvme+tcp://user@192.0.2.1/nqn.a")],
        UrlError::OptionValue { .. } => [
            with("ns=0"), with("queues=0"), with("hdgst=yes"), rdma("rdma=maybe"), rdma("local=here"),
        ],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_commands_and_queues() {
    let slot = Slot(7);
    let submitted = every_variant!(SubmitError {
        SubmitError::SlotBusy { .. } => [SubmitError::SlotBusy { slot }],
        SubmitError::NoSuchSlot { .. } => [SubmitError::NoSuchSlot { slot, depth: 4 }],
        SubmitError::TooLong { .. } => [SubmitError::TooLong { len_bytes: 2 << 20, max_bytes: 1 << 20 }],
        SubmitError::Unsupported { .. } => [SubmitError::Unsupported { operation: Operation::Verify }],
        SubmitError::BlockCount { .. } => [SubmitError::BlockCount { blocks: 70_000, max: 65_536 }],
    });
    let completed = every_variant!(CommandError {
        CommandError::Status(_) => [CommandError::Status(StatusCode::LbaOutOfRange.into())],
        CommandError::Scsi(_) => [CommandError::Scsi(scsi::host::CommandFailure::Aborted)],
        CommandError::Brp(_) => [CommandError::Brp(brp::wire::Status::Conflict)],
        CommandError::ConnectionLost => [CommandError::ConnectionLost],
        CommandError::NotSubmitted => [CommandError::NotSubmitted],
    });
    let ended = every_variant!(QueueError {
        QueueError::GaveUp { .. } => [QueueError::GaveUp {
            tried_for: Duration::from_secs(30),
            last: Arc::new(refused()),
        }],
        QueueError::Lost => [QueueError::Lost],
        QueueError::Detached => [QueueError::Detached],
    });
    insta::assert_snapshot!(messages(&submitted) + &messages(&completed) + &messages(&ended));
}

fn refused() -> ConnectError {
    ConnectError::Connect {
        address: address(),
        source: os(io::ErrorKind::ConnectionRefused),
    }
}

#[test]
fn messages_of_devices_that_are_not_attached() {
    let queue = QueueName(1);
    let host = || "ramdisk.example".to_owned();
    let errors = every_variant!(ConnectError {
        ConnectError::NoTarget { .. } => [ConnectError::NoTarget { example: "nvme+tcp://192.0.2.1/nqn.a".to_owned() }],
        ConnectError::Name { .. } => [ConnectError::Name { name: String::new(), max_bytes: 223 }],
        ConnectError::Option { .. } => [ConnectError::Option { option: "depth", value: 4096, expected: "use 1 to 2048" }],
        ConnectError::Resolve { .. } => [ConnectError::Resolve {
            host: host(),
            source: io::Error::other("Name or service not known"),
        }],
        ConnectError::Connect { .. } => [refused()],
        ConnectError::Connection { .. } => [
            ConnectError::Connection { address: address(), queue: QueueName::ADMIN, source: ConnectionError::Closed },
            ConnectError::Connection { address: address(), queue, source: silent() },
        ],
        ConnectError::Setup { .. } => [ConnectError::Setup { address: address(), source: SetupError::UnknownSubsystem }],
        ConnectError::QueueRefused { .. } => [ConnectError::QueueRefused {
            address: address(),
            queue,
            status: StatusCode::InvalidField.into(),
        }],
        ConnectError::Replaced { .. } => [ConnectError::Replaced { address: address(), nsid: 1 }],
        ConnectError::FewerQueues { .. } => [ConnectError::FewerQueues { address: address(), granted: 1, needed: 4 }],
        ConnectError::Discovery { .. } => [ConnectError::Discovery {
            address: address(),
            source: DiscoveryError::Unstable { restarts: 16 },
        }],
        ConnectError::Scheme { .. } => [ConnectError::Scheme { scheme: Scheme::NvmeTcp, expected: "iscsi://" }],
        ConnectError::Rdma { .. } => [ConnectError::Rdma { address: address(), source: Box::new(RdmaError::Unreachable) }],
        ConnectError::Session { .. } => [ConnectError::Session {
            address: address(),
            source: ConnectionError::Session(LoginError::NoSecret.into()),
        }],
        ConnectError::Unit { .. } => [ConnectError::Unit {
            address: address(),
            source: scsi::host::SetupError::NotADisk { lun: 0, device_type: 5 },
        }],
        ConnectError::ReplacedUnit { .. } => [ConnectError::ReplacedUnit { address: address(), lun: 0 }],
        ConnectError::ReplacedVolume { .. } => [ConnectError::ReplacedVolume { address: address(), unit: 1 }],
        ConnectError::FewerTags { .. } => [ConnectError::FewerTags { address: address(), granted: 8, needed: 32 }],
        ConnectError::MovesOn { .. } => [ConnectError::MovesOn { host: host() }],
        ConnectError::NoSecret { .. } => [ConnectError::NoSecret {
            user: "rd0".to_owned(),
            variable: "LIBISCSI_CHAP_PASSWORD",
        }],
        ConnectError::SecretsFile { .. } => [ConnectError::SecretsFile {
            path: "chap".into(),
            source: os(io::ErrorKind::PermissionDenied),
        }],
        ConnectError::SecretsForm { .. } => [ConnectError::SecretsForm { path: "chap".into() }],
        ConnectError::NoHostSecret => [ConnectError::NoHostSecret],
        ConnectError::NoGeneratedKey { .. } => [ConnectError::NoGeneratedKey { address: address() }],
        ConnectError::DhChapSecret { .. } => [ConnectError::DhChapSecret { path: "secret".into(), source: SecretError::Checksum }],
        ConnectError::TlsKey { .. } => [ConnectError::TlsKey { path: "psk".into(), source: tls::KeyError::Checksum }],
        ConnectError::TlsProvider(_) => [tls::ProviderError::Static.into()],
        ConnectError::Resources { .. } => [ConnectError::Resources { source: io::Error::other("Too many open files") }],
    });
    insta::assert_snapshot!(messages(&errors));
}

fn silent() -> ConnectionError {
    ConnectionError::Silent {
        waited: Duration::from_secs(5),
    }
}

#[test]
fn messages_of_lost_connections() {
    let errors = every_variant!(ConnectionError {
        ConnectionError::Closed => [ConnectionError::Closed],
        ConnectionError::Io(_) => [os(io::ErrorKind::ConnectionReset).into()],
        ConnectionError::Protocol(_) => [HostError::Terminated { fes: 1, fei: 4 }.into()],
        ConnectionError::RdmaProtocol(_) => [ConnectionError::RdmaProtocol(nvme::rdma::HostError::Length { len_bytes: 20 })],
        ConnectionError::QueuePair(_) => [ConnectionError::QueuePair(QpFailure::Closed)],
        ConnectionError::Session(_) => [SessionError::Dropped { event: 2, wait_s: 2 }.into()],
        ConnectionError::Brp(_) => [brp::host::HostError::Login(brp::host::LoginError::Rejected(
            brp::wire::LoginStatus::Denied,
        )).into()],
        ConnectionError::SrpLogin(_) => [srp::initiator::LoginError::RequestLimit(-1).into()],
        ConnectionError::Srp(_) => [srp::initiator::InitiatorError::Opcode(0x05).into()],
        ConnectionError::Handshake(_) => [tls::EntryError::Handshake("unexpected message".into()).into()],
        ConnectionError::Record(_) => [tls::RecordError::Alert(40).into()],
        ConnectionError::Silent { .. } => [silent()],
        ConnectionError::Upkeep(_) => [UpkeepError::Silent { timeout: Duration::from_secs(10) }.into()],
        ConnectionError::Renewal(_) => [
            RenewalError::Authentication(HostAuthError::ControllerNotProven).into(),
            RenewalError::Refused { status: StatusCode::InvalidField.into() }.into(),
            RenewalError::Silent { timeout: Duration::from_secs(10) }.into(),
        ],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_connections_over_rdma_that_are_not_made() {
    let bind = |kind| RdmaError::Bind {
        local: local(),
        source: os(kind),
    };
    let rejected = |reason, why| RdmaError::Rejected(Rejection { reason, why });
    let nvme = |status| Some(RejectionCode::Nvme(status));
    let srp = |reason| rejected(RejReason::CONSUMER, Some(RejectionCode::Srp(reason)));
    let errors = every_variant!(RdmaError {
        RdmaError::NoAdapter(_) => [RdmaError::NoAdapter(HwError::NoSuchAddress(local()))],
        RdmaError::NoRoute(_) => [RdmaError::NoRoute(os(io::ErrorKind::NetworkUnreachable))],
        RdmaError::Bind { .. } => [
            bind(io::ErrorKind::AddrInUse),
            bind(io::ErrorKind::AddrNotAvailable),
            bind(io::ErrorKind::PermissionDenied),
        ],
        RdmaError::NoLoopback => [RdmaError::NoLoopback],
        RdmaError::Fabric(_) => [FabricError::NotAllocated.into()],
        RdmaError::Rejected(_) => [
            rejected(RejReason::INVALID_SERVICE_ID, None),
            rejected(RejReason::CONSUMER, nvme(RejectStatus::NoResources as u16)),
            rejected(RejReason::CONSUMER, nvme(999)),
            srp(RejectReason::Association as u32),
            srp(RejectReason::Resources as u32),
            srp(RejectReason::RequestLength as u32),
            srp(RejectReason::Formats as u32),
            srp(RejectReason::Channels as u32),
            srp(RejectReason::Unspecified as u32),
            srp(9),
            rejected(RejReason::NO_RESOURCES, None),
            rejected(RejReason::INVALID_MTU, None),
            rejected(RejReason::STALE_CONNECTION, None),
        ],
        RdmaError::Unreachable => [RdmaError::Unreachable],
        RdmaError::Reply { .. } => [RdmaError::Reply { len_bytes: 3 }],
        RdmaError::Failed(_) => [RdmaError::Failed(QpFailure::Closed)],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_targets_that_reject_a_host() {
    let nvme = every_variant!(SetupError {
        SetupError::UnknownSubsystem => [SetupError::UnknownSubsystem],
        SetupError::HostNotAllowed => [SetupError::HostNotAllowed],
        SetupError::AuthenticationRequired => [SetupError::AuthenticationRequired],
        SetupError::SecureChannelRequired => [SetupError::SecureChannelRequired],
        SetupError::ControllerNotProven => [SetupError::ControllerNotProven],
        SetupError::Authentication(_) => [
            SetupError::Authentication(HostAuthError::Rejected(FailureReason::Failed)),
            SetupError::Authentication(HostAuthError::ControllerNotProven),
            SetupError::Authentication(HostAuthError::Invalid(FailureReason::IncorrectPayload)),
        ],
        SetupError::Refused { .. } => [SetupError::Refused {
            phase: Phase::Connect,
            status: StatusCode::InvalidField.into(),
        }],
        SetupError::NotReady { .. } => [SetupError::NotReady { timeout_ms: 500 }],
        SetupError::Fatal => [SetupError::Fatal],
        SetupError::NoNamespace { .. } => [SetupError::NoNamespace { nsid: Nsid(2) }],
        SetupError::Format { .. } => [SetupError::Format { nsid: Nsid(1), data_shift: 9, metadata_bytes: 8 }],
        SetupError::NoQueues => [SetupError::NoQueues],
    });
    let refused = |detail| LoginError::Refused { class: 2, detail };
    let login = every_variant!(LoginError {
        LoginError::Moved { .. } => [LoginError::Moved { address: "192.0.2.2:3260".to_owned() }],
        LoginError::Refused { .. } => [refused(1), refused(2), refused(3), refused(99)],
        LoginError::NoSecret => [LoginError::NoSecret],
        LoginError::TargetNotProven => [LoginError::TargetNotProven],
        LoginError::SameSecrets => [LoginError::SameSecrets],
        LoginError::OneSided => [LoginError::OneSided],
        LoginError::Answer { .. } => [LoginError::Answer { key: "MaxBurstLength".to_owned(), value: "0".to_owned() }],
        LoginError::NoDigest { .. } => [LoginError::NoDigest { key: "HeaderDigest", option: "hdgst" }],
        LoginError::Unfit { .. } => [LoginError::Unfit { what: "it is of another stage" }],
        LoginError::Endless => [LoginError::Endless],
    });
    insta::assert_snapshot!(messages(&nvme) + &messages(&login));
}
