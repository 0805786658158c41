//! State IDs: what names an open or a lock.
//!
//! Read first: RFC 8881 section 8.2.

use super::claims::FileKey;
use super::{Client, Clients};
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, Writer};

/// stateid4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateId {
    /// How often the state has changed. 0 stands for its present value.
    pub(crate) sequence: u32,
    /// The client, and a number of the client's.
    other: (u64, u32),
}

/// An open, the locks of one lock owner on one file, or a delegation.
#[derive(Debug)]
pub(super) struct State {
    pub(super) file: FileKey,
    pub(super) sequence: u32,
    pub(super) kind: StateKind,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    /// An open.
    Open,
    /// An open that OPEN_CONFIRM has not confirmed, in minor version 0. Nothing else can be done
    /// with it.
    Unconfirmed,
    /// Locks.
    Locks,
    /// A read delegation.
    Delegation,
    /// A delegation that was revoked, and that its client has not freed.
    Revoked,
}

/// What READ, WRITE and SETATTR do with a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateUse {
    /// They read them.
    Read,
    /// They change them.
    Write,
}

impl StateId {
    /// No open: every byte is zero.
    pub(crate) const ANONYMOUS: Self = Self {
        sequence: 0,
        other: (0, 0),
    };
    /// No open, and share reservations do not apply to READ: every bit is set.
    pub(crate) const BYPASS: Self = Self {
        sequence: u32::MAX,
        other: (u64::MAX, u32::MAX),
    };
    /// The state ID that the compound has returned last.
    pub(crate) const CURRENT: Self = Self {
        sequence: 1,
        other: (0, 0),
    };
    /// Never valid: what CLOSE returns.
    pub(crate) const INVALID: Self = Self {
        sequence: u32::MAX,
        other: (0, 0),
    };

    pub(super) const fn new(client: u64, number: u32, sequence: u32) -> Self {
        Self {
            sequence,
            other: (client, number),
        }
    }

    /// Reads it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            sequence: reader.u32()?,
            other: (reader.u64()?, reader.u32()?),
        })
    }

    /// Writes it.
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        out.u32(self.sequence);
        out.u64(self.other.0);
        out.u32(self.other.1);
    }

    /// Whether it stands for no state of a client, as those whose other field is zeros or ones.
    pub(crate) const fn is_special(self) -> bool {
        matches!(self.other, (0, 0) | (u64::MAX, u32::MAX))
    }

    /// The client.
    pub(super) const fn client(self) -> u64 {
        self.other.0
    }

    /// The client's number of the state, if the state is the client's.
    pub(super) fn number_of(self, client: u64) -> Result<u32, Status4> {
        let (owner, number) = self.other;
        if owner == client {
            Ok(number)
        } else {
            Err(Status4::BadStateId)
        }
    }
}

impl Client {
    /// A new number for a state.
    pub(super) fn next_state(&mut self) -> u32 {
        loop {
            self.last_state = self.last_state.wrapping_add(1);
            if !self.states.contains_key(&self.last_state) {
                return self.last_state;
            }
        }
    }

    /// How many of its states are opens.
    pub(super) fn opens(&self) -> usize {
        let states = self.states.values();
        states
            .filter(|state| matches!(state.kind, StateKind::Open | StateKind::Unconfirmed))
            .count()
    }

    /// The state that a state ID names, if its sequence is the present one, or 0 since minor
    /// version 1.
    pub(super) fn state_mut(
        &mut self,
        client: u64,
        id: StateId,
    ) -> Result<(u32, &mut State), Status4> {
        let number = id.number_of(client)?;
        let state = self.states.get_mut(&number).ok_or(Status4::BadStateId)?;
        match state.kind {
            StateKind::Unconfirmed => return Err(Status4::BadStateId),
            StateKind::Revoked => return Err(Status4::DelegationRevoked),
            _ => {}
        }
        if id.sequence != 0 || self.owners.is_some() {
            state.check(id)?;
        }
        Ok((number, state))
    }
}

impl State {
    /// Checks that a state ID has the present sequence.
    pub(super) const fn check(&self, id: StateId) -> Result<(), Status4> {
        // Sequences wrap around from the largest to 1.
        let behind = self.sequence.wrapping_sub(id.sequence);
        match behind {
            0 => Ok(()),
            1..=0x7fff_ffff => Err(Status4::OldStateId),
            _ => Err(Status4::BadStateId),
        }
    }

    /// Counts a change of the state.
    pub(super) fn advance(&mut self) {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
    }
}

impl Clients {
    /// Checks the state ID of an operation on a file's data (RFC 8881 section 9.1.2).
    /// [`StateId::CURRENT`] was replaced.
    pub(crate) fn check_data(
        &mut self,
        client: u64,
        id: StateId,
        file: &FileKey,
        state_use: StateUse,
    ) -> Result<(), Status4> {
        if id == StateId::ANONYMOUS || id == StateId::BYPASS {
            let may_ignore = id == StateId::BYPASS && state_use == StateUse::Read;
            let is_denied = self
                .files
                .get(file)
                .is_some_and(|state| state.denies(state_use));
            return if is_denied && !may_ignore {
                Err(Status4::Locked)
            } else {
                Ok(())
            };
        }
        let holder = self.client_mut(client)?;
        let (number, state) = holder.state_mut(client, id)?;
        if state.file != *file {
            return Err(Status4::BadStateId);
        }
        let kind = state.kind;
        let file = self.files.get(file).ok_or(Status4::BadStateId)?;
        // A client that may only write reads too, to fill a page of its cache.
        let is_permitted = match state_use {
            StateUse::Read => true,
            StateUse::Write => file.may_write(client, number, kind),
        };
        if is_permitted {
            Ok(())
        } else {
            Err(Status4::OpenMode)
        }
    }

    /// TEST_STATEID: whether a state ID is valid.
    pub(crate) fn test_state(&mut self, client: u64, id: StateId) -> Status4 {
        let found = self
            .client_mut(client)
            .and_then(|holder| holder.state_mut(client, id).map(|_| ()));
        found.err().unwrap_or(Status4::Ok)
    }

    /// FREE_STATEID: removes locks that lock nothing, and a delegation that was revoked.
    pub(crate) fn free_state(&mut self, client: u64, id: StateId) -> Result<(), Status4> {
        if self.free_revoked(client, id)? {
            return Ok(());
        }
        let holder = self.client_mut(client)?;
        let (number, state) = holder.state_mut(client, id)?;
        let key = state.file;
        if state.kind != StateKind::Locks {
            return Err(Status4::LocksHeld);
        }
        let file = self.files.get(&key).ok_or(Status4::BadStateId)?;
        if file.has_ranges(client, number) {
            return Err(Status4::LocksHeld);
        }
        self.remove_locker(client, &key, number);
        Ok(())
    }
}
