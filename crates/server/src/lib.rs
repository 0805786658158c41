//! The server: volumes under targets, offered at portals to hosts, and the sessions that come of
//! it.
//!
//! This crate alone binds all others. [`Server`] is what the control plane holds: synchronous,
//! shared between threads, each call a transaction that either happens whole or leaves everything
//! as it was. Its [`ServerError`]s say how to fix the request.
//!
//! What this crate refuses to know: files of definitions, REST, and how a protocol reads on the
//! wire.

#![forbid(unsafe_code)]

mod access;
mod backend;
mod capacity;
mod definitions;
mod error;
mod info;
mod iscsi;
mod keeper;
mod names;
mod offered;
mod registry;
mod server;
mod statistics;
mod tally;
mod views;

pub use capacity::Capacity;
pub use definitions::{
    AddressRange, AddressRangeFault, AllowedHost, ChapDefinition, ChapFault, ChapOwner, ChapSecret,
    Force, HostDefinition, HostPolicy, LoginPolicy, NamespaceDefinition, PortalDefinition,
    PortalGroup, TargetDefinition, ToldBy, Transport,
};
pub use error::{ErrorKind, ServerError, StartError, Warning};
pub use fabric::{
    Choice as RdmaChoice, NoSuchChoice as NoSuchRdmaChoice, ProviderKind as RdmaProvider,
    Segmentation as RdmaSegmentation, SoftStatistics as RdmaStatistics,
};
pub use info::{
    Attachment, HostInfo, IscsiConnection, IscsiState, PortalInfo, RdmaInfo, SessionId,
    SessionInfo, SessionProtocol, TargetInfo, VolumeInfo,
};
pub use keeper::UnsavedReservations;
pub use names::{HostName, NameFault, Protocol, TargetName, VolumeName};
pub use scsi::{NexusPorts, Registration, Reservation, ReservationType, Reservations};
pub use server::{Cores, ReservationFeed, Server, ServerConfig, check_exposure, machine};
pub use statistics::{IoStatistics, KindStatistics, Latency};
pub use volume::{
    Availability, ByteSize, HostMemory, ManagedVolume, VolumeKind, VolumeSpec, WriteLock,
};
