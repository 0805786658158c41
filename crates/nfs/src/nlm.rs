//! NLM version 4: byte-range locks of clients of version 3; and what a client's status monitor
//! (NSM) says after its restart.
//!
//! Read first: RFC 1813 section 6, and X/Open's "Protocols for Interworking: XNFS", chapters 9 to
//! 11.
//!
//! A client that waits for a lock is called back: [`Grant`] is that call, which the program makes.

use std::time::Instant;

use crate::clients::{Conflict, FileKey, LockKind, LockRange, Locked, NlmCaller, OWNER_BYTES_MAX};
use crate::rpc::{AcceptedHeader, CallHeader, LOCK_PROGRAM, LOCK_VERSION, record_mark};
use crate::v3::{Context, Fault, Handle, Status};
use crate::xdr::{Malformed, Reader, Writer};
use crate::{Backend, Clients, Export, Grant, Procedure};
use file_tree::FileKind;

/// nlm4_stats, as far as this server returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LockStatus {
    Granted = 0,
    Denied = 1,
    /// The server has no room for the lock.
    NoLocks = 2,
    /// The client is called back.
    Blocked = 3,
    /// The client asks again later.
    Grace = 4,
    StaleHandle = 7,
    TooLarge = 8,
    Failed = 9,
}

/// The longest netobj, and the longest name of a client (LM_MAXSTRLEN), in bytes.
const NETOBJ_BYTES_MAX: usize = 1024;

/// The number of NLM4_GRANTED.
const GRANTED: u32 = 5;

/// nlm4_lock.
struct LockArguments<'a> {
    name: &'a [u8],
    handle: Result<Handle, Status>,
    /// svid, as four bytes, and oh.
    owner: Vec<u8>,
    offset: u64,
    len: u64,
}

/// Executes a procedure and writes its results. Returns whether the client has what it asked for.
pub(crate) fn execute<B: Backend>(
    procedure: Procedure,
    now: Instant,
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<bool, Fault> {
    if matches!(procedure, Procedure::NlmFreeAll | Procedure::NsmNotify) {
        free(procedure, context, arguments)?;
        return Ok(true);
    }
    let cookie = arguments.opaque(NETOBJ_BYTES_MAX)?;
    out.opaque(cookie);
    let status = match procedure {
        Procedure::NlmTest => return test(now, context, arguments, out),
        Procedure::NlmLock => lock(now, context, arguments)?,
        Procedure::NlmCancel => cancel(context, arguments)?,
        _ => unlock(context, arguments)?,
    };
    out.u32(status as u32);
    Ok(matches!(status, LockStatus::Granted | LockStatus::Blocked))
}

/// The results of a call that cannot be executed now.
pub(crate) fn write_later(mut arguments: Reader<'_>, out: &mut Writer<'_>) {
    out.opaque(arguments.opaque(NETOBJ_BYTES_MAX).unwrap_or_default());
    out.u32(LockStatus::Grace as u32);
}

/// The export of a TEST or LOCK, which look at the file, if the client may use it.
pub(crate) fn export<'a, B: Backend>(
    procedure: Procedure,
    mut arguments: Reader<'_>,
    backend: &'a mut B,
) -> Option<&'a Export> {
    arguments.opaque(NETOBJ_BYTES_MAX).ok()?;
    let booleans = match procedure {
        Procedure::NlmTest => 1,
        Procedure::NlmLock => 2,
        _ => return None,
    };
    for _ in 0..booleans {
        arguments.bool().ok()?;
    }
    let lock = LockArguments::read(&mut arguments).ok()?;
    backend.by_id(lock.handle.ok()?.export).ok()
}

/// NLM4_TEST.
fn test<B: Backend>(
    now: Instant,
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<bool, Fault> {
    let kind = read_kind(&mut arguments)?;
    let lock = LockArguments::read(&mut arguments)?;
    arguments.finish()?;
    let Lockable { key, range, .. } = match check(now, context, &lock, Demand::New) {
        Ok(lockable) => lockable,
        Err(status) => {
            out.u32(status as u32);
            return Ok(false);
        }
    };
    let holder = with_clients(context, &lock, |clients, caller| {
        let conflict = clients.nlm_test(caller, &key, kind, range)?;
        let is_nlm = clients.is_nlm(conflict.client);
        Some((conflict, is_nlm))
    });
    match holder.flatten() {
        None => out.u32(LockStatus::Granted as u32),
        Some((conflict, is_nlm)) => {
            out.u32(LockStatus::Denied as u32);
            write_holder(&conflict, is_nlm, out);
        }
    }
    Ok(true)
}

/// NLM4_LOCK.
fn lock<B: Backend>(
    now: Instant,
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
) -> Result<LockStatus, Fault> {
    let may_wait = arguments.bool()?;
    let kind = read_kind(&mut arguments)?;
    let lock = LockArguments::read(&mut arguments)?;
    let is_reclaim = arguments.bool()?;
    let _state = arguments.u32()?;
    arguments.finish()?;
    let demand = if is_reclaim {
        Demand::Reclaim
    } else {
        Demand::New
    };
    let lockable = match check(now, context, &lock, demand) {
        Ok(lockable) => lockable,
        Err(status) => return Ok(status),
    };
    let Lockable { key, range, .. } = lockable;
    let local = context.backend.local();
    let wait = may_wait.then_some(local);
    if kind == LockKind::Write && context.recall(lock.handle) == Err(Status::TryLater) {
        // A client that has read the file without asking may have locked it likewise.
        return Ok(LockStatus::Grace);
    }
    let locked = with_clients(context, &lock, |clients, caller| {
        let locked = clients.nlm_lock(caller, &key, kind, range, wait);
        if lockable.outlives_restart {
            clients.note_host(caller, local);
        }
        locked
    });
    if locked == Some(Locked::Granted) && lockable.outlives_restart {
        context.backend.settle_records();
    }
    Ok(match locked {
        Some(Locked::Granted) => LockStatus::Granted,
        Some(Locked::Denied) => LockStatus::Denied,
        Some(Locked::Blocked) => LockStatus::Blocked,
        Some(Locked::NoLocks) | None => LockStatus::NoLocks,
    })
}

/// NLM4_CANCEL. Like UNLOCK, it concerns what the client has here, whether or not it may still use
/// the file.
fn cancel<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
) -> Result<LockStatus, Fault> {
    let _may_wait = arguments.bool()?;
    let _kind = read_kind(&mut arguments)?;
    let lock = LockArguments::read(&mut arguments)?;
    arguments.finish()?;
    let (Ok(handle), Ok(range)) = (lock.handle, lock.range()) else {
        return Ok(LockStatus::Denied);
    };
    let key = FileKey(handle.to_bytes());
    let is_done = with_clients(context, &lock, |clients, caller| {
        clients.nlm_cancel(caller, &key, range)
    });
    Ok(match is_done {
        Some(true) => LockStatus::Granted,
        _ => LockStatus::Denied,
    })
}

/// NLM4_UNLOCK.
fn unlock<B: Backend>(
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
) -> Result<LockStatus, Fault> {
    let lock = LockArguments::read(&mut arguments)?;
    arguments.finish()?;
    let Ok(handle) = lock.handle else {
        return Ok(LockStatus::StaleHandle);
    };
    let Ok(range) = lock.range() else {
        return Ok(LockStatus::TooLarge);
    };
    let key = FileKey(handle.to_bytes());
    let is_done = with_clients(context, &lock, |clients, caller| {
        clients.nlm_unlock(caller, &key, range)
    });
    Ok(match is_done {
        Some(true) => LockStatus::Granted,
        _ => LockStatus::NoLocks,
    })
}

/// NLM4_FREE_ALL of one machine at the client's address, and SM_NOTIFY: the client has restarted,
/// under whichever name.
fn free<B: Backend>(
    procedure: Procedure,
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
) -> Result<(), Malformed> {
    let name = arguments.opaque(NETOBJ_BYTES_MAX)?;
    let _state = arguments.u32()?;
    arguments.finish()?;
    let name = (procedure == Procedure::NlmFreeAll).then_some(name);
    let address = context.backend.client();
    let mut free = |clients: &mut Clients| clients.nlm_free(address, name);
    context.backend.with_clients(&mut free);
    Ok(())
}

/// What may be locked.
#[derive(Clone, Copy, Debug)]
struct Lockable {
    key: FileKey,
    range: LockRange,
    /// See [`Export::outlives_restart`].
    outlives_restart: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// A lock, or whether there could be one.
    New,
    /// A lock that the client had when the program ended.
    Reclaim,
}

/// Checks that the file is a regular one of an export that the client may use, that the user may
/// read or write it, and that the grace period allows what is asked for.
fn check<B: Backend>(
    now: Instant,
    context: &mut Context<'_, B>,
    lock: &LockArguments<'_>,
    demand: Demand,
) -> Result<Lockable, LockStatus> {
    let range = lock.range()?;
    let handle = lock.handle.map_err(|_| LockStatus::StaleHandle)?;
    let place = context.open(Ok(handle)).map_err(of_status)?;
    let attributes = place.tree().attributes(place.file);
    let attributes = attributes.map_err(|error| of_status(error.into()))?;
    if attributes.kind != FileKind::Regular {
        return Err(LockStatus::Failed);
    }
    let access = place.tree().access(&place.caller(), place.file);
    let access = access.map_err(|error| of_status(error.into()))?;
    // The file may be open for more than its mode allows by now, so either permission is enough for
    // both kinds.
    if !access.read && !access.write {
        return Err(LockStatus::Denied);
    }
    let outlives_restart = place.export.outlives_restart;
    check_grace(now, context, lock, (demand, outlives_restart))?;
    Ok(Lockable {
        key: FileKey(handle.to_bytes()),
        range,
        outlives_restart,
    })
}

/// In the grace period locks of files that outlive the program are reclaimed, and at no other time.
fn check_grace<B: Backend>(
    now: Instant,
    context: &mut Context<'_, B>,
    lock: &LockArguments<'_>,
    (demand, outlives_restart): (Demand, bool),
) -> Result<(), LockStatus> {
    match demand {
        Demand::New if !outlives_restart => Ok(()),
        Demand::New => match with_clients(context, lock, |clients, _| clients.is_in_grace(now)) {
            Some(false) => Ok(()),
            _ => Err(LockStatus::Grace),
        },
        // Another client may have had the lock meanwhile.
        Demand::Reclaim if !outlives_restart => Err(LockStatus::Denied),
        Demand::Reclaim => {
            match with_clients(context, lock, |clients, caller| {
                clients.may_reclaim_nlm(now, caller)
            }) {
                Some(true) => Ok(()),
                _ => Err(LockStatus::Denied),
            }
        }
    }
}

const fn of_status(status: Status) -> LockStatus {
    match status {
        Status::Stale | Status::BadHandle => LockStatus::StaleHandle,
        Status::AccessDenied => LockStatus::Denied,
        Status::TryLater => LockStatus::Grace,
        _ => LockStatus::Failed,
    }
}

/// Calls `use_clients` with the state of all clients.
fn with_clients<B: Backend, R>(
    context: &mut Context<'_, B>,
    lock: &LockArguments<'_>,
    use_clients: impl FnOnce(&mut Clients, NlmCaller<'_>) -> R,
) -> Option<R> {
    let caller = NlmCaller {
        address: context.backend.client(),
        name: lock.name,
        owner: &lock.owner,
    };
    let (mut use_clients, mut result) = (Some(use_clients), None);
    context.backend.with_clients(&mut |clients| {
        if let Some(use_clients) = use_clients.take() {
            result = Some(use_clients(clients, caller));
        }
    });
    result
}

/// Whether a lock is exclusive.
fn read_kind(arguments: &mut Reader<'_>) -> Result<LockKind, Malformed> {
    Ok(if arguments.bool()? {
        LockKind::Write
    } else {
        LockKind::Read
    })
}

impl<'a> LockArguments<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let name = reader.opaque(NETOBJ_BYTES_MAX)?;
        let handle = Handle::read(reader)?;
        let oh = reader.opaque(OWNER_BYTES_MAX)?;
        let svid: [u8; 4] = reader.array()?;
        Ok(Self {
            name,
            handle,
            owner: [&svid, oh].concat(),
            offset: reader.u64()?,
            len: reader.u64()?,
        })
    }

    /// No bytes mean those up to the end of the file.
    fn range(&self) -> Result<LockRange, LockStatus> {
        let len = if self.len == 0 { u64::MAX } else { self.len };
        LockRange::new(self.offset, len).map_err(|_| LockStatus::TooLarge)
    }
}

/// The offset and length of a range in NLM.
fn offset_and_length(range: LockRange) -> (u64, u64) {
    match range.offset_and_length() {
        (offset, u64::MAX) => (offset, 0),
        both => both,
    }
}

/// svid and oh of an owner.
fn split_owner(owner: &[u8]) -> ([u8; 4], &[u8]) {
    match owner.split_first_chunk() {
        Some((svid, oh)) => (*svid, oh),
        None => ([0; 4], owner),
    }
}

/// nlm4_holder. Owners of version 4 have no svid.
fn write_holder(conflict: &Conflict, is_nlm: bool, out: &mut Writer<'_>) {
    let (svid, oh) = if is_nlm {
        split_owner(&conflict.owner)
    } else {
        ([0; 4], &*conflict.owner)
    };
    out.bool(conflict.kind == LockKind::Write);
    out.raw(&svid);
    out.opaque(oh);
    let (offset, len) = offset_and_length(conflict.range);
    out.u64(offset);
    out.u64(len);
}

impl Grant {
    /// The longest reply to the callback, in bytes, with the header of its record.
    pub const REPLY_BYTES_MAX: usize = 4 + size_of::<AcceptedHeader>() + 4 + NETOBJ_BYTES_MAX + 4;

    /// The client's address.
    pub const fn client(&self) -> std::net::IpAddr {
        self.address
    }

    /// The address of this server that the client knows, and so expects the callback from.
    pub const fn local(&self) -> std::net::IpAddr {
        self.local
    }

    /// NLM4_GRANTED, as a record.
    pub fn call(&self, xid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.zeros(4);
        out.view(&CallHeader::new(xid, (LOCK_PROGRAM, LOCK_VERSION, GRANTED)));
        // Credential and verifier are AUTH_NONE: the client knows the lock.
        out.zeros(16);
        out.opaque(&self.id.to_be_bytes());
        out.bool(self.kind == LockKind::Write);
        out.opaque(&self.name);
        out.opaque(&self.key.0);
        let (svid, oh) = split_owner(&self.owner);
        out.opaque(oh);
        out.raw(&svid);
        let (offset, len) = offset_and_length(self.range);
        out.u64(offset);
        out.u64(len);
        let len = out.len() - 4;
        out.patch(0, &record_mark(len));
        bytes
    }

    /// Whether the client accepts the lock. `None` if the record, one fragment with its header, is
    /// no reply to the call with this `xid`, or the client asks to be called later.
    pub fn read_reply(xid: u32, record: &[u8]) -> Option<bool> {
        let mut reader = Reader::new(record.get(4..)?);
        let header: &AcceptedHeader = reader.view().ok()?;
        if !header.is_success(xid) {
            return None;
        }
        reader.opaque(NETOBJ_BYTES_MAX).ok()?;
        let status = reader.u32().ok()?;
        reader.finish().ok()?;
        if status == LockStatus::Grace as u32 {
            return None;
        }
        Some(status == LockStatus::Granted as u32)
    }
}

#[cfg(test)]
mod tests;
