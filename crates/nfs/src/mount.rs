//! MOUNT version 3: which file a path names, and lists for `showmount`.
//!
//! Read first: RFC 1813 section 5.

use file_tree::FileKind;

use crate::rpc::AUTH_SYS;
use crate::v3::{Context, Fault, Status, look_up_path, write_handle};
use crate::xdr::{Reader, Writer};
use crate::{Backend, Export, Procedure, Refusal};

/// The longest path in bytes (MNTPATHLEN).
const PATH_BYTES_MAX: usize = 1024;
/// The longest name of a client in bytes (MNTNAMLEN).
const NAME_BYTES_MAX: usize = 255;
/// The longest list of mounts or exports in bytes. What does not fit is left out.
const LIST_BYTES_MAX: usize = 48 << 10;

/// Executes a procedure and writes its results.
pub(crate) fn execute<B: Backend>(
    procedure: Procedure,
    context: &mut Context<'_, B>,
    mut arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    match procedure {
        Procedure::Mnt => {
            let path = arguments.opaque(PATH_BYTES_MAX)?;
            arguments.finish()?;
            return mount(context, path, out);
        }
        Procedure::Umnt => {
            let path = arguments.opaque(PATH_BYTES_MAX)?;
            arguments.finish()?;
            context.backend.unmounted(Some(path));
        }
        Procedure::UmntAll => {
            arguments.finish()?;
            context.backend.unmounted(None);
        }
        Procedure::Dump => {
            arguments.finish()?;
            dump(context, out);
        }
        Procedure::Export => {
            arguments.finish()?;
            exports(context, out);
        }
        _ => arguments.finish()?,
    }
    Ok(Status::Ok)
}

/// MNT (RFC 1813 section 5.2.1). The status of a failure, mountstat3, has the numbers of nfsstat3.
fn mount<B: Backend>(
    context: &mut Context<'_, B>,
    path: &[u8],
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    let (export_path, rest) = split(path);
    let export = match context.backend.by_path(export_path) {
        Ok(export) => export,
        Err(Refusal::Unknown) => return Err(Status::NotFound.into()),
        Err(Refusal::Denied) => return Err(Status::AccessDenied.into()),
    };
    let directory = look_up_path(export, context.credential, rest)?;
    if directory.kind != FileKind::Directory {
        return Err(Status::NotDirectory.into());
    }
    out.u32(Status::Ok as u32);
    write_handle(export.id, directory.id, out);
    // One flavor of credentials.
    out.u32(1);
    out.u32(AUTH_SYS);
    context.backend.mounted(path);
    Ok(Status::Ok)
}

/// The export of a path that is mounted, if the client may use it.
pub(crate) fn export<'a, B: Backend>(
    mut arguments: Reader<'_>,
    backend: &'a mut B,
) -> Option<&'a Export> {
    let path = arguments.opaque(PATH_BYTES_MAX).ok()?;
    backend.by_path(split(path).0).ok()
}

/// Splits a path into that of an export, a slash and one component, and the path of a directory
/// below it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let is_slash = |byte: &u8| *byte == b'/';
    match path.iter().skip(1).position(is_slash) {
        Some(at) => path.split_at(at + 1),
        None => (path, &[]),
    }
}

/// DUMP (section 5.2.2).
fn dump<B: Backend>(context: &mut Context<'_, B>, out: &mut Writer<'_>) {
    let end = out.len() + list_bytes_max(context);
    context.backend.each_mount(&mut |client, path| {
        let (client, path) = (
            bounded(client.as_bytes(), NAME_BYTES_MAX),
            bounded(path, PATH_BYTES_MAX),
        );
        if out.len() + 24 + client.len() + path.len() <= end {
            out.bool(true);
            out.opaque(client);
            out.opaque(path);
        }
    });
    out.bool(false);
}

/// EXPORT (section 5.2.5).
fn exports<B: Backend>(context: &mut Context<'_, B>, out: &mut Writer<'_>) {
    let end = out.len() + list_bytes_max(context);
    context.backend.each_export(&mut |path, clients| {
        let path = bounded(path.as_bytes(), PATH_BYTES_MAX);
        if out.len() + 20 + path.len() > end {
            return;
        }
        out.bool(true);
        out.opaque(path);
        for client in clients {
            let client = bounded(client.as_bytes(), NAME_BYTES_MAX);
            if out.len() + 20 + client.len() > end {
                break;
            }
            out.bool(true);
            out.opaque(client);
        }
        out.bool(false);
    });
    out.bool(false);
}

/// A list needs no handle, so anyone who can forge the address of a client can have it sent there:
/// over UDP it is short.
fn list_bytes_max<B: Backend>(context: &Context<'_, B>) -> usize {
    LIST_BYTES_MAX.min(context.backend.transfer_bytes_max() / 8)
}

fn bounded(bytes: &[u8], max: usize) -> &[u8] {
    &bytes[..bytes.len().min(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_component_of_a_path_names_the_export() {
        for (path, export, rest) in [
            (&b"/db"[..], &b"/db"[..], &b""[..]),
            (b"/db/", b"/db", b"/"),
            (b"/db/a/b", b"/db", b"/a/b"),
            (b"/", b"/", b""),
            (b"//db", b"/", b"/db"),
            (b"db", b"db", b""),
            (b"", b"", b""),
        ] {
            assert_eq!(split(path), (export, rest));
        }
    }
}
