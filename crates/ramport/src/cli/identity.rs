//! Options that set the identifiers of a volume.

use clap::Args;
use control::{Identity, Text};
use server::{DiskUuid, Eui64, Naa, Nguid, SerialNumber};

/// Identifiers by which hosts distinguish disks. Identifiers that are absent are derived: from the
/// UUID, otherwise from those that are set; if none is set, from this machine, the target and the
/// volume's name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Identity")]
pub(crate) struct IdentityArgs {
    /// NVMe: UUID of the namespace
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<Text<DiskUuid>>,
    /// NVMe: NGUID of the namespace, 32 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(crate) nguid: Option<Text<Nguid>>,
    /// NVMe and SCSI: EUI-64, 16 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(crate) eui64: Option<Text<Eui64>>,
    /// SCSI: NAA designator, 16 hexadecimal digits that begin with 2, 3 or 5, or 32 that begin with
    /// 6
    #[arg(long, value_name = "HEX")]
    pub(crate) naa: Option<Text<Naa>>,
    /// SCSI: unit serial number
    #[arg(long, value_name = "TEXT")]
    pub(crate) serial: Option<Text<SerialNumber>>,
}

impl From<&IdentityArgs> for Identity {
    fn from(args: &IdentityArgs) -> Self {
        Self {
            uuid: args.uuid,
            nguid: args.nguid,
            eui64: args.eui64,
            naa: args.naa,
            serial: args.serial.clone(),
        }
    }
}
