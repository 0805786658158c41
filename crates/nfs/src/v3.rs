//! NFS version 3: its procedures, as operations of a file tree.
//!
//! Read first: RFC 1813 sections 2 and 3.

mod attributes;
mod directory;
mod entries;
mod file;
mod file_system;
mod handle;
mod listing;
mod place;
mod placed;
mod read;
mod status;
mod write;

use crate::xdr::{Reader, Writer};
use crate::{Backend, Procedure};

pub(crate) use crate::backend::TRANSFER_BYTES_MAX;
pub(crate) use file::{access_bits, link_path};
pub(crate) use handle::{HANDLE_BYTES_MAX, Handle, write_handle};
pub(crate) use place::{Context, Fault, look_up_path};
pub(crate) use placed::PlacedRead;
pub(crate) use read::{
    HEAD_BYTES as READ_HEAD_BYTES, OVERHEAD_BYTES_MAX as READ_OVERHEAD_BYTES_MAX, Produced,
    ReadCall, SEND_LIST_MIN_BYTES,
};
pub(crate) use status::Status;
pub(crate) use write::WriteCall;

/// The longest reply to READDIR or READDIRPLUS, in bytes (dtpref).
pub(crate) const LISTING_BYTES_MAX: usize = 64 << 10;

/// Executes a procedure other than READ and WRITE, and writes its results.
pub(crate) fn execute<B: Backend>(
    procedure: Procedure,
    context: &mut Context<'_, B>,
    arguments: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<Status, Fault> {
    match procedure {
        Procedure::GetAttr => file::get_attr(context, arguments, out),
        Procedure::SetAttr => file::set_attr(context, arguments, out),
        Procedure::Access => file::access(context, arguments, out),
        Procedure::ReadLink => file::read_link(context, arguments, out),
        Procedure::Commit => file::commit(context, arguments, out),
        Procedure::Lookup => directory::lookup(context, arguments, out),
        Procedure::Create => entries::create(context, arguments, out),
        Procedure::MkDir => entries::make_directory(context, arguments, out),
        Procedure::SymLink => entries::make_link(context, arguments, out),
        Procedure::MkNod => entries::make_node(context, arguments, out),
        Procedure::Remove => directory::remove(context, arguments, out),
        Procedure::RmDir => directory::remove_directory(context, arguments, out),
        Procedure::Rename => directory::rename(context, arguments, out),
        Procedure::Link => directory::link(context, arguments, out),
        Procedure::ReadDir => listing::read_directory(context, arguments, out),
        Procedure::ReadDirPlus => listing::read_directory_plus(context, arguments, out),
        Procedure::FsStat => file_system::state(context, arguments, out),
        Procedure::FsInfo => file_system::information(context, arguments, out),
        Procedure::PathConf => file_system::path_limits(context, arguments, out),
        _ => {
            arguments.finish()?;
            Ok(Status::Ok)
        }
    }
}

/// How many bytes of zeros follow the status of a failure about whose file nothing is known:
/// optional attributes that are absent.
pub(crate) const fn failure_len(procedure: Procedure) -> usize {
    /// post_op_attr or pre_op_attr, absent.
    const ABSENT: usize = 4;
    match procedure {
        Procedure::Null | Procedure::GetAttr => 0,
        _ if procedure.is_mount() => 0,
        Procedure::SetAttr
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::SymLink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Commit => 2 * ABSENT,
        Procedure::Link => 3 * ABSENT,
        Procedure::Rename => 4 * ABSENT,
        _ => ABSENT,
    }
}
