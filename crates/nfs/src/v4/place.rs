//! File handles of version 4, and what they lead to: a file of an export, or the root above all
//! exports.
//!
//! Read first: RFC 8881 sections 4 and 7.3.

use file_tree::{Attributes, Caller, FileError, FileId, FileTree, Name};

use crate::clients::{Clients, FileKey};
use crate::rpc::{Credential, User};
use crate::status4::Status4;
use crate::v3::{Handle, Status};
use crate::xdr::{Reader, Writer};
use crate::{Backend, Export, ExportId, Refusal};

/// A minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MinorVersion {
    /// NFSv4.0, RFC 7530.
    Zero,
    /// NFSv4.1, RFC 8881.
    One,
    /// NFSv4.2, RFC 7862.
    Two,
}

impl MinorVersion {
    /// The version with this number, if it is served.
    pub(super) const fn new(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Zero),
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    /// Its number.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// What a file handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The directory that has the exports as entries.
    Root,
    /// A file of an export.
    File(Handle),
}

/// The export in the handle of the root, which no share's UUID is.
const ROOT_EXPORT: ExportId = ExportId([0; 16]);
/// The number of the root.
pub(super) const ROOT_FILE: FileId = FileId {
    number: 1,
    generation: 0,
};

impl Node {
    /// Reads nfs_fh4. Handles have the same form in both versions.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Status4> {
        match Handle::read(reader)? {
            Ok(handle) => Self::of(handle),
            Err(Status::BadHandle) => Err(Status4::BadHandle),
            Err(_) => Err(Status4::ServerFault),
        }
    }

    /// What a handle names.
    pub(super) fn of(handle: Handle) -> Result<Self, Status4> {
        match handle {
            Handle { export, file } if export == ROOT_EXPORT => match file {
                ROOT_FILE => Ok(Self::Root),
                _ => Err(Status4::Stale),
            },
            handle => Ok(Self::File(handle)),
        }
    }

    /// Writes nfs_fh4.
    pub(super) fn write(self, out: &mut Writer<'_>) {
        self.handle().write(out);
    }

    /// The file, if this is a file of an export. Nothing can be changed or locked elsewhere.
    pub(super) const fn file(self, otherwise: Status4) -> Result<Handle, Status4> {
        match self {
            Self::Root => Err(otherwise),
            Self::File(handle) => Ok(handle),
        }
    }

    /// The bytes of its handle.
    pub(super) const fn handle(self) -> Handle {
        match self {
            Self::Root => Handle {
                export: ROOT_EXPORT,
                file: ROOT_FILE,
            },
            Self::File(handle) => handle,
        }
    }
}

/// The key of a file in the state of clients.
pub(super) fn key_of(handle: Handle) -> FileKey {
    FileKey(handle.to_bytes())
}

/// A file of an export that the client may use, as a user.
pub(super) struct Place<'a> {
    pub(super) minor: MinorVersion,
    pub(super) export: &'a Export,
    pub(super) file: FileId,
    user: User,
}

/// The place that a handle names.
pub(super) fn open_place<'a, B: Backend>(
    backend: &'a mut B,
    (credential, minor): (&Credential, MinorVersion),
    handle: Handle,
) -> Result<Place<'a>, Status4> {
    match backend.by_id(handle.export) {
        Ok(export) => Ok(Place {
            minor,
            export,
            file: handle.file,
            user: credential.map(&export.options),
        }),
        Err(Refusal::Unknown) => Err(Status4::Stale),
        Err(Refusal::Denied) => Err(Status4::AccessDenied),
    }
}

/// Calls `use_clients` with the state of all clients.
pub(super) fn with_clients<B: Backend, R>(
    backend: &mut B,
    use_clients: impl FnOnce(&mut Clients) -> R,
) -> Result<R, Status4> {
    let (mut use_clients, mut result) = (Some(use_clients), None);
    backend.with_clients(&mut |clients| {
        result = use_clients
            .take()
            .map(|use_clients| use_clients(clients))
            .or(result.take());
    });
    result.ok_or(Status4::ServerFault)
}

impl<'a> Place<'a> {
    /// The export's tree.
    pub(super) fn tree(&self) -> &'a dyn FileTree {
        &*self.export.tree
    }

    /// The user.
    pub(super) fn caller(&self) -> Caller<'_> {
        self.user.caller()
    }

    /// The attributes of the file.
    pub(super) fn attributes(&self) -> Result<Attributes, Status4> {
        Ok(self.tree().attributes(self.file)?)
    }

    /// The file that an entry names.
    pub(super) fn look_up(&self, name: &[u8]) -> Result<Attributes, Status4> {
        let name = Name::new(name)?;
        Ok(self.tree().lookup(&self.caller(), self.file, name)?)
    }

    /// Executes an operation that changes something, unless the export is read-only.
    pub(super) fn change<T>(
        &self,
        operation: impl FnOnce(&dyn FileTree, &Caller<'_>) -> Result<T, FileError>,
    ) -> Result<T, Status4> {
        if self.export.options.read_only {
            return Err(Status4::ReadOnly);
        }
        Ok(operation(self.tree(), &self.caller())?)
    }

    /// The node of a file of the same export.
    pub(super) fn node(&self, file: FileId) -> Node {
        Node::File(Handle {
            export: self.export.id,
            file,
        })
    }
}
