//! The Identify command.
//!
//! Read first: NVM Express Base 2.0, "Identify command".

use block::{Access, WriteCache};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::ana;
use super::log_entries::ERROR_ENTRIES_MAX;
use super::state::{Controller, KEEP_ALIVE_GRANULARITY};
use super::{Namespace, Role};
use crate::controller::reply::{self, Answer, Failure, Location};
use crate::controller::{
    COMPARE_AND_WRITE_BLOCKS_MAX, COPY_BLOCKS_MAX, COPY_RANGE_BLOCKS_MAX, COPY_RANGES_MAX,
    ControllerId, Limits, Subsystem,
};
use crate::wire::discovery::TransportType;
use crate::wire::fabrics::{NqnField, VERSION_2_0};
use crate::wire::identify::{
    CSI_NVM, DATA_BYTES, IdentifyController, IdentifyIndependentNamespace, IdentifyNamespace,
    IdentifyNvmController, NamespaceDescriptor, cns, controller_list, namespace_list, oncs,
};
use crate::wire::{Nsid, Sqe, StatusCode};

/// Reservation Capabilities (RESCAP): all six types in bits 6:1, Ignore Existing Key as of 1.3 in
/// bit 7; not through power loss.
const RESERVATION_CAPABILITIES: u8 = 0xFE;
/// Namespace Features (NSFEAT): thin provisioning, identifiers are never reused.
const NAMESPACE_FEATURES: u8 = 0b1001;
/// Volatile Write Cache Not Present (VWCNP), in NSFEAT of the structure that is independent of the
/// command set: hosts need not flush this namespace even if the controller has a write cache.
const WRITE_CACHE_NOT_PRESENT: u8 = 1 << 5;
/// Namespace Attributes (NSATTR): currently write protected.
const WRITE_PROTECTED: u8 = 1;

impl Subsystem {
    pub(in crate::controller) fn identify(&self, id: ControllerId, sqe: &Sqe) -> Answer {
        let controller = self.controllers.get(&id).ok_or(StatusCode::InternalError)?;
        let structure = sqe.cdw10.get() as u8;
        let first_controller = (sqe.cdw10.get() >> 16) as u16;
        let command_set = (sqe.cdw11.get() >> 24) as u8;
        if structure == cns::CONTROLLER {
            return reply::data(
                sqe,
                self.controller_structure(id, controller)
                    .as_bytes()
                    .to_vec(),
            );
        }
        if self.is_discovery() {
            return Err(StatusCode::InvalidField.at(Location::CDW10));
        }
        let needs_nvm = matches!(
            structure,
            cns::COMMAND_SET_NAMESPACE
                | cns::COMMAND_SET_CONTROLLER
                | cns::COMMAND_SET_ACTIVE_NAMESPACES
        );
        if needs_nvm && command_set != CSI_NVM {
            return Err(StatusCode::InvalidField.at(Location::CDW11));
        }
        let bytes = match structure {
            // Every namespace is attached to every controller, so those allocated are those active.
            cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => {
                self.namespace_structure(controller, sqe.nsid())?
            }
            cns::ACTIVE_NAMESPACES
            | cns::ALLOCATED_NAMESPACES
            | cns::COMMAND_SET_ACTIVE_NAMESPACES => self.namespaces_after(sqe.nsid())?,
            cns::NAMESPACE_DESCRIPTORS => self.descriptors(sqe.nsid())?,
            cns::COMMAND_SET_NAMESPACE => self.command_set_namespace(sqe.nsid())?,
            cns::COMMAND_SET_CONTROLLER => nvm_controller_structure(&self.config.limits),
            cns::INDEPENDENT_NAMESPACE => self.independent_structure(controller, sqe.nsid())?,
            cns::ATTACHED_CONTROLLERS => {
                self.namespace_at(sqe.nsid())?;
                self.controllers_from(first_controller)
            }
            cns::CONTROLLERS => self.controllers_from(first_controller),
            cns::COMMAND_SETS => command_sets(),
            _ => return Err(StatusCode::InvalidField.at(Location::CDW10)),
        };
        reply::data(sqe, bytes)
    }

    /// The namespace, or Invalid Namespace or Format.
    pub(in crate::controller) fn namespace_at(&self, nsid: Nsid) -> Result<&Namespace, Failure> {
        self.namespaces
            .get(&nsid)
            .ok_or(StatusCode::InvalidNamespaceOrFormat.at(Location::NSID))
    }

    fn controller_structure(
        &self,
        id: ControllerId,
        controller: &Controller,
    ) -> IdentifyController {
        let limits = &self.config.limits;
        let mut structure = IdentifyController::new_zeroed();
        structure.serial = padded(&self.config.serial);
        structure.model = padded(&self.config.model);
        structure.firmware = padded(&self.config.firmware);
        structure.mdts = limits.mdts;
        structure.controller_id = U16::new(id.0);
        structure.version = U32::new(VERSION_2_0);
        structure.events = U32::new(controller.events.supported());
        structure.attributes = U32::new(1 << 6 | 1);
        structure.aborts_max_minus_1 = Limits::ABORTS_MAX - 1;
        structure.event_requests_max_minus_1 = Limits::ASYNC_EVENT_REQUESTS_MAX as u8 - 1;
        structure.firmware_updates = 0b11;
        structure.log_attributes = 0b110;
        structure.error_entries_minus_1 = ERROR_ENTRIES_MAX as u8 - 1;
        structure.keep_alive_granularity = U16::new(KEEP_ALIVE_GRANULARITY);
        structure.sq_entry_shifts = 0x66;
        structure.cq_entry_shifts = 0x44;
        structure.commands_max = U16::new(limits.io_queue_depth_max as u16);
        let transport = controller.origin.transport;
        structure.sgls = U32::new(sgl_support(transport));
        structure.subsystem_nqn =
            NqnField::new(&self.config.nqn).unwrap_or_else(FromZeros::new_zeroed);
        structure.command_capsule_units =
            U32::new((size_of::<Sqe>() as u32 + limits.in_capsule_max_bytes(transport)) / 16);
        structure.response_capsule_units = U32::new(1);
        structure.sgl_descriptors_max = match transport {
            TransportType::Rdma => Limits::RDMA_SGL_DESCRIPTORS_MAX,
            TransportType::Tcp => 1,
        };
        structure.power_states[0].power_max = U16::new(2500);
        match self.role {
            Role::Discovery(_) => {
                structure.controller_type = 2;
                structure.discovery_type = 1;
            }
            Role::Nvm(_) => self.io_controller_fields(controller, &mut structure),
        }
        structure
    }

    /// What only I/O controllers have.
    fn io_controller_fields(&self, controller: &Controller, structure: &mut IdentifyController) {
        const SEVERAL_PORTS_AND_CONTROLLERS_WITH_ANA: u8 = 0b1011;
        structure.controller_type = 1;
        structure.multipath = SEVERAL_PORTS_AND_CONTROLLERS_WITH_ANA;
        structure.ana_transition_s = ana::TRANSITION_TIME_S;
        structure.ana_capabilities = ana::CAPABILITIES;
        // A group for each namespace.
        structure.ana_group_max = U32::new(self.config.limits.namespaces_max);
        structure.ana_groups = U32::new(self.config.limits.namespaces_max);
        structure.namespaces = U32::new(self.config.limits.namespaces_max);
        structure.namespaces_max = U32::new(self.config.limits.namespaces_max);
        structure.nvm_commands = U16::new(
            oncs::COMPARE
                | oncs::DATASET_MANAGEMENT
                | oncs::WRITE_ZEROES
                | oncs::SAVE_SELECT
                | oncs::RESERVATIONS
                | oncs::TIMESTAMP
                | oncs::VERIFY
                | oncs::COPY,
        );
        structure.fused = U16::new(1);
        structure.volatile_write_cache = match controller.write_cache {
            // No write cache; Flush takes the broadcast NSID.
            WriteCache::Absent => 0b110,
            // A write cache; Flush takes one namespace.
            WriteCache::Volatile => 0b101,
        };
        structure.atomic_compare_write_blocks_minus_1 =
            U16::new(COMPARE_AND_WRITE_BLOCKS_MAX as u16 - 1);
        structure.write_protection = 1;
        structure.copy_formats = U16::new(1);
        structure.fabrics_commands = U16::new(1);
    }

    /// Identify Namespace; zeros if there is no such namespace.
    fn namespace_structure(&self, controller: &Controller, nsid: Nsid) -> Result<Vec<u8>, Failure> {
        self.check_nsid(nsid)?;
        let mut structure = IdentifyNamespace::new_zeroed();
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return Ok(structure.as_bytes().to_vec());
        };
        let geometry = namespace.volume.geometry();
        let shift = geometry.block_size.shift();
        let blocks = U64::new(geometry.blocks.0);
        structure.size_blocks = blocks;
        structure.capacity_blocks = blocks;
        structure.used_blocks = U64::new(self.allocated_bytes(nsid) >> shift);
        structure.features = NAMESPACE_FEATURES;
        structure.sharing = 1;
        structure.reservations = RESERVATION_CAPABILITIES;
        structure.deallocate = 0b1001;
        structure.capacity_bytes[0] = U64::new(geometry.len_bytes());
        structure.copy_range_blocks_max = U16::new(COPY_RANGE_BLOCKS_MAX);
        structure.copy_blocks_max = U32::new(COPY_BLOCKS_MAX);
        structure.copy_ranges_max_minus_1 = (COPY_RANGES_MAX - 1) as u8;
        structure.ana_group = U32::new(nsid.0);
        structure.attributes = attributes(controller, namespace);
        structure.nguid = namespace.ids.nguid;
        structure.eui64 = namespace.ids.eui64;
        structure.formats[0].data_shift = shift as u8;
        Ok(structure.as_bytes().to_vec())
    }

    fn independent_structure(
        &self,
        controller: &Controller,
        nsid: Nsid,
    ) -> Result<Vec<u8>, Failure> {
        const READY: u8 = 1;
        let namespace = self.namespace_at(nsid)?;
        let mut structure = IdentifyIndependentNamespace::new_zeroed();
        structure.features = NAMESPACE_FEATURES;
        if namespace.volume.write_cache() == WriteCache::Absent {
            structure.features |= WRITE_CACHE_NOT_PRESENT;
        }
        structure.sharing = 1;
        structure.reservations = RESERVATION_CAPABILITIES;
        structure.ana_group = U32::new(nsid.0);
        structure.attributes = attributes(controller, namespace);
        structure.status = if namespace.volume.is_ready() {
            READY
        } else {
            0
        };
        Ok(structure.as_bytes().to_vec())
    }

    /// No protection information and no extended formats: all zeros.
    fn command_set_namespace(&self, nsid: Nsid) -> Result<Vec<u8>, Failure> {
        self.namespace_at(nsid)?;
        Ok(vec![0; DATA_BYTES])
    }

    fn namespaces_after(&self, nsid: Nsid) -> Result<Vec<u8>, Failure> {
        if nsid >= Nsid::LAST {
            return Err(StatusCode::InvalidNamespaceOrFormat.at(Location::NSID));
        }
        let after = Nsid(nsid.0 + 1);
        Ok(namespace_list(
            self.namespaces.range(after..).map(|(&nsid, _)| nsid),
        ))
    }

    fn descriptors(&self, nsid: Nsid) -> Result<Vec<u8>, Failure> {
        let ids = &self.namespace_at(nsid)?.ids;
        Ok(NamespaceDescriptor::list(&[
            NamespaceDescriptor::Uuid(ids.uuid),
            NamespaceDescriptor::Nguid(ids.nguid),
            NamespaceDescriptor::Eui64(ids.eui64),
            NamespaceDescriptor::CommandSet(CSI_NVM),
        ]))
    }

    fn controllers_from(&self, first: u16) -> Vec<u8> {
        controller_list(
            self.controllers
                .range(ControllerId(first)..)
                .map(|(id, _)| id.0),
        )
    }

    /// NSIDs from 1 to NN are valid, whether or not there is a namespace.
    fn check_nsid(&self, nsid: Nsid) -> Result<(), Failure> {
        if nsid == Nsid::NONE || nsid.0 > self.config.limits.namespaces_max {
            return Err(StatusCode::InvalidNamespaceOrFormat.at(Location::NSID));
        }
        Ok(())
    }

    fn allocated_bytes(&self, nsid: Nsid) -> u64 {
        match &self.role {
            Role::Nvm(statistics) => statistics.allocated_bytes(nsid),
            Role::Discovery(_) => 0,
        }
    }
}

/// Namespace Attributes (NSATTR), as the controller's host sees them.
fn attributes(controller: &Controller, namespace: &Namespace) -> u8 {
    if namespace.volume.is_read_only() || controller.access < Access::ReadWrite {
        WRITE_PROTECTED
    } else {
        0
    }
}

/// SGL Support (SGLS): SGLs in bits 1:0, offsets into the capsule in bit 20; over RDMA Keyed Data
/// Blocks in bit 2, over TCP Transport Data Blocks in bit 21.
const fn sgl_support(transport: TransportType) -> u32 {
    let of_transport = match transport {
        TransportType::Rdma => 1 << 2,
        TransportType::Tcp => 1 << 21,
    };
    of_transport | 1 << 20 | 1
}

fn nvm_controller_structure(limits: &Limits) -> Vec<u8> {
    let mut structure = IdentifyNvmController::new_zeroed();
    structure.verify_max_shift = limits.mdts;
    structure.write_zeroes_max_shift = Limits::WRITE_ZEROES_MAX_SHIFT;
    structure.as_bytes().to_vec()
}

/// One combination: the NVM command set alone.
fn command_sets() -> Vec<u8> {
    let mut bytes = vec![0; DATA_BYTES];
    bytes[0] = 1;
    bytes
}

/// `text` in ASCII, padded with blanks.
pub(in crate::controller) fn padded<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [b' '; LEN];
    let printable = text
        .chars()
        .filter(|c| c.is_ascii() && !c.is_ascii_control());
    for (slot, c) in field.iter_mut().zip(printable) {
        *slot = c as u8;
    }
    field
}
