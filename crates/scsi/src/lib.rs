//! A SCSI device server (SPC, SBC, SAM) over volumes: what every SCSI transport shares.
//!
//! It stands between a transport (iSCSI over TCP, iSER, SRP) and `block`. It knows CDBs, sense
//! data, reservations and unit attentions. It does not know PDUs, sessions of a transport, sockets
//! and clocks.
//!
//! A transport opens a nexus at a [`Device`], and asks [`Device::begin`] about each CDB. Transfers
//! come back as [`Medium`] commands that it executes on the volume itself, piece by piece as data
//! move; all else is done by the device. What may take long continues in [`Turn`]s. For plain reads
//! and writes a transport may keep a [`View`] and skip the device until [`Device::generation`]
//! changes.
//!
//! ```
//! use scsi::{Begin, Device, LunMap, NexusPorts, PortProtocol, TargetPort};
//! let name = "iqn.2026-01.example:a,t,0x0001".into();
//! let port = TargetPort { relative_id: 1, protocol: PortProtocol::Iscsi, name, group: 1 };
//! let mut device = Device::new("iqn.2026-01.example:a".into(), vec![port]);
//! let ports = NexusPorts { initiator: "iqn.host,i,0x000000000001".into(), target_port: 1 };
//! let nexus = device.open_nexus(ports, LunMap::All, block::Access::ReadWrite).expect("room");
//! let mut report_luns = [0; 16];
//! report_luns[0] = 0xA0;
//! report_luns[9] = 64;
//! let Begin::Done(response) = device.begin(nexus, 0, &report_luns) else { panic!("no data-out") };
//! assert_eq!(response.data_in.len(), 8 + 8);
//! ```

#![forbid(unsafe_code)]

mod access_state;
mod commands;
mod copy;
mod device;
mod held;
pub mod host;
mod identity;
mod inquiry;
mod lease;
pub mod medium;
mod mode;
mod opcodes;
mod persistent;
mod report;
mod reservation;
mod response;
mod sanitize;
mod sense;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod turn;
mod workload;

pub use copy::{CopySlots, CopyWork};
pub use device::{
    Begin, Device, Finish, Lun, LunMap, NEXUSES_MAX, NexusId, PARAMETER_LIST_LEN_MAX,
};
pub use device::{UNITS_MAX, View};
pub use held::HeldCompletions;
pub use identity::{Naa, UnitIdentity};
pub use inquiry::{PortProtocol, TargetPort};
pub use lease::{COMMAND_SLOTS_MAX, LeaseHolder};
pub use medium::{Execution, Medium, VerifyMode};
pub use report::{lun_bytes, parse_lun};
pub use reservation::{NexusPorts, Registration, Reservation, ReservationType, Reservations};
pub use response::Response;
pub use sanitize::SanitizeWork;
pub use sense::SenseKey;
pub use sense::{
    Asc, FieldPointer, KeySpecific, SENSE_LEN_MAX, ScsiStatus, Sense, SenseBytes, SenseFormat,
};
pub use turn::{Step, Turn};
pub use workload::{SanitizeBegun, WorkItem, Workload};
