//! Reservations of one namespace: registrants and the holder.
//!
//! Read first: NVM Express Base 2.0, "Reservations". A host is its Host Identifier; its controllers
//! share everything. Reservations live as long as the namespace: they do not persist through power
//! loss, nor does a RAM volume.

mod command;
mod rules;

use std::collections::BTreeMap;

use crate::controller::Permit;
use crate::wire::StatusCode;
use crate::wire::log::ReservationNotice;
use crate::wire::reservation::ReservationType;
use rules::Standing;

/// A Host Identifier.
pub(in crate::controller) type HostId = [u8; 16];

/// Hosts registered with one namespace.
const REGISTRANTS_MAX: usize = 1024;

/// The reservation state of one namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Reservations {
    /// Keys of the registered hosts.
    keys: BTreeMap<HostId, u64>,
    held: Option<Held>,
    generation: u32,
}

/// A reservation that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: ReservationType,
    /// The host that acquired it. If all registrants hold it, any of them.
    by: HostId,
}

/// Whether a command checks the key that its host has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyCheck {
    /// It must be this Current Reservation Key.
    Current(u64),
    /// No check: Ignore Existing Key.
    Skip,
}

/// Which hosts get which notices.
type Notices = Vec<(HostId, ReservationNotice)>;

impl Reservations {
    /// The access of `host` under the present reservation.
    pub(in crate::controller) fn permit(&self, host: HostId) -> Permit {
        match self.held {
            None => Permit::ALL,
            Some(held) => rules::permit(held.kind, self.standing(held, host)),
        }
    }

    /// The access of a host that has not registered.
    pub(in crate::controller) fn unregistered_permit(&self) -> Permit {
        let held = self.held;
        held.map_or(Permit::ALL, |held| {
            rules::permit(held.kind, Standing::Other)
        })
    }

    fn standing(&self, held: Held, host: HostId) -> Standing {
        if !self.keys.contains_key(&host) {
            Standing::Other
        } else if held.kind.is_held_by_all() || held.by == host {
            Standing::Holder
        } else {
            Standing::Registrant
        }
    }

    fn is_holder(&self, host: HostId) -> bool {
        self.held
            .is_some_and(|held| self.standing(held, host) == Standing::Holder)
    }

    /// Registers a host. A registered host may register the same key again.
    fn register(&mut self, host: HostId, key: u64) -> Result<(), StatusCode> {
        match self.keys.get(&host) {
            Some(&known) if known == key => Ok(()),
            Some(_) => Err(StatusCode::ReservationConflict),
            None if self.keys.len() >= REGISTRANTS_MAX => Err(StatusCode::InternalError),
            None => {
                self.keys.insert(host, key);
                self.advance();
                Ok(())
            }
        }
    }

    /// Replaces a host's key. If existing keys are ignored, an unregistered host becomes
    /// registered.
    fn replace(&mut self, host: HostId, key_check: KeyCheck, key: u64) -> Result<(), StatusCode> {
        match key_check {
            KeyCheck::Skip if !self.keys.contains_key(&host) => return self.register(host, key),
            KeyCheck::Skip => {}
            KeyCheck::Current(_) => self.check(host, key_check)?,
        }
        self.keys.insert(host, key);
        self.advance();
        Ok(())
    }

    fn unregister(&mut self, host: HostId, key_check: KeyCheck) -> Result<Notices, StatusCode> {
        self.check(host, key_check)?;
        let notices = self.remove(host);
        self.advance();
        Ok(notices)
    }

    /// Acquires the reservation if no host holds it. Its holder may repeat the command.
    fn acquire(&mut self, host: HostId, key: u64, kind: ReservationType) -> Result<(), StatusCode> {
        self.check(host, KeyCheck::Current(key))?;
        match self.held {
            None => {
                self.held = Some(Held { kind, by: host });
                Ok(())
            }
            Some(held) if held.kind == kind && self.is_holder(host) => Ok(()),
            Some(_) => Err(StatusCode::ReservationConflict),
        }
    }

    /// Removes registrations, and the reservation if one of them held it.
    fn preempt(
        &mut self,
        host: HostId,
        key: u64,
        victim: u64,
        kind: ReservationType,
    ) -> Result<Notices, StatusCode> {
        self.check(host, KeyCheck::Current(key))?;
        let notices = match self.held {
            Some(held) if held.kind.is_held_by_all() && victim == 0 => {
                self.take_over(host, held, kind, |_| true)
            }
            Some(held)
                if !held.kind.is_held_by_all() && self.keys.get(&held.by) == Some(&victim) =>
            {
                self.take_over(host, held, kind, |key| key == victim)
            }
            Some(held) if !held.kind.is_held_by_all() && victim == 0 => {
                return Err(StatusCode::InvalidField);
            }
            _ => self.remove_by_key(host, victim)?,
        };
        self.advance();
        Ok(notices)
    }

    /// Makes `host` the holder of a reservation of type `kind`, and unregisters the other hosts
    /// whose keys are `doomed`.
    fn take_over(
        &mut self,
        host: HostId,
        old: Held,
        kind: ReservationType,
        doomed: impl Fn(u64) -> bool,
    ) -> Notices {
        let mut notices = Notices::new();
        let old_holder = (!old.kind.is_held_by_all() && old.by != host).then_some(old.by);
        notices.extend(old_holder.map(|holder| (holder, ReservationNotice::ReservationPreempted)));
        self.held = Some(Held { kind, by: host });
        self.keys.retain(|&registrant, &mut key| {
            let stays = registrant == host || !doomed(key);
            if !stays {
                notices.push((registrant, ReservationNotice::RegistrationPreempted));
            }
            stays
        });
        if old.kind != kind && old.kind.favours_registrants() {
            notices.extend(self.others(host, ReservationNotice::ReservationReleased));
        }
        notices
    }

    /// Unregisters every host whose key is `victim`.
    fn remove_by_key(&mut self, host: HostId, victim: u64) -> Result<Notices, StatusCode> {
        let doomed: Vec<HostId> = self
            .keys
            .iter()
            .filter(|&(_, &key)| key == victim)
            .map(|(&id, _)| id)
            .collect();
        if doomed.is_empty() {
            return Err(StatusCode::ReservationConflict);
        }
        let mut notices = Notices::new();
        for registrant in doomed {
            if registrant != host {
                notices.push((registrant, ReservationNotice::RegistrationPreempted));
            }
            notices.extend(self.remove(registrant));
        }
        Ok(notices)
    }

    /// Releases the reservation if `host` holds it. For other hosts it succeeds without effect.
    fn release(
        &mut self,
        host: HostId,
        key: u64,
        kind: Option<ReservationType>,
    ) -> Result<Notices, StatusCode> {
        self.check(host, KeyCheck::Current(key))?;
        let Some(held) = self.held.filter(|_| self.is_holder(host)) else {
            return Ok(Notices::new());
        };
        if kind != Some(held.kind) {
            return Err(StatusCode::InvalidField);
        }
        self.held = None;
        if held.kind.favours_registrants() {
            return Ok(self
                .others(host, ReservationNotice::ReservationReleased)
                .collect());
        }
        Ok(Notices::new())
    }

    /// Removes the reservation and every registration.
    fn clear(&mut self, host: HostId, key: u64) -> Result<Notices, StatusCode> {
        self.check(host, KeyCheck::Current(key))?;
        let notices = self
            .others(host, ReservationNotice::ReservationPreempted)
            .collect();
        self.keys.clear();
        self.held = None;
        self.advance();
        Ok(notices)
    }

    /// The host must be registered, and its key must match unless `key_check` skips that.
    fn check(&self, host: HostId, key_check: KeyCheck) -> Result<(), StatusCode> {
        let matches = match (self.keys.get(&host), key_check) {
            (Some(_), KeyCheck::Skip) => true,
            (Some(&key), KeyCheck::Current(said)) => key == said,
            (None, _) => false,
        };
        if matches {
            Ok(())
        } else {
            Err(StatusCode::ReservationConflict)
        }
    }

    /// Unregisters a host. What it held alone is released; what all hold ends with the last of
    /// them.
    fn remove(&mut self, host: HostId) -> Notices {
        self.keys.remove(&host);
        let Some(held) = self.held else {
            return Notices::new();
        };
        if held.kind.is_held_by_all() {
            if self.keys.is_empty() {
                self.held = None;
            }
            return Notices::new();
        }
        if held.by != host {
            return Notices::new();
        }
        self.held = None;
        if held.kind.favours_registrants() {
            return self
                .others(host, ReservationNotice::ReservationReleased)
                .collect();
        }
        Notices::new()
    }

    /// A notice for every registrant but `host`.
    fn others(
        &self,
        host: HostId,
        notice: ReservationNotice,
    ) -> impl Iterator<Item = (HostId, ReservationNotice)> {
        self.keys
            .keys()
            .filter(move |&&id| id != host)
            .map(move |&id| (id, notice))
    }

    fn advance(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
