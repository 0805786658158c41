//! Messages of the errors of the program itself.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;

use block::every_variant;
use block::testing::messages;
use tracing_appender::rolling::{InitError, RollingFileAppender};
use tracing_subscriber::EnvFilter;

use super::*;
use crate::connect_line::ConnectLineError;

fn denied() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

fn target() -> String {
    "iqn.2025-01.com.example:rd0".to_owned()
}

fn url() -> Url {
    "iscsi://192.0.2.1".parse().expect("a URL")
}

/// Why an audit log cannot be written.
fn audit_log() -> InitError {
    let builder = RollingFileAppender::builder().filename_prefix("audit");
    builder.build("/dev/null/audit").expect_err("no folder")
}

fn no_counts() -> serde_json::Error {
    serde_json::from_str::<u8>("{").expect_err("no number")
}

/// A filter that cannot be parsed, and why.
fn log_filter() -> Mistake {
    let filter = "info,server=loud";
    let source = EnvFilter::try_new(filter).expect_err(filter);
    Mistake::LogFilter {
        filter: filter.to_owned(),
        source,
    }
}

#[test]
fn messages_of_mistakes_that_the_program_finds() {
    let errors = every_variant!(Mistake {
        Mistake::MemoryTooSmall { .. } => [Mistake::MemoryTooSmall { given_bytes: 1024, min_bytes: 16 << 20 }],
        Mistake::MemoryTooLarge { .. } => [Mistake::MemoryTooLarge {
            given_bytes: 1 << 40,
            total_bytes: 16 << 30,
            available_bytes: 4 << 30,
        }],
        Mistake::AuditLog { .. } => [Mistake::AuditLog { folder: "/var/log/audit".into(), source: audit_log() }],
        Mistake::CertificateWithoutTls { .. } => [Mistake::CertificateWithoutTls { api: "http://192.0.2.1:8080".parse().expect("an address") }],
        Mistake::ClientIssuersWithoutTls => [Mistake::ClientIssuersWithoutTls],
        Mistake::NoGroup { .. } => [Mistake::NoGroup { group: "diskadmins".to_owned() }],
        Mistake::LogLevel { .. } => [Mistake::LogLevel { filter: "warning".to_owned(), word: "warning".to_owned() }],
        Mistake::LogFilter { .. } => [log_filter()],
        Mistake::OneName { .. } => [Mistake::OneName { name: "s1".to_owned(), volumes: 2 }],
        Mistake::ShrinkBeyondSize { .. } => [Mistake::ShrinkBeyondSize {
            name: "rd0".to_owned(),
            size_bytes: 1 << 30,
            by_bytes: 2 << 30,
        }],
        Mistake::NotAttached { .. } => [Mistake::NotAttached { target: target(), volume: "rd1".to_owned() }],
        Mistake::NothingToSet => [Mistake::NothingToSet],
        Mistake::NoDhChapSecret => [Mistake::NoDhChapSecret],
        Mistake::NoTlsKey => [Mistake::NoTlsKey],
        Mistake::TlsHash => [Mistake::TlsHash],
        Mistake::NotAnIqn => [Mistake::NotAnIqn],
        Mistake::NoNodeName { .. } => [Mistake::NoNodeName { name: "Local Host".to_owned() }],
        Mistake::NumberTwice { .. } => [Mistake::NumberTwice { number: 1 }],
        Mistake::NotOverTcp { .. } => [Mistake::NotOverTcp { portal: "nvme+rdma://192.0.2.1".parse().expect("a portal") }],
        Mistake::WriteFile { .. } => [Mistake::WriteFile { path: "/ramport.toml".into(), source: denied() }],
        Mistake::ReadFile { .. } => [Mistake::ReadFile { path: "/ramport.toml".into(), source: denied() }],
        Mistake::ExposedOutput => [Mistake::ExposedOutput],
        Mistake::WriteManual { .. } => [Mistake::WriteManual { folder: "/usr/share/man".into(), source: denied() }],
        Mistake::DaemonOnSocket { .. } => [Mistake::DaemonOnSocket { socket: "/run/ramport/ramport.sock".into() }],
        Mistake::TooManyWords { .. } => [Mistake::TooManyWords { command: "cd".to_owned() }],
        Mistake::NoSuchObject { .. } => [Mistake::NoSuchObject {
            kind: "volume",
            name: "rd1".to_owned(),
            place: "/volumes".to_owned(),
        }],
        Mistake::NotInShell => [Mistake::NotInShell],
        Mistake::NotUtf8 { .. } => [Mistake::NotUtf8 { path: "/tmp/a".into() }],
        Mistake::NoSuchColumn { .. } => [Mistake::NoSuchColumn {
            view: "volumes".to_owned(),
            column: "cpu".to_owned(),
            columns: "name, iops".to_owned(),
        }],
        Mistake::NoSaveFolder { .. } => [Mistake::NoSaveFolder { name: "rd0".to_owned() }],
        Mistake::NoTerminal => [Mistake::NoTerminal],
        Mistake::NoTerminalForWatch => [Mistake::NoTerminalForWatch],
        Mistake::NoFleet => [Mistake::NoFleet],
        Mistake::FleetExists => [Mistake::FleetExists],
        Mistake::BeginPassed { .. } => [Mistake::BeginPassed { connect_time: Duration::from_millis(660) }],
        Mistake::NoCounts { .. } => [Mistake::NoCounts { path: "a".into(), source: no_counts() }],
        Mistake::OtherSweep { .. } => [Mistake::OtherSweep { path: "b".into(), first: "a".into() }],
        Mistake::NodeTwice { .. } => [Mistake::NodeTwice { path: "b".into(), node: "n1".to_owned() }],
        Mistake::NoRoute { .. } => [Mistake::NoRoute { scheme: "nvme+rdma" }],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_failures_of_the_system() {
    let ended = ExitStatus::from_raw(1 << 8);
    let attach = || BenchError::Attach {
        source_name: url().to_string(),
        source: refused(),
    };
    let errors = every_variant!(SystemFailure {
        SystemFailure::HostMemory(_) => [SystemFailure::HostMemory(denied())],
        SystemFailure::Groups(_) => [SystemFailure::Groups(denied())],
        SystemFailure::StandardInput(_) => [SystemFailure::StandardInput(denied())],
        SystemFailure::Adapters(_) => [SystemFailure::Adapters(denied())],
        SystemFailure::MakeFolder { .. } => [SystemFailure::MakeFolder { path: "/tmp/a".into(), source: denied() }],
        SystemFailure::Program(_) => [SystemFailure::Program(denied())],
        SystemFailure::StartDaemon(_) => [SystemFailure::StartDaemon(denied())],
        SystemFailure::DaemonEnded(_) => [SystemFailure::DaemonEnded(ended)],
        SystemFailure::DaemonSilent { .. } => [SystemFailure::DaemonSilent { waited_s: 10 }],
        SystemFailure::Verify(_) => [SystemFailure::Verify(attach())],
        SystemFailure::Differs(_) => [SystemFailure::Differs(Box::default())],
        SystemFailure::Measure(_) => [SystemFailure::Measure(attach())],
        SystemFailure::FiguresEnded => [SystemFailure::FiguresEnded],
        SystemFailure::StartClient(_) => [SystemFailure::StartClient(denied())],
        SystemFailure::Client { .. } => [SystemFailure::Client {
            name: "fleet-1".to_owned(),
            reason: "the target does not answer".to_owned(),
        }],
        SystemFailure::ClientSilent { .. } => [SystemFailure::ClientSilent { name: "fleet-1".to_owned() }],
    });
    let discovery = DiscoveryFailure {
        url: url(),
        source: refused(),
    };
    insta::assert_snapshot!(messages(&errors) + &messages(&[discovery]));
}

fn refused() -> ConnectError {
    ConnectError::Connect {
        address: SocketAddr::from(([192, 0, 2, 1], 3260)),
        source: io::ErrorKind::ConnectionRefused.into(),
    }
}

#[test]
fn messages_of_connect_lines_that_cannot_be_printed() {
    let errors = every_variant!(ConnectLineError {
        ConnectLineError::HostNotListed { .. } => [ConnectLineError::HostNotListed {
            target: target(),
            host: "c".to_owned(),
            listed: "a, b".to_owned(),
        }],
        ConnectLineError::NoHosts { .. } => [ConnectLineError::NoHosts { target: target() }],
        ConnectLineError::HostOfOtherProtocol { .. } => [ConnectLineError::HostOfOtherProtocol {
            target: target(),
            host: "nqn.2014-08.org.nvmexpress:uuid:1".to_owned(),
            protocol: "iSCSI",
        }],
        ConnectLineError::NotNvme { .. } => [ConnectLineError::NotNvme { target: target() }],
        ConnectLineError::NoPortal { .. } => [ConnectLineError::NoPortal { target: target(), scheme: "iscsi" }],
        ConnectLineError::OtherPortal { .. } => [ConnectLineError::OtherPortal {
            target: target(),
            portal: "iscsi://192.0.2.1:3260".to_owned(),
            others: "iscsi://192.0.2.2:3260".to_owned(),
        }],
    });
    insta::assert_snapshot!(messages(&errors));
}
