//! The permanent identifiers of logical units.
//!
//! Read first: SPC-5, "Device Identification VPD page" and "NAA designator format".

/// The permanent identifiers of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The NAA designator.
    pub naa: Naa,
    /// The EUI-64.
    pub eui64: [u8; 8],
    /// UNIT SERIAL NUMBER, printable ASCII of at most 247 bytes.
    pub serial: String,
}

/// An NAA designator (SPC-5, "NAA designator format").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naa {
    /// Of type 2 (IEEE Extended), 3 (Locally Assigned) or 5 (IEEE Registered).
    Eight([u8; 8]),
    /// Of type 6 (IEEE Registered Extended).
    Sixteen([u8; 16]),
}

impl UnitIdentity {
    /// The identity derived from 64 bits that no other volume of this installation has: an NAA
    /// designator of type 3 (Locally Assigned) and an EUI-64 with the local bit set.
    pub fn derived(unique: u64, serial: String) -> Self {
        Self {
            naa: Naa::Eight((0x3 << 60 | unique & (u64::MAX >> 4)).to_be_bytes()),
            eui64: (unique | 0x02 << 56).to_be_bytes(),
            serial,
        }
    }
}

impl Naa {
    /// The designator.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Eight(bytes) => bytes,
            Self::Sixteen(bytes) => bytes,
        }
    }

    /// Whether the NAA field, the first four bits, is a type of this length.
    pub fn has_known_type(&self) -> bool {
        match self {
            Self::Eight(bytes) => matches!(bytes[0] >> 4, 2 | 3 | 5),
            Self::Sixteen(bytes) => bytes[0] >> 4 == 6,
        }
    }
}
