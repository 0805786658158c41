//! How long the reply to a compound may become, from its arguments alone.

use file_tree::XATTR_BYTES_MAX;

use super::bitmap::Bitmap;
use super::operation::Operation;
use super::place::MinorVersion;
use crate::xdr::{Malformed, Reader};

/// What the result of an operation takes that returns no data, at most.
const RESULT_BYTES_MAX: usize = 1100;
/// The result of READLINK: a path has less than 4096 bytes.
const LINK_BYTES_MAX: usize = 4096 + 16;
/// The shortest arguments of an operation with long results: of GETXATTR, with its number.
const LONG_ARGUMENTS_BYTES_MIN: usize = 12;

/// The most bytes that the next `left` operations of `arguments` add to the reply. Behind an
/// operation that is not known here, any that fits is expected.
pub(super) fn reply_bytes(mut arguments: Reader<'_>, minor: MinorVersion, left: u32) -> usize {
    let mut bytes = 0;
    for _ in 0..left {
        let before = arguments.rest().len();
        match skip(&mut arguments, minor) {
            Ok(Some(more)) => bytes += more,
            Ok(None) if before >= LONG_ARGUMENTS_BYTES_MIN => return usize::MAX,
            Ok(None) | Err(Malformed) => return bytes + left as usize * LINK_BYTES_MAX,
        }
    }
    bytes
}

/// Skips an operation and returns how long its result may become.
fn skip(arguments: &mut Reader<'_>, minor: MinorVersion) -> Result<Option<usize>, Malformed> {
    let data = match Operation::new(arguments.u32()?, minor) {
        Operation::SaveFh | Operation::RestoreFh | Operation::GetFh | Operation::LookupParent => 0,
        Operation::ReadLink => LINK_BYTES_MAX,
        Operation::PutFh | Operation::Lookup | Operation::Remove => {
            arguments.opaque(usize::MAX)?;
            0
        }
        Operation::GetAttr => {
            Bitmap::read(arguments)?;
            0
        }
        Operation::GetXattr => {
            arguments.opaque(usize::MAX)?;
            XATTR_BYTES_MAX
        }
        Operation::ListXattrs => {
            arguments.array::<8>()?;
            arguments.u32()? as usize
        }
        Operation::Access => {
            arguments.u32()?;
            0
        }
        Operation::Commit => {
            arguments.array::<12>()?;
            0
        }
        Operation::Close => {
            arguments.array::<20>()?;
            0
        }
        Operation::Write => {
            arguments.array::<28>()?;
            arguments.opaque(usize::MAX)?;
            0
        }
        Operation::Read | Operation::ReadPlus => {
            arguments.array::<24>()?;
            arguments.u32()? as usize
        }
        Operation::ReadDir => {
            arguments.array::<20>()?;
            let len = arguments.u32()? as usize;
            Bitmap::read(arguments)?;
            len
        }
        _ => return Ok(None),
    };
    Ok(Some(data.saturating_add(RESULT_BYTES_MAX)))
}
