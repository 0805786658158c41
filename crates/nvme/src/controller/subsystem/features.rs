//! Get Features and Set Features.
//!
//! Read first: NVM Express Base 2.0, "Get Features command", "Set Features command".

use std::time::Instant;

use block::{Access, WriteCache};

use super::feature_values::TEMPERATURE_DEFAULTS;
use super::state::Controller;
use crate::controller::reply::{self, Answer, DONE, Failure, Location};
use crate::controller::{ControllerId, Reply, Subsystem};
use crate::wire::{Nsid, Sqe, StatusCode, feature};

/// What a feature belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Controller,
    Namespace,
}

/// Whether a host may change a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Allowed,
    Refused,
}

/// The features of I/O controllers. None can be saved.
const FEATURES: [(u8, Scope, Change); 15] = [
    (feature::ARBITRATION, Scope::Controller, Change::Allowed),
    (
        feature::POWER_MANAGEMENT,
        Scope::Controller,
        Change::Allowed,
    ),
    (
        feature::TEMPERATURE_THRESHOLD,
        Scope::Controller,
        Change::Allowed,
    ),
    (feature::ERROR_RECOVERY, Scope::Namespace, Change::Allowed),
    (
        feature::VOLATILE_WRITE_CACHE,
        Scope::Controller,
        Change::Refused,
    ),
    (
        feature::NUMBER_OF_QUEUES,
        Scope::Controller,
        Change::Allowed,
    ),
    (feature::WRITE_ATOMICITY, Scope::Controller, Change::Allowed),
    (
        feature::ASYNC_EVENT_CONFIGURATION,
        Scope::Controller,
        Change::Allowed,
    ),
    (feature::TIMESTAMP, Scope::Controller, Change::Allowed),
    (
        feature::KEEP_ALIVE_TIMER,
        Scope::Controller,
        Change::Allowed,
    ),
    (
        feature::HOST_BEHAVIOR_SUPPORT,
        Scope::Controller,
        Change::Allowed,
    ),
    (feature::HOST_IDENTIFIER, Scope::Controller, Change::Refused),
    (
        feature::RESERVATION_NOTIFICATION_MASK,
        Scope::Namespace,
        Change::Allowed,
    ),
    (
        feature::RESERVATION_PERSISTENCE,
        Scope::Namespace,
        Change::Refused,
    ),
    (
        feature::NAMESPACE_WRITE_PROTECTION,
        Scope::Namespace,
        Change::Refused,
    ),
];

/// The features of discovery controllers.
const DISCOVERY_FEATURES: [u8; 2] = [
    feature::ASYNC_EVENT_CONFIGURATION,
    feature::KEEP_ALIVE_TIMER,
];

/// Volatile Write Cache Enable (WCE).
const WRITE_CACHE_ENABLED: u32 = 1;

/// Which value Get Features requests (SEL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Select {
    Current,
    Default,
    Capabilities,
}

impl Subsystem {
    pub(in crate::controller) fn get_features(
        &self,
        now: Instant,
        id: ControllerId,
        sqe: &Sqe,
    ) -> Answer {
        let (fid, scope, change) = self.feature(id, sqe)?;
        let select = match sqe.cdw10.get() >> 8 & 0b111 {
            0 => Select::Current,
            // There are no saved values: report the default.
            1 | 2 => Select::Default,
            3 => Select::Capabilities,
            _ => return Err(StatusCode::InvalidField.at(Location::CDW10)),
        };
        if select == Select::Capabilities {
            let per_namespace = u32::from(scope == Scope::Namespace) << 1;
            let changeable = u32::from(change == Change::Allowed) << 2;
            return Ok(Reply::success(changeable | per_namespace));
        }
        let controller = self.controllers.get(&id).ok_or(StatusCode::InternalError)?;
        if scope == Scope::Namespace {
            self.namespace_at(sqe.nsid())?;
        }
        match fid {
            feature::TIMESTAMP if select == Select::Default => reply::data(sqe, vec![0; 8]),
            feature::TIMESTAMP => reply::data(sqe, controller.features.timestamp(now)),
            feature::HOST_BEHAVIOR_SUPPORT if select == Select::Default => {
                reply::data(sqe, vec![0; 512])
            }
            feature::HOST_BEHAVIOR_SUPPORT => {
                reply::data(sqe, controller.features.host_behavior.to_vec())
            }
            feature::HOST_IDENTIFIER if !feature::is_extended_host_id(sqe) => {
                Err(StatusCode::InvalidField.at(Location::CDW11))
            }
            feature::HOST_IDENTIFIER => reply::data(sqe, controller.host.id.to_vec()),
            _ if select == Select::Default => Ok(Reply::success(self.default_value(fid, sqe))),
            _ => self.current_value(controller, fid, sqe).map(Reply::success),
        }
    }

    pub(in crate::controller) fn set_features(
        &mut self,
        now: Instant,
        id: ControllerId,
        sqe: &Sqe,
        data: &[u8],
    ) -> Answer {
        const SAVE: u32 = 1 << 31;
        let (fid, scope, _) = self.feature(id, sqe)?;
        if sqe.cdw10.get() & SAVE != 0 {
            return Err(StatusCode::FeatureNotSaveable.at(Location::CDW10));
        }
        let nsid = sqe.nsid();
        match scope {
            Scope::Controller if nsid != Nsid::NONE && nsid != Nsid::ALL => {
                return Err(StatusCode::FeatureNotNamespaceSpecific.at(Location::NSID));
            }
            Scope::Namespace if nsid != Nsid::ALL => {
                self.namespace_at(nsid)?;
            }
            _ => {}
        }
        if scope == Scope::Namespace {
            return self.set_namespace_feature(id, fid, sqe);
        }
        let queues = self.queues_granted();
        let controller = self
            .controllers
            .get_mut(&id)
            .ok_or(StatusCode::InternalError)?;
        let value = sqe.cdw11.get();
        match fid {
            feature::NUMBER_OF_QUEUES => return number_of_queues(controller, value, queues),
            feature::ASYNC_EVENT_CONFIGURATION => {
                controller
                    .events
                    .configure(value)
                    .map_err(|code| code.at(Location::CDW11))?;
            }
            feature::KEEP_ALIVE_TIMER => controller.keep_alive.set_timeout_ms(now, value),
            _ => controller.set_feature(now, fid, value, data)?,
        }
        DONE
    }

    /// The feature that a command is about.
    fn feature(&self, id: ControllerId, sqe: &Sqe) -> Result<(u8, Scope, Change), Failure> {
        let fid = feature::identifier(sqe);
        let unknown = StatusCode::InvalidField.at(Location::CDW10);
        if self.is_discovery() && !DISCOVERY_FEATURES.contains(&fid) {
            return Err(unknown);
        }
        // The feature exists if the cache does.
        let is_cached = self.write_cache(id) == WriteCache::Volatile;
        if fid == feature::VOLATILE_WRITE_CACHE && !is_cached {
            return Err(unknown);
        }
        FEATURES
            .into_iter()
            .find(|&(known, ..)| known == fid)
            .ok_or(unknown)
    }

    /// The Number of Queues that any host gets: as many completion queues as submission queues, 0's
    /// based.
    fn queues_granted(&self) -> u32 {
        let minus_1 = u32::from(self.config.limits.io_queues_max.saturating_sub(1));
        minus_1 << 16 | minus_1
    }

    fn default_value(&self, fid: u8, sqe: &Sqe) -> u32 {
        match fid {
            feature::TEMPERATURE_THRESHOLD => temperature_slot(sqe.cdw11.get())
                .map_or(0, |slot| TEMPERATURE_DEFAULTS[slot].into()),
            feature::VOLATILE_WRITE_CACHE => WRITE_CACHE_ENABLED,
            feature::NUMBER_OF_QUEUES => self.queues_granted(),
            feature::ASYNC_EVENT_CONFIGURATION => self.events_supported(),
            _ => 0,
        }
    }

    fn current_value(&self, controller: &Controller, fid: u8, sqe: &Sqe) -> Result<u32, Failure> {
        let features = &controller.features;
        let nsid = sqe.nsid();
        Ok(match fid {
            feature::ARBITRATION => features.arbitration,
            feature::TEMPERATURE_THRESHOLD => {
                features.temperature_k[temperature_slot(sqe.cdw11.get())?].into()
            }
            feature::ERROR_RECOVERY => features
                .error_recovery
                .get(&nsid)
                .copied()
                .unwrap_or(0)
                .into(),
            feature::VOLATILE_WRITE_CACHE => WRITE_CACHE_ENABLED,
            feature::NUMBER_OF_QUEUES => self.queues_granted(),
            feature::WRITE_ATOMICITY => features.write_atomicity,
            feature::ASYNC_EVENT_CONFIGURATION => controller.events.configuration(),
            feature::KEEP_ALIVE_TIMER => controller.keep_alive.timeout_ms(),
            feature::RESERVATION_NOTIFICATION_MASK => {
                features.notification_masks.get(&nsid).copied().unwrap_or(0)
            }
            feature::NAMESPACE_WRITE_PROTECTION => self.write_protection(controller, nsid)?,
            // Power Management: power state 0. Reservation Persistence: not through power loss.
            _ => 0,
        })
    }

    /// Namespace Write Protection state: 0 none, 1 write protect.
    fn write_protection(&self, controller: &Controller, nsid: Nsid) -> Result<u32, Failure> {
        let is_locked = self.namespace_at(nsid)?.volume.is_read_only();
        Ok(u32::from(
            is_locked || controller.access < Access::ReadWrite,
        ))
    }

    /// Sets a feature of one namespace, or of all.
    fn set_namespace_feature(&mut self, id: ControllerId, fid: u8, sqe: &Sqe) -> Answer {
        /// Reservation Notification Mask: REGPRE, RESREL, RESPRE.
        const NOTICES: u32 = 0b1110;
        let value = sqe.cdw11.get();
        let nsid = sqe.nsid();
        let nsids: Vec<Nsid> = match nsid {
            Nsid::ALL => self.namespaces.keys().copied().collect(),
            _ => vec![nsid],
        };
        let invalid = StatusCode::InvalidField.at(Location::CDW11);
        match fid {
            // Deallocated or Unwritten Logical Block Error is not supported: only the time limit
            // may be set.
            feature::ERROR_RECOVERY if value > 0xFFFF => return Err(invalid),
            feature::RESERVATION_NOTIFICATION_MASK if value & !NOTICES != 0 => {
                return Err(invalid);
            }
            feature::RESERVATION_PERSISTENCE if value != 0 => return Err(invalid),
            feature::NAMESPACE_WRITE_PROTECTION => {
                return Err(StatusCode::FeatureNotChangeable.at(Location::CDW10));
            }
            _ => {}
        }
        let controller = self
            .controllers
            .get_mut(&id)
            .ok_or(StatusCode::InternalError)?;
        let features = &mut controller.features;
        for nsid in nsids {
            match fid {
                feature::ERROR_RECOVERY => {
                    features.error_recovery.insert(nsid, value as u16);
                }
                feature::RESERVATION_NOTIFICATION_MASK => {
                    features.notification_masks.insert(nsid, value);
                }
                _ => {}
            }
        }
        DONE
    }
}

impl Controller {
    /// Sets a feature of this controller alone.
    fn set_feature(
        &mut self,
        now: Instant,
        fid: u8,
        value: u32,
        data: &[u8],
    ) -> Result<(), Failure> {
        let invalid = StatusCode::InvalidField.at(Location::CDW11);
        match fid {
            feature::ARBITRATION => self.features.arbitration = value,
            feature::POWER_MANAGEMENT => {
                let power_state = value & 0x1F;
                if power_state != 0 {
                    return Err(invalid);
                }
            }
            feature::TEMPERATURE_THRESHOLD => {
                self.features.temperature_k[temperature_slot(value)?] = value as u16;
            }
            feature::WRITE_ATOMICITY => self.features.write_atomicity = value & 1,
            feature::TIMESTAMP => {
                let bytes: [u8; 8] = data
                    .try_into()
                    .map_err(|_| StatusCode::DataSglLengthInvalid)?;
                let ms = u64::from_le_bytes(bytes) & 0xFFFF_FFFF_FFFF;
                self.features.timestamp = Some((ms, now));
            }
            feature::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(data)?,
            // The cache is that of the disks below, which is always on.
            feature::VOLATILE_WRITE_CACHE if value & 1 == WRITE_CACHE_ENABLED => {}
            feature::VOLATILE_WRITE_CACHE => {
                return Err(StatusCode::FeatureNotChangeable.at(Location::CDW11));
            }
            // Host Identifier: a host states it in Connect and cannot change it afterwards.
            _ => return Err(StatusCode::CommandSequenceError.at(Location::CDW10)),
        }
        Ok(())
    }

    /// Advanced Command Retry may be enabled; the formats that the other bytes would enable do not
    /// exist.
    fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Failure> {
        let data: &[u8; 512] = data
            .try_into()
            .map_err(|_| StatusCode::DataSglLengthInvalid)?;
        if data[0] > 1 {
            return Err(StatusCode::InvalidField.into());
        }
        self.features.host_behavior[0] = data[0];
        Ok(())
    }
}

/// Number of Queues: how many a host requests does not matter, it always gets the same; but it must
/// ask before it has any.
fn number_of_queues(controller: &Controller, value: u32, granted: u32) -> Answer {
    const RESERVED: u32 = 0xFFFF;
    if value & 0xFFFF == RESERVED || value >> 16 == RESERVED {
        return Err(StatusCode::InvalidField.at(Location::CDW11));
    }
    if controller.has_io_queues() {
        return Err(StatusCode::CommandSequenceError.into());
    }
    Ok(Reply::success(granted))
}

/// Which threshold of the composite temperature a value is about: over (0) or under (1).
fn temperature_slot(value: u32) -> Result<usize, Failure> {
    const ALL_SENSORS: u32 = 0xF;
    let sensor = value >> 16 & 0xF;
    let kind = value >> 20 & 0b11;
    if (sensor != 0 && sensor != ALL_SENSORS) || kind > 1 {
        return Err(StatusCode::InvalidField.at(Location::CDW11));
    }
    Ok(kind as usize)
}
