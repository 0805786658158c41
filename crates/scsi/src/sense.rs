//! Sense data: why a command ended with CHECK CONDITION, in fixed and descriptor format.
//!
//! Read first: SPC-5, "Sense data", "Sense key and additional sense code definitions".

use block::Status as VolumeStatus;

/// The status byte of a command (SAM-5, "Status codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScsiStatus {
    /// The command succeeded.
    Good = 0x00,
    /// Sense data have the reason of a failure.
    CheckCondition = 0x02,
    /// The logical unit cannot take the command now.
    Busy = 0x08,
    /// A reservation of another nexus forbids the command.
    ReservationConflict = 0x18,
    /// Too many commands are outstanding.
    TaskSetFull = 0x28,
    /// Another nexus ended the command and requested a report of that.
    TaskAborted = 0x40,
}

/// The broad kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    /// No error.
    NoSense = 0x0,
    /// The logical unit cannot be reached.
    NotReady = 0x2,
    /// Data could not be read or written.
    MediumError = 0x3,
    /// The device itself failed.
    HardwareError = 0x4,
    /// The command is wrong.
    IllegalRequest = 0x5,
    /// Something happened that the initiator must learn first.
    UnitAttention = 0x6,
    /// Writing is not allowed.
    DataProtect = 0x7,
    /// A third-party copy ended early.
    CopyAborted = 0xA,
    /// The device ended the command.
    AbortedCommand = 0xB,
    /// Compared data differ.
    Miscompare = 0xE,
}

/// Additional sense code and qualifier as `(ASC << 8) | ASCQ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asc(pub u16);

impl Asc {
    /// No additional sense information.
    pub const NONE: Self = Self(0x0000);
    /// Logical unit not ready, initializing command required (stopped).
    pub const NOT_READY_START_REQUIRED: Self = Self(0x0402);
    /// Logical unit not ready, manual intervention required.
    pub const NOT_READY_INTERVENTION: Self = Self(0x0403);
    /// Logical unit not accessible, target port in unavailable state.
    pub const NOT_READY_PORT_UNAVAILABLE: Self = Self(0x040C);
    /// Logical unit not ready, sanitize in progress.
    pub const NOT_READY_SANITIZE: Self = Self(0x041B);
    /// Write error.
    pub const WRITE_ERROR: Self = Self(0x0C00);
    /// Copy target device not reachable.
    pub const COPY_TARGET_NOT_REACHABLE: Self = Self(0x0D02);
    /// Unrecovered read error.
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x1100);
    /// Parameter list length error.
    pub const PARAMETER_LIST_LENGTH: Self = Self(0x1A00);
    /// Miscompare during verify operation.
    pub const MISCOMPARE: Self = Self(0x1D00);
    /// Invalid command operation code.
    pub const INVALID_OPCODE: Self = Self(0x2000);
    /// Logical block address out of range.
    pub const LBA_OUT_OF_RANGE: Self = Self(0x2100);
    /// Invalid field in CDB.
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x2400);
    /// Logical unit not supported.
    pub const LUN_NOT_SUPPORTED: Self = Self(0x2500);
    /// Invalid field in parameter list.
    pub const INVALID_FIELD_IN_PARAMETERS: Self = Self(0x2600);
    /// Invalid release of persistent reservation.
    pub const INVALID_RELEASE: Self = Self(0x2604);
    /// Too many target descriptors.
    pub const TOO_MANY_TARGET_DESCRIPTORS: Self = Self(0x2606);
    /// Unsupported target descriptor type code.
    pub const UNSUPPORTED_TARGET_DESCRIPTOR: Self = Self(0x2607);
    /// Too many segment descriptors.
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: Self = Self(0x2608);
    /// Unsupported segment descriptor type code.
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR: Self = Self(0x2609);
    /// Inline data length exceeded.
    pub const INLINE_DATA_LENGTH: Self = Self(0x260B);
    /// Write protected.
    pub const WRITE_PROTECTED: Self = Self(0x2700);
    /// Software write protected.
    pub const SOFTWARE_WRITE_PROTECTED: Self = Self(0x2702);
    /// Space allocation failed write protect.
    pub const SPACE_ALLOCATION_FAILED: Self = Self(0x2707);
    /// Not ready to ready change, medium may have changed.
    pub const BECAME_READY: Self = Self(0x2800);
    /// Power on, reset, or bus device reset occurred.
    pub const POWER_ON_OR_RESET: Self = Self(0x2900);
    /// Bus device reset function occurred (a logical unit reset).
    pub const DEVICE_RESET: Self = Self(0x2903);
    /// I_T nexus loss occurred.
    pub const NEXUS_LOSS: Self = Self(0x2907);
    /// Mode parameters changed.
    pub const MODE_PARAMETERS_CHANGED: Self = Self(0x2A01);
    /// Reservations preempted.
    pub const RESERVATIONS_PREEMPTED: Self = Self(0x2A03);
    /// Reservations released.
    pub const RESERVATIONS_RELEASED: Self = Self(0x2A04);
    /// Registrations preempted.
    pub const REGISTRATIONS_PREEMPTED: Self = Self(0x2A05);
    /// Asymmetric access state changed.
    pub const ACCESS_STATE_CHANGED: Self = Self(0x2A06);
    /// Capacity data has changed.
    pub const CAPACITY_CHANGED: Self = Self(0x2A09);
    /// Commands cleared by another initiator.
    pub const COMMANDS_CLEARED: Self = Self(0x2F00);
    /// Thin provisioning soft threshold reached.
    pub const THIN_SOFT_THRESHOLD: Self = Self(0x3807);
    /// Sanitize command failed.
    pub const SANITIZE_FAILED: Self = Self(0x3103);
    /// Saving parameters not supported.
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x3900);
    /// Reported LUNs data has changed.
    pub const LUNS_CHANGED: Self = Self(0x3F0E);
    /// Internal target failure.
    pub const INTERNAL_FAILURE: Self = Self(0x4400);
    /// Medium removal prevented.
    pub const REMOVAL_PREVENTED: Self = Self(0x5302);
    /// Insufficient registration resources.
    pub const INSUFFICIENT_REGISTRATIONS: Self = Self(0x5504);
}

/// Which byte of a CDB or parameter list is wrong (sense-key specific bytes, "field pointer").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether the byte is in the CDB, else in the parameter list.
    pub in_cdb: bool,
    /// The byte's index.
    pub byte: u16,
    /// The field's most significant bit, if it is a part of a byte.
    pub bit: Option<u8>,
}

/// The meaning of the sense-key specific bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpecific {
    /// With ILLEGAL REQUEST: the offending field.
    Field(FieldPointer),
    /// With NOT READY: how many 65536ths of an operation are done.
    Progress(u16),
}

/// The complete sense data of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The broad kind.
    pub key: SenseKey,
    /// The exact reason.
    pub asc: Asc,
    /// The sense-key specific bytes.
    pub specific: Option<KeySpecific>,
    /// INFORMATION: the LBA or, for a miscompare, the offset of the first different byte.
    pub information: Option<u64>,
}

impl Sense {
    /// Sense without details.
    pub const fn new(key: SenseKey, asc: Asc) -> Self {
        Self {
            key,
            asc,
            specific: None,
            information: None,
        }
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN CDB at `byte`.
    pub const fn invalid_cdb_field(byte: u16) -> Self {
        Self::bad_field(
            Asc::INVALID_FIELD_IN_CDB,
            FieldPointer {
                in_cdb: true,
                byte,
                bit: None,
            },
        )
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN CDB at a bit of `byte`.
    pub const fn invalid_cdb_bit(byte: u16, bit: u8) -> Self {
        let field = FieldPointer {
            in_cdb: true,
            byte,
            bit: Some(bit),
        };
        Self::bad_field(Asc::INVALID_FIELD_IN_CDB, field)
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST at `byte`.
    pub const fn invalid_parameter(byte: u16) -> Self {
        let field = FieldPointer {
            in_cdb: false,
            byte,
            bit: None,
        };
        Self::bad_field(Asc::INVALID_FIELD_IN_PARAMETERS, field)
    }

    /// ILLEGAL REQUEST with `asc`.
    pub const fn illegal(asc: Asc) -> Self {
        Self::new(SenseKey::IllegalRequest, asc)
    }

    const fn bad_field(asc: Asc, field: FieldPointer) -> Self {
        Self {
            key: SenseKey::IllegalRequest,
            asc,
            specific: Some(KeySpecific::Field(field)),
            information: None,
        }
    }

    /// NOT READY, SANITIZE IN PROGRESS, with how many 65536ths are done.
    pub const fn sanitizing(progress: u16) -> Self {
        let sense = Self::new(SenseKey::NotReady, Asc::NOT_READY_SANITIZE);
        Self {
            specific: Some(KeySpecific::Progress(progress)),
            ..sense
        }
    }

    /// What a volume's refusal means to an initiator.
    pub const fn of_volume(status: VolumeStatus) -> Self {
        match status {
            VolumeStatus::LbaOutOfRange => Self::illegal(Asc::LBA_OUT_OF_RANGE),
            VolumeStatus::WriteProtected => {
                Self::new(SenseKey::DataProtect, Asc::SOFTWARE_WRITE_PROTECTED)
            }
            VolumeStatus::CapacityExceeded => {
                Self::new(SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED)
            }
            VolumeStatus::Miscompare { offset_bytes } => {
                let sense = Self::new(SenseKey::Miscompare, Asc::MISCOMPARE);
                Self {
                    information: Some(offset_bytes),
                    ..sense
                }
            }
            VolumeStatus::ReadError => {
                Self::new(SenseKey::MediumError, Asc::UNRECOVERED_READ_ERROR)
            }
            VolumeStatus::WriteError => Self::new(SenseKey::MediumError, Asc::WRITE_ERROR),
            VolumeStatus::Busy => Self::new(SenseKey::AbortedCommand, Asc::NONE),
            VolumeStatus::NotReady => Self::new(SenseKey::NotReady, Asc::NOT_READY_INTERVENTION),
            VolumeStatus::Gone => Self::illegal(Asc::LUN_NOT_SUPPORTED),
            VolumeStatus::Invalid => Self::illegal(Asc::INVALID_FIELD_IN_CDB),
        }
    }

    /// Bytes in the given format. Values that do not fit into a format's fields are omitted, as SPC
    /// requires.
    pub fn encode(&self, format: SenseFormat) -> SenseBytes {
        match format {
            SenseFormat::Fixed => self.encode_fixed(),
            SenseFormat::Descriptor => self.encode_descriptor(),
        }
    }

    fn encode_fixed(&self) -> SenseBytes {
        let mut out = SenseBytes {
            bytes: [0; SENSE_LEN_MAX],
            len: 18,
        };
        let b = &mut out.bytes;
        b[0] = 0x70;
        b[2] = self.key as u8;
        // INFORMATION is four bytes here; VALID is set only where the value fits.
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            b[0] |= 0x80;
            b[3..7].copy_from_slice(&information.to_be_bytes());
        }
        b[7] = 10;
        b[12..14].copy_from_slice(&self.asc.0.to_be_bytes());
        if let Some(specific) = self.specific {
            b[15..18].copy_from_slice(&specific.encode());
        }
        out
    }

    fn encode_descriptor(&self) -> SenseBytes {
        let mut out = SenseBytes {
            bytes: [0; SENSE_LEN_MAX],
            len: 8,
        };
        let b = &mut out.bytes;
        b[0] = 0x72;
        b[1] = self.key as u8;
        b[2..4].copy_from_slice(&self.asc.0.to_be_bytes());
        if let Some(information) = self.information {
            let d = &mut b[out.len..out.len + 12];
            d[0] = 0x00;
            d[1] = 10;
            d[2] = 0x80;
            d[4..12].copy_from_slice(&information.to_be_bytes());
            out.len += 12;
        }
        if let Some(specific) = self.specific {
            let d = &mut b[out.len..out.len + 8];
            d[0] = 0x02;
            d[1] = 6;
            d[4..7].copy_from_slice(&specific.encode());
            out.len += 8;
        }
        b[7] = (out.len - 8) as u8;
        out
    }
}

impl KeySpecific {
    fn encode(self) -> [u8; 3] {
        match self {
            Self::Field(field) => field.encode(),
            Self::Progress(progress) => {
                let [high, low] = progress.to_be_bytes();
                [0x80, high, low]
            }
        }
    }
}

impl FieldPointer {
    fn encode(self) -> [u8; 3] {
        let mut flags = 0x80;
        if self.in_cdb {
            flags |= 0x40;
        }
        if let Some(bit) = self.bit {
            flags |= 0x08 | (bit & 7);
        }
        let [high, low] = self.byte.to_be_bytes();
        [flags, high, low]
    }
}

/// The format of sense data that an initiator selects (D_SENSE of the control mode page).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenseFormat {
    /// Response code 70h.
    Fixed,
    /// Response code 72h.
    Descriptor,
}

/// The most sense bytes that this device server gives.
pub const SENSE_LEN_MAX: usize = 32;

/// Encoded sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SENSE_LEN_MAX],
    len: usize,
}

impl SenseBytes {
    /// The bytes to be sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_sense_of_an_invalid_cdb_field_points_at_it() {
        let sense = Sense::invalid_cdb_bit(1, 3).encode(SenseFormat::Fixed);
        let want = [
            0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCB, 0, 1,
        ];
        assert_eq!(sense.as_slice(), want);
    }

    #[test]
    fn miscompare_carries_the_offset_in_both_formats() {
        let sense = Sense::of_volume(VolumeStatus::Miscompare {
            offset_bytes: 0x0102,
        });
        let fixed = sense.encode(SenseFormat::Fixed);
        assert_eq!(fixed.as_slice()[..8], [0xF0, 0, 0xE, 0, 0, 1, 2, 10]);
        let descriptor = sense.encode(SenseFormat::Descriptor);
        let want = [
            0x72, 0xE, 0x1D, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2,
        ];
        assert_eq!(descriptor.as_slice(), want);
    }

    #[test]
    fn information_beyond_four_bytes_is_not_valid_in_fixed_format() {
        let sense = Sense::of_volume(VolumeStatus::Miscompare {
            offset_bytes: 1 << 32,
        });
        assert_eq!(sense.encode(SenseFormat::Fixed).as_slice()[0], 0x70);
    }

    #[test]
    fn a_full_budget_is_a_failed_space_allocation() {
        let sense = Sense::of_volume(VolumeStatus::CapacityExceeded);
        assert_eq!((sense.key, sense.asc), (SenseKey::DataProtect, Asc(0x2707)));
    }
}
