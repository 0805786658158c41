//! What the core asks of the program around it.

use std::net::IpAddr;
use std::sync::Arc;

use block::{Access, Volume};
use session::SourceId;

use super::{Completed, ControllerId, Permit, Subsystem};
use crate::wire::Nsid;
use crate::wire::discovery::TransportType;

/// One connection's way to the subsystem that it is bound to. Crate `server` implements it; tests
/// have their own.
pub trait Backend {
    /// Where the connection comes from and how to wake it.
    fn origin(&self) -> Origin;

    /// Finds the subsystem named `subsystem_nqn` (the well-known discovery NQN names the discovery
    /// subsystem), checks whether the host may use it, and binds this connection to it. Called
    /// once, by [`connect`](super::connect). `host_nqn` is empty if the host gave no name.
    fn open(
        &mut self,
        subsystem_nqn: &str,
        host_nqn: &str,
        host_id: [u8; 16],
    ) -> Result<Access, OpenError>;

    /// Sets the controller that this connection belongs to, so that [`Self::namespace`] can return
    /// its view. Called once, by [`connect`](super::connect), after [`Self::open`] has succeeded.
    fn bind(&mut self, controller: ControllerId);

    /// Runs `f` with the subsystem that [`Self::open`] found, under its lock. The control path
    /// only.
    fn with_subsystem<R>(&mut self, f: impl FnOnce(&mut Subsystem) -> R) -> R;

    /// The namespace `nsid` as this connection's controller sees it now; `None` if it is not
    /// attached. Takes no lock unless [`Subsystem::generation`] has moved since the last call.
    fn namespace(&mut self, nsid: Nsid) -> Option<NamespaceRef<'_>>;

    /// Charges the memory budget with `len_bytes` for data of commands that wait for their volume,
    /// in place of this connection's former charge. Returns `false` and keeps the former charge if
    /// the budget is exceeded. A lower charge always succeeds.
    fn charge_input(&mut self, len_bytes: u64) -> bool;

    /// An I/O command was completed: for statistics. Called for each, so it must be cheap.
    fn completed(&mut self, command: &Completed);
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address.
    pub address: IpAddr,
    /// The address that the peer came to.
    pub local: IpAddr,
    /// How it came.
    pub transport: TransportType,
    /// The portal through which it came.
    pub portal: PortalNumber,
    /// How [`Subsystem::poll_wake`] names this connection.
    pub wake: WakeToken,
}

/// The number of a portal. The discovery log shows it as PORTID, the identifier of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortalNumber(pub u16);

/// A connection by the number that the program around the core gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WakeToken(pub u64);

/// A namespace as one controller sees it.
#[derive(Clone, Copy)]
pub struct NamespaceRef<'a> {
    /// The volume behind it.
    pub volume: &'a Arc<dyn Volume>,
    /// How placements name the volume on this connection.
    pub source: SourceId,
    /// What the controller's host may do with it.
    pub permit: Permit,
    /// Whether bytes may be sent from where they lie in the volume ([`Volume::pinned`]).
    pub is_pinned: bool,
}

/// Why a host does not get to a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No subsystem has this name.
    #[error("no such subsystem")]
    UnknownSubsystem,
    /// The subsystem does not admit this host.
    #[error("the subsystem does not admit this host")]
    HostNotAllowed,
    /// The subsystem cannot take another connection at present (memory, drain).
    #[error("the subsystem accepts no more connections at present")]
    Busy,
}

/// Figures that logs report and that only the program around the core has. Called with the
/// subsystem locked, so it must not take a lock that is held while the subsystem's is waited for.
pub trait Statistics: Send {
    /// What the subsystem's namespaces have served since they were made.
    fn usage(&self) -> Usage;

    /// How many bytes of the namespace's volume have memory behind them.
    fn allocated_bytes(&self, nsid: Nsid) -> u64;
}

/// Totals for the SMART / Health Information log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Read commands completed (compare and verify among them).
    pub read_commands: u64,
    /// Write commands completed.
    pub write_commands: u64,
    /// Time in which commands were outstanding, in minutes.
    pub busy_minutes: u64,
    /// Time since the subsystem was made, in hours.
    pub power_on_hours: u64,
    /// Commands that failed for the medium.
    pub media_errors: u64,
    /// Part of the memory budget still free, in per cent.
    pub spare_percent: u8,
}
