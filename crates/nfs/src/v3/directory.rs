//! Procedures on entries that exist: LOOKUP, REMOVE, RMDIR, RENAME, LINK.

use file_tree::{Caller, Changed, FileError, FileId, FileTree, Name};

use super::handle::Handle;
use super::place::{Context, Fault, Place, entry_name};
use super::status::Status;
use crate::Backend;
use crate::xdr::{Malformed, Reader, Writer};

/// diropargs3: a directory and the name of an entry, neither of them checked.
pub(super) struct EntryArguments<'a> {
    pub(super) directory: Result<Handle, Status>,
    pub(super) name: &'a [u8],
}

impl<'a> EntryArguments<'a> {
    /// Reads them.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            directory: Handle::read(reader)?,
            name: reader.opaque(usize::MAX)?,
        })
    }
}

/// LOOKUP (RFC 1813 section 3.3.3).
pub(super) fn lookup<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let EntryArguments { directory, name } = EntryArguments::read(&mut arguments)?;
    arguments.finish()?;
    let place = context.open(directory)?;
    let found = place.look_up(name);
    let status = found.as_ref().map_or_else(|status| *status, |_| Status::Ok);
    out.u32(status as u32);
    if let Ok(found) = &found {
        place.write_handle(found.id, out);
        place.write_after(Some(found), out);
    }
    place.write_after(place.attributes().as_ref(), out);
    Ok(status)
}

/// REMOVE (section 3.3.12).
pub(super) fn remove<B: Backend>(
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    remove_entry(
        context,
        arguments,
        out,
        Status::Invalid,
        |tree, caller, directory, name| tree.remove(caller, directory, name),
    )
}

/// RMDIR (section 3.3.13).
pub(super) fn remove_directory<B: Backend>(
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    remove_entry(
        context,
        arguments,
        out,
        Status::Exists,
        |tree, caller, directory, name| tree.remove_directory(caller, directory, name),
    )
}

/// Removes an entry. The status of `..` differs between the procedures; that of `.` does not.
fn remove_entry<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
    dot_dot: Status,
    operation: impl FnOnce(&dyn FileTree, &Caller<'_>, FileId, Name<'_>) -> Result<Changed, FileError>,
) -> Result<Status, Fault> {
    let EntryArguments { directory, name } = EntryArguments::read(&mut arguments)?;
    arguments.finish()?;
    let file = context.recall_entry(directory, name)?;
    let place = context.open(directory)?;
    let dots = if name == b".." {
        dot_dot
    } else {
        Status::Invalid
    };
    let changed = entry_name(name, dots)
        .and_then(|name| place.change(|tree, caller| operation(tree, caller, place.file, name)));
    let status = write_changed(&place, changed, out);
    context.recall_after(file);
    Ok(status)
}

/// Writes a status and wcc_data of the directory.
fn write_changed(
    place: &Place<'_>,
    changed: Result<Changed, Status>,
    out: &mut Writer<'_>,
) -> Status {
    match changed {
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
    }
}

/// RENAME (section 3.3.14).
pub(super) fn rename<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let from = EntryArguments::read(&mut arguments)?;
    let to = EntryArguments::read(&mut arguments)?;
    arguments.finish()?;
    let moved = context.recall_entry(from.directory, from.name)?;
    let replaced = context.recall_entry(to.directory, to.name)?;
    let (place, to_directory) = context.open_two(from.directory, to.directory)?;
    let renamed = to_directory.and_then(|to_directory| {
        let from = entry_name(from.name, Status::Invalid)?;
        let to = entry_name(to.name, Status::Invalid)?;
        place.change(|tree, caller| tree.rename(caller, (place.file, from), (to_directory, to)))
    });
    let status = match renamed {
        Ok(from) => {
            out.u32(Status::Ok as u32);
            place.write_change(&from.before, &from.after, out);
            place.write_change(&from.value.before, &from.value.after, out);
            Status::Ok
        }
        Err(status) => {
            out.u32(status as u32);
            place.write_unchanged(out);
            place.write_other_unchanged(to_directory, out);
            status
        }
    };
    context.recall_after(moved);
    context.recall_after(replaced);
    Ok(status)
}

/// LINK (section 3.3.15).
pub(super) fn link<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let file = Handle::read(&mut arguments)?;
    let EntryArguments { directory, name } = EntryArguments::read(&mut arguments)?;
    arguments.finish()?;
    context.recall(file)?;
    let (place, directory) = context.open_two(file, directory)?;
    let linked = directory.and_then(|directory| {
        let name = entry_name(name, Status::Invalid)?;
        place.change(|tree, caller| tree.link(caller, place.file, directory, name))
    });
    let status = match linked {
        Ok(changed) => {
            out.u32(Status::Ok as u32);
            place.write_after(Some(&changed.value), out);
            place.write_change(&changed.before, &changed.after, out);
            Status::Ok
        }
        Err(status) => {
            place.write_status(status, out);
            place.write_other_unchanged(directory, out);
            status
        }
    };
    context.recall_after(file.ok());
    Ok(status)
}
