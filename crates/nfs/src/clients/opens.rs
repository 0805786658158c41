//! Opens and share reservations.
//!
//! Read first: RFC 8881 sections 9.7 to 9.12.

use super::Clients;
use super::claims::{FileKey, ShareModes};
use super::files::{FileLocker, Open};
use super::stateid::{State, StateId, StateKind};
use crate::status4::Status4;

/// An open that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Its state ID.
    pub(crate) id: StateId,
    /// What the same owner had before on the file.
    before: Option<ShareModes>,
}

/// What an open, or the locks of an owner, take besides the owner's name, in bytes. Lists grow by doubling.
const STATE_BYTES: usize = 320;

/// What a state takes whose owner has this name.
pub(super) const fn state_bytes(owner: &[u8]) -> usize {
    STATE_BYTES + owner.len()
}

impl Clients {
    /// Whether a client may open files: it has said that it reclaims nothing more.
    pub(crate) fn check_open(&mut self, client: u64) -> Result<(), Status4> {
        if self.client_mut(client)?.is_reclaim_complete {
            Ok(())
        } else {
            Err(Status4::Grace)
        }
    }

    /// Opens a file, or widens what the same owner has open of it. Whether the client may do so now was checked.
    pub(crate) fn open(
        &mut self,
        client: u64,
        owner: &[u8],
        key: FileKey,
        modes: ShareModes,
    ) -> Result<Opened, Status4> {
        let Some(file) = self.files.get_mut(&key) else {
            return self.add_open(client, owner, key, modes);
        };
        let is_own = |open: &Open| open.holder.0 == client && *open.owner == *owner;
        let others = file.opens.iter().filter(|open| !is_own(open));
        if others.into_iter().any(|open| open.modes.conflicts(modes)) {
            return Err(Status4::ShareDenied);
        }
        let own = file.opens.iter_mut().find(|open| is_own(open));
        if let Some(own) = own {
            let before = own.modes;
            let number = own.holder.1;
            own.modes = before.with(modes);
            let holder = self.client_mut(client)?;
            let state = holder.states.get_mut(&number);
            let state = state.ok_or(Status4::ServerFault)?;
            state.advance();
            return Ok(Opened {
                id: StateId::new(client, number, state.sequence),
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
        holder.states.insert(
            number,
            State {
                file: key,
                sequence: 1,
                kind: StateKind::Open,
            },
        );
        self.files.entry(key).or_default().opens.push(Open {
            holder: (client, number),
            owner: owner.into(),
            modes,
        });
        Ok(Opened {
            id: StateId::new(client, number, 1),
            before: None,
        })
    }

    /// Takes an open back that its operation cannot complete.
    pub(crate) fn undo_open(&mut self, client: u64, opened: &Opened) {
        match opened.before {
            None => drop(self.close(client, opened.id)),
            Some(before) => {
                if let Ok((number, key)) = self.open_of(client, opened.id) {
                    self.set_modes(client, number, &key, before);
                }
            }
        }
    }

    /// OPEN_DOWNGRADE (RFC 8881 section 18.18).
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
        if !open.modes.contains(modes) {
            return Err(Status4::Invalid);
        }
        self.set_modes(client, number, &file, modes);
        let holder = self.client_mut(client)?;
        let state = holder.states.get_mut(&number).ok_or(Status4::BadStateId)?;
        state.advance();
        Ok(StateId::new(client, number, state.sequence))
    }

    /// CLOSE (section 18.2). Locks that were taken with the open are released.
    pub(crate) fn close(&mut self, client: u64, id: StateId) -> Result<FileKey, Status4> {
        let (number, key) = self.open_of(client, id)?;
        let file = self.files.get(&key).ok_or(Status4::BadStateId)?;
        let is_own =
            |locker: &&FileLocker| locker.holder.0 == client && locker.open == Some(number);
        let lockers = file.lockers.iter().filter(is_own);
        let lockers: Vec<_> = lockers.map(|locker| locker.holder.1).collect();
        for locker in lockers {
            self.remove_locker(client, &key, locker);
        }
        let mut bytes = 0;
        if let Some(file) = self.files.get_mut(&key) {
            file.opens.retain(|open| {
                let is_it = open.holder == (client, number);
                bytes += if is_it { state_bytes(&open.owner) } else { 0 };
                !is_it
            });
            if file.is_unused() {
                self.files.remove(&key);
            }
        }
        self.discharge(client, bytes);
        self.client_mut(client)?.states.remove(&number);
        Ok(key)
    }

    /// Whether a client has a file open.
    pub(crate) fn has_open(&self, client: u64, key: &FileKey) -> bool {
        let file = self.files.get(key);
        file.is_some_and(|file| file.opens.iter().any(|open| open.holder.0 == client))
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
            StateKind::Locks => Err(Status4::BadStateId),
        }
    }

    fn set_modes(&mut self, client: u64, number: u32, key: &FileKey, modes: ShareModes) {
        let file = self.files.get_mut(key);
        let opens = file.into_iter().flat_map(|file| &mut file.opens);
        for open in opens.filter(|open| open.holder == (client, number)) {
            open.modes = modes;
        }
    }
}
