//! Procedures that create entries: CREATE, MKDIR, SYMLINK, MKNOD.

use file_tree::{AttributeChanges, DeviceNumber, ExclusiveVerifier, FileKind, NewFile};

use super::attributes::{KIND_BLOCK, KIND_CHARACTER, KIND_FIFO, KIND_SOCKET, read_changes};
use super::directory::EntryArguments;
use super::place::{Context, Fault, entry_name};
use super::status::Status;
use crate::Backend;
use crate::xdr::{Malformed, Reader, Writer};

/// CREATE (RFC 1813 section 3.3.8).
pub(super) fn create<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let entry = EntryArguments::read(&mut arguments)?;
    let (new, attributes) = match arguments.u32()? {
        0 => (NewFile::Unchecked, read_changes(&mut arguments)?),
        1 => (NewFile::Guarded, read_changes(&mut arguments)?),
        2 => {
            let verifier = ExclusiveVerifier(arguments.array()?);
            (
                NewFile::Exclusive(verifier),
                Ok(AttributeChanges::default()),
            )
        }
        _ => return Err(Fault::Malformed),
    };
    arguments.finish()?;
    create_entry(context, &entry, new, attributes, out)
}

/// MKDIR (section 3.3.9).
pub(super) fn make_directory<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let entry = EntryArguments::read(&mut arguments)?;
    let attributes = read_changes(&mut arguments)?;
    arguments.finish()?;
    create_entry(context, &entry, NewFile::Directory, attributes, out)
}

/// SYMLINK (section 3.3.10).
pub(super) fn make_link<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let entry = EntryArguments::read(&mut arguments)?;
    let attributes = read_changes(&mut arguments)?;
    let path = arguments.opaque(usize::MAX)?;
    arguments.finish()?;
    create_entry(
        context,
        &entry,
        NewFile::SymbolicLink(path),
        attributes,
        out,
    )
}

/// MKNOD (section 3.3.11).
pub(super) fn make_node<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let entry = EntryArguments::read(&mut arguments)?;
    let kind = arguments.u32()?;
    let (kind, attributes) = match kind {
        KIND_BLOCK | KIND_CHARACTER => {
            let attributes = read_changes(&mut arguments)?;
            let device = read_device(&mut arguments)?;
            let kind = match kind {
                KIND_BLOCK => FileKind::BlockDevice(device),
                _ => FileKind::CharacterDevice(device),
            };
            (kind, attributes)
        }
        KIND_SOCKET => (FileKind::Socket, read_changes(&mut arguments)?),
        KIND_FIFO => (FileKind::Fifo, read_changes(&mut arguments)?),
        // Files, directories and links have procedures of their own, and no arguments here.
        1..KIND_FIFO => (FileKind::Regular, Err(Status::BadType)),
        _ => return Err(Fault::Malformed),
    };
    arguments.finish()?;
    create_entry(context, &entry, NewFile::Special(kind), attributes, out)
}

/// Reads specdata3.
fn read_device(reader: &mut Reader<'_>) -> Result<DeviceNumber, Malformed> {
    Ok(DeviceNumber {
        major: reader.u32()?,
        minor: reader.u32()?,
    })
}

/// Creates an entry and writes the results, which are the same for all of these procedures.
fn create_entry<B: Backend>(
    context: &mut Context<'_, B>,
    entry: &EntryArguments<'_>,
    new: NewFile<'_>,
    attributes: Result<AttributeChanges, Status>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    if matches!(new, NewFile::Unchecked) {
        // An existing file may be cut off.
        context.recall_entry(entry.directory, entry.name)?;
    }
    let place = context.open(entry.directory)?;
    let created = attributes.and_then(|attributes| {
        let name = entry_name(entry.name, Status::Exists)?;
        if let NewFile::SymbolicLink(path) = new
            && path.len() > place.tree().limits().link_bytes_max
        {
            return Err(Status::NameTooLong);
        }
        place.change(|tree, caller| tree.create(caller, place.file, name, new, &attributes))
    });
    Ok(match created {
        Ok(created) => {
            let attributes = &created.value.attributes;
            out.u32(Status::Ok as u32);
            out.bool(true);
            place.write_handle(attributes.id, out);
            place.write_after(Some(attributes), out);
            place.write_change(&created.before, &created.after, out);
            Status::Ok
        }
        Err(status) => {
            out.u32(status as u32);
            place.write_unchanged(out);
            status
        }
    })
}
