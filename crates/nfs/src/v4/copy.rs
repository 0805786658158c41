//! Operations on data that only minor version 2 has: COPY and SEEK.
//!
//! Read first: RFC 7862 sections 15.2 and 15.11.

use file_tree::{FileId, SeekTarget};

use super::compound::Compound;
use super::data::{FILE_SYNC, UNSTABLE, change, data_status};
use super::place::{Place, key_of};
use crate::Backend;
use crate::clients::{StateId, StateUse};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};

/// The most bytes of a COPY, so that it takes no longer than a turn of a reactor. The client goes
/// on behind them.
const COPY_BYTES_MAX: u64 = 1 << 20;
/// What operations of a compound move or reserve before another one is refused, in bytes: one of
/// them takes a turn of a reactor, and a compound has many operations.
const MOVED_BYTES_MAX: u64 = COPY_BYTES_MAX;
/// What is copied at a time.
const PART_BYTES: u64 = 64 << 10;
/// The most servers that a client names as the source of a COPY.
const SOURCES_MAX: u32 = 16;

/// The arguments of COPY, of files on this server.
struct CopyArguments {
    from: (StateId, u64),
    to: (StateId, u64),
    /// How many bytes; 0 means all up to the end.
    count: u64,
}

impl<B: Backend> Compound<'_, B> {
    /// COPY, of the saved into the current file. It is always done before the reply.
    pub(super) fn copy(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let CopyArguments { from, to, count } = CopyArguments::read(arguments)?;
        self.check_moved()?;
        let (source, target) = self.saved_and_current()?;
        self.check_states((from.0, to.0), (source, target))?;
        let verifier = self.backend.write_verifier();
        let place = self.place(source)?;
        let size_bytes = place.attributes()?.size_bytes;
        let left = size_bytes.checked_sub(from.1).ok_or(Status4::Invalid)?;
        let count = if count == 0 { left } else { count };
        let is_overlapping = source == target && from.1.abs_diff(to.1) < count;
        if count > left || to.1.checked_add(count).is_none() || is_overlapping {
            return Err(Status4::Invalid);
        }
        let (copied, is_stable) = copy_bytes(
            &place,
            from.1,
            (target.file, to.1),
            count.min(COPY_BYTES_MAX),
        )?;
        // No state ID of a copy that goes on, the count, and how safe it is.
        out.u32(0);
        out.u64(copied);
        out.u32(if is_stable { FILE_SYNC } else { UNSTABLE });
        out.view(&verifier);
        // It was copied from front to end, and is done.
        out.bool(true);
        out.bool(true);
        self.at.bytes_in += copied;
        self.at.moved_bytes += copied;
        Ok(())
    }

    /// Checks that an operation may still move bytes within this server, or reserve some. Otherwise
    /// the status asks the client to retry later.
    pub(super) const fn check_moved(&self) -> Result<(), Status4> {
        if self.at.moved_bytes < MOVED_BYTES_MAX {
            Ok(())
        } else {
            Err(Status4::Delay)
        }
    }

    /// Checks the state IDs of an operation on the saved and the current file. The current state ID
    /// of the first is the one that was saved with the file.
    pub(super) fn check_states(
        &mut self,
        (from, to): (StateId, StateId),
        (source, target): (Handle, Handle),
    ) -> Result<(), Status4> {
        let from = match from {
            StateId::CURRENT => self.at.saved.state.ok_or(Status4::BadStateId)?,
            id => id,
        };
        self.check_state(from, &key_of(source), StateUse::Read)?;
        self.check_state(to, &key_of(target), StateUse::Write)
    }

    /// SEEK.
    pub(super) fn seek(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (id, offset) = (StateId::read(arguments)?, arguments.u64()?);
        let target = match arguments.u32()? {
            0 => SeekTarget::Data,
            1 => SeekTarget::Hole,
            _ => return Err(Status4::UnionNotSupported),
        };
        let (handle, key) = self.current_file(Status4::WrongType)?;
        self.check_state(id, &key, StateUse::Read)?;
        let place = self.place(handle)?;
        let found = place
            .tree()
            .seek(&place.caller(), place.file, offset, target);
        let found = found.map_err(|error| data_status(&place, error))?;
        if offset >= found.size_bytes {
            return Err(Status4::NoSuchOffset);
        }
        let at = found.offset.unwrap_or(found.size_bytes);
        out.bool(at >= found.size_bytes);
        out.u64(at);
        Ok(())
    }
}

/// Copies bytes from one offset to a file of the same tree at another, in parts. Returns how many,
/// and whether they are safe. A copy that fails behind its first part is a short one.
fn copy_bytes(
    place: &Place<'_>,
    from: u64,
    (target, to): (FileId, u64),
    count: u64,
) -> Result<(u64, bool), Status4> {
    let (mut copied, mut is_stable) = (0, true);
    // Memory of its own, since a tree lends none. It is little beside the bytes that are copied.
    let mut part = vec![0; count.min(PART_BYTES) as usize];
    while copied < count {
        let part = &mut part[..(count - copied).min(PART_BYTES) as usize];
        let tree = place.tree();
        let read = tree.read(&place.caller(), place.file, from + copied, part);
        let read = read.map_err(|error| data_status(place, error))?.len_bytes;
        let written = change(place, |place| {
            let (caller, data) = (place.caller(), &part[..read]);
            tree.write(&caller, target, to + copied, data, false)
        });
        let written = match written {
            Ok(written) => written.value,
            Err(_) if copied > 0 => break,
            Err(status) => return Err(status),
        };
        copied += written.len_bytes as u64;
        is_stable &= written.is_stable;
        if written.len_bytes < part.len() {
            break;
        }
    }
    Ok((copied, is_stable))
}

impl CopyArguments {
    fn read(arguments: &mut Reader<'_>) -> Result<Self, Status4> {
        let (source, target) = (StateId::read(arguments)?, StateId::read(arguments)?);
        let (from, to, count) = (arguments.u64()?, arguments.u64()?, arguments.u64()?);
        let _is_consecutive = arguments.bool()?;
        let _is_synchronous = arguments.bool()?;
        match arguments.u32()? {
            0 => Ok(Self {
                from: (source, from),
                to: (target, to),
                count,
            }),
            // Nothing is copied from other servers.
            1..=SOURCES_MAX => Err(Status4::NotSupported),
            _ => Err(Malformed.into()),
        }
    }
}
