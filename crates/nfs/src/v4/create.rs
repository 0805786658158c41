//! CREATE: entries that are not regular files.
//!
//! Read first: RFC 8881 section 18.4.

use file_tree::{AttributeChanges, DeviceNumber, FileKind, Name, NewFile};

use super::attributes::read_changes;
use super::compound::Compound;
use super::directory::write_change;
use crate::Backend;
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, Writer};

impl<B: Backend> Compound<'_, B> {
    /// CREATE. The new file is the current one afterwards.
    pub(super) fn create(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let new = read_kind(arguments)?;
        let name = arguments.opaque(usize::MAX)?;
        let (changes, set) = read_changes(arguments)?;
        let (handle, _) = self.current_file(Status4::ReadOnly)?;
        let new = new.ok_or(Status4::BadType)?;
        let name = Name::new(name)?;
        let place = self.place(handle)?;
        if let NewFile::SymbolicLink(path) = new {
            if path.is_empty() {
                return Err(Status4::Invalid);
            }
            if path.len() > place.tree().limits().link_bytes_max {
                return Err(Status4::NameTooLong);
            }
        }
        // No such file has a length that could be set.
        let changes = AttributeChanges {
            size_bytes: None,
            ..changes
        };
        let created =
            place.change(|tree, caller| tree.create(caller, place.file, name, new, &changes))?;
        let node = place.node(created.value.attributes.id);
        write_change(&created.before, &created.after, out);
        set.write(out);
        self.put(node)
    }
}

/// createtype4. `None` for kinds that are not created by CREATE.
fn read_kind<'a>(arguments: &mut Reader<'a>) -> Result<Option<NewFile<'a>>, Malformed> {
    const BLOCK: u32 = 3;
    const CHARACTER: u32 = 4;
    let kind = arguments.u32()?;
    Ok(Some(match kind {
        2 => NewFile::Directory,
        BLOCK | CHARACTER => {
            let device = DeviceNumber {
                major: arguments.u32()?,
                minor: arguments.u32()?,
            };
            NewFile::Special(if kind == BLOCK {
                FileKind::BlockDevice(device)
            } else {
                FileKind::CharacterDevice(device)
            })
        }
        5 => NewFile::SymbolicLink(arguments.opaque(usize::MAX)?),
        6 => NewFile::Special(FileKind::Socket),
        7 => NewFile::Special(FileKind::Fifo),
        _ => return Ok(None),
    }))
}
