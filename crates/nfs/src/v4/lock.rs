//! LOCK, LOCKT, LOCKU.
//!
//! Read first: RFC 8881 sections 18.10 to 18.12.

use super::compound::{Compound, Demand};
use super::data::kind_status;
use super::place::with_clients;
use crate::Backend;
use crate::clients::{
    Conflict, FileKey, LockKind, LockRange, Locker, OWNER_BYTES_MAX, Refused, StateId,
};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};

impl<B: Backend> Compound<'_, B> {
    /// LOCK. A lock that conflicts is not waited for: the client asks again.
    pub(super) fn lock(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let kind = read_kind(arguments)?;
        let demand = if arguments.bool()? {
            Demand::Reclaim
        } else {
            Demand::New
        };
        let (offset, length) = (arguments.u64()?, arguments.u64()?);
        let locker = if arguments.bool()? {
            let _open_sequence = arguments.u32()?;
            let open = self.meant(StateId::read(arguments)?)?;
            let _lock_sequence = arguments.u32()?;
            let _client = arguments.u64()?;
            Locker::New {
                open,
                owner: arguments.opaque(OWNER_BYTES_MAX)?,
            }
        } else {
            let known = self.meant(StateId::read(arguments)?)?;
            let _lock_sequence = arguments.u32()?;
            Locker::Known(known)
        };
        let (client, (handle, key)) = (self.client()?, self.lockable()?);
        let range = LockRange::new(offset, length)?;
        self.check_grace(handle, demand)?;
        let locked = with_clients(self.backend, |clients| {
            clients.lock(client, &key, locker, kind, range)
        })?;
        match locked {
            Ok(id) => {
                self.settle_records(handle)?;
                self.at.current.state = Some(id);
                id.write(out);
                Ok(())
            }
            Err(Refused::Denied(conflict)) => deny(&conflict, out),
            Err(Refused::Status(status)) => Err(status),
        }
    }

    /// LOCKT.
    pub(super) fn test_lock(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let kind = read_kind(arguments)?;
        let (offset, length) = (arguments.u64()?, arguments.u64()?);
        let _client = arguments.u64()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let (client, (handle, key)) = (self.client()?, self.lockable()?);
        let range = LockRange::new(offset, length)?;
        self.check_grace(handle, Demand::New)?;
        let conflict = with_clients(self.backend, |clients| {
            clients.test_lock(client, &key, owner, kind, range)
        })?;
        match conflict {
            Some(conflict) => deny(&conflict, out),
            None => Ok(()),
        }
    }

    /// LOCKU.
    pub(super) fn unlock(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let _kind = read_kind(arguments)?;
        let _sequence = arguments.u32()?;
        let id = self.meant(StateId::read(arguments)?)?;
        let (offset, length) = (arguments.u64()?, arguments.u64()?);
        let client = self.client()?;
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let range = LockRange::new(offset, length)?;
        let id = with_clients(self.backend, |clients| {
            clients.unlock(client, &key, id, range)
        })??;
        self.at.current.state = Some(id);
        id.write(out);
        Ok(())
    }

    /// The current file, which must be regular.
    fn lockable(&mut self) -> Result<(Handle, FileKey), Status4> {
        let (handle, key) = self.current_file(Status4::IsDirectory)?;
        let kind = self.place(handle)?.attributes()?.kind;
        kind_status(kind).map_or(Ok((handle, key)), Err)
    }
}

/// nfs_lock_type4. Whether the client's program waits makes no difference here.
fn read_kind(arguments: &mut Reader<'_>) -> Result<LockKind, Malformed> {
    match arguments.u32()? {
        1 | 3 => Ok(LockKind::Read),
        2 | 4 => Ok(LockKind::Write),
        _ => Err(Malformed),
    }
}

/// LOCK4denied.
fn deny(conflict: &Conflict, out: &mut Writer<'_>) -> Result<(), Status4> {
    let (offset, length) = conflict.range.offset_and_length();
    out.u64(offset);
    out.u64(length);
    out.u32(conflict.kind as u32);
    out.u64(conflict.client);
    out.opaque(&conflict.owner);
    Err(Status4::Denied)
}
