//! The submission queue entry and the SGL descriptor in it.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A Command Identifier (CID): unique among the outstanding commands of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cid(pub u16);

/// A Namespace Identifier (NSID). 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nsid(pub u32);

impl Nsid {
    /// No namespace.
    pub const NONE: Self = Self(0);
    /// The broadcast value: every namespace.
    pub const ALL: Self = Self(0xFFFF_FFFF);
    /// The largest NSID that can name one namespace.
    pub const LAST: Self = Self(0xFFFF_FFFE);
}

impl fmt::Display for Nsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A submission queue entry (SQE), 64 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode (OPC).
    pub opcode: u8,
    /// Fused Operation (FUSE) in bits 1:0, PRP or SGL for Data Transfer (PSDT) in bits 7:6.
    pub flags: u8,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Namespace Identifier (NSID). In Fabrics commands the low byte is the Fabrics Command Type.
    pub nsid: U32,
    /// Command DW2.
    pub cdw2: U32,
    /// Command DW3.
    pub cdw3: U32,
    /// Metadata Pointer (MPTR).
    pub mptr: U64,
    /// Data Pointer (DPTR): SGL descriptor 1.
    pub sgl1: Sgl,
    /// Command DW10.
    pub cdw10: U32,
    /// Command DW11.
    pub cdw11: U32,
    /// Command DW12.
    pub cdw12: U32,
    /// Command DW13.
    pub cdw13: U32,
    /// Command DW14.
    pub cdw14: U32,
    /// Command DW15.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<Sqe>() == 64);
const _: () = assert!(std::mem::offset_of!(Sqe, sgl1) == 24);
const _: () = assert!(std::mem::offset_of!(Sqe, cdw10) == 40);

/// Fused Operation (FUSE), 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// An ordinary command.
    None,
    /// The first command of a pair.
    First,
    /// The second command of a pair.
    Second,
    /// The reserved value 3.
    Reserved,
}

/// PRP or SGL for Data Transfer (PSDT), 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Psdt {
    /// PRPs, not allowed in Fabrics.
    Prp,
    /// SGL; MPTR, if used, is an address.
    SglMetadataAddress,
    /// SGL; MPTR, if used, is an SGL segment.
    SglMetadataSgl,
    /// The reserved value 3.
    Reserved,
}

impl Sqe {
    /// The opcode of every Fabrics command.
    pub const OPCODE_FABRICS: u8 = 0x7F;

    /// A command with this opcode, identifier and namespace, PSDT set to SGL, everything else 0.
    pub fn new(opcode: u8, cid: Cid, nsid: Nsid) -> Self {
        Self {
            opcode,
            flags: 0x40,
            cid: U16::new(cid.0),
            nsid: U32::new(nsid.0),
            cdw2: U32::ZERO,
            cdw3: U32::ZERO,
            mptr: U64::ZERO,
            sgl1: Sgl::default(),
            cdw10: U32::ZERO,
            cdw11: U32::ZERO,
            cdw12: U32::ZERO,
            cdw13: U32::ZERO,
            cdw14: U32::ZERO,
            cdw15: U32::ZERO,
        }
    }

    /// The command identifier.
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The namespace.
    pub fn nsid(&self) -> Nsid {
        Nsid(self.nsid.get())
    }

    /// The Fabrics Command Type (FCTYPE), if the opcode is [`Self::OPCODE_FABRICS`].
    pub fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Whether and how the command is fused with its neighbour.
    pub fn fuse(&self) -> Fuse {
        match self.flags & 0b11 {
            0 => Fuse::None,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// How the data pointer is to be read.
    pub fn psdt(&self) -> Psdt {
        match self.flags >> 6 {
            0 => Psdt::Prp,
            1 => Psdt::SglMetadataAddress,
            2 => Psdt::SglMetadataSgl,
            _ => Psdt::Reserved,
        }
    }

    /// CDW10 and CDW11 as one number: the Starting LBA (SLBA) of the commands that have one.
    pub fn cdw10_11(&self) -> u64 {
        u64::from(self.cdw11.get()) << 32 | u64::from(self.cdw10.get())
    }

    /// Sets CDW10 and CDW11 from one number.
    pub fn set_cdw10_11(&mut self, value: u64) {
        self.cdw10 = U32::new(value as u32);
        self.cdw11 = U32::new((value >> 32) as u32);
    }
}

/// An SGL descriptor, 16 bytes. [`Sgl::kind`] says what it is.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Sgl {
    /// Address, or offset from the start of the in-capsule data.
    pub address: U64,
    /// Length in bytes. In a keyed descriptor only the low 24 bits; the key follows.
    pub len_bytes: U32,
    /// Reserved, or the upper bytes of a key.
    reserved: [u8; 3],
    /// SGL Identifier: Descriptor Type in bits 7:4, Sub Type in bits 3:0.
    pub identifier: u8,
}

const _: () = assert!(size_of::<Sgl>() == 16);

/// What an SGL descriptor says about where a command's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglKind {
    /// Data Block, sub type Offset: inside the capsule.
    InCapsule {
        /// Bytes from the start of the in-capsule data.
        offset: u64,
        /// Bytes.
        len_bytes: u32,
    },
    /// Transport Data Block, sub type A: moved by the transport's own means.
    Transport {
        /// Bytes.
        len_bytes: u32,
    },
    /// Keyed Data Block: the host's memory, by RDMA.
    Keyed {
        /// The address in the host's memory.
        address: u64,
        /// Bytes, 24 bits.
        len_bytes: u32,
        /// The memory key.
        key: u32,
        /// Sub type Invalidate: the key is to be invalidated by the completion.
        invalidate: bool,
    },
    /// Last Segment, sub type Offset: a list of descriptors inside the capsule.
    LastSegment {
        /// Bytes from the start of the in-capsule data.
        offset: u64,
        /// Bytes of the list: 16 for each descriptor.
        len_bytes: u32,
    },
    /// Another type, by its identifier byte.
    Other(u8),
}

/// Whether the completion invalidates a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// It does not.
    No,
    /// It does.
    Yes,
}

impl Sgl {
    const IN_CAPSULE: u8 = 0x01;
    const LAST_SEGMENT: u8 = 0x31;
    const TRANSPORT: u8 = 0x5A;
    const KEYED: u8 = 0x40;
    const KEYED_INVALIDATE: u8 = 0x4F;

    /// Data inside the capsule.
    pub fn in_capsule(offset: u64, len_bytes: u32) -> Self {
        Self {
            address: U64::new(offset),
            len_bytes: U32::new(len_bytes),
            reserved: [0; 3],
            identifier: Self::IN_CAPSULE,
        }
    }

    /// Data moved by the transport's own means.
    pub fn transport(len_bytes: u32) -> Self {
        Self {
            address: U64::ZERO,
            len_bytes: U32::new(len_bytes),
            reserved: [0; 3],
            identifier: Self::TRANSPORT,
        }
    }

    /// A list of descriptors inside the capsule.
    pub fn last_segment(offset: u64, len_bytes: u32) -> Self {
        Self {
            identifier: Self::LAST_SEGMENT,
            ..Self::in_capsule(offset, len_bytes)
        }
    }

    /// Memory of the host, up to 2^24 - 1 bytes; `invalidate` says whether the completion
    /// invalidates its key.
    pub fn keyed(address: u64, len_bytes: u32, key: u32, invalidate: Invalidate) -> Self {
        let [k0, k1, k2, k3] = key.to_le_bytes();
        Self {
            address: U64::new(address),
            len_bytes: U32::new(len_bytes & 0x00FF_FFFF | u32::from(k0) << 24),
            reserved: [k1, k2, k3],
            identifier: match invalidate {
                Invalidate::No => Self::KEYED,
                Invalidate::Yes => Self::KEYED_INVALIDATE,
            },
        }
    }

    /// What the descriptor says.
    pub fn kind(&self) -> SglKind {
        let len_bytes = self.len_bytes.get();
        match self.identifier {
            Self::IN_CAPSULE => SglKind::InCapsule {
                offset: self.address.get(),
                len_bytes,
            },
            Self::TRANSPORT => SglKind::Transport { len_bytes },
            Self::LAST_SEGMENT => SglKind::LastSegment {
                offset: self.address.get(),
                len_bytes,
            },
            Self::KEYED | Self::KEYED_INVALIDATE => SglKind::Keyed {
                address: self.address.get(),
                len_bytes: len_bytes & 0x00FF_FFFF,
                key: u32::from_le_bytes([
                    (len_bytes >> 24) as u8,
                    self.reserved[0],
                    self.reserved[1],
                    self.reserved[2],
                ]),
                invalidate: self.identifier == Self::KEYED_INVALIDATE,
            },
            other => SglKind::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const GOLDEN_READ: [u8; 64] = [
        0x02, 0x41, 0x22, 0x11,                         // Read, PSDT 1 + FUSE 1, CID 0x1122
        0x05, 0x00, 0x00, 0x00,                         // NSID 5
        0, 0, 0, 0, 0, 0, 0, 0,                         // CDW2, CDW3
        0, 0, 0, 0, 0, 0, 0, 0,                         // MPTR
        0, 0, 0, 0, 0, 0, 0, 0,                         // SGL1 address
        0x00, 0x10, 0x00, 0x00, 0, 0, 0, 0x5A,          // 4096 B, transport data block, sub type A
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // SLBA
        0x07, 0x00, 0x00, 0x00,                         // NLB 7 (0's based)
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,             // CDW13 to CDW15
    ];

    #[test]
    fn golden_read_both_ways() {
        let mut sqe = Sqe::new(2, Cid(0x1122), Nsid(5));
        sqe.flags |= 1;
        sqe.sgl1 = Sgl::transport(4096);
        sqe.set_cdw10_11(0x0102_0304_0506_0708);
        sqe.cdw12 = U32::new(7);
        assert_eq!(sqe.as_bytes(), GOLDEN_READ);
        let parsed = Sqe::read_from_bytes(&GOLDEN_READ).expect("64 bytes");
        assert_eq!(parsed, sqe);
        assert_eq!(parsed.fuse(), Fuse::First);
        assert_eq!(parsed.psdt(), Psdt::SglMetadataAddress);
        assert_eq!(parsed.cdw10_11(), 0x0102_0304_0506_0708);
        assert_eq!(parsed.sgl1.kind(), SglKind::Transport { len_bytes: 4096 });
    }

    #[test]
    fn sgl_kinds_by_identifier() {
        let inside = Sgl::in_capsule(64, 512);
        assert_eq!(
            inside.kind(),
            SglKind::InCapsule {
                offset: 64,
                len_bytes: 512
            }
        );
        #[rustfmt::skip]
        let keyed = [
            0x00, 0x10, 0, 0, 0, 0, 0, 0x80,    // address
            0x00, 0x00, 0x02,                   // length, 24 bits: 128 KiB
            0x78, 0x56, 0x34, 0x12,             // key
            0x4F,                               // keyed data block, invalidate
        ];
        let keyed = Sgl::read_from_bytes(&keyed).expect("16 bytes");
        let made = Sgl::keyed(
            0x8000_0000_0000_1000,
            128 << 10,
            0x1234_5678,
            Invalidate::Yes,
        );
        assert_eq!(made, keyed);
        assert_eq!(
            keyed.kind(),
            SglKind::Keyed {
                address: 0x8000_0000_0000_1000,
                len_bytes: 128 << 10,
                key: 0x1234_5678,
                invalidate: true,
            }
        );
        assert_eq!(
            Sgl::last_segment(16, 32).kind(),
            SglKind::LastSegment {
                offset: 16,
                len_bytes: 32
            }
        );
        let prp_like = Sgl {
            identifier: 0x00,
            ..Sgl::default()
        };
        assert_eq!(prp_like.kind(), SglKind::Other(0));
    }
}
