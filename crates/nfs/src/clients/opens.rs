//! Opens and share reservations.
//!
//! Read first: RFC 8881 sections 9.7 to 9.12.

use super::Clients;
use super::claims::{FileKey, ShareModes};
use super::files::{FileLocker, Holder, Open};
use super::owners::OwnerKind;
use super::stateid::{State, StateId, StateKind};
use crate::status4::Status4;

/// An open that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Its state ID.
    pub(crate) id: StateId,
    /// Whether OPEN_CONFIRM has to follow, in minor version 0.
    pub(crate) needs_confirmation: bool,
    /// What the same owner had before on the file, with the modes that this consisted of.
    before: Option<(ShareModes, u16)>,
}

/// What an open, or the locks of an owner, take besides the owner's name, in bytes. Lists grow by
/// doubling.
const STATE_BYTES: usize = 320;

/// What a state takes whose owner has this name.
pub(super) const fn state_bytes(owner: &[u8]) -> usize {
    STATE_BYTES + owner.len()
}

impl Clients {
    /// Whether a client may open files: it has said that it reclaims nothing more. A client of
    /// minor version 0 does not say so.
    pub(crate) fn check_open(&mut self, client: u64) -> Result<(), Status4> {
        let client = self.client_mut(client)?;
        if client.is_reclaim_complete || client.owners.is_some() {
            Ok(())
        } else {
            Err(Status4::Grace)
        }
    }

    /// Opens a file, or widens what the same owner has open of it. Whether the client may do so now
    /// was checked.
    pub(crate) fn open(
        &mut self,
        client: u64,
        owner: &[u8],
        key: FileKey,
        modes: ShareModes,
    ) -> Result<Opened, Status4> {
        let has_owners = self.client_mut(client)?.owners.is_some();
        let Some(file) = self.files.get_mut(&key) else {
            return self.add_open(client, owner, key, modes);
        };
        let is_own = |open: &Open| open.holder.0 == client && *open.owner == *owner;
        // In minor version 0 an owner excludes itself, too (RFC 7530 section 9.9).
        let others = file.opens.iter().filter(|open| has_owners || !is_own(open));
        if others.into_iter().any(|open| open.modes.conflicts(modes)) {
            return Err(Status4::ShareDenied);
        }
        let own = file.opens.iter_mut().find(|open| is_own(open));
        if let Some(own) = own {
            let before = (own.modes, own.opened);
            let number = own.holder.1;
            own.modes = own.modes.with(modes);
            own.opened |= modes.bit();
            let holder = self.client_mut(client)?;
            let state = holder.states.get_mut(&number);
            let state = state.ok_or(Status4::ServerFault)?;
            state.advance();
            return Ok(Opened {
                id: StateId::new(client, number, state.sequence),
                needs_confirmation: false,
                before: Some(before),
            });
        }
        self.add_open(client, owner, key, modes)
    }

    fn add_open(
        &mut self,
        client: u64,
        owner: &[u8],
        key: FileKey,
        modes: ShareModes,
    ) -> Result<Opened, Status4> {
        self.charge(client, state_bytes(owner), Status4::NoSpace)?;
        let holder = self.client_mut(client)?;
        let number = holder.next_state();
        let mut kind = StateKind::Open;
        if let Some(owners) = &mut holder.owners {
            owners.count_state(OwnerKind::Opens, owner);
            let opener = owners.get(OwnerKind::Opens, owner);
            if let Some(opener) = opener.filter(|opener| !opener.is_confirmed) {
                opener.unconfirmed = Some(number);
                kind = StateKind::Unconfirmed;
            }
        }
        let state = State {
            file: key,
            sequence: 1,
            kind,
        };
        holder.states.insert(number, state);
        self.note_open(client);
        self.files.entry(key).or_default().opens.push(Open {
            holder: (client, number),
            owner: owner.into(),
            modes,
            opened: modes.bit(),
        });
        Ok(Opened {
            id: StateId::new(client, number, 1),
            needs_confirmation: kind == StateKind::Unconfirmed,
            before: None,
        })
    }

    /// Takes an open back that its operation cannot complete.
    pub(crate) fn undo_open(&mut self, client: u64, opened: &Opened) {
        match opened.before {
            None => {
                if let Ok(number) = opened.id.number_of(client) {
                    self.remove_open(client, number);
                }
            }
            Some(before) => {
                if let Ok((number, key)) = self.open_of(client, opened.id) {
                    self.set_modes((client, number), &key, before);
                }
            }
        }
    }

    /// OPEN_DOWNGRADE (RFC 8881 section 18.18), to what some of the owner's OPENs are together.
    pub(crate) fn downgrade(
        &mut self,
        client: u64,
        id: StateId,
        key: &FileKey,
        modes: ShareModes,
    ) -> Result<StateId, Status4> {
        let (number, file) = self.open_of(client, id)?;
        let state = self.files.get(&file).ok_or(Status4::BadStateId)?;
        let open = state.open(client, number).ok_or(Status4::BadStateId)?;
        if file != *key {
            return Err(Status4::BadStateId);
        }
        if !modes.is_union_of(open.opened) {
            return Err(Status4::Invalid);
        }
        let opened = modes.contained_in(open.opened);
        self.set_modes((client, number), &file, (modes, opened));
        let holder = self.client_mut(client)?;
        let state = holder.states.get_mut(&number).ok_or(Status4::BadStateId)?;
        state.advance();
        Ok(StateId::new(client, number, state.sequence))
    }

    /// CLOSE (section 18.2). Locks that were taken with the open are released.
    pub(crate) fn close(&mut self, client: u64, id: StateId) -> Result<FileKey, Status4> {
        let (number, key) = self.open_of(client, id)?;
        self.remove_open(client, number);
        Ok(key)
    }

    /// Removes an open, with the locks that were taken with it.
    pub(super) fn remove_open(&mut self, client: u64, number: u32) {
        let holder = self.clients.get_mut(&client);
        let Some(state) = holder.and_then(|holder| holder.states.remove(&number)) else {
            return;
        };
        let key = state.file;
        let is_own =
            |locker: &&FileLocker| locker.holder.0 == client && locker.open == Some(number);
        let lockers = self.files.get(&key).map(|file| &file.lockers);
        let lockers = lockers.into_iter().flatten().filter(is_own);
        let lockers: Vec<_> = lockers.map(|locker| locker.holder.1).collect();
        for locker in lockers {
            self.remove_locker(client, &key, locker);
        }
        let Some(file) = self.files.get_mut(&key) else {
            return;
        };
        let is_it = |open: &Open| open.holder == (client, number);
        let Some(at) = file.opens.iter().position(is_it) else {
            return;
        };
        let owner = file.opens.remove(at).owner;
        self.forget_unused(&key);
        self.discharge(client, state_bytes(&owner));
        self.end_state(client, OwnerKind::Opens, (&owner, number));
    }

    /// A state of an owner has ended.
    pub(super) fn end_state(
        &mut self,
        client: u64,
        kind: OwnerKind,
        (owner, number): (&[u8], u32),
    ) {
        let holder = self.clients.get_mut(&client);
        if let Some(owners) = holder.and_then(|holder| holder.owners.as_mut()) {
            owners.end_state(kind, owner, number);
        }
    }

    /// Whether a client has a file open, or delegated to it.
    pub(crate) fn has_open(&self, client: u64, key: &FileKey) -> bool {
        let file = self.files.get(key);
        file.is_some_and(|file| {
            let opens = file.opens.iter().map(|open| open.holder);
            let delegations = file.delegations.iter().map(|it| it.holder);
            opens.chain(delegations).any(|holder| holder.0 == client)
        })
    }

    /// The file of an open.
    pub(crate) fn file_of(&mut self, client: u64, id: StateId) -> Result<FileKey, Status4> {
        Ok(self.open_of(client, id)?.1)
    }

    /// The number and the file of an open.
    pub(super) fn open_of(&mut self, client: u64, id: StateId) -> Result<(u32, FileKey), Status4> {
        let holder = self.client_mut(client)?;
        let (number, state) = holder.state_mut(client, id)?;
        match state.kind {
            StateKind::Open => Ok((number, state.file)),
            _ => Err(Status4::BadStateId),
        }
    }

    fn set_modes(&mut self, holder: Holder, key: &FileKey, (modes, opened): (ShareModes, u16)) {
        let file = self.files.get_mut(key);
        let opens = file.into_iter().flat_map(|file| &mut file.opens);
        for open in opens.filter(|open| open.holder == holder) {
            open.modes = modes;
            open.opened = opened;
        }
    }
}
