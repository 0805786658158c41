//! The SCSI target device: logical units, the nexuses that use them, and the commands that need
//! both.
//!
//! One owner at a time holds a [`Device`]. A transport passes it every command that is not a plain
//! transfer. A change of [`Device::generation`] means that the transport's [`View`] of a logical
//! unit is stale.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use block::{HostPath, PathState, Volume};

use crate::access_state;
use crate::copy::{CopyRecord, CopyWork};
use crate::identity::UnitIdentity;
use crate::inquiry::TargetPort;
use crate::medium::{self, Medium};
use crate::mode::ModeState;
use crate::opcodes::{self, AccessClass, Name, Opcode, Unknown};
use crate::reservation::{NexusPorts, Notice, Registration, Reservations};
use crate::response::Response;
use crate::sanitize::{Sanitize, SanitizeWork};
use crate::sense::{Asc, ScsiStatus, Sense, SenseFormat, SenseKey};

/// The most logical units of a device.
pub const UNITS_MAX: usize = 256;
/// The most nexuses of a device.
pub const NEXUSES_MAX: usize = 1024;
/// The most unit attentions that wait for one nexus at one logical unit; the newest are dropped.
const ATTENTIONS_MAX: usize = 16;

/// A LUN in the flat range that this device uses.
pub type Lun = u16;

/// Names a nexus of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u64);

/// Which logical units a nexus sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LunMap {
    /// All, by the device's own LUNs, including logical units that are added later.
    #[default]
    All,
    /// These: the LUN of the nexus, and the device's LUN.
    Listed(BTreeMap<Lun, Lun>),
}

impl LunMap {
    /// The device's LUN behind a LUN of the nexus. The logical unit need not exist.
    fn device_lun(&self, lun: Lun) -> Option<Lun> {
        match self {
            Self::All => Some(lun),
            Self::Listed(map) => map.get(&lun).copied(),
        }
    }

    /// The LUN under which the nexus sees a logical unit.
    fn own_lun(&self, device_lun: Lun) -> Option<Lun> {
        match self {
            Self::All => Some(device_lun),
            Self::Listed(map) => map
                .iter()
                .find(|(_, to)| **to == device_lun)
                .map(|(lun, _)| *lun),
        }
    }
}

/// A logical unit.
pub(crate) struct Unit {
    pub(crate) volume: Arc<dyn Volume>,
    /// How hosts reach the volume, as they were notified.
    pub(crate) path: HostPath,
    /// Whether the volume's memory can be pinned.
    is_pinned: bool,
    pub(crate) identity: UnitIdentity,
    pub(crate) reservations: Reservations,
    /// RESERVE (6).
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) mode: ModeState,
    /// START STOP UNIT.
    pub(crate) stopped: bool,
    /// A SANITIZE that is not done: it continues, or has failed.
    pub(crate) sanitize: Option<Sanitize>,
    /// PREVENT ALLOW MEDIUM REMOVAL, by nexus.
    pub(crate) removal_prevented: Vec<NexusId>,
}

/// An I_T nexus.
pub(crate) struct Nexus {
    pub(crate) ports: NexusPorts,
    pub(crate) luns: LunMap,
    attentions: BTreeMap<Lun, VecDeque<Asc>>,
    pub(crate) last_copy: Option<Arc<CopyRecord>>,
    /// A nexus that may only read.
    pub(crate) read_only: bool,
}

/// What a transport may cache about a logical unit until the generation changes.
#[derive(Clone)]
pub struct View {
    /// The volume.
    pub volume: Arc<dyn Volume>,
    /// Whether bytes may be sent from where they lie in the volume ([`Volume::pinned`]).
    pub is_pinned: bool,
    /// Whether reads and writes may continue without asking the device again.
    pub reads: bool,
    /// As `reads`, for writes.
    pub writes: bool,
    /// The format of sense data.
    pub sense_format: SenseFormat,
}

/// How a command continues after its CDB was checked.
pub enum Begin {
    /// It is finished.
    Done(Response),
    /// It moves data of the volume: the transport moves them, and executes it by a
    /// [`medium::Execution`] or on the volume.
    Medium(Medium, Arc<dyn Volume>),
    /// SANITIZE: the transport works on it in turns, even if the command is aborted.
    Sanitize(SanitizeWork),
    /// The command needs this many bytes of data-out; then [`Device::finish`].
    Parameters {
        /// PARAMETER LIST LENGTH.
        len_bytes: u32,
    },
}

/// How a command continues after its parameter list has arrived.
pub enum Finish {
    /// It is finished.
    Done(Response),
    /// It continues without the device, in turns.
    Copy(Box<CopyWork>),
}

/// The longest parameter list that a command may have.
pub const PARAMETER_LIST_LEN_MAX: u32 = 64 << 10;

/// A SCSI target device.
pub struct Device {
    pub(crate) name: String,
    pub(crate) ports: Vec<TargetPort>,
    pub(crate) units: BTreeMap<Lun, Unit>,
    pub(crate) nexuses: BTreeMap<NexusId, Nexus>,
    next_nexus: u64,
    generation: u64,
    /// Changes with every reservation.
    reservations_generation: u64,
    /// Nexuses whose commands at a logical unit are to be aborted by their transport.
    aborts: VecDeque<(NexusId, Lun)>,
}

impl Device {
    /// A device without logical units; `name` is its SCSI name.
    pub fn new(name: String, ports: Vec<TargetPort>) -> Self {
        Self {
            name,
            ports,
            units: BTreeMap::new(),
            nexuses: BTreeMap::new(),
            next_nexus: 1,
            generation: 1,
            reservations_generation: 1,
            aborts: VecDeque::new(),
        }
    }

    /// Changes with everything that a [`View`] depends on.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Changes with everything that [`persistent_reservations`](Self::persistent_reservations)
    /// depends on.
    pub fn reservations_generation(&self) -> u64 {
        self.reservations_generation
    }

    pub(crate) fn reservations_changed(&mut self) {
        self.reservations_generation += 1;
    }

    pub(crate) fn touch(&mut self) {
        self.generation += 1;
    }

    /// Replaces the target ports (a portal was added or removed).
    pub fn set_ports(&mut self, ports: Vec<TargetPort>) {
        self.ports = ports;
        self.touch();
    }

    /// Adds or replaces the volume behind `lun`; every nexus that sees all LUNs learns of it.
    pub fn insert_unit(&mut self, lun: Lun, volume: Arc<dyn Volume>, identity: UnitIdentity) {
        let unit = Unit {
            is_pinned: volume.pinned().is_some(),
            path: volume.path(),
            volume,
            identity,
            reservations: Reservations::default(),
            reserved_by: None,
            mode: ModeState::default(),
            stopped: false,
            sanitize: None,
            removal_prevented: Vec::new(),
        };
        self.units.insert(lun, unit);
        self.reservations_changed();
        self.luns_changed(lun);
    }

    /// Removes a logical unit.
    pub fn remove_unit(&mut self, lun: Lun) {
        self.units.remove(&lun);
        self.reservations_changed();
        self.luns_changed(lun);
    }

    /// Establishes a unit attention for nexuses that see or saw `changed`, at each of their logical
    /// units.
    fn luns_changed(&mut self, changed: Lun) {
        let all: Vec<Lun> = self.units.keys().copied().collect();
        for nexus in self.nexuses.values_mut() {
            if nexus.luns.own_lun(changed).is_none() {
                continue;
            }
            for lun in &all {
                nexus.attend(*lun, Asc::LUNS_CHANGED);
            }
            if !self.units.contains_key(&changed) {
                nexus.attentions.remove(&changed);
            }
        }
        self.touch();
    }

    /// The volume behind `lun` has another capacity.
    pub fn capacity_changed(&mut self, lun: Lun) {
        self.attend_all(lun, Asc::CAPACITY_CHANGED, None);
    }

    /// The memory that thin logical units share becomes short: THIN PROVISIONING SOFT THRESHOLD
    /// REACHED at each of them.
    pub fn space_becomes_short(&mut self) {
        let luns: Vec<Lun> = self.units.keys().copied().collect();
        for lun in luns {
            self.attend_all(lun, Asc::THIN_SOFT_THRESHOLD, None);
        }
    }

    /// The volume behind `lun` was locked or unlocked.
    pub fn protection_changed(&mut self, lun: Lun) {
        self.attend_all(lun, Asc::MODE_PARAMETERS_CHANGED, None);
    }

    /// The volume behind `lun` executes commands again, and may have other contents.
    pub fn became_ready(&mut self, lun: Lun) {
        self.attend_all(lun, Asc::BECAME_READY, None);
    }

    /// Hosts may reach the volume behind `lun` in another way.
    pub fn path_changed(&mut self, lun: Lun) {
        let Some(unit) = self.units.get_mut(&lun) else {
            return;
        };
        let before = std::mem::replace(&mut unit.path, unit.volume.path());
        if before != unit.path {
            self.attend_all(lun, Asc::ACCESS_STATE_CHANGED, None);
        }
    }

    /// The reservations that are to outlive a restart (APTPL), by LUN.
    pub fn persistent_reservations(&self) -> impl Iterator<Item = (Lun, &Reservations)> {
        let units = self.units.iter();
        let all = units.map(|(lun, unit)| (*lun, &unit.reservations));
        all.filter(|(_, reservations)| reservations.persist)
    }

    /// Puts saved reservations back after a restart. PRGENERATION begins with 0 again, as after any
    /// power on.
    pub fn restore_reservations(&mut self, lun: Lun, saved: Reservations) {
        if let Some(unit) = self.units.get_mut(&lun) {
            unit.reservations = Reservations {
                generation: 0,
                ..saved
            };
            self.reservations_changed();
            self.touch();
        }
    }

    /// Opens a nexus that sees `luns`; `None` if the device has no room for another.
    pub fn open_nexus(
        &mut self,
        ports: NexusPorts,
        luns: LunMap,
        access: block::Access,
    ) -> Option<NexusId> {
        if self.nexuses.len() >= NEXUSES_MAX || access == block::Access::Denied {
            return None;
        }
        let id = NexusId(self.next_nexus);
        self.next_nexus += 1;
        let mut nexus = Nexus {
            ports,
            luns,
            attentions: BTreeMap::new(),
            last_copy: None,
            read_only: access == block::Access::ReadOnly,
        };
        for lun in self.units.keys().copied() {
            nexus.attend(lun, Asc::POWER_ON_OR_RESET);
        }
        self.nexuses.insert(id, nexus);
        Some(id)
    }

    /// Ends a nexus: what it held without registration is released (RESERVE (6), PREVENT).
    pub fn close_nexus(&mut self, id: NexusId) {
        self.nexuses.remove(&id);
        for unit in self.units.values_mut() {
            if unit.reserved_by == Some(id) {
                unit.reserved_by = None;
            }
            unit.removal_prevented.retain(|other| *other != id);
        }
        self.touch();
    }

    /// Changes what a nexus may do, and what it sees; the caller closes a nexus without any access.
    pub fn set_access(&mut self, id: NexusId, access: block::Access, luns: LunMap) {
        let Some(nexus) = self.nexuses.get_mut(&id) else {
            return;
        };
        nexus.read_only = access != block::Access::ReadWrite;
        if nexus.luns != luns {
            nexus.luns = luns;
            for lun in self.units.keys() {
                nexus.attend(*lun, Asc::LUNS_CHANGED);
            }
        }
        self.touch();
    }

    /// The device's LUN behind a LUN of a nexus, if that has a logical unit.
    pub(crate) fn device_lun(&self, id: NexusId, lun: Lun) -> Option<Lun> {
        let lun = self.nexuses.get(&id)?.luns.device_lun(lun)?;
        self.units.contains_key(&lun).then_some(lun)
    }

    /// The logical units that a nexus sees: its own LUN and the device's, in the order of its own.
    pub(crate) fn seen_by(&self, id: NexusId) -> Vec<(Lun, Lun)> {
        let Some(nexus) = self.nexuses.get(&id) else {
            return Vec::new();
        };
        let mut seen: Vec<_> = self
            .units
            .keys()
            .filter_map(|lun| Some((nexus.luns.own_lun(*lun)?, *lun)))
            .collect();
        seen.sort_unstable();
        seen
    }

    /// LOGICAL UNIT RESET by `by` at its LUN. Returns false if the LUN does not exist. The
    /// transport of `by` itself aborts that nexus's own commands.
    pub fn reset_unit(&mut self, by: NexusId, lun: Lun) -> bool {
        let Some(lun) = self.device_lun(by, lun) else {
            return false;
        };
        self.reset_one(by, lun, Asc::DEVICE_RESET);
        true
    }

    /// CLEAR TASK SET by `by` at its LUN: the commands of all other nexuses are aborted.
    pub fn clear_task_set(&mut self, by: NexusId, lun: Lun) {
        let Some(lun) = self.device_lun(by, lun) else {
            return;
        };
        let others: Vec<_> = self
            .nexuses
            .keys()
            .filter(|id| **id != by)
            .copied()
            .collect();
        self.aborts.extend(others.into_iter().map(|id| (id, lun)));
        self.attend_all(lun, Asc::COMMANDS_CLEARED, Some(by));
    }

    /// TARGET RESET by `by`: every logical unit. As with [`reset_unit`](Self::reset_unit), the
    /// transport of `by` aborts that nexus's own commands.
    pub fn reset_all(&mut self, by: NexusId) {
        let luns: Vec<Lun> = self.units.keys().copied().collect();
        for lun in luns {
            self.reset_one(by, lun, Asc::POWER_ON_OR_RESET);
        }
    }

    fn reset_one(&mut self, by: NexusId, lun: Lun, asc: Asc) {
        if let Some(unit) = self.units.get_mut(&lun) {
            unit.reserved_by = None;
            unit.removal_prevented.clear();
            unit.mode = ModeState::default();
            unit.stopped = false;
        }
        let others = self.nexuses.keys().filter(|id| **id != by);
        self.aborts.extend(others.map(|id| (*id, lun)));
        self.attend_all(lun, asc, None);
    }

    /// The next nexus whose commands at a LUN (its own) its transport must abort.
    pub fn poll_abort(&mut self) -> Option<(NexusId, Lun)> {
        while let Some((id, lun)) = self.aborts.pop_front() {
            let nexus = self.nexuses.get(&id);
            if let Some(lun) = nexus.and_then(|nexus| nexus.luns.own_lun(lun)) {
                return Some((id, lun));
            }
        }
        None
    }

    /// Establishes a unit attention for every nexus except `but`.
    pub(crate) fn attend_all(&mut self, lun: Lun, asc: Asc, but: Option<NexusId>) {
        for (id, nexus) in &mut self.nexuses {
            if Some(*id) != but {
                nexus.attend(lun, asc);
            }
        }
        self.touch();
    }

    /// Notifies the nexuses that a reservation command affects.
    pub(crate) fn tell(&mut self, lun: Lun, notices: &[Notice]) {
        for notice in notices {
            for nexus in self.nexuses.values_mut() {
                if nexus_is(nexus, &notice.registration) {
                    nexus.attend(lun, notice.asc);
                }
            }
        }
        self.touch();
    }

    /// Marks the commands of `victims` at `lun` for abortion.
    pub(crate) fn abort_commands_of(&mut self, lun: Lun, victims: &[Registration]) {
        for (id, nexus) in &self.nexuses {
            if victims.iter().any(|victim| nexus_is(nexus, victim)) {
                self.aborts.push_back((*id, lun));
            }
        }
    }

    /// What a transport may cache about `lun` of a nexus.
    pub fn view(&self, id: NexusId, lun: Lun) -> Option<View> {
        let nexus = self.nexuses.get(&id)?;
        let lun = nexus.luns.device_lun(lun)?;
        let unit = self.units.get(&lun)?;
        let quiet = !nexus.has_attention(lun)
            && !unit.stopped
            && unit.sanitize.is_none()
            && unit.path.state != PathState::Inaccessible;
        let allowed = |class| quiet && !unit.conflicts(id, &nexus.ports, class);
        Some(View {
            volume: Arc::clone(&unit.volume),
            is_pinned: unit.is_pinned,
            reads: allowed(AccessClass::Read),
            writes: allowed(AccessClass::Write)
                && !unit.mode.software_write_protect
                && !nexus.read_only,
            sense_format: unit.mode.sense_format(),
        })
    }

    /// Checks a CDB (padded to 16 bytes) for `lun`.
    pub fn begin(&mut self, id: NexusId, lun: Lun, cdb: &[u8; 16]) -> Begin {
        match self.try_begin(id, lun, cdb) {
            Ok(begin) => begin,
            Err(response) => Begin::Done(response),
        }
    }

    fn try_begin(&mut self, id: NexusId, lun: Lun, cdb: &[u8; 16]) -> Result<Begin, Response> {
        let opcode = opcodes::find(cdb);
        let exempt = matches!(cdb[0], 0x12 | 0x03 | 0xA0);
        let nexus = self.nexuses.get_mut(&id).ok_or_else(|| no_unit(cdb))?;
        let device_lun = nexus
            .luns
            .device_lun(lun)
            .filter(|lun| self.units.contains_key(lun));
        let Some(device_lun) = device_lun else {
            return self.without_unit(id, cdb).map(Begin::Done);
        };
        if !exempt && let Some(asc) = nexus.take_attention(device_lun) {
            self.touch();
            return Err(Response::check(Sense::new(SenseKey::UnitAttention, asc)));
        }
        let opcode = opcode.map_err(|unknown| {
            Response::check(match unknown {
                Unknown::Opcode => Sense::illegal(Asc::INVALID_OPCODE),
                Unknown::ServiceAction => Sense::invalid_cdb_bit(1, 4),
            })
        })?;
        self.look_at_sanitize(device_lun);
        self.check_access(id, device_lun, opcode)?;
        self.dispatch(id, device_lun, opcode, cdb)
    }

    /// Removes a sanitize operation that is done.
    fn look_at_sanitize(&mut self, lun: Lun) {
        let unit = self.units.get_mut(&lun);
        if let Some(unit) =
            unit.filter(|unit| unit.sanitize.as_ref().is_some_and(Sanitize::is_done))
        {
            unit.sanitize = None;
            self.touch();
        }
    }

    /// Reservations, the path, read-only access, a sanitize operation and the stopped state.
    fn check_access(&self, id: NexusId, lun: Lun, opcode: &Opcode) -> Result<(), Response> {
        let (nexus, unit) = (&self.nexuses[&id], &self.units[&lun]);
        if unit.conflicts(id, &nexus.ports, opcode.access) {
            return Err(Response::status(ScsiStatus::ReservationConflict));
        }
        let by_path = access_state::refusal(unit.path, opcode.name, is_medium(opcode.name));
        if let Some(sense) = by_path {
            return Err(Response::check(sense));
        }
        let protected =
            nexus.read_only || unit.mode.software_write_protect || unit.volume.is_read_only();
        let changes_medium = matches!(
            opcode.name,
            Name::Write
                | Name::WriteAndVerify
                | Name::CompareAndWrite
                | Name::OrWrite16
                | Name::WriteSame
                | Name::Unmap
                | Name::Sanitize
        );
        if protected && changes_medium {
            let asc = Asc::SOFTWARE_WRITE_PROTECTED;
            return Err(Response::check(Sense::new(SenseKey::DataProtect, asc)));
        }
        let sanitize = unit.sanitize.as_ref();
        if let Some(sense) = sanitize.and_then(|sanitize| sanitize.refusal(opcode.name)) {
            return Err(Response::check(sense));
        }
        if unit.stopped && (is_medium(opcode.name) || opcode.name == Name::TestUnitReady) {
            let sense = Sense::new(SenseKey::NotReady, Asc::NOT_READY_START_REQUIRED);
            return Err(Response::check(sense));
        }
        if opcode.name == Name::TestUnitReady && !unit.volume.is_ready() {
            let sense = Sense::of_volume(block::Status::NotReady);
            return Err(Response::check(sense));
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        id: NexusId,
        lun: Lun,
        opcode: &Opcode,
        cdb: &[u8; 16],
    ) -> Result<Begin, Response> {
        if is_medium(opcode.name) {
            let volume = Arc::clone(&self.units[&lun].volume);
            let parsed = medium::parse(opcode.name, cdb, volume.geometry());
            let command = parsed.map_err(Response::check)?;
            return match command {
                Medium::Sanitize(extent) => self.begin_sanitize(lun, extent, cdb),
                _ => Ok(Begin::Medium(command, volume)),
            };
        }
        match parameter_list_len(opcode.name, cdb) {
            0 => {}
            len if len > PARAMETER_LIST_LEN_MAX => {
                return Err(Response::check(Sense::illegal(Asc::PARAMETER_LIST_LENGTH)));
            }
            len_bytes => return Ok(Begin::Parameters { len_bytes }),
        }
        Ok(Begin::Done(self.run(id, lun, opcode, cdb, &[])))
    }

    /// Executes a command whose parameter list has arrived (after [`Begin::Parameters`]).
    /// Everything is looked up again: the nexus or the logical unit may have gone in between.
    pub fn finish(&mut self, id: NexusId, lun: Lun, cdb: &[u8; 16], list: &[u8]) -> Finish {
        let (Some(lun), Ok(opcode)) = (self.device_lun(id, lun), opcodes::find(cdb)) else {
            return Finish::Done(no_unit(cdb));
        };
        if let Err(response) = self.check_access(id, lun, opcode) {
            return Finish::Done(response);
        }
        if opcode.name == Name::ExtendedCopy {
            return match self.begin_copy(id, list) {
                Ok(Some(copy)) => Finish::Copy(Box::new(copy)),
                Ok(None) => Finish::Done(Response::good()),
                Err(sense) => Finish::Done(Response::check(sense)),
            };
        }
        Finish::Done(self.run(id, lun, opcode, cdb, list))
    }

    fn run(
        &mut self,
        id: NexusId,
        lun: Lun,
        opcode: &Opcode,
        cdb: &[u8; 16],
        list: &[u8],
    ) -> Response {
        match self.command(id, lun, opcode.name, cdb, list) {
            Ok(data) => Response::data(data),
            Err(response) => response,
        }
    }
}

impl Nexus {
    fn attend(&mut self, lun: Lun, asc: Asc) {
        let waiting = self.attentions.entry(lun).or_default();
        if waiting.len() < ATTENTIONS_MAX && !waiting.contains(&asc) {
            waiting.push_back(asc);
        }
    }

    fn has_attention(&self, lun: Lun) -> bool {
        self.attentions
            .get(&lun)
            .is_some_and(|waiting| !waiting.is_empty())
    }

    pub(crate) fn take_attention(&mut self, lun: Lun) -> Option<Asc> {
        self.attentions.get_mut(&lun)?.pop_front()
    }

    pub(crate) fn clear_attention(&mut self, asc: Asc) {
        for waiting in self.attentions.values_mut() {
            waiting.retain(|other| *other != asc);
        }
    }
}

impl Unit {
    fn conflicts(&self, id: NexusId, ports: &NexusPorts, class: AccessClass) -> bool {
        let own_rules = matches!(class, AccessClass::Always | AccessClass::Own);
        let reserved = self.reserved_by.is_some_and(|holder| holder != id) && !own_rules;
        reserved || self.reservations.conflicts(ports, class)
    }
}

fn nexus_is(nexus: &Nexus, registration: &Registration) -> bool {
    let ports = &registration.ports;
    nexus.ports.initiator == ports.initiator
        && (registration.all_target_ports || nexus.ports.target_port == ports.target_port)
}

fn is_medium(name: Name) -> bool {
    matches!(
        name,
        Name::Read
            | Name::Write
            | Name::WriteAndVerify
            | Name::Verify
            | Name::CompareAndWrite
            | Name::OrWrite16
            | Name::PreFetch
            | Name::SynchronizeCache
            | Name::WriteSame
            | Name::Unmap
            | Name::Sanitize
    )
}

/// PARAMETER LIST LENGTH of the commands that are not medium commands.
fn parameter_list_len(name: Name, cdb: &[u8; 16]) -> u32 {
    let be16 = |at: usize| u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
    let be32 = |at: usize| be16(at) << 16 | be16(at + 2);
    match name {
        Name::ModeSelect6 => u32::from(cdb[4]),
        Name::ModeSelect10 => be16(7),
        Name::PersistentReserveOut => be32(5),
        Name::ExtendedCopy => be32(10),
        _ => 0,
    }
}

/// What a LUN that does not exist answers to a command that needs one.
pub(crate) fn no_unit(cdb: &[u8; 16]) -> Response {
    let sense = Sense::illegal(Asc::LUN_NOT_SUPPORTED);
    match cdb[0] {
        0x03 => Response::data(sense.encode(SenseFormat::Fixed).as_slice().to_vec()),
        _ => Response::check(sense),
    }
}

#[cfg(test)]
mod tests;
