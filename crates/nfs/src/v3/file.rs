//! Procedures on one file, except for its data: GETATTR, SETATTR, ACCESS, READLINK, COMMIT.

use std::ops::Range;

use file_tree::{Access, FileKind};

use super::attributes::{WireAttributes, WireTime, read_changes};
use super::handle::Handle;
use super::place::{Context, Fault};
use super::status::Status;
use crate::Backend;
use crate::rpc::AcceptedHeader;
use crate::xdr::{Reader, Writer};

/// GETATTR (RFC 1813 section 3.3.1).
pub(super) fn get_attr<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    arguments.finish()?;
    let place = context.open(handle)?;
    let attributes = place.tree().attributes(place.file).map_err(Status::from)?;
    out.u32(Status::Ok as u32);
    place.write_attributes(&attributes, out);
    Ok(Status::Ok)
}

/// SETATTR (section 3.3.2).
pub(super) fn set_attr<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    let changes = read_changes(&mut arguments)?;
    let guard = if arguments.bool()? {
        WireTime::read(&mut arguments)?.map(Some)
    } else {
        Ok(None)
    };
    arguments.finish()?;
    context.recall(handle)?;
    let place = context.open(handle)?;
    let changed = changes.and_then(|changes| {
        // An instant that does not exist is not the file's.
        let guard = guard.map_err(|_| Status::NotSynchronized)?;
        place.change(|tree, caller| tree.set_attributes(caller, place.file, &changes, guard))
    });
    let status = match changed {
        Ok(changed) => {
            out.u32(Status::Ok as u32);
            place.write_change(&changed.before, &changed.after, out);
            Status::Ok
        }
        Err(status) => {
            out.u32(status as u32);
            place.write_unchanged(out);
            status
        }
    };
    context.recall_after(handle.ok());
    Ok(status)
}

/// The bits of ACCESS (section 3.3.4).
const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

/// What a caller may do, as bits of ACCESS.
pub(crate) fn access_bits(kind: FileKind, access: Access, is_read_only: bool) -> u32 {
    let (write, execute) = match kind {
        FileKind::Directory => (MODIFY | EXTEND | DELETE, LOOKUP),
        _ => (MODIFY | EXTEND, EXECUTE),
    };
    let bits = |granted: bool, bits| if granted { bits } else { 0 };
    bits(access.read, READ)
        | bits(access.write && !is_read_only, write)
        | bits(access.execute, execute)
}

/// ACCESS (section 3.3.4).
pub(super) fn access<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    let asked = arguments.u32()?;
    arguments.finish()?;
    let place = context.open(handle)?;
    let tree = place.tree();
    let attributes = tree.attributes(place.file).map_err(Status::from)?;
    let access = tree
        .access(&place.caller(), place.file)
        .map_err(Status::from)?;
    let is_read_only = place.export.options.read_only || tree.is_read_only();
    out.u32(Status::Ok as u32);
    place.write_after(Some(&attributes), out);
    out.u32(access_bits(attributes.kind, access, is_read_only) & asked);
    Ok(Status::Ok)
}

/// READLINK (section 3.3.5).
pub(super) fn read_link<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    arguments.finish()?;
    let place = context.open(handle)?;
    let begin = out.len();
    out.u32(Status::Ok as u32);
    // The attributes precede the path, and are known with it. Of a link they change only by its
    // attributes.
    place.write_after(place.attributes().as_ref(), out);
    let read = place
        .tree()
        .read_link(&place.caller(), place.file, &mut |path| out.opaque(path));
    Ok(match read {
        Ok(_) => Status::Ok,
        Err(error) => {
            out.truncate(begin);
            let status = error.into();
            place.write_status(status, out);
            status
        }
    })
}

/// Where the path is in a reply to READLINK that has the status OK.
pub(crate) fn link_path(reply: &[u8]) -> Option<Range<usize>> {
    let mut reader = Reader::new(reply);
    reader.view::<AcceptedHeader>().ok()?;
    let _status = reader.u32().ok()?;
    if reader.bool().ok()? {
        reader.view::<WireAttributes>().ok()?;
    }
    let len = reader.u32().ok()? as usize;
    let begin = reply.len() - reader.rest().len();
    (len <= reader.rest().len()).then_some(begin..begin + len)
}

/// COMMIT (section 3.3.21). The whole file is made safe, whatever range is asked for.
pub(super) fn commit<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let handle = Handle::read(&mut arguments)?;
    let (_offset, _count) = (arguments.u64()?, arguments.u32()?);
    arguments.finish()?;
    let verifier = context.backend.write_verifier();
    let place = context.open(handle)?;
    Ok(match place.tree().commit(&place.caller(), place.file) {
        Ok(changed) => {
            out.u32(Status::Ok as u32);
            place.write_change(&changed.before, &changed.after, out);
            out.view(&verifier);
            Status::Ok
        }
        Err(error) => {
            let status = Status::of_data(error);
            out.u32(status as u32);
            place.write_unchanged(out);
            status
        }
    })
}
