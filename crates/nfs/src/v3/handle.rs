//! File handles (nfs_fh3): an export, and a file of its tree.

use file_tree::FileId;
use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;
use crate::ExportId;
use crate::xdr::{Malformed, Reader, Writer};

/// The longest handle in bytes that the specification allows (NFS3_FHSIZE, RFC 1813 section 2.4).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;

/// A file handle of ours. Clients do not interpret it; a forged one names an export that the client
/// may use, or is refused, and then a file whose mode is checked.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HandleBytes {
    /// The export.
    export: [u8; 16],
    /// The file's number.
    number: U64,
    /// The file's generation.
    generation: U64,
}

const _: () = assert!(size_of::<HandleBytes>() == 32);

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) export: ExportId,
    pub(crate) file: FileId,
}

impl Handle {
    /// Reads nfs_fh3. The inner error is that of a handle that is not one of ours, which is known
    /// by its length.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Result<Self, Status>, Malformed> {
        let bytes = reader.opaque(HANDLE_BYTES_MAX)?;
        Ok(match bytes.try_into() {
            Ok(bytes) => Ok(Self::of_bytes(bytes)),
            Err(_) => Err(Status::BadHandle),
        })
    }

    /// The handle with these bytes.
    pub(crate) fn of_bytes(bytes: [u8; 32]) -> Self {
        let handle: HandleBytes = zerocopy::transmute!(bytes);
        Self {
            export: ExportId(handle.export),
            file: FileId {
                number: handle.number.get(),
                generation: handle.generation.get(),
            },
        }
    }

    /// The bytes of the handle.
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        zerocopy::transmute!(HandleBytes {
            export: self.export.0,
            number: self.file.number.into(),
            generation: self.file.generation.into(),
        })
    }

    /// Writes it, as nfs_fh3 or nfs_fh4.
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        out.opaque(&self.to_bytes());
    }
}

/// Writes nfs_fh3.
pub(crate) fn write_handle(export: ExportId, file: FileId, out: &mut Writer<'_>) {
    Handle { export, file }.write(out);
}

/// How long a handle is on the wire, with its length.
pub(crate) const HANDLE_WIRE_BYTES: usize = 4 + size_of::<HandleBytes>();
