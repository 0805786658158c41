//! Operations on entries that exist: LOOKUP, LOOKUPP, REMOVE, RENAME, LINK.

use file_tree::{Attributes, BeforeChange, FileError, FileKind, Name};

use super::compound::Compound;
use super::place::{Node, Place};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Reader, Writer};
use crate::{Backend, Refusal};

impl<B: Backend> Compound<'_, B> {
    /// LOOKUP (RFC 8881 section 18.13).
    pub(super) fn look_up(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let name = arguments.opaque(usize::MAX)?;
        let found = match self.node()? {
            Node::Root => self.look_up_export(name)?,
            Node::File(handle) => {
                let place = self.place(handle)?;
                let found = place
                    .look_up(name)
                    .map_err(|status| not_directory(&place, status))?;
                place.node(found.id)
            }
        };
        self.put(found)
    }

    /// The root directory of an export.
    pub(super) fn look_up_export(&mut self, name: &[u8]) -> Result<Node, Status4> {
        Name::new(name)?;
        let path = [b"/", name].concat();
        match self.backend.by_path(&path) {
            Ok(export) => Ok(Node::File(Handle {
                export: export.id,
                file: export.tree.root(),
            })),
            Err(Refusal::Unknown) => Err(Status4::NotFound),
            Err(Refusal::Denied) => Err(Status4::AccessDenied),
        }
    }

    /// LOOKUPP (section 18.14).
    pub(super) fn look_up_parent(&mut self) -> Result<(), Status4> {
        let handle = self.node()?.file(Status4::NotFound)?;
        let place = self.place(handle)?;
        let parent = if place.file == place.tree().root() {
            Node::Root
        } else {
            let parent = place.tree().parent(&place.caller(), place.file);
            let parent = parent.map_err(|error| not_directory(&place, error.into()))?;
            place.node(parent.id)
        };
        self.put(parent)
    }

    /// REMOVE (section 18.25).
    pub(super) fn remove(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let name = arguments.opaque(usize::MAX)?;
        let (handle, _) = self.current_file(Status4::ReadOnly)?;
        let name = Name::new(name)?;
        let file = self.recall_entry(handle, name)?;
        let place = self.place(handle)?;
        let removed = place.change(|tree, caller| {
            // An entry may become a directory, or stop to be one, in between.
            match tree.remove(caller, place.file, name) {
                Err(FileError::IsDirectory) => tree.remove_directory(caller, place.file, name),
                removed => removed,
            }
        })?;
        write_change(&removed.before, &removed.after, out);
        self.recall_after(file);
        Ok(())
    }

    /// RENAME (section 18.26): from the saved to the current directory.
    pub(super) fn rename(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let from = arguments.opaque(usize::MAX)?;
        let to = arguments.opaque(usize::MAX)?;
        let (saved, current) = self.saved_and_current()?;
        let (from, to) = (Name::new(from)?, Name::new(to)?);
        let moved = self.recall_entry(saved, from)?;
        let replaced = self.recall_entry(current, to)?;
        let place = self.place(saved)?;
        let renamed = place
            .change(|tree, caller| tree.rename(caller, (place.file, from), (current.file, to)))?;
        write_change(&renamed.before, &renamed.after, out);
        write_change(&renamed.value.before, &renamed.value.after, out);
        self.recall_after(moved);
        self.recall_after(replaced);
        Ok(())
    }

    /// LINK (section 18.9): of the saved file into the current directory.
    pub(super) fn link(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let name = arguments.opaque(usize::MAX)?;
        let (saved, current) = self.saved_and_current()?;
        let name = Name::new(name)?;
        self.recall(saved)?;
        let place = self.place(saved)?;
        let linked =
            place.change(|tree, caller| tree.link(caller, place.file, current.file, name))?;
        write_change(&linked.before, &linked.after, out);
        self.recall_after(Some(saved));
        Ok(())
    }

    /// The files that the saved and the current handle name, which are of one export.
    pub(super) fn saved_and_current(&self) -> Result<(Handle, Handle), Status4> {
        let current = self.node()?;
        let saved = self.at.saved.node.ok_or(Status4::NoFileHandle)?;
        match (saved, current) {
            (Node::File(saved), Node::File(current)) if saved.export == current.export => {
                Ok((saved, current))
            }
            (Node::Root, Node::Root) => Err(Status4::ReadOnly),
            _ => Err(Status4::OtherDevice),
        }
    }
}

/// The status of an operation on a directory. A symbolic link has a status of its own.
fn not_directory(place: &Place<'_>, status: Status4) -> Status4 {
    let is_link = || {
        place
            .attributes()
            .is_ok_and(|attributes| attributes.kind == FileKind::SymbolicLink)
    };
    match status {
        Status4::NotDirectory if is_link() => Status4::SymbolicLink,
        _ => status,
    }
}

/// change_info4. Operations of a tree take effect as a whole.
pub(super) fn write_change(before: &BeforeChange, after: &Attributes, out: &mut Writer<'_>) {
    out.bool(true);
    out.u64(before.change);
    out.u64(after.change);
}
