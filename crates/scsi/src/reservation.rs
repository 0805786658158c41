//! Persistent reservations of one logical unit: registrations, the reservation, and the access
//! rules.
//!
//! Read first: SPC-5, "Persistent reservations"; the tables of commands allowed in the presence of
//! reservations.

use crate::opcodes::AccessClass;
use crate::sense::{Asc, Sense};

/// The most registrations that one logical unit keeps.
pub const REGISTRATIONS_MAX: usize = 256;

/// An initiator port and the target port that it uses: the two ends of an I_T nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NexusPorts {
    /// The initiator port's name; for iSCSI `name,i,0xISID` (RFC 7143 §4.2.7.1).
    pub initiator: String,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub target_port: u16,
}

/// The reservation type codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Others read only.
    WriteExclusive = 1,
    /// Others do nothing.
    ExclusiveAccess = 3,
    /// Registrants write, others read.
    WriteExclusiveRegistrantsOnly = 5,
    /// Only registrants.
    ExclusiveAccessRegistrantsOnly = 6,
    /// As 5, and every registrant is a holder.
    WriteExclusiveAllRegistrants = 7,
    /// As 6, and every registrant is a holder.
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// Every type.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    fn all_registrants(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }

    fn registrants_only(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveRegistrantsOnly | Self::ExclusiveAccessRegistrantsOnly
        )
    }

    fn others_may_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive
                | Self::WriteExclusiveRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// One registered nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who.
    pub ports: NexusPorts,
    /// Registered through every target port (ALL_TG_PT).
    pub all_target_ports: bool,
    /// RESERVATION KEY.
    pub key: u64,
}

impl Registration {
    fn is(&self, ports: &NexusPorts) -> bool {
        self.ports.initiator == ports.initiator
            && (self.all_target_ports || self.ports.target_port == ports.target_port)
    }
}

/// The reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its type.
    pub kind: ReservationType,
    /// The nexus that made it; has no meaning for the all-registrants types.
    pub holder: NexusPorts,
}

/// The persistent reservations of a logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// PRGENERATION.
    pub generation: u32,
    /// All registered nexuses.
    pub registrations: Vec<Registration>,
    /// The reservation, if any.
    pub reservation: Option<Reservation>,
    /// APTPL: whether all this outlives a restart.
    pub persist: bool,
}

/// A unit attention that others must learn about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who.
    pub registration: Registration,
    /// What.
    pub asc: Asc,
}

/// The result of a PERSISTENT RESERVE OUT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The nexuses to notify.
    pub notices: Vec<Notice>,
    /// Whose commands to abort (PREEMPT AND ABORT).
    pub abort: Vec<Registration>,
}

/// How a PERSISTENT RESERVE OUT is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Status RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

/// REGISTER's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// RESERVATION KEY; `None` for REGISTER AND IGNORE EXISTING KEY.
    pub key: Option<u64>,
    /// SERVICE ACTION RESERVATION KEY; 0 unregisters.
    pub new_key: u64,
    /// ALL_TG_PT.
    pub all_target_ports: bool,
    /// APTPL.
    pub persist: bool,
    /// Further nexuses to register (SPEC_I_PT).
    pub others: Vec<NexusPorts>,
}

impl Reservations {
    /// Whether a command of `class` from `ports` conflicts with the reservation.
    pub(crate) fn conflicts(&self, ports: &NexusPorts, class: AccessClass) -> bool {
        let Some(reservation) = &self.reservation else {
            return false;
        };
        let registered = self.find(ports).is_some();
        let may_write = self.holds(ports)
            || registered
                && reservation.kind != ReservationType::WriteExclusive
                && reservation.kind != ReservationType::ExclusiveAccess;
        match class {
            AccessClass::Always | AccessClass::Own => false,
            AccessClass::Read => !may_write && !reservation.kind.others_may_read(),
            AccessClass::Write => !may_write,
        }
    }

    /// The registration of a nexus.
    pub fn find(&self, ports: &NexusPorts) -> Option<&Registration> {
        self.registrations
            .iter()
            .find(|registration| registration.is(ports))
    }

    /// Whether a nexus holds the reservation.
    pub fn holds(&self, ports: &NexusPorts) -> bool {
        let Some(reservation) = &self.reservation else {
            return false;
        };
        let Some(registration) = self.find(ports) else {
            return false;
        };
        reservation.kind.all_registrants() || registration.is(&reservation.holder)
    }

    /// REGISTER and REGISTER AND IGNORE EXISTING KEY.
    pub fn register(&mut self, ports: &NexusPorts, ask: &Register) -> Result<Outcome, Refusal> {
        let existing = self.find(ports).map(|registration| registration.key);
        let expected = existing.unwrap_or(0);
        if ask.key.is_some_and(|key| key != expected) {
            return Err(Refusal::Conflict);
        }
        if existing.is_some() && !ask.others.is_empty() {
            return Err(Refusal::Check(Sense::invalid_parameter(20)));
        }
        let mut outcome = Outcome::default();
        if ask.new_key == 0 {
            if existing.is_some() {
                outcome.notices = self.unregister(ports);
            }
        } else {
            let all = std::iter::once(ports).chain(&ask.others);
            let new = all
                .clone()
                .filter(|ports| self.find(ports).is_none())
                .count();
            if self.registrations.len() + new > REGISTRATIONS_MAX {
                return Err(Refusal::Check(Sense::illegal(
                    Asc::INSUFFICIENT_REGISTRATIONS,
                )));
            }
            for ports in all {
                self.put(ports, ask.new_key, ask.all_target_ports);
            }
        }
        self.persist = ask.persist;
        self.generation = self.generation.wrapping_add(1);
        Ok(outcome)
    }

    fn put(&mut self, ports: &NexusPorts, key: u64, all_target_ports: bool) {
        match self
            .registrations
            .iter_mut()
            .find(|registration| registration.is(ports))
        {
            Some(registration) => registration.key = key,
            None => {
                self.registrations.push(Registration {
                    ports: ports.clone(),
                    all_target_ports,
                    key,
                });
            }
        }
    }

    /// Removes a registration; the reservation ends with its (last) holder. Returns the nexuses to
    /// notify of the release.
    fn unregister(&mut self, ports: &NexusPorts) -> Vec<Notice> {
        let held = self.holds(ports);
        self.registrations
            .retain(|registration| !registration.is(ports));
        let Some(kind) = self
            .reservation
            .as_ref()
            .map(|reservation| reservation.kind)
        else {
            return Vec::new();
        };
        if !held || kind.all_registrants() && !self.registrations.is_empty() {
            return Vec::new();
        }
        self.reservation = None;
        if kind.registrants_only() {
            self.tell_all(ports, Asc::RESERVATIONS_RELEASED)
        } else {
            Vec::new()
        }
    }

    fn tell_all(&self, but: &NexusPorts, asc: Asc) -> Vec<Notice> {
        let others = self
            .registrations
            .iter()
            .filter(|registration| !registration.is(but));
        others
            .map(|registration| Notice {
                registration: registration.clone(),
                asc,
            })
            .collect()
    }

    /// The registration of `ports`, if its key is `key`.
    fn authorize(&self, ports: &NexusPorts, key: u64) -> Result<&Registration, Refusal> {
        let registration = self.find(ports).ok_or(Refusal::Conflict)?;
        if registration.key == key {
            Ok(registration)
        } else {
            Err(Refusal::Conflict)
        }
    }

    /// RESERVE.
    pub fn reserve(
        &mut self,
        ports: &NexusPorts,
        key: u64,
        scope_and_type: u8,
    ) -> Result<Outcome, Refusal> {
        self.authorize(ports, key)?;
        let kind = parse_type(scope_and_type)?;
        match &self.reservation {
            None => {
                self.reservation = Some(Reservation {
                    kind,
                    holder: ports.clone(),
                });
            }
            Some(_) if !self.holds(ports) => return Err(Refusal::Conflict),
            Some(existing) if existing.kind != kind => return Err(Refusal::Conflict),
            Some(_) => {}
        }
        Ok(Outcome::default())
    }

    /// RELEASE.
    pub fn release(
        &mut self,
        ports: &NexusPorts,
        key: u64,
        scope_and_type: u8,
    ) -> Result<Outcome, Refusal> {
        self.authorize(ports, key)?;
        let Some(existing) = &self.reservation else {
            return Ok(Outcome::default());
        };
        if !self.holds(ports) {
            return Ok(Outcome::default());
        }
        if parse_type(scope_and_type) != Ok(existing.kind) {
            return Err(Refusal::Check(Sense::illegal(Asc::INVALID_RELEASE)));
        }
        let told = existing.kind.registrants_only() || existing.kind.all_registrants();
        self.reservation = None;
        let notices = if told {
            self.tell_all(ports, Asc::RESERVATIONS_RELEASED)
        } else {
            Vec::new()
        };
        Ok(Outcome {
            notices,
            ..Outcome::default()
        })
    }

    /// CLEAR.
    pub fn clear(&mut self, ports: &NexusPorts, key: u64) -> Result<Outcome, Refusal> {
        self.authorize(ports, key)?;
        let notices = self.tell_all(ports, Asc::RESERVATIONS_PREEMPTED);
        self.registrations.clear();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(Outcome {
            notices,
            ..Outcome::default()
        })
    }

    /// PREEMPT and PREEMPT AND ABORT (the caller aborts what [`Outcome::abort`] names in the latter
    /// case).
    pub fn preempt(
        &mut self,
        ports: &NexusPorts,
        key: u64,
        victim_key: u64,
        scope_and_type: u8,
    ) -> Result<Outcome, Refusal> {
        self.authorize(ports, key)?;
        let kind = parse_type(scope_and_type)?;
        let takes_over = match &self.reservation {
            None => false,
            Some(reservation) if reservation.kind.all_registrants() => victim_key == 0,
            Some(reservation) => self.find(&reservation.holder).map(|r| r.key) == Some(victim_key),
        };
        let everyone = takes_over && victim_key == 0;
        if victim_key == 0 && !everyone {
            return Err(Refusal::Check(Sense::invalid_parameter(8)));
        }
        let is_victim = |registration: &Registration| {
            !registration.is(ports) && (everyone || registration.key == victim_key)
        };
        let gone: Vec<_> = self
            .registrations
            .iter()
            .filter(|r| is_victim(r))
            .cloned()
            .collect();
        let own = self
            .find(ports)
            .is_some_and(|registration| registration.key == victim_key);
        if gone.is_empty() && !own && !takes_over {
            return Err(Refusal::Conflict);
        }
        self.registrations
            .retain(|registration| !is_victim(registration));
        let mut notices: Vec<_> = gone
            .iter()
            .map(|r| Notice {
                registration: r.clone(),
                asc: Asc::REGISTRATIONS_PREEMPTED,
            })
            .collect();
        if takes_over {
            let old = self.reservation.replace(Reservation {
                kind,
                holder: ports.clone(),
            });
            if old.is_some_and(|old| old.kind != kind) {
                notices.extend(self.tell_all(ports, Asc::RESERVATIONS_RELEASED));
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Outcome {
            notices,
            abort: gone,
        })
    }

    /// REGISTER AND MOVE.
    pub fn register_and_move(
        &mut self,
        ports: &NexusPorts,
        key: u64,
        to: &NexusPorts,
        new_key: u64,
        unregister: bool,
    ) -> Result<Outcome, Refusal> {
        self.authorize(ports, key)?;
        let Some(existing) = &self.reservation else {
            return Err(Refusal::Conflict);
        };
        if !self.holds(ports) || existing.kind.all_registrants() {
            return Err(Refusal::Conflict);
        }
        if new_key == 0 || to == ports {
            return Err(Refusal::Check(Sense::invalid_parameter(8)));
        }
        let kind = existing.kind;
        self.put(to, new_key, false);
        self.reservation = Some(Reservation {
            kind,
            holder: to.clone(),
        });
        if unregister {
            self.registrations
                .retain(|registration| !registration.is(ports));
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Outcome::default())
    }
}

/// SCOPE (bits 7-4) must be LU_SCOPE (0); TYPE is bits 3-0.
fn parse_type(scope_and_type: u8) -> Result<ReservationType, Refusal> {
    if scope_and_type >> 4 != 0 {
        return Err(Refusal::Check(Sense::invalid_cdb_bit(2, 7)));
    }
    ReservationType::from_code(scope_and_type & 0xF)
        .ok_or(Refusal::Check(Sense::invalid_cdb_bit(2, 3)))
}

#[cfg(test)]
mod tests;
