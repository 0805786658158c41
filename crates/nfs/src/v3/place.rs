//! What a call's handle leads to: a file of an export, and the user as whom the export executes the
//! call.

use std::time::Instant;

use file_tree::{Attributes, BeforeChange, Caller, FileError, FileId, FileTree, Name};

use super::attributes::{WireAttributes, write_after, write_change};
use super::handle::{Handle, write_handle};
use super::status::Status;
use crate::clients::FileKey;
use crate::rpc::{Credential, User};
use crate::xdr::{Malformed, Writer};
use crate::{Backend, Export, ExportId, Refusal};

/// What procedures are executed with.
pub(crate) struct Context<'a, B> {
    pub(crate) credential: &'a Credential,
    pub(crate) backend: &'a mut B,
    pub(crate) now: Instant,
}

/// Why a procedure has written no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The arguments are malformed.
    Malformed,
    /// It fails, and nothing is known about its file.
    Status(Status),
}

impl From<Malformed> for Fault {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// A file of an export that the client may use, as a user.
pub(crate) struct Place<'a> {
    pub(crate) export: &'a Export,
    pub(crate) file: FileId,
    user: User,
}

impl<B: Backend> Context<'_, B> {
    /// Recalls the delegations of a file that is about to be changed.
    pub(crate) fn recall(&mut self, handle: Result<Handle, Status>) -> Result<(), Status> {
        let export = self.open(handle)?.export;
        if !export.may_delegate || export.options.read_only {
            return Ok(());
        }
        let (now, key) = (self.now, FileKey(handle?.to_bytes()));
        let mut recalled = Ok(());
        self.backend.with_clients(&mut |clients| {
            recalled = clients
                .recall(now, &key, None)
                .map_err(|_| Status::TryLater);
        });
        recalled
    }

    /// The same for the file that an entry names. Returns the file, if there is one.
    pub(super) fn recall_entry(
        &mut self,
        directory: Result<Handle, Status>,
        name: &[u8],
    ) -> Result<Option<Handle>, Status> {
        let export = directory?.export;
        let place = self.open(directory)?;
        if !place.export.may_delegate {
            return Ok(None);
        }
        // If there is none, the procedure itself says what is wrong.
        let found = place.look_up(name).ok().map(|found| Handle {
            export,
            file: found.id,
        });
        found.map_or(Ok(()), |found| self.recall(Ok(found)))?;
        Ok(found)
    }

    /// A file was changed. A client that was given a delegation meanwhile has read its attributes
    /// before or after that, and reads them again.
    pub(super) fn recall_after(&mut self, changed: Option<Handle>) {
        if let Some(changed) = changed {
            // The change is done, so nobody waits for the delegation.
            let _ = self.recall(Ok(changed));
        }
    }

    /// The place that a handle names.
    pub(crate) fn open(&mut self, handle: Result<Handle, Status>) -> Result<Place<'_>, Status> {
        let Handle { export, file } = handle?;
        match self.backend.by_id(export) {
            Ok(export) => Ok(Place {
                export,
                file,
                user: self.credential.map(&export.options),
            }),
            Err(Refusal::Unknown) => Err(Status::Stale),
            Err(Refusal::Denied) => Err(Status::AccessDenied),
        }
    }

    /// The place that a handle names, and the file that another handle names. The inner error is
    /// that they are in different exports.
    pub(crate) fn open_two(
        &mut self,
        first: Result<Handle, Status>,
        second: Result<Handle, Status>,
    ) -> Result<(Place<'_>, Result<FileId, Status>), Status> {
        let second = second?;
        let is_same = first?.export == second.export;
        if !is_same {
            // The status does not reveal an export that the client may not use.
            self.open(Ok(second))?;
        }
        let place = self.open(first)?;
        let other = if is_same {
            Ok(second.file)
        } else {
            Err(Status::OtherDevice)
        };
        Ok((place, other))
    }
}

impl<'a> Place<'a> {
    /// The export's tree.
    pub(crate) fn tree(&self) -> &'a dyn FileTree {
        &*self.export.tree
    }

    /// The user.
    pub(crate) fn caller(&self) -> Caller<'_> {
        self.user.caller()
    }

    /// The file that a name leads to, `.` and `..` included (RFC 1813 section 3.2).
    pub(crate) fn look_up(&self, name: &[u8]) -> Result<Attributes, Status> {
        let (tree, caller, directory) = (self.tree(), self.caller(), self.file);
        let found = match name {
            b".." => tree.parent(&caller, directory),
            // The parent is asked for only to learn that this is a directory which the caller may
            // search.
            b"." => tree
                .parent(&caller, directory)
                .and_then(|_| tree.attributes(directory)),
            _ => tree.lookup(&caller, directory, entry_name(name, Status::Invalid)?),
        };
        found.map_err(Status::from)
    }

    /// The attributes of the file, if it still exists.
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.tree().attributes(self.file).ok()
    }

    /// Executes an operation that changes something, unless the export is read-only.
    pub(crate) fn change<T>(
        &self,
        operation: impl FnOnce(&dyn FileTree, &Caller<'_>) -> Result<T, FileError>,
    ) -> Result<T, Status> {
        if self.export.options.read_only {
            return Err(Status::ReadOnly);
        }
        Ok(operation(self.tree(), &self.caller())?)
    }

    /// Writes a status and post_op_attr of the file.
    pub(crate) fn write_status(&self, status: Status, out: &mut Writer<'_>) {
        out.u32(status as u32);
        self.write_after(self.attributes().as_ref(), out);
    }

    /// Writes post_op_attr.
    pub(crate) fn write_after(&self, attributes: Option<&Attributes>, out: &mut Writer<'_>) {
        write_after(self.export.id, attributes, out);
    }

    /// Writes wcc_data.
    pub(crate) fn write_change(
        &self,
        before: &BeforeChange,
        after: &Attributes,
        out: &mut Writer<'_>,
    ) {
        write_change(self.export.id, Some(before), Some(after), out);
    }

    /// Writes wcc_data of a file that the call did not change: its attributes without those before.
    pub(crate) fn write_unchanged(&self, out: &mut Writer<'_>) {
        write_change(self.export.id, None, self.attributes().as_ref(), out);
    }

    /// Writes wcc_data of the second file of [`Context::open_two`], which the call did not change.
    /// Both parts are absent if the file is of another export.
    pub(crate) fn write_other_unchanged(&self, file: Result<FileId, Status>, out: &mut Writer<'_>) {
        let attributes = file.ok().and_then(|file| self.tree().attributes(file).ok());
        write_change(self.export.id, None, attributes.as_ref(), out);
    }

    /// Writes fattr3.
    pub(crate) fn write_attributes(&self, attributes: &Attributes, out: &mut Writer<'_>) {
        out.view(&WireAttributes::new(self.export.id, attributes));
    }

    /// Writes nfs_fh3 of a file of the export.
    pub(crate) fn write_handle(&self, file: FileId, out: &mut Writer<'_>) {
        write_handle(self.export.id, file, out);
    }

    /// The export.
    pub(crate) fn export_id(&self) -> ExportId {
        self.export.id
    }
}

/// The attributes of the file that a path leads to from the root of an export, component by
/// component. Symbolic links are not followed.
pub(crate) fn look_up_path(
    export: &Export,
    credential: &Credential,
    path: &[u8],
) -> Result<Attributes, Status> {
    let mut place = Place {
        export,
        file: export.tree.root(),
        user: credential.map(&export.options),
    };
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        place.file = place.look_up(name)?.id;
    }
    Ok(place.tree().attributes(place.file)?)
}

/// The name of an entry. `.` and `..` have the status `dots`.
pub(crate) fn entry_name(bytes: &[u8], dots: Status) -> Result<Name<'_>, Status> {
    Name::new(bytes).map_err(|fault| Status::of_name(fault, dots))
}
