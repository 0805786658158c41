//! The server: targets that offer volumes, shares of files, portals where hosts connect, and the
//! sessions of these hosts.
//!
//! This crate alone connects all others. The control plane holds a [`Server`]: it is synchronous
//! and shared between threads, and each call is a transaction that either takes effect as a whole
//! or changes nothing. A [`ServerError`] says how to fix the request.
//!
//! This crate must not know files of definitions, REST, wire formats of protocols, or kinds of
//! volume.

#![forbid(unsafe_code)]

mod access;
mod brp;
mod capacity;
mod copying;
mod counters;
mod definitions;
mod error;
mod identity;
mod info;
mod iscsi;
mod names;
mod nfs;
mod nvme_target;
mod private_file;
mod registry;
mod reservation_saves;
mod server;
mod share;
mod share_client;
mod statistics;
mod unsent;
mod views;
mod volume_handle;
mod workers;

pub use ::nfs::{ClientInfo as NfsClientInfo, ExportOptions, Procedure as FileProcedure, Squash};
pub use capacity::Capacity;
pub use copying::{CopyFailure, CopyOptions, CopyPlace, CopyProgress, copy_outside};
pub use definitions::{
    AddressRange, AddressRangeFault, AllowedHost, ChapDefinition, ChapFault, ChapOwner, ChapSecret,
    Force, HostDefinition, HostPolicy, LoginPolicy, NamespaceDefinition, PortalAuth,
    PortalDefinition, PortalGroup, TargetDefinition, TlsKeys, ToldBy, Transport,
};
pub use error::{ErrorKind, ServerError, SharePathFault, StartError, Warning};
pub use fabric::{
    Choice as RdmaChoice, NoSuchChoice as NoSuchRdmaChoice, ProviderKind as RdmaProvider,
    Segmentation as RdmaSegmentation, SoftStatistics as RdmaStatistics,
};
pub use identity::{
    DiskUuid, Eui64, IdentityFault, Naa, Nguid, Place, SerialNumber, VolumeIdentity, srp_port,
};
pub use info::{
    Attachment, HostInfo, IscsiConnection, IscsiState, PortalInfo, RdmaInfo, SessionId,
    SessionInfo, SessionProtocol, ShareInfo, TargetInfo, ThreadInfo, VolumeInfo,
};
pub use names::{HostName, NameFault, Protocol, ShareName, TargetName, VolumeName};
pub use net::{Background, enter_background};
pub use nvme::auth::{
    Credentials as DhChapDefinition, DhGroup, GroupPolicy as DhGroupPolicy, Hash as DhChapHash,
    Secret as DhChapSecret, SecretError as DhChapSecretError,
};
pub use private_file::replace_private;
pub use remote::{
    Form as RemoteForm, IO_TIMEOUT_DEFAULT, RemoteError, check_url, probe as probe_remote,
};
pub use reservation_saves::UnsavedReservations;
pub use scsi::{NexusPorts, Registration, Reservation, ReservationType, Reservations};
pub use server::{
    Cores, NewSnapshot, ReservationFeed, Server, ServerConfig, check_exposure, machine,
};
pub use share::{ShareDefinition, ShareKind};
pub use share_client::{ClientName, ClientNameInfo, ShareClient, ShareClientFault};
pub use statistics::{FileStatistics, IoStatistics, Kind, KindStatistics, Latency, Statistics};
pub use tls::{Key as TlsKey, KeyError as TlsKeyError, Policy as TlsPolicy, Suite as TlsSuite};
pub use volume::copy::{Copied, CopyError, Verify};
pub use volume::{
    Availability, ByteSize, DriveError, Driver, HostMemory, ManagedVolume, PathInfo, Progress,
    VolumeKind, VolumeSpec, WriteLock,
};
