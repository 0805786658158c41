//! I/O commands of the NVM command set: checks a submission queue entry and turns it into an
//! operation on a volume.
//!
//! Read first: NVM Command Set 1.0, "NVM Command Set Commands". No field of a command is trusted
//! before this module has checked it.

use std::time::Instant;

use block::{
    Blocks, DataUse, Extent, Geometry, Intent, Lba, OpKind, Persistence, Unmap, WriteCache,
};
use session::{Admitted, Leases, SourceId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Backend, COPY_RANGES_MAX, CommandClass, NamespaceRef, SlotId};
use crate::wire::{Nsid, Psdt, Sqe, Status, StatusCode, opcode};

/// The most ranges of a Dataset Management command.
pub const DATASET_RANGES_MAX: u32 = 256;

/// How a command's data move, as its transport read the data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// In the capsule, from its first data byte on.
    InCapsule {
        /// Bytes.
        len_bytes: u32,
    },
    /// By the transport's own means, in whichever direction the command needs.
    Remote {
        /// Bytes.
        len_bytes: u32,
    },
}

impl DataPointer {
    /// The length that the host gave, in bytes.
    pub const fn len_bytes(self) -> u32 {
        match self {
            Self::InCapsule { len_bytes } | Self::Remote { len_bytes } => len_bytes,
        }
    }
}

/// What is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Blocks go to the host.
    Read,
    /// Blocks come from the host.
    Write,
    /// Blocks come from the host and are compared.
    Compare,
    /// The first command of a compare-and-write.
    FusedCompare,
    /// The second one.
    FusedWrite,
    /// Blocks are checked to be readable.
    Verify,
    /// Blocks become zeros.
    WriteZeroes(Unmap),
    /// Ranges that come from the host are deallocated.
    Deallocate,
    /// Ranges that come from the host are hints only.
    Hint,
    /// Ranges that come from the host are copied.
    Copy,
    /// The volume is flushed.
    Flush,
    /// Not the volume's: a command of the control path.
    Control,
}

impl Action {
    /// What the command does with the contents of its blocks.
    pub(super) const fn data_use(self) -> DataUse {
        match self {
            Self::Read | Self::Compare | Self::FusedCompare => DataUse::Read,
            Self::Verify => DataUse::Verify,
            Self::Write | Self::FusedWrite => DataUse::Overwrite,
            Self::WriteZeroes(_) | Self::Deallocate => DataUse::Erase,
            Self::Copy => DataUse::Copy,
            Self::Flush | Self::Hint | Self::Control => DataUse::Flush,
        }
    }
}

/// How filters and statistics class a command; `None` for opcodes that are not known.
pub(super) const fn kind(opcode: u8) -> Option<OpKind> {
    match opcode {
        opcode::READ | opcode::COMPARE | opcode::VERIFY => Some(OpKind::Read),
        opcode::WRITE | opcode::WRITE_ZEROES | opcode::COPY => Some(OpKind::Write),
        opcode::DATASET_MANAGEMENT => Some(OpKind::Discard),
        opcode::FLUSH => Some(OpKind::Flush),
        _ => None,
    }
}

/// A checked command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) action: Action,
    /// The blocks; of a Copy the destination, without a length.
    pub(super) extent: Extent,
    /// log2 of the block size in bytes.
    pub(super) block_shift: u32,
    pub(super) source: SourceId,
    /// Data that move, in bytes.
    pub(super) len_bytes: u32,
    /// Where data come from; `None` if none come from the host.
    pub(super) from_host: Option<DataPointer>,
    /// Whether bytes may be sent from where they lie in the volume.
    pub(super) may_place: bool,
    /// The volume's answer to the admission.
    pub(super) admitted: Admitted,
}

/// What is known about a command besides its entry.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    /// The command's slot, and the leases of its queue.
    pub(super) slot: SlotId,
    pub(super) leases: &'a mut Leases,
    /// [`kind`] of the command.
    pub(super) kind: Option<OpKind>,
    pub(super) pointer: Result<DataPointer, StatusCode>,
    /// The largest transfer (MDTS) in bytes.
    pub(super) transfer_max_bytes: u32,
    /// The volatile write cache that Identify Controller reported to the host.
    pub(super) write_cache: WriteCache,
}

/// Checks `sqe` and admits it to its volume.
pub(super) fn parse<B: Backend>(
    context: &mut Context<'_>,
    sqe: &Sqe,
    backend: &mut B,
) -> Result<Command, Status> {
    match sqe.opcode {
        opcode::READ => transfer(context, sqe, backend, Action::Read),
        opcode::WRITE => transfer(context, sqe, backend, Action::Write),
        opcode::COMPARE => transfer(context, sqe, backend, Action::Compare),
        opcode::FLUSH => flush(context, sqe, backend),
        opcode::WRITE_ZEROES => {
            let deallocate = sqe.cdw12.get() & 1 << 25 != 0;
            let unmap = if deallocate {
                Unmap::Allowed
            } else {
                Unmap::Forbidden
            };
            without_data(context, sqe, backend, Action::WriteZeroes(unmap))
        }
        opcode::VERIFY => without_data(context, sqe, backend, Action::Verify),
        opcode::DATASET_MANAGEMENT => dataset_management(context, sqe, backend),
        opcode::COPY => copy(context, sqe, backend),
        _ => Err(StatusCode::InvalidOpcode.into()),
    }
}

/// Read, Write, Compare, and both halves of a compare-and-write.
fn transfer<B: Backend>(
    context: &mut Context<'_>,
    sqe: &Sqe,
    backend: &mut B,
    action: Action,
) -> Result<Command, Status> {
    let pointer = check_pointer(context, sqe)?;
    let class = match action {
        Action::Write => CommandClass::Write,
        _ => CommandClass::Read,
    };
    let namespace = namespace(sqe.nsid(), class, backend)?;
    check_protection(sqe)?;
    if action == Action::Write && sqe.cdw12.get() >> 20 & 0xF != 0 {
        // A Directive Type (DTYPE): no directive is supported.
        return Err(StatusCode::InvalidField.into());
    }
    let geometry = namespace.volume.geometry();
    let extent = extent(sqe);
    let len_bytes = extent.blocks.0 << geometry.block_size.shift();
    if len_bytes > u64::from(context.transfer_max_bytes) {
        return Err(StatusCode::InvalidField.into());
    }
    geometry.byte_range(extent)?;
    if u64::from(pointer.len_bytes()) != len_bytes {
        return Err(StatusCode::DataSglLengthInvalid.into());
    }
    let from_host = match (action, pointer) {
        (Action::Read, DataPointer::Remote { .. }) => None,
        // In-capsule data cannot go to the host.
        (Action::Read, DataPointer::InCapsule { .. }) => {
            return Err(StatusCode::SglDescriptorTypeInvalid.into());
        }
        _ => Some(pointer),
    };
    if action == Action::Read {
        // It is executed when it is sent, after the other received commands.
        namespace.volume.prefetch(OpKind::Read, extent);
    }
    let measured = Measured {
        action,
        extent,
        len_bytes: len_bytes as u32,
        from_host,
        persistence: persistence(context, sqe),
    };
    Ok(measured.admit(context, geometry, &namespace, len_bytes))
}

fn flush<B: Backend>(
    context: &mut Context<'_>,
    sqe: &Sqe,
    backend: &mut B,
) -> Result<Command, Status> {
    let measured = Measured::bare(Action::Flush, Extent::new(Lba(0), Blocks(0)));
    if sqe.nsid() == Nsid::ALL {
        if context.write_cache == WriteCache::Volatile {
            return Err(StatusCode::InvalidNamespaceOrFormat.into());
        }
        // The host knows of no volatile write cache, so its writes were durable.
        return Ok(Command {
            action: Action::Hint,
            extent: measured.extent,
            block_shift: 0,
            source: SourceId(0),
            len_bytes: 0,
            from_host: None,
            may_place: false,
            admitted: Admitted::Now,
        });
    }
    let namespace = namespace(sqe.nsid(), CommandClass::Write, backend)?;
    let geometry = namespace.volume.geometry();
    Ok(measured.admit(context, geometry, &namespace, 0))
}

/// Write Zeroes and Verify.
fn without_data<B: Backend>(
    context: &mut Context<'_>,
    sqe: &Sqe,
    backend: &mut B,
    action: Action,
) -> Result<Command, Status> {
    let class = match action {
        Action::Verify => CommandClass::Read,
        _ => CommandClass::Write,
    };
    let namespace = namespace(sqe.nsid(), class, backend)?;
    check_protection(sqe)?;
    let geometry = namespace.volume.geometry();
    let extent = extent(sqe);
    let range = geometry.byte_range(extent)?;
    if action == Action::Verify && range.len > u64::from(context.transfer_max_bytes) {
        // Verify Size Limit (VSL) is as MDTS.
        return Err(StatusCode::InvalidField.into());
    }
    let measured = Measured {
        persistence: persistence(context, sqe),
        ..Measured::bare(action, extent)
    };
    Ok(measured.admit(context, geometry, &namespace, range.len))
}

fn dataset_management<B: Backend>(
    context: &Context<'_>,
    sqe: &Sqe,
    backend: &mut B,
) -> Result<Command, Status> {
    let pointer = check_pointer(context, sqe)?;
    let namespace = namespace(sqe.nsid(), CommandClass::Write, backend)?;
    let ranges = (sqe.cdw10.get() & 0xFF) + 1;
    let len_bytes = ranges * size_of::<DatasetRange>() as u32;
    // Attribute Deallocate (AD); the other two are hints about how the ranges will be used.
    let action = if sqe.cdw11.get() & 1 << 2 == 0 {
        Action::Hint
    } else {
        Action::Deallocate
    };
    let measured = Measured {
        len_bytes,
        from_host: Some(list_pointer(pointer, len_bytes)?),
        ..Measured::bare(action, Extent::new(Lba(0), Blocks(0)))
    };
    let geometry = namespace.volume.geometry();
    Ok(measured.unadmitted(geometry, &namespace))
}

fn copy<B: Backend>(context: &Context<'_>, sqe: &Sqe, backend: &mut B) -> Result<Command, Status> {
    const DESCRIPTOR_FORMAT: u32 = 0xF << 8;
    const DIRECTIVE_TYPE: u32 = 0xF << 20;
    const PROTECTION: u32 = 0xF << 12 | 0xF << 26;
    let pointer = check_pointer(context, sqe)?;
    let namespace = namespace(sqe.nsid(), CommandClass::Write, backend)?;
    namespace.permit.check(CommandClass::Read)?;
    let cdw12 = sqe.cdw12.get();
    if cdw12 & (DESCRIPTOR_FORMAT | DIRECTIVE_TYPE) != 0 {
        return Err(StatusCode::InvalidField.into());
    }
    if cdw12 & PROTECTION != 0 {
        return Err(INVALID_PROTECTION_INFORMATION);
    }
    let ranges = (cdw12 & 0xFF) + 1;
    if ranges > COPY_RANGES_MAX {
        return Err(COMMAND_SIZE_LIMIT_EXCEEDED);
    }
    let len_bytes = ranges * size_of::<CopyRange>() as u32;
    let measured = Measured {
        len_bytes,
        from_host: Some(list_pointer(pointer, len_bytes)?),
        ..Measured::bare(Action::Copy, Extent::new(Lba(sqe.cdw10_11()), Blocks(0)))
    };
    let geometry = namespace.volume.geometry();
    Ok(measured.unadmitted(geometry, &namespace))
}

/// Invalid Protection Information, do not retry. It and the next share their numbers with statuses
/// of Connect.
const INVALID_PROTECTION_INFORMATION: Status = Status::from_field(0x4181);
/// Command Size Limit Exceeded, do not retry.
pub(super) const COMMAND_SIZE_LIMIT_EXCEEDED: Status = Status::from_field(0x4183);

/// A command whose lengths are checked.
struct Measured {
    action: Action,
    extent: Extent,
    len_bytes: u32,
    from_host: Option<DataPointer>,
    persistence: Persistence,
}

impl Measured {
    const fn bare(action: Action, extent: Extent) -> Self {
        Self {
            action,
            extent,
            len_bytes: 0,
            from_host: None,
            persistence: Persistence::Volatile,
        }
    }

    /// Admits the command to its volume, whose filters charge `work_bytes`.
    #[expect(
        clippy::inline_always,
        reason = "as a call, it copies each command twice: 30 instructions"
    )]
    #[inline(always)]
    fn admit(
        self,
        context: &mut Context<'_>,
        geometry: Geometry,
        namespace: &NamespaceRef<'_>,
        work_bytes: u64,
    ) -> Command {
        let admitted = match context.kind {
            Some(kind) => {
                let has_blocks = self.action != Action::Flush;
                let extents = std::slice::from_ref(&self.extent);
                let intent = Intent {
                    kind,
                    extents: &extents[..usize::from(has_blocks)],
                    len_bytes: work_bytes,
                    data_use: self.action.data_use(),
                    persistence: self.persistence,
                };
                let (slot, volume) = (context.slot.index(), namespace.volume);
                context.leases.admit(slot, volume, context.now, &intent)
            }
            None => Admitted::Now,
        };
        Command {
            admitted,
            ..self.unadmitted(geometry, namespace)
        }
    }

    /// A command that its volume admits later, when its ranges are known.
    #[inline]
    fn unadmitted(self, geometry: Geometry, namespace: &NamespaceRef<'_>) -> Command {
        Command {
            action: self.action,
            extent: self.extent,
            block_shift: geometry.block_size.shift(),
            source: namespace.source,
            len_bytes: self.len_bytes,
            from_host: self.from_host,
            may_place: namespace.is_pinned,
            admitted: Admitted::Now,
        }
    }
}

fn namespace<B: Backend>(
    nsid: Nsid,
    class: CommandClass,
    backend: &mut B,
) -> Result<NamespaceRef<'_>, Status> {
    let namespace = backend
        .namespace(nsid)
        .ok_or(StatusCode::InvalidNamespaceOrFormat)?;
    namespace.permit.check(class)?;
    Ok(namespace)
}

/// The data pointer of a command that has data. Fabrics know SGLs only.
fn check_pointer(context: &Context<'_>, sqe: &Sqe) -> Result<DataPointer, Status> {
    match sqe.psdt() {
        Psdt::SglMetadataAddress | Psdt::SglMetadataSgl => Ok(context.pointer?),
        Psdt::Prp | Psdt::Reserved => Err(StatusCode::InvalidField.into()),
    }
}

/// A list of ranges may be shorter than the data (Linux always sends a whole page); only the list
/// is fetched.
fn list_pointer(pointer: DataPointer, len_bytes: u32) -> Result<DataPointer, Status> {
    if pointer.len_bytes() < len_bytes {
        return Err(StatusCode::DataSglLengthInvalid.into());
    }
    Ok(match pointer {
        DataPointer::InCapsule { .. } => DataPointer::InCapsule { len_bytes },
        DataPointer::Remote { .. } => DataPointer::Remote { len_bytes },
    })
}

/// Protection Information (PRINFO): no namespace is formatted with it.
fn check_protection(sqe: &Sqe) -> Result<(), Status> {
    const PRINFO: u32 = 0xF << 26;
    if sqe.cdw12.get() & PRINFO == 0 {
        Ok(())
    } else {
        Err(INVALID_PROTECTION_INFORMATION)
    }
}

/// Force Unit Access (FUA). A host that connected before the first namespace with a volatile write
/// cache was attached does not flush, so its writes are always forced.
fn persistence(context: &Context<'_>, sqe: &Sqe) -> Persistence {
    let is_forced = sqe.cdw12.get() & 1 << 30 != 0;
    let is_read = context.kind == Some(OpKind::Read);
    if is_forced || context.write_cache == WriteCache::Absent && !is_read {
        Persistence::Durable
    } else {
        Persistence::Volatile
    }
}

/// Starting LBA (SLBA) and Number of Logical Blocks (NLB, 0's-based).
pub(super) fn extent(sqe: &Sqe) -> Extent {
    let blocks = u64::from(sqe.cdw12.get() & 0xFFFF) + 1;
    Extent::new(Lba(sqe.cdw10_11()), Blocks(blocks))
}

impl From<block::Status> for Status {
    /// The protocol's status for a volume's status.
    fn from(status: block::Status) -> Self {
        let code = match status {
            block::Status::LbaOutOfRange => StatusCode::LbaOutOfRange,
            block::Status::WriteProtected => StatusCode::NamespaceWriteProtected,
            block::Status::CapacityExceeded => StatusCode::CapacityExceeded,
            block::Status::Miscompare { .. } => StatusCode::CompareFailure,
            block::Status::ReadError => StatusCode::UnrecoveredReadError,
            block::Status::WriteError => StatusCode::WriteFault,
            block::Status::Busy => StatusCode::CommandInterrupted,
            block::Status::NotReady => StatusCode::NamespaceNotReady,
            block::Status::Gone => StatusCode::InvalidNamespaceOrFormat,
            block::Status::Invalid => StatusCode::InvalidField,
        };
        code.into()
    }
}

/// A range of a Dataset Management command, 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DatasetRange {
    /// Context Attributes: hints.
    pub context_attributes: U32,
    /// Length in logical blocks, 1's-based; 0 is no block.
    pub blocks: U32,
    /// Starting LBA.
    pub lba: U64,
}

const _: () = assert!(size_of::<DatasetRange>() == 16);

impl DatasetRange {
    /// The blocks.
    pub fn extent(&self) -> Extent {
        Extent::new(Lba(self.lba.get()), Blocks(u64::from(self.blocks.get())))
    }
}

/// A source range of a Copy, descriptor format 0, 32 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CopyRange {
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Starting LBA.
    pub lba: U64,
    /// Number of Logical Blocks, 0's-based.
    pub nlb: U16,
    /// Reserved.
    pub reserved2: [u8; 6],
    /// Expected tags of protection information, which no namespace has.
    pub tags: [u8; 8],
}

const _: () = assert!(size_of::<CopyRange>() == 32);
const _: () = assert!(std::mem::offset_of!(CopyRange, nlb) == 16);

impl CopyRange {
    /// The blocks.
    pub fn extent(&self) -> Extent {
        let blocks = u64::from(self.nlb.get()) + 1;
        Extent::new(Lba(self.lba.get()), Blocks(blocks))
    }
}
