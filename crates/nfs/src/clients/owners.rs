//! Open-owners and lock-owners of minor version 0: each numbers its requests, so that one that is
//! sent again has the results of the first and is not executed.
//!
//! ```text
//!                 OPEN                    OPEN_CONFIRM, or a reclaim
//!  unknown ──────────────► unconfirmed ───────────────────────────────► confirmed
//!                             └── OPEN with another number: its open ends, and it begins anew
//! ```
//!
//! A later minor version has sessions instead (`slots`), and its owners have neither numbers nor
//! confirmation.
//!
//! Read first: RFC 7530 sections 9.1.4 to 9.1.11.

use std::collections::BTreeMap;

use crate::status4::Status4;

/// What an owner owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerKind {
    /// Opens (open_owner4).
    Opens,
    /// Locks (lock_owner4).
    Locks,
}

/// All owners of a client of minor version 0, and what else it has instead of sessions.
#[derive(Debug, Default)]
pub(super) struct Owners {
    opens: BTreeMap<Box<[u8]>, Owner>,
    locks: BTreeMap<Box<[u8]>, Owner>,
    /// Counts requests, so that owners can be compared.
    clock: u64,
    /// The verifier that SETCLIENTID has returned last, until it is confirmed.
    pub(super) pending: Option<u64>,
    /// The verifier that was confirmed last.
    pub(super) confirmed: Option<u64>,
    /// Whether it has opened a file since it was confirmed. From then on it may hold what it
    /// reclaims after a restart.
    pub(super) has_opened: bool,
}

/// An owner.
#[derive(Debug, Default)]
pub(super) struct Owner {
    last: Option<Executed>,
    /// Whether a connection executes a request of the owner.
    is_busy: bool,
    /// Of an open-owner: whether OPEN_CONFIRM has shown that its first OPEN was no late repetition.
    pub(super) is_confirmed: bool,
    /// The open that is not confirmed.
    pub(super) unconfirmed: Option<u32>,
    /// The state that its last CLOSE has ended: a repetition names it.
    closed: Option<u32>,
    /// Its opens, or the files with locks of it.
    states: u32,
    used: u64,
}

/// A request of an owner: its number (seqid4), and a CRC32C of its arguments and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) sequence: u32,
    pub(crate) checksum: u32,
}

/// A request that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    request: Numbered,
    pub(crate) status: Status4,
    /// What the operation has returned besides its status.
    pub(crate) results: Vec<u8>,
    /// The current file handle afterwards.
    pub(crate) file: Option<[u8; 32]>,
}

/// How a request begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BegunRequest {
    /// It is to be executed, and [ended](super::Clients::end_request).
    New,
    /// It was executed.
    Executed(Executed),
}

/// What an owner takes besides its name, in bytes: the longest results are those of a denied LOCK,
/// with the name of another owner.
const OWNER_BYTES: usize = 1600;
/// Owners of a kind without opens or locks that are kept, so that their last requests may be
/// repeated. The one that was quiet for the longest time is forgotten first (RFC 7530 section
/// 9.1.11).
const IDLE_MAX: usize = 256;

/// What an owner takes that has this name.
pub(super) const fn owner_bytes(name: &[u8]) -> usize {
    OWNER_BYTES + name.len()
}

impl Executed {
    pub(crate) const fn new(
        request: Numbered,
        status: Status4,
        results: Vec<u8>,
        file: Option<[u8; 32]>,
    ) -> Self {
        Self {
            request,
            status,
            results,
            file,
        }
    }
}

impl Owners {
    fn of(&mut self, kind: OwnerKind) -> &mut BTreeMap<Box<[u8]>, Owner> {
        match kind {
            OwnerKind::Opens => &mut self.opens,
            OwnerKind::Locks => &mut self.locks,
        }
    }

    pub(super) fn get(&mut self, kind: OwnerKind, name: &[u8]) -> Option<&mut Owner> {
        self.of(kind).get_mut(name)
    }

    /// Adds an owner, which was charged, and forgets one that is too many. Returns what that one
    /// took.
    pub(super) fn add(&mut self, kind: OwnerKind, name: &[u8]) -> usize {
        let owners = self.of(kind);
        let idle = owners.values().filter(|owner| owner.is_idle()).count();
        let freed = if idle >= IDLE_MAX {
            self.forget_oldest(kind)
        } else {
            0
        };
        self.clock += 1;
        let used = self.clock;
        self.of(kind).insert(
            name.into(),
            Owner {
                used,
                ..Owner::default()
            },
        );
        freed
    }

    /// Forgets the idle owner that was quiet for the longest time. Returns what it took: 0 if none
    /// is idle.
    fn forget_oldest(&mut self, kind: OwnerKind) -> usize {
        let owners = self.of(kind);
        let idle = owners.iter().filter(|(_, owner)| owner.is_idle());
        let oldest = idle.min_by_key(|(_, owner)| owner.used);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            return 0;
        };
        owners.remove(&name);
        owner_bytes(&name)
    }

    /// Removes an owner. Returns what it took.
    pub(super) fn remove(&mut self, kind: OwnerKind, name: &[u8]) -> usize {
        let removed = self.of(kind).remove(name);
        removed.map_or(0, |_| owner_bytes(name))
    }

    /// Begins a request of an owner.
    pub(super) fn begin(
        &mut self,
        kind: OwnerKind,
        name: &[u8],
        request: Numbered,
    ) -> Result<BegunRequest, Status4> {
        self.clock += 1;
        let clock = self.clock;
        let owner = self.get(kind, name).ok_or(Status4::BadStateId)?;
        owner.used = clock;
        let begun = owner.check(request)?;
        owner.is_busy = begun == BegunRequest::New;
        Ok(begun)
    }

    /// The open-owner whose last request has ended a state.
    pub(super) fn owner_of_closed(&self, number: u32) -> Option<&[u8]> {
        let mut owners = self.opens.iter();
        let found = owners.find(|(_, owner)| owner.closed == Some(number));
        found.map(|(name, _)| &**name)
    }

    /// An owner has another state.
    pub(super) fn count_state(&mut self, kind: OwnerKind, name: &[u8]) {
        if let Some(owner) = self.get(kind, name) {
            owner.states += 1;
        }
    }

    /// A state of an owner has ended.
    pub(super) fn end_state(&mut self, kind: OwnerKind, name: &[u8], number: u32) {
        if let Some(owner) = self.get(kind, name) {
            owner.states = owner.states.saturating_sub(1);
            owner.closed = Some(number);
            owner.unconfirmed = owner.unconfirmed.filter(|&it| it != number);
        }
    }
}

impl Owner {
    /// Whether it may be forgotten.
    const fn is_idle(&self) -> bool {
        self.states == 0 && !self.is_busy
    }

    /// Whether a connection executes a request of the owner.
    pub(super) const fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether a request is the last one again.
    pub(super) fn is_repeated(&self, request: Numbered) -> bool {
        self.last
            .as_ref()
            .is_some_and(|last| last.request == request)
    }

    /// What is to be done with a request (RFC 7530 section 9.1.7).
    fn check(&self, request: Numbered) -> Result<BegunRequest, Status4> {
        if self.is_busy {
            return Err(Status4::Resource);
        }
        match &self.last {
            Some(last) if last.request == request => Ok(BegunRequest::Executed(last.clone())),
            Some(last) if request.sequence != last.request.sequence.wrapping_add(1) => {
                Err(Status4::BadSequence)
            }
            _ => Ok(BegunRequest::New),
        }
    }

    /// Ends a request. Requests with some errors do not count.
    pub(super) fn end(&mut self, executed: Executed) {
        self.is_busy = false;
        if executed.status.counts_for_owner() {
            self.last = Some(executed);
        }
    }

    /// Forgets its requests: the owner begins anew.
    pub(super) fn restart(&mut self) {
        self.last = None;
    }

    /// Checks the number of a lock-owner's first lock with an open, which is a request of an
    /// open-owner's.
    pub(super) fn check_first_lock(&self, sequence: u32) -> Result<(), Status4> {
        match &self.last {
            Some(last) if self.states > 0 && sequence != last.request.sequence.wrapping_add(1) => {
                Err(Status4::BadSequence)
            }
            _ if self.is_busy => Err(Status4::Resource),
            _ => Ok(()),
        }
    }
}
