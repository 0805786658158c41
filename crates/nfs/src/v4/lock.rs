//! LOCK, LOCKT, LOCKU.
//!
//! Read first: RFC 8881 sections 18.10 to 18.12; RFC 7530 sections 16.10 to 16.12 for minor version
//! 0.

use super::compound::{Compound, Demand};
use super::data::kind_status;
use super::place::with_clients;
use crate::Backend;
use crate::clients::{
    Conflict, FileKey, LockKind, LockRange, Locker, Numbered, OWNER_BYTES_MAX, Refused, StateId,
};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};

/// What LOCK asks for.
struct LockArguments<'a> {
    kind: LockKind,
    demand: Demand,
    /// Offset and length.
    range: (u64, u64),
    /// Names the open, or the locks of an owner that has some.
    id: StateId,
    /// The number of the request of that state's owner.
    sequence: u32,
    first: Option<FirstLock<'a>>,
}

/// A lock-owner's first lock with an open.
struct FirstLock<'a> {
    sequence: u32,
    client: u64,
    owner: &'a [u8],
}

impl<B: Backend> Compound<'_, B> {
    /// LOCK. A lock that conflicts is not waited for: the client asks again.
    pub(super) fn lock(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = *arguments;
        let lock = LockArguments::read(arguments)?;
        let id = self.meant(lock.id)?;
        let numbered = self.numbered(lock.sequence, before, arguments)?;
        let request = self.request_of(id, numbered)?;
        if let Some(first) = &lock.first
            && self.client_named(first.client)? != request.client
        {
            return Err(Status4::BadStateId);
        }
        self.execute_for_owner(request, out, |this, out| {
            this.lock_as((request.client, id, numbered), &lock, out)
        })
    }

    /// The same for an owner.
    fn lock_as(
        &mut self,
        (client, id, numbered): (u64, StateId, Numbered),
        lock: &LockArguments<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (handle, key) = self.lockable()?;
        let range = LockRange::new(lock.range.0, lock.range.1)?;
        self.check_grace(client, handle, lock.demand)?;
        let locked = with_clients(self.backend, |clients| match &lock.first {
            None => clients.lock(client, &key, Locker::Known(id), lock.kind, range),
            Some(FirstLock {
                sequence, owner, ..
            }) => {
                let first = Numbered {
                    sequence: *sequence,
                    ..numbered
                };
                clients.lock_first(client, (owner, first), |clients| {
                    let locker = Locker::New { open: id, owner };
                    clients.lock(client, &key, locker, lock.kind, range)
                })
            }
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
        let client = arguments.u64()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let (handle, key) = self.lockable()?;
        let client = self.client_named(client)?;
        let range = LockRange::new(offset, length)?;
        self.check_grace(client, handle, Demand::New)?;
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
        let before = *arguments;
        let _kind = read_kind(arguments)?;
        let sequence = arguments.u32()?;
        let id = self.meant(StateId::read(arguments)?)?;
        let (offset, length) = (arguments.u64()?, arguments.u64()?);
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let request = self.request_of(id, self.numbered(sequence, before, arguments)?)?;
        self.execute_for_owner(request, out, |this, out| {
            let range = LockRange::new(offset, length)?;
            let id = with_clients(this.backend, |clients| {
                clients.unlock(request.client, &key, id, range)
            })??;
            this.at.current.state = Some(id);
            id.write(out);
            Ok(())
        })
    }

    /// The current file, which must be regular.
    fn lockable(&mut self) -> Result<(Handle, FileKey), Status4> {
        let (handle, key) = self.current_file(Status4::IsDirectory)?;
        let kind = self.place(handle)?.attributes()?.kind;
        kind_status(kind).map_or(Ok((handle, key)), Err)
    }
}

impl<'a> LockArguments<'a> {
    fn read(arguments: &mut Reader<'a>) -> Result<Self, Malformed> {
        let kind = read_kind(arguments)?;
        let demand = if arguments.bool()? {
            Demand::Reclaim
        } else {
            Demand::New
        };
        let range = (arguments.u64()?, arguments.u64()?);
        if !arguments.bool()? {
            return Ok(Self {
                kind,
                demand,
                range,
                id: StateId::read(arguments)?,
                sequence: arguments.u32()?,
                first: None,
            });
        }
        let sequence = arguments.u32()?;
        Ok(Self {
            kind,
            demand,
            range,
            id: StateId::read(arguments)?,
            sequence,
            first: Some(FirstLock {
                sequence: arguments.u32()?,
                client: arguments.u64()?,
                owner: arguments.opaque(OWNER_BYTES_MAX)?,
            }),
        })
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
