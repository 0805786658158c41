//! Errors of submissions, queues, attachments and connections, each in an enum of its own.

mod rdma;

use std::{fmt, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use brp::host::HostError as BrpHostError;
use brp::host::LoginError as BrpLoginError;
use brp::wire::LoginStatus;
use fabric::verbs::QpFailure;
use iscsi::initiator::SessionError;
use nvme::host::{DiscoveryError, RenewalError, SetupError, UpkeepError};
use nvme::tcp::HostError;
use nvme::wire::Status;
use srp::initiator::{InitiatorError, LoginError as SrpLoginError};

use crate::{Operation, Scheme, Slot};

pub use self::rdma::{RdmaError, Rejection};

/// Why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The slot's last command has not completed.
    #[error("slot {} still has a command in flight", slot.0)]
    SlotBusy {
        /// The slot.
        slot: Slot,
    },
    /// The queue has fewer slots.
    #[error("slot {} exceeds the queue depth of {depth}", slot.0)]
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// The queue's depth.
        depth: u16,
    },
    /// The data exceed the slot's buffer or the controller's limit per command.
    #[error("a command of {len_bytes} bytes is too long; the maximum is {max_bytes} bytes")]
    TooLong {
        /// The request's data length.
        len_bytes: u64,
        /// The maximum length.
        max_bytes: u64,
    },
    /// The controller does not support such commands.
    #[error("the controller does not support {operation:?}")]
    Unsupported {
        /// The requested operation.
        operation: Operation,
    },
    /// The command does not support an extent of this many blocks.
    #[error("{blocks} blocks are out of range for this command; use 1 to {max}")]
    BlockCount {
        /// The request's count.
        blocks: u64,
        /// The maximum count.
        max: u64,
    },
}

/// Why a queue has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// Reconnection did not succeed within [`crate::Backoff::give_up_after`].
    #[error("no connection for {tried_for:?}: {last}")]
    GaveUp {
        /// How long reconnection was tried.
        tried_for: Duration,
        /// Why the last attempt failed.
        last: Arc<ConnectError>,
    },
    /// The connection was lost, and the options say that it is not made again.
    #[error("the connection was lost")]
    Lost,
    /// The queue's [`crate::Device`] was dropped.
    #[error("the device was detached")]
    Detached,
}

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL does not name a subsystem or target.
    #[error("the URL has no path; add the name of the target, for example {example}")]
    NoTarget {
        /// The same URL with a target.
        example: String,
    },
    /// The name does not fit into the protocol's field.
    #[error("the name {name:?} is empty or too long; a qualified name has 1 to {max_bytes} bytes")]
    Name {
        /// The name.
        name: String,
        /// The longest that fits.
        max_bytes: usize,
    },
    /// An option of the device is out of range.
    #[error("{option} is {value}; {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        expected: &'static str,
    },
    /// The host's name has no address.
    #[error("cannot resolve {host}: {source}; check the name, or give the address")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No TCP connection.
    #[error(
        "cannot connect to {address}: {source}; check address and port (`ramport portal ls` on the target lists its portals)"
    )]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The connection ended or broke the protocol.
    #[error("{address}, {queue}: {source}")]
    Connection {
        /// Where to.
        address: SocketAddr,
        /// Which of the association's connections.
        queue: QueueName,
        /// What happened.
        source: ConnectionError,
    },
    /// The controller could not be set up.
    #[error("{address}: {source}")]
    Setup {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: SetupError,
    },
    /// The controller rejected an I/O queue.
    #[error("{address}: connecting {queue} failed: {status}")]
    QueueRefused {
        /// Where to.
        address: SocketAddr,
        /// Which queue.
        queue: QueueName,
        /// Its status.
        status: Status,
    },
    /// Another namespace has replaced the one that was attached.
    #[error("{address}: namespace {nsid} is not the same namespace as before")]
    Replaced {
        /// Where to.
        address: SocketAddr,
        /// Its identifier.
        nsid: u32,
    },
    /// The controller grants fewer I/O queues than before.
    #[error("{address}: the controller grants {granted} I/O queues, but {needed} are in use")]
    FewerQueues {
        /// Where to.
        address: SocketAddr,
        /// The number of granted queues.
        granted: u16,
        /// The number of queues in use.
        needed: u16,
    },
    /// The discovery log could not be read.
    #[error("{address}: {source}")]
    Discovery {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: DiscoveryError,
    },
    /// A discovery that is not of the URL's protocol.
    #[error("{scheme}:// does not have this discovery; use {expected}")]
    Scheme {
        /// The protocol.
        scheme: Scheme,
        /// The schemes that have the discovery.
        expected: &'static str,
    },
    /// No connection over RDMA.
    #[error("cannot connect to {address} over RDMA: {source}")]
    Rdma {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: Box<RdmaError>,
    },
    /// A session of iSCSI, SRP or BRP could not be made, or ended.
    #[error("{address}: {source}")]
    Session {
        /// Where to.
        address: SocketAddr,
        /// What happened.
        source: ConnectionError,
    },
    /// The logical unit could not be set up.
    #[error("{address}: {source}")]
    Unit {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: scsi::host::SetupError,
    },
    /// Another logical unit has replaced the one that was attached.
    #[error("{address}: LUN {lun} is not the same logical unit as before")]
    ReplacedUnit {
        /// Where to.
        address: SocketAddr,
        /// Its number.
        lun: u16,
    },
    /// Another volume has replaced the one that was attached over BRP.
    #[error("{address}: unit {unit} is not the same volume as before")]
    ReplacedVolume {
        /// Where to.
        address: SocketAddr,
        /// Its number.
        unit: u32,
    },
    /// The target grants fewer commands in flight than before.
    #[error("{address}: the target grants {granted} commands in flight, but {needed} are in use")]
    FewerTags {
        /// Where to.
        address: SocketAddr,
        /// The number of granted tags.
        granted: u16,
        /// The number of tags in use.
        needed: u16,
    },
    /// Each portal redirects the login to another.
    #[error("{host} and other portals redirect the login to each other")]
    MovesOn {
        /// The first host.
        host: String,
    },
    /// A CHAP user without a secret.
    #[error(
        "CHAP user {user} has no secret; write {user}%SECRET@, set {variable}, or name a file: chap=FILE"
    )]
    NoSecret {
        /// The user.
        user: String,
        /// The environment variable.
        variable: &'static str,
    },
    /// The file of secrets cannot be read.
    #[error("cannot read the secrets in {}: {source}; name a file that you may read", path.display())]
    SecretsFile {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file of CHAP secrets has another form.
    #[error("{} does not contain CHAP secrets; its lines are user, secret and, for mutual CHAP, the target's user and secret", path.display())]
    SecretsForm {
        /// The file.
        path: PathBuf,
    },
    /// The controller is to prove a secret, and the host has none.
    #[error(
        "dhchap-ctrl-secret-file= needs the host's own secret, too; add dhchap-secret-file=FILE"
    )]
    NoHostSecret,
    /// The authentication has generated no key for TLS.
    #[error("{address}: the authentication has generated no key for TLS")]
    NoGeneratedKey {
        /// Where.
        address: SocketAddr,
    },
    /// A file does not begin with a DH-HMAC-CHAP secret.
    #[error("{}: {source}", path.display())]
    DhChapSecret {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        source: nvme::auth::SecretError,
    },
    /// A file does not begin with a key for TLS.
    #[error("{}: {source}", path.display())]
    TlsKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        source: tls::KeyError,
    },
    /// TLS is not available on this machine.
    #[error(transparent)]
    TlsProvider(#[from] tls::ProviderError),
    /// A thread or descriptor could not be created.
    #[error("cannot create a thread or descriptor: {source}")]
    Resources {
        /// The operating system's error.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether the user can fix it with another request or at another address.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::NoTarget { .. }
            | Self::Name { .. }
            | Self::Option { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Scheme { .. }
            | Self::NoSecret { .. }
            | Self::SecretsFile { .. }
            | Self::NoHostSecret
            | Self::DhChapSecret { .. }
            | Self::TlsKey { .. }
            | Self::TlsProvider(_)
            | Self::SecretsForm { .. } => true,
            Self::Rdma { source, .. } => source.is_mistake(),
            Self::Setup { source, .. } => matches!(
                source,
                SetupError::UnknownSubsystem
                    | SetupError::HostNotAllowed
                    | SetupError::AuthenticationRequired
                    | SetupError::SecureChannelRequired
                    | SetupError::ControllerNotProven
                    | SetupError::Authentication(_)
                    | SetupError::NoNamespace { .. }
            ),
            Self::Session {
                source: ConnectionError::Session(SessionError::Login(error)),
                ..
            } => error.is_mistake(),
            Self::Session {
                source: ConnectionError::Brp(BrpHostError::Login(BrpLoginError::Rejected(status))),
                ..
            } => !matches!(status, LoginStatus::Busy | LoginStatus::NoSession),
            Self::Unit { source, .. } => matches!(
                source,
                scsi::host::SetupError::NoUnit { .. } | scsi::host::SetupError::NotADisk { .. }
            ),
            _ => false,
        }
    }
}

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The other side closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// The operating system reports an error.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The protocol was broken, or the controller terminated the connection.
    #[error(transparent)]
    Protocol(#[from] HostError),
    /// The controller broke NVMe/RDMA's protocol.
    #[error(transparent)]
    RdmaProtocol(nvme::rdma::HostError),
    /// The queue pair failed.
    #[error("the queue pair failed: {0}")]
    QueuePair(QpFailure),
    /// The login failed, the protocol was broken, or the target ended the session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// BRP's login failed, its protocol was broken, or the target ended the connection.
    #[error(transparent)]
    Brp(#[from] BrpHostError),
    /// SRP's login was granted on terms that cannot be used.
    #[error(transparent)]
    SrpLogin(#[from] SrpLoginError),
    /// SRP's target broke the protocol.
    #[error(transparent)]
    Srp(#[from] InitiatorError),
    /// The handshake of TLS failed.
    #[error("{0}; check that this host's key is defined on the target (`ramport host show` there)")]
    Handshake(#[from] tls::EntryError),
    /// A record of TLS was invalid, or the other side ended the connection.
    #[error(transparent)]
    Record(#[from] tls::RecordError),
    /// The controller did not answer in time.
    #[error("no response within {waited:?}")]
    Silent {
        /// The time waited.
        waited: Duration,
    },
    /// The association cannot be kept.
    #[error(transparent)]
    Upkeep(#[from] UpkeepError),
    /// The host did not authenticate again.
    #[error(transparent)]
    Renewal(#[from] RenewalError),
}

/// A connection of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueName(pub u16);

impl QueueName {
    /// The admin queue.
    pub(crate) const ADMIN: Self = Self(0);
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("admin queue"),
            id => write!(f, "I/O queue {id}"),
        }
    }
}

#[cfg(test)]
mod tests;
