//! Reading the log of a discovery service.

use std::time::Duration;

use nvme::host::{LogReader, LogStep, Purpose, Setup};
use nvme::wire::discovery::DiscoveryEntry;

use super::association::{Plan, connection_error, execute};
use super::transport::Transport;
use super::{Rdma, Tcp};
use crate::error::QueueName;
use crate::{ConnectError, DeviceOptions, Scheme, Url};

/// One entry of a discovery log: where a subsystem, or another discovery service, can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// The subsystem's NQN (SUBNQN).
    pub subsystem_nqn: String,
    /// What the entry is (SUBTYPE).
    pub kind: RecordKind,
    /// The transport (TRTYPE): 3 is TCP, 1 is RDMA.
    pub transport: u8,
    /// The address family (ADRFAM): 1 is IPv4, 2 is IPv6.
    pub address_family: u8,
    /// The transport address (TRADDR).
    pub address: String,
    /// The transport service identifier (TRSVCID): a port number for TCP.
    pub service: String,
    /// The port's identifier (PORTID).
    pub port: u16,
}

/// The kind of a discovery entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The discovery service that answered.
    Current,
    /// A kind that is not known here, by its number.
    Other(u8),
}

/// Reads the records of the discovery service at the URL's host and port. The URL's path, if any,
/// is the name of the discovery subsystem. `timeout` limits each step.
pub fn discover(url: &Url, timeout: Duration) -> Result<Vec<DiscoveryRecord>, ConnectError> {
    match url.scheme() {
        Scheme::NvmeTcp => discover_by::<Tcp>(url, timeout),
        Scheme::NvmeRdma => discover_by::<Rdma>(url, timeout),
        scheme @ (Scheme::Iscsi | Scheme::Srp | Scheme::Brp | Scheme::BrpRdma) => {
            Err(ConnectError::Scheme {
                scheme,
                expected: "nvme+tcp:// or nvme+rdma://",
            })
        }
    }
}

fn discover_by<T: Transport>(
    url: &Url,
    timeout: Duration,
) -> Result<Vec<DiscoveryRecord>, ConnectError> {
    let options = DeviceOptions {
        connect_timeout: timeout,
        keep_alive: Duration::ZERO,
        ..DeviceOptions::default()
    };
    let mut plan = Plan::<T>::new(url, &options)?;
    let mut admin = plan.connect_admin(Purpose::Discovery)?;
    let address = admin.address;
    let mut reader = LogReader::new(Setup::SLOT, Setup::BUFFER_BYTES);
    while let LogStep::Submit(command) = reader.poll() {
        let outcome = execute(
            &mut admin.connection,
            &mut admin.buffers,
            Setup::KEY,
            &command,
            timeout,
        )
        .map_err(|source| connection_error(address, QueueName::ADMIN, source))?;
        reader
            .handle_outcome(&outcome, admin.buffers.slot(Setup::SLOT))
            .map_err(|source| ConnectError::Discovery { address, source })?;
    }
    admin.shut_down();
    Ok(reader.into_entries().iter().map(record).collect())
}

/// Converts an entry. Texts that are not UTF-8 or not terminated become empty.
fn record(entry: &DiscoveryEntry) -> DiscoveryRecord {
    DiscoveryRecord {
        subsystem_nqn: entry.subsystem_nqn.name().unwrap_or_default().to_owned(),
        kind: match entry.subsystem_type {
            1 => RecordKind::Referral,
            2 => RecordKind::Nvm,
            3 => RecordKind::Current,
            other => RecordKind::Other(other),
        },
        transport: entry.transport,
        address_family: entry.address_family,
        address: entry.address().unwrap_or_default().to_owned(),
        service: entry.service().unwrap_or_default().to_owned(),
        port: entry.port.get(),
    }
}
