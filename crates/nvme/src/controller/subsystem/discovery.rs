//! The discovery subsystem: subsystems and the portals that lead to them.
//!
//! Read first: NVM Express Base 2.0, "Discovery Log Page", "Discovery Controller Asynchronous
//! Event".

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use block::HostIdentity;
use zerocopy::little_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use super::Role;
use super::events::Event;
use super::state::Controller;
use crate::controller::{PortalNumber, QueueId, Subsystem};
use crate::wire::discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, RdmaAddress, RdmaProvider, SubsystemType,
    TransportType, text_field,
};
use crate::wire::fabrics::{ConnectData, NqnField};

/// Decides which hosts may see a record: the access check of the record's subsystem.
pub trait HostFilter: Send + Sync {
    /// Whether this host may see the record.
    fn admits(&self, host: HostIdentity<'_>) -> bool;
}

/// A subsystem behind a portal.
#[derive(Clone)]
pub struct DiscoveryRecord {
    /// What it is.
    pub kind: SubsystemType,
    /// The subsystem's name.
    pub subsystem_nqn: NqnField,
    /// How it is reached.
    pub transport: TransportType,
    /// What carries RDMA there; without a meaning for other transports.
    pub rdma_provider: RdmaProvider,
    /// The portal's address. If it is unspecified, a host gets the address that it connected to.
    pub address: IpAddr,
    /// The portal's port number (TRSVCID).
    pub service_port: u16,
    /// The portal (PORTID).
    pub portal: PortalNumber,
    /// Whether hosts use TLS there.
    pub secure_channel: SecureChannel,
    /// Entries of an admin queue, at most.
    pub admin_queue_depth_max: u16,
    /// The hosts that may see the record; `None` is all.
    pub visible_to: Option<Arc<dyn HostFilter>>,
}

/// What a record says of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureChannel {
    /// Nothing: there is none.
    NotSpecified,
    /// Hosts may use it.
    Allowed,
    /// Hosts must use it.
    Required,
}

impl DiscoveryRecord {
    fn is_visible_to(&self, controller: &Controller) -> bool {
        let host = HostIdentity {
            name: Some(&controller.host.nqn),
            address: controller.origin.address,
        };
        // On another machine, a loopback address is that machine's own.
        if self.address.is_loopback() && !controller.origin.local.is_loopback() {
            return false;
        }
        self.visible_to
            .as_ref()
            .is_none_or(|filter| filter.admits(host))
    }

    /// The record for a host that connected to `local`.
    fn entry(&self, local: IpAddr) -> DiscoveryEntry {
        let address = if self.address.is_unspecified() {
            local
        } else {
            self.address
        };
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.transport = self.transport as u8;
        entry.address_family = match address {
            IpAddr::V4(_) => AddressFamily::Ipv4,
            IpAddr::V6(_) => AddressFamily::Ipv6,
        } as u8;
        entry.subsystem_type = self.kind as u8;
        entry.requirements = DiscoveryEntry::REQUIREMENTS;
        entry.requirements |= match self.secure_channel {
            SecureChannel::NotSpecified => 0,
            SecureChannel::Allowed => DiscoveryEntry::SECURE_CHANNEL_NOT_REQUIRED,
            SecureChannel::Required => DiscoveryEntry::SECURE_CHANNEL_REQUIRED,
        };
        entry.port = U16::new(self.portal.0);
        entry.controller = U16::new(ConnectData::CONTROLLER_ANY);
        entry.admin_sq_entries_max = U16::new(self.admin_queue_depth_max);
        if self.kind == SubsystemType::Current {
            entry.flags = U16::new(DiscoveryEntry::FLAG_PERSISTENT);
        }
        entry.service = text_field(&self.service_port.to_string());
        entry.subsystem_nqn = self.subsystem_nqn;
        entry.address = text_field(&address.to_string());
        if self.transport == TransportType::Rdma {
            let address = RdmaAddress::connected(self.rdma_provider);
            entry.transport_specific = zerocopy::transmute!(address);
        } else if self.secure_channel != SecureChannel::NotSpecified {
            entry.transport_specific[0] = DiscoveryEntry::SECURITY_TLS_1_3;
        }
        entry
    }
}

impl DiscoveryRecord {
    /// Whether both are alike for a host that sees both.
    fn says_the_same(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.subsystem_nqn == other.subsystem_nqn
            && self.transport == other.transport
            && self.rdma_provider == other.rdma_provider
            && self.address == other.address
            && self.service_port == other.service_port
            && self.portal == other.portal
            && self.secure_channel == other.secure_channel
            && self.admin_queue_depth_max == other.admin_queue_depth_max
    }
}

impl fmt::Debug for DiscoveryRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.subsystem_nqn.name().unwrap_or_default();
        write!(
            f,
            "{:?} {name} at {}, port {}",
            self.kind, self.address, self.service_port
        )
    }
}

/// The records of a discovery subsystem.
#[derive(Debug, Default)]
pub(in crate::controller) struct Directory {
    records: Vec<DiscoveryRecord>,
    /// Counts the calls that replaced the records.
    generation: u64,
}

impl Directory {
    pub(in crate::controller) fn generation(&self) -> u64 {
        self.generation
    }

    /// The log page from `offset` on, up to `len` bytes, as `controller` sees it; and its whole
    /// length.
    pub(in crate::controller) fn log(
        &self,
        controller: &Controller,
        offset: u64,
        len: usize,
    ) -> (Vec<u8>, u64) {
        const RECORD_BYTES: u64 = size_of::<DiscoveryEntry>() as u64;
        let visible = || {
            self.records
                .iter()
                .filter(|record| record.is_visible_to(controller))
        };
        let records = visible().count() as u64;
        let header = DiscoveryHeader::new(controller.discovery_generation, records);
        let end = offset.saturating_add(len as u64);
        // The header is as long as a record, so the page consists of pieces of one length.
        let first = offset / RECORD_BYTES;
        let mut bytes = Vec::with_capacity(len.min((records as usize + 1) * 1024));
        if first == 0 {
            bytes.extend_from_slice(header.as_bytes());
        }
        for (at, record) in (1..).zip(visible()) {
            if at >= first && at * RECORD_BYTES < end {
                bytes.extend_from_slice(record.entry(controller.origin.local).as_bytes());
            }
        }
        let skip = ((offset - first * RECORD_BYTES) as usize).min(bytes.len());
        bytes.drain(..skip);
        bytes.truncate(len);
        (bytes, (records + 1) * RECORD_BYTES)
    }
}

const _: () = assert!(size_of::<DiscoveryHeader>() == size_of::<DiscoveryEntry>());

impl Subsystem {
    /// Replaces the records of a discovery subsystem. The generation counter (GENCTR) changes only
    /// for connected hosts whose log differs from before, and these are notified. It increases by
    /// the total number of changes; a host cannot distinguish that from changes that were undone.
    pub fn set_discovery_records(&mut self, records: Vec<DiscoveryRecord>) {
        let Role::Discovery(directory) = &mut self.role else {
            return;
        };
        let before = std::mem::replace(&mut directory.records, records);
        directory.generation += 1;
        for controller in self.controllers.values_mut() {
            if shows_the_same(&before, &directory.records, controller) {
                continue;
            }
            controller.discovery_generation = directory.generation;
            if controller.events.raise(Event::DiscoveryLogChange) {
                self.wakes.extend(controller.queues.get(&QueueId::ADMIN));
            }
        }
    }
}

/// Whether the host of `controller` gets the same log from both.
fn shows_the_same(
    before: &[DiscoveryRecord],
    after: &[DiscoveryRecord],
    controller: &Controller,
) -> bool {
    let visible = |record: &&DiscoveryRecord| record.is_visible_to(controller);
    let mut before = before.iter().filter(visible);
    let mut after = after.iter().filter(visible);
    loop {
        match (before.next(), after.next()) {
            (None, None) => return true,
            (Some(old), Some(new)) if old.says_the_same(new) => {}
            _ => return false,
        }
    }
}
