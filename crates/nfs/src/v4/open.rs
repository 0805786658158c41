//! OPEN, OPEN_DOWNGRADE, CLOSE.
//!
//! Read first: RFC 8881 sections 18.2, 18.16 and 18.18; RFC 7530 sections 16.2, 16.16 and 16.19 for
//! minor version 0.

use file_tree::{AttributeChanges, Attributes, ExclusiveVerifier, FileError, Name, NewFile};

use super::attributes::read_changes;
use super::bitmap::Bitmap;
use super::compound::{Compound, Demand};
use super::data::kind_status;
use super::delegation::{Delegated, Refusal, Wanted};
use super::owned::OwnerRequest;
use super::place::{MinorVersion, Node, Place, key_of, with_clients};
use crate::Backend;
use crate::clients::{OWNER_BYTES_MAX, Opened, Requester, ShareModes, StateId};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};

/// The arguments of OPEN.
struct OpenArguments<'a> {
    sequence: u32,
    client: u64,
    modes: ShareModes,
    /// Which delegation the client wants.
    wanted: Wanted,
    owner: &'a [u8],
    how: How,
    claim: Claim<'a>,
}

/// createhow4.
#[derive(Clone, Copy)]
enum How {
    /// The file exists.
    Existing,
    /// It is created unless it exists.
    Unchecked(AttributeChanges, Bitmap),
    /// It is created, and must not exist.
    Guarded(AttributeChanges, Bitmap),
    /// The same, unless it was created with this verifier.
    Exclusive(ExclusiveVerifier, AttributeChanges, Bitmap),
}

/// open_claim4.
#[derive(Clone, Copy)]
enum Claim<'a> {
    /// The entry of the current directory.
    Entry(&'a [u8]),
    /// The current file.
    Current,
    /// What the client had before the server's restart.
    Previous,
    /// The entry of the current directory, which is delegated to the client.
    DelegatedEntry(StateId, &'a [u8]),
    /// The current file, which is delegated to the client.
    Delegated(StateId),
    /// A delegation of the client's before its own restart. None is kept for that.
    DelegatedBefore,
}

/// The file to be opened.
struct Target {
    attributes: Attributes,
    /// The change attribute of the directory before and after.
    change: (u64, u64),
    /// Whether this operation has created it, so that its mode does not restrict it.
    is_created: bool,
    /// Attributes that were set.
    set: Bitmap,
    /// It existed, and is to be emptied.
    is_emptied: bool,
}

/// Flags of share_access beside READ and WRITE, and what is wanted.
const SIGNAL_FLAGS: u32 = 0x3_0000;
/// OPEN4_RESULT_LOCKTYPE_POSIX: ranges of locks may be split and joined.
const LOCKS_AS_POSIX: u32 = 4;
/// OPEN4_RESULT_CONFIRM: OPEN_CONFIRM has to follow.
const NEEDS_CONFIRMATION: u32 = 2;

impl<B: Backend> Compound<'_, B> {
    /// OPEN. The file is the current one afterwards.
    pub(super) fn open(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = *arguments;
        let open = OpenArguments::read(arguments, self.at.minor)?;
        let request = OwnerRequest {
            client: self.client_named(open.client)?,
            requester: Requester::Opener(open.owner),
            numbered: self.numbered(open.sequence, before, arguments)?,
        };
        self.execute_for_owner(request, out, |this, out| {
            this.open_as(request.client, &open, out)
        })
    }

    /// The same for a client.
    fn open_as(
        &mut self,
        client: u64,
        open: &OpenArguments<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let demand = match open.claim {
            Claim::Previous => Demand::Reclaim,
            _ => Demand::New,
        };
        if demand == Demand::New {
            with_clients(self.backend, |clients| clients.check_open(client))??;
        }
        let (place_of, entry) = self.named_by(&open.claim)?;
        self.check_grace(client, place_of, demand)?;
        self.note_opener(client, open.owner, demand)?;
        let place = self.place(place_of)?;
        let target = match entry {
            Some(name) => find(&place, name, open.how)?,
            None => current(&place, open.how)?,
        };
        check(&place, &target, open.modes)?;
        let handle = Handle {
            file: target.attributes.id,
            ..place_of
        };
        let opened = self.open_state(client, handle, (open, target.is_emptied))?;
        if target.is_emptied
            && let Err(status) = self.empty(handle)
        {
            with_clients(self.backend, |clients| clients.undo_open(client, &opened))?;
            return Err(status);
        }
        self.settle_records(handle)?;
        self.put(Node::File(handle))?;
        self.at.current.state = Some(opened.id);
        let delegated = self.delegated(client, handle, (open, target.is_emptied))?;
        let flags = if opened.needs_confirmation {
            NEEDS_CONFIRMATION
        } else {
            0
        };
        write_opened(opened.id, &target, flags, out);
        delegated.write(out);
        Ok(())
    }

    /// The directory and the entry that a claim names, or the file.
    fn named_by<'a>(&mut self, claim: &Claim<'a>) -> Result<(Handle, Option<Name<'a>>), Status4> {
        let node = self.node()?;
        Ok(match (*claim, node) {
            (Claim::Entry(name) | Claim::DelegatedEntry(_, name), Node::File(handle)) => {
                (handle, Some(Name::new(name)?))
            }
            (Claim::Entry(name) | Claim::DelegatedEntry(_, name), Node::Root) => {
                self.look_up_export(name)?;
                return Err(Status4::IsDirectory);
            }
            (Claim::DelegatedBefore, _) => return Err(Status4::NotSupported),
            (_, Node::File(handle)) => (handle, None),
            (_, Node::Root) => return Err(Status4::IsDirectory),
        })
    }

    /// Opens a file for a client, once others have returned their delegations of it if they would
    /// miss what the client does.
    fn open_state(
        &mut self,
        client: u64,
        handle: Handle,
        (open, is_emptied): (&OpenArguments<'_>, bool),
    ) -> Result<Opened, Status4> {
        let is_change = is_emptied || open.is_change();
        if is_change && open.claim.delegation().is_some() {
            return Err(Status4::OpenMode);
        }
        let (now, key) = (self.now, key_of(handle));
        with_clients(self.backend, |clients| {
            if let Some(id) = open.claim.delegation() {
                clients.delegation_of(client, id, &key)?;
            }
            if is_change {
                clients.recall(now, &key, Some(client))?;
            }
            clients.open(client, open.owner, key, open.modes)
        })?
    }

    /// Delegates a file that was opened, if that is possible.
    fn delegated(
        &mut self,
        client: u64,
        handle: Handle,
        (open, is_emptied): (&OpenArguments<'_>, bool),
    ) -> Result<Delegated, Status4> {
        if is_emptied || open.is_change() || open.claim.delegation().is_some() {
            return Ok(open.wanted.refused(Refusal::Contention));
        }
        self.delegate(client, handle, open.wanted)
    }

    /// Cuts off the data of a file that was opened by a creation.
    fn empty(&mut self, handle: Handle) -> Result<(), Status4> {
        let changes = AttributeChanges {
            size_bytes: Some(0),
            ..AttributeChanges::default()
        };
        let place = self.place(handle)?;
        place.change(|tree, caller| tree.set_attributes(caller, place.file, &changes, None))?;
        Ok(())
    }

    /// OPEN_DOWNGRADE.
    pub(super) fn downgrade(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = *arguments;
        let id = StateId::read(arguments)?;
        let sequence = arguments.u32()?;
        let (modes, _) = read_modes(arguments, self.at.minor)?;
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let id = self.meant(id)?;
        let request = self.request_of(id, self.numbered(sequence, before, arguments)?)?;
        self.execute_for_owner(request, out, |this, out| {
            let id = with_clients(this.backend, |clients| {
                clients.downgrade(request.client, id, &key, modes)
            })??;
            this.at.current.state = Some(id);
            id.write(out);
            Ok(())
        })
    }

    /// CLOSE.
    pub(super) fn close(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = *arguments;
        let sequence = arguments.u32()?;
        let id = StateId::read(arguments)?;
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let id = self.meant(id)?;
        let request = self.request_of(id, self.numbered(sequence, before, arguments)?)?;
        self.execute_for_owner(request, out, |this, out| {
            with_clients(this.backend, |clients| {
                if clients.file_of(request.client, id)? != key {
                    return Err(Status4::BadStateId);
                }
                clients.close(request.client, id)
            })??;
            this.at.current.state = Some(StateId::INVALID);
            StateId::INVALID.write(out);
            Ok(())
        })
    }
}

impl<'a> OpenArguments<'a> {
    fn read(arguments: &mut Reader<'a>, minor: MinorVersion) -> Result<Self, Status4> {
        let sequence = arguments.u32()?;
        let (modes, wanted) = read_modes(arguments, minor)?;
        let client = arguments.u64()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let how = match arguments.u32()? {
            0 => How::Existing,
            1 => How::read(arguments, minor)?,
            _ => return Err(Malformed.into()),
        };
        let claim = match arguments.u32()? {
            0 => Claim::Entry(arguments.opaque(usize::MAX)?),
            1 => {
                let _delegation = arguments.u32()?;
                Claim::Previous
            }
            2 => Claim::DelegatedEntry(StateId::read(arguments)?, arguments.opaque(usize::MAX)?),
            // What follows is not read, since the compound ends here.
            3 => Claim::DelegatedBefore,
            _ if minor == MinorVersion::Zero => return Err(Malformed.into()),
            4 => Claim::Current,
            5 => Claim::Delegated(StateId::read(arguments)?),
            6 => Claim::DelegatedBefore,
            _ => return Err(Malformed.into()),
        };
        Ok(Self {
            sequence,
            client,
            modes,
            wanted,
            owner,
            how,
            claim,
        })
    }

    /// Whether others that keep what they have read would miss what the client does.
    const fn is_change(&self) -> bool {
        self.modes.access & ShareModes::WRITE != 0 || self.modes.deny & ShareModes::READ != 0
    }
}

impl Claim<'_> {
    /// The delegation by which the file is opened.
    const fn delegation(&self) -> Option<StateId> {
        match self {
            Self::DelegatedEntry(id, _) | Self::Delegated(id) => Some(*id),
            _ => None,
        }
    }
}

impl How {
    fn read(arguments: &mut Reader<'_>, minor: MinorVersion) -> Result<Self, Status4> {
        match arguments.u32()? {
            3 if minor == MinorVersion::Zero => Err(Malformed.into()),
            0 => read_changes(arguments).map(|(changes, set)| Self::Unchecked(changes, set)),
            1 => read_changes(arguments).map(|(changes, set)| Self::Guarded(changes, set)),
            mode @ (2 | 3) => {
                let verifier = ExclusiveVerifier(arguments.array()?);
                let (changes, set) = if mode == 3 {
                    read_changes(arguments)?
                } else {
                    Default::default()
                };
                Ok(Self::Exclusive(verifier, changes, set))
            }
            _ => Err(Malformed.into()),
        }
    }
}

/// share_access and share_deny. Returns the delegation that is wanted, too.
fn read_modes(
    arguments: &mut Reader<'_>,
    minor: MinorVersion,
) -> Result<(ShareModes, Wanted), Status4> {
    let (access, deny) = (arguments.u32()?, arguments.u32()?);
    let flags = match minor {
        MinorVersion::Zero => 0,
        _ => Wanted::MASK | SIGNAL_FLAGS,
    };
    let wanted = Wanted::of(access);
    let known = u32::from(ShareModes::READ | ShareModes::WRITE);
    let modes = ShareModes {
        access: (access & known) as u8,
        deny: (deny & known) as u8,
    };
    if modes.access == 0 || access & !(known | flags) != 0 || deny & !known != 0 {
        return Err(Status4::Invalid);
    }
    Ok((modes, wanted))
}

/// The file that an entry names, created if that is asked for.
fn find(place: &Place<'_>, name: Name<'_>, how: How) -> Result<Target, Status4> {
    // A file that is created or removed by others between two steps is looked for once more.
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let (new, changes, set) = match how {
            How::Existing => return existing(place, name, false),
            How::Guarded(changes, set) => (NewFile::Guarded, changes, set),
            How::Exclusive(verifier, changes, set) => (NewFile::Exclusive(verifier), changes, set),
            How::Unchecked(changes, set) => {
                match existing(place, name, changes.size_bytes == Some(0)) {
                    Err(Status4::NotFound) => (NewFile::Guarded, changes, set),
                    found => return found,
                }
            }
        };
        let created =
            place.change(|tree, caller| tree.create(caller, place.file, name, new, &changes));
        match created {
            Ok(created) => {
                return Ok(Target {
                    attributes: created.value.attributes,
                    change: (created.before.change, created.after.change),
                    is_created: true,
                    set,
                    is_emptied: false,
                });
            }
            Err(Status4::Exists) if matches!(how, How::Unchecked(..)) => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status4::Delay)
}

/// The existing file that an entry names.
fn existing(place: &Place<'_>, name: Name<'_>, is_emptied: bool) -> Result<Target, Status4> {
    let found = place.tree().lookup(&place.caller(), place.file, name)?;
    let change = place.attributes()?.change;
    Ok(Target {
        attributes: found,
        change: (change, change),
        is_created: false,
        set: Bitmap::default(),
        is_emptied,
    })
}

/// The current file.
fn current(place: &Place<'_>, how: How) -> Result<Target, Status4> {
    let How::Existing = how else {
        return Err(Status4::Invalid);
    };
    let attributes = place.attributes()?;
    Ok(Target {
        attributes,
        change: (attributes.change, attributes.change),
        is_created: false,
        set: Bitmap::default(),
        is_emptied: false,
    })
}

/// Checks that the file is regular, and that the user may open it like that.
fn check(place: &Place<'_>, target: &Target, modes: ShareModes) -> Result<(), Status4> {
    if let Some(status) = kind_status(target.attributes.kind) {
        return Err(match status {
            // Minor version 0 has one status for all that is neither a file nor a directory (RFC
            // 7530 section 16.16.5).
            Status4::WrongType if place.minor == MinorVersion::Zero => Status4::SymbolicLink,
            status => status,
        });
    }
    if target.is_created {
        return Ok(());
    }
    let writes = modes.access & ShareModes::WRITE != 0 || target.is_emptied;
    if writes && (place.export.options.read_only || place.tree().is_read_only()) {
        return Err(Status4::ReadOnly);
    }
    let access = place
        .tree()
        .access(&place.caller(), target.attributes.id)
        .map_err(|error: FileError| Status4::from(error))?;
    // A program that may only be executed is read for that.
    let may_read = access.read || access.execute;
    let reads = modes.access & ShareModes::READ != 0;
    if reads && !may_read || writes && !access.write {
        return Err(Status4::AccessDenied);
    }
    Ok(())
}

/// OPEN4resok up to its delegation.
fn write_opened(id: StateId, target: &Target, flags: u32, out: &mut Writer<'_>) {
    id.write(out);
    out.bool(true);
    out.u64(target.change.0);
    out.u64(target.change.1);
    out.u32(LOCKS_AS_POSIX | flags);
    target.set.write(out);
}
