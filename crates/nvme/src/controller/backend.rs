//! What the core requires of the program around it.

use std::sync::Arc;
use std::time::Instant;

use block::{Access, OpKind, Volume};
use session::SourceId;

use super::{ControllerId, Demand, Origin, Permit, Subsystem};
use crate::auth::{AuthOutcome, Concatenation, Credentials, Exponentiation, GeneratedKey, Power};
use crate::wire::{Nsid, Status};

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

    /// The secrets of this connection's host as they are now, if it has any. Called after
    /// [`Self::open`] has succeeded, when an authentication begins, and when the host's response is
    /// checked, so that a secret that was revoked meanwhile proves nothing.
    fn credentials(&mut self) -> Option<Arc<Credentials>>;

    /// Whether a host that has secrets has to prove them. Called after [`Self::open`] has
    /// succeeded.
    fn demand(&self) -> Demand {
        Demand::Required
    }

    /// Whether the host may have a key for TLS generated, with which it connects again. Called
    /// after [`Self::open`] has succeeded, for admin queues.
    fn concatenation(&self) -> Concatenation {
        Concatenation::Refused
    }

    /// The host of this connection will connect again by TLS with this key, which replaces the one
    /// that this connection uses, if it uses one.
    fn keep_generated_key(&mut self, _key: &GeneratedKey) {}

    /// Fills `bytes` with random numbers that no one can predict.
    fn random(&mut self, bytes: &mut [u8]);

    /// Computes a power, here or elsewhere. When [`Self::poll_power`] has the result and this call
    /// has returned, the connection is woken. Returns `false` if there are too many to compute.
    fn compute(&mut self, power: Exponentiation) -> bool;

    /// The result of [`Self::compute`], once.
    fn poll_power(&mut self) -> Option<Power>;

    /// An authentication has ended: for the log.
    fn note_authentication(&mut self, outcome: &AuthOutcome);

    /// An I/O command was completed: for statistics. Called for each, so it must be cheap.
    fn completed(&mut self, command: &Completed);
}

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

/// Why a host is not connected to a subsystem.
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

/// A command that was completed, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The namespace that it named, which need not exist.
    pub nsid: Nsid,
    /// Its kind.
    pub kind: OpKind,
    /// Data that moved between host and controller, in bytes.
    pub len_bytes: u32,
    /// How it ended.
    pub status: Status,
    /// When it came in.
    pub started: Instant,
    /// When it was completed.
    pub now: Instant,
}
