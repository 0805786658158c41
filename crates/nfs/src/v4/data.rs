//! Operations on a file's data: READ, WRITE, COMMIT, DEALLOCATE.

use file_tree::{FileError, FileKind};

use super::compound::Compound;
use super::place::{Place, with_clients};
use crate::Backend;
use crate::clients::{FileKey, StateId, StateUse, TRANSFER_BYTES_MAX};
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, Writer, padding};

/// stable_how4: data need not be safe before the reply; COMMIT follows.
pub(super) const UNSTABLE: u32 = 0;
/// Data and attributes are safe.
pub(super) const FILE_SYNC: u32 = 2;

impl<B: Backend> Compound<'_, B> {
    /// READ (RFC 8881 section 18.22).
    pub(super) fn read(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (id, offset) = (StateId::read(arguments)?, arguments.u64()?);
        let count = arguments.u32()? as usize;
        let (handle, key) = self.current_file(Status4::IsDirectory)?;
        self.check_state(id, &key, StateUse::Read)?;
        let count = count.min(TRANSFER_BYTES_MAX);
        self.check_reply(out.len() + 8 + count + padding(count))?;
        let place = self.place(handle)?;
        let begin = out.len();
        out.zeros(8 + count);
        let data = out.tail_mut(begin + 8);
        let read = place.tree().read(&place.caller(), place.file, offset, data);
        let done = read.map_err(|error| data_status(&place, error))?;
        out.truncate(begin + 8 + done.len_bytes);
        out.zeros(padding(done.len_bytes));
        out.patch(begin, &u32::from(done.is_end).to_be_bytes());
        out.patch(begin + 4, &(done.len_bytes as u32).to_be_bytes());
        self.at.bytes_out += done.len_bytes as u64;
        self.at.results.push(begin + 8..begin + 8 + done.len_bytes);
        Ok(())
    }

    /// WRITE (section 18.32).
    pub(super) fn write(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (id, offset) = (StateId::read(arguments)?, arguments.u64()?);
        let stable = arguments.u32()?;
        if stable > FILE_SYNC {
            return Err(Malformed.into());
        }
        let data = arguments.opaque(usize::MAX)?;
        let (handle, key) = self.current_file(Status4::IsDirectory)?;
        self.check_state(id, &key, StateUse::Write)?;
        let verifier = self.backend.write_verifier();
        let place = self.place(handle)?;
        let is_safe = stable != UNSTABLE && !place.export.options.is_async;
        let written = change(&place, |place| {
            place
                .tree()
                .write(&place.caller(), place.file, offset, data, is_safe)
        })?;
        let done = written.value;
        out.u32(done.len_bytes as u32);
        // More is asked for than the tree gives only if the export does not wait for it.
        out.u32(if done.is_stable { FILE_SYNC } else { stable });
        out.view(&verifier);
        self.at.bytes_in += done.len_bytes as u64;
        Ok(())
    }

    /// COMMIT (section 18.3). The whole file is made safe, whatever range is asked for.
    pub(super) fn commit(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (_offset, _count) = (arguments.u64()?, arguments.u32()?);
        let (handle, _) = self.current_file(Status4::IsDirectory)?;
        let verifier = self.backend.write_verifier();
        let place = self.place(handle)?;
        let committed = place.tree().commit(&place.caller(), place.file);
        committed.map_err(|error| data_status(&place, error))?;
        out.view(&verifier);
        Ok(())
    }

    /// DEALLOCATE (RFC 7862 section 15.4).
    pub(super) fn deallocate(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let id = StateId::read(arguments)?;
        let (offset, len_bytes) = (arguments.u64()?, arguments.u64()?);
        if offset.checked_add(len_bytes).is_none() {
            return Err(Status4::Invalid);
        }
        let (handle, key) = self.current_file(Status4::WrongType)?;
        self.check_state(id, &key, StateUse::Write)?;
        let place = self.place(handle)?;
        change(&place, |place| {
            place
                .tree()
                .punch_hole(&place.caller(), place.file, offset, len_bytes)
        })?;
        Ok(())
    }

    /// Checks the state ID of an operation on data.
    pub(super) fn check_state(
        &mut self,
        id: StateId,
        key: &FileKey,
        state_use: StateUse,
    ) -> Result<(), Status4> {
        let id = self.meant(id)?;
        let client = self.client_of_data(id)?;
        let now = self.now;
        with_clients(self.backend, |clients| {
            clients.check_data(client, id, key, state_use)?;
            // Otherwise the client has opened the file for writing, and only it has a delegation.
            if state_use == StateUse::Write && id.is_special() {
                clients.recall(now, key, None)?;
            }
            Ok(())
        })?
    }
}

/// Changes the data of a file, unless the export is read-only.
pub(super) fn change<T>(
    place: &Place<'_>,
    operation: impl FnOnce(&Place<'_>) -> Result<T, FileError>,
) -> Result<T, Status4> {
    if place.export.options.read_only {
        return Err(Status4::ReadOnly);
    }
    operation(place).map_err(|error| data_status(place, error))
}

/// The status of an operation on data, by what the file is.
pub(super) fn data_status(place: &Place<'_>, error: FileError) -> Status4 {
    let kind = place.attributes().map(|attributes| attributes.kind);
    match (error, kind) {
        (FileError::Invalid | FileError::IsDirectory, Ok(kind)) => {
            kind_status(kind).unwrap_or(error.into())
        }
        _ => error.into(),
    }
}

/// Why a file of this kind has no data; `None` if it has.
pub(super) const fn kind_status(kind: FileKind) -> Option<Status4> {
    match kind {
        FileKind::Regular => None,
        FileKind::Directory => Some(Status4::IsDirectory),
        FileKind::SymbolicLink => Some(Status4::SymbolicLink),
        _ => Some(Status4::WrongType),
    }
}
