//! Delegations: DELEGRETURN, what OPEN tells of them, and recalls in front of changes.
//!
//! Read first: RFC 8881 sections 10.4, 18.6 and 18.16.

use file_tree::Name;

use super::compound::Compound;
use super::place::{MinorVersion, key_of, with_clients};
use crate::Backend;
use crate::clients::{StateId, Undelegated};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Reader, Writer};

/// What OPEN returns of a delegation (open_delegation4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delegated {
    /// There is none, and the client has not said what it wants.
    None,
    /// The file is delegated for reading.
    Read(StateId),
    /// There is none, for this reason.
    Refused(Refusal),
}

/// Why there is no delegation (why_no_delegation4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Refusal {
    NotWanted = 0,
    Contention = 1,
    Resource = 2,
    NotSupported = 3,
    Cancelled = 7,
}

/// Which delegation an OPEN wants (flags of share_access).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted(u32);

impl Wanted {
    /// The bits of share_access that say so.
    pub(super) const MASK: u32 = 0xff00;
    const NO_PREFERENCE: u32 = 0;
    const READ: u32 = 0x100;
    const ANY: u32 = 0x300;
    const NONE: u32 = 0x400;
    const CANCEL: u32 = 0x500;

    /// What share_access says.
    pub(super) const fn of(access: u32) -> Self {
        Self(access & Self::MASK)
    }

    /// Why there is no delegation, for a client that has said what it wants.
    pub(super) const fn refused(self, why: Refusal) -> Delegated {
        match self.0 {
            Self::NO_PREFERENCE => Delegated::None,
            Self::NONE => Delegated::Refused(Refusal::NotWanted),
            Self::CANCEL => Delegated::Refused(Refusal::Cancelled),
            _ => Delegated::Refused(why),
        }
    }

    /// Whether it may be one for reading.
    const fn takes_read(self) -> bool {
        matches!(self.0, Self::NO_PREFERENCE | Self::READ | Self::ANY)
    }
}

impl Delegated {
    /// Writes open_delegation4.
    pub(super) fn write(self, out: &mut Writer<'_>) {
        const NONE: u32 = 0;
        const READ: u32 = 1;
        const NONE_WITH_REASON: u32 = 3;
        match self {
            Self::None => out.u32(NONE),
            Self::Read(id) => {
                out.u32(READ);
                id.write(out);
                // It is not recalled at once.
                out.bool(false);
                // Nobody may open the file without asking for ACCESS: an entry of type ALLOW that
                // allows nothing to nobody.
                out.zeros(12);
                out.opaque(b"");
            }
            Self::Refused(why) => {
                out.u32(NONE_WITH_REASON);
                out.u32(why as u32);
                if matches!(why, Refusal::Contention | Refusal::Resource) {
                    // The client is not told when it changes.
                    out.bool(false);
                }
            }
        }
    }
}

impl<B: Backend> Compound<'_, B> {
    /// DELEGRETURN.
    pub(super) fn return_delegation(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let id = StateId::read(arguments)?;
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let id = self.meant(id)?;
        let client = self.client_of(id)?;
        with_clients(self.backend, |clients| {
            clients.return_delegation(client, id, &key)
        })?
    }

    /// Delegates a file that a client has opened for reading alone.
    pub(super) fn delegate(
        &mut self,
        client: u64,
        handle: Handle,
        wanted: Wanted,
    ) -> Result<Delegated, Status4> {
        let may_delegate = self.place(handle)?.export.may_delegate;
        if !may_delegate || !wanted.takes_read() || self.at.minor == MinorVersion::Zero {
            return Ok(wanted.refused(Refusal::NotSupported));
        }
        let now = self.now;
        let delegated = with_clients(self.backend, |clients| {
            clients.delegate(now, client, key_of(handle))
        })?;
        Ok(match delegated {
            Ok(id) => Delegated::Read(id),
            Err(Undelegated::Contention) => wanted.refused(Refusal::Contention),
            Err(Undelegated::Resource) => wanted.refused(Refusal::Resource),
        })
    }

    /// Recalls the delegations of a file that is about to be changed, except that of the client
    /// itself.
    pub(super) fn recall(&mut self, handle: Handle) -> Result<(), Status4> {
        let export = self.place(handle)?.export;
        if !export.may_delegate || export.options.read_only {
            return Ok(());
        }
        let (now, own) = (self.now, self.client().ok());
        with_clients(self.backend, |clients| {
            clients.recall(now, &key_of(handle), own)
        })?
    }

    /// The same for the file that an entry names. Returns the file, if there is one.
    pub(super) fn recall_entry(
        &mut self,
        directory: Handle,
        name: Name<'_>,
    ) -> Result<Option<Handle>, Status4> {
        let place = self.place(directory)?;
        if !place.export.may_delegate {
            return Ok(None);
        }
        let found = place.tree().lookup(&place.caller(), place.file, name);
        // If there is none, the operation itself says what is wrong.
        let found = found.ok().map(|found| Handle {
            file: found.id,
            ..directory
        });
        found.map_or(Ok(()), |found| self.recall(found))?;
        Ok(found)
    }

    /// A file was changed. A client that was given a delegation meanwhile has read its attributes
    /// before or after that, and reads them again.
    pub(super) fn recall_after(&mut self, changed: Option<Handle>) {
        if let Some(changed) = changed {
            // The change is done, so nobody waits for the delegation.
            let _ = self.recall(changed);
        }
    }
}
