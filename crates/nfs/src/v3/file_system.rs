//! Procedures about a whole export: FSSTAT, FSINFO, PATHCONF.

use file_tree::Name;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, Unaligned};

use super::LISTING_BYTES_MAX;
use super::attributes::WireTime;
use super::handle::Handle;
use super::place::{Context, Fault, Place};
use super::status::Status;
use crate::Backend;
use crate::xdr::{Reader, Writer};

/// FSSTAT3resok behind its attributes.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireState {
    total_bytes: U64,
    free_bytes: U64,
    /// Bytes that the user may take.
    available_bytes: U64,
    total_files: U64,
    free_files: U64,
    /// Files that the user may create.
    available_files: U64,
    /// Seconds for which nothing changes; 0 is unknown.
    invariant_seconds: U32,
}

const _: () = assert!(size_of::<WireState>() == 52);

/// FSINFO3resok behind its attributes.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireInformation {
    /// rtmax, rtpref and rtmult: the most bytes of a READ, what is best, and their unit.
    read: [U32; 3],
    /// wtmax, wtpref and wtmult: the same of a WRITE.
    write: [U32; 3],
    /// dtpref: the best size of a list of entries.
    listing_bytes: U32,
    file_bytes_max: U64,
    /// The unit of times.
    time_step: WireTime,
    properties: U32,
}

const _: () = assert!(size_of::<WireInformation>() == 48);

/// PATHCONF3resok behind its attributes.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WirePathLimits {
    links_max: U32,
    name_bytes_max: U32,
    /// Longer names are an error.
    no_truncation: U32,
    /// Only root changes owners.
    chown_restricted: U32,
    case_insensitive: U32,
    case_preserving: U32,
}

const _: () = assert!(size_of::<WirePathLimits>() == 24);

/// Properties of FSINFO: FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS and FSF3_CANSETTIME.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// The unit of reads and writes: a page.
const TRANSFER_UNIT_BYTES: u32 = 4096;

/// FSSTAT (RFC 1813 section 3.3.18).
pub(super) fn state<B: Backend>(
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    answer(context, arguments, out, |place| {
        let space = place.tree().space();
        WireState {
            total_bytes: space.total_bytes.into(),
            free_bytes: space.free_bytes.into(),
            available_bytes: space.free_bytes.into(),
            total_files: space.total_files.into(),
            free_files: space.free_files.into(),
            available_files: space.free_files.into(),
            invariant_seconds: 0.into(),
        }
    })
}

/// FSINFO (section 3.3.19).
pub(super) fn information<B: Backend>(
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let bytes_max = context.backend.transfer_bytes_max();
    let transfer = [bytes_max as u32, bytes_max as u32, TRANSFER_UNIT_BYTES].map(U32::new);
    answer(context, arguments, out, |place| {
        let limits = place.tree().limits();
        WireInformation {
            read: transfer,
            write: transfer,
            listing_bytes: U32::new(LISTING_BYTES_MAX.min(bytes_max) as u32),
            file_bytes_max: limits.file_bytes_max.into(),
            time_step: WireTime::new(limits.time_step),
            properties: PROPERTIES.into(),
        }
    })
}

/// PATHCONF (section 3.3.20).
pub(super) fn path_limits<B: Backend>(
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    answer(context, arguments, out, |place| WirePathLimits {
        links_max: place.tree().limits().links_max.into(),
        name_bytes_max: U32::new(Name::LEN_MAX as u32),
        no_truncation: 1.into(),
        chown_restricted: 1.into(),
        case_insensitive: 0.into(),
        case_preserving: 1.into(),
    })
}

/// Answers a call whose argument is a handle with its file's attributes and a structure.
fn answer<B: Backend, T: IntoBytes + Immutable>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
    results: impl FnOnce(&Place<'_>) -> T,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    arguments.finish()?;
    let place = context.open(handle)?;
    let attributes = place.tree().attributes(place.file).map_err(Status::from)?;
    out.u32(Status::Ok as u32);
    place.write_after(Some(&attributes), out);
    out.view(&results(&place));
    Ok(Status::Ok)
}
