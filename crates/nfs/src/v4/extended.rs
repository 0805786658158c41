//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR.
//!
//! Read first: RFC 8276 sections 5 and 8. Names are without a prefix: Linux's clients see the
//! attribute `a` as `user.a`.

use file_tree::{XATTR_BYTES_MAX, XattrMode, XattrName};

use super::compound::Compound;
use super::directory::write_change;
use super::place::Place;
use crate::Backend;
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, UNIT_BYTES, Writer, padding};

/// What LISTXATTRS4resok takes beside the names: the cookie, their number and whether they are all.
const LIST_HEAD_BYTES: usize = 16;

impl<B: Backend> Compound<'_, B> {
    /// GETXATTR (section 8.4.1).
    pub(super) fn get_xattr(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let name = arguments.opaque(usize::MAX)?;
        let (begin, room) = (out.len(), self.room(out));
        let place = self.xattr_place()?;
        let name = XattrName::new(name)?;
        let mut end = begin;
        place
            .tree()
            .read_xattr(&place.caller(), place.file, name, &mut |value| {
                let len = UNIT_BYTES + value.len() + padding(value.len());
                end = begin + len;
                if len <= room {
                    out.opaque(value);
                }
            })?;
        self.check_reply(end)
    }

    /// SETXATTR (section 8.4.2).
    pub(super) fn set_xattr(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let mode = match arguments.u32()? {
            0 => XattrMode::Either,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Malformed.into()),
        };
        let name = arguments.opaque(usize::MAX)?;
        let value = arguments.opaque(usize::MAX)?;
        let (handle, _) = self.current_file(Status4::ReadOnly)?;
        self.recall(handle)?;
        let place = self.xattr_place()?;
        let name = XattrName::new(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(Status4::XattrTooBig);
        }
        let set =
            place.change(|tree, caller| tree.set_xattr(caller, place.file, name, value, mode))?;
        write_change(&set.before, &set.after, out);
        self.recall_after(Some(handle));
        Ok(())
    }

    /// REMOVEXATTR (section 8.4.4).
    pub(super) fn remove_xattr(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let name = arguments.opaque(usize::MAX)?;
        let (handle, _) = self.current_file(Status4::ReadOnly)?;
        self.recall(handle)?;
        let place = self.xattr_place()?;
        let name = XattrName::new(name)?;
        let removed = place.change(|tree, caller| tree.remove_xattr(caller, place.file, name))?;
        write_change(&removed.before, &removed.after, out);
        self.recall_after(Some(handle));
        Ok(())
    }

    /// LISTXATTRS (section 8.4.3). A cookie is the number of names in front of it.
    pub(super) fn list_xattrs(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (cookie, bytes_max) = (arguments.u64()?, arguments.u32()? as usize);
        let room = self.room(out);
        let end = out.len() + bytes_max.min(room);
        let place = self.xattr_place()?;
        let begin = out.len();
        out.zeros(LIST_HEAD_BYTES - UNIT_BYTES);
        let (mut seen, mut taken, mut is_full) = (0_u64, 0_u32, false);
        place
            .tree()
            .list_xattrs(&place.caller(), place.file, &mut |name| {
                seen += 1;
                let name = name.as_bytes();
                let len = UNIT_BYTES + name.len() + padding(name.len());
                is_full |= seen > cookie && out.len() + len + UNIT_BYTES > end;
                if seen > cookie && !is_full {
                    out.opaque(name);
                    taken += 1;
                }
            })?;
        if cookie > seen {
            return Err(Status4::BadCookie);
        }
        if bytes_max < LIST_HEAD_BYTES || (is_full && taken == 0) {
            return Err(Status4::TooSmall);
        }
        out.patch(begin, &(cookie + u64::from(taken)).to_be_bytes());
        out.patch(begin + 8, &taken.to_be_bytes());
        out.bool(!is_full);
        Ok(())
    }

    /// The current file, of a tree that has such attributes.
    fn xattr_place(&mut self) -> Result<Place<'_>, Status4> {
        let (handle, _) = self.current_file(Status4::NotSupported)?;
        let place = self.place(handle)?;
        if place.tree().limits().has_xattrs {
            Ok(place)
        } else {
            Err(Status4::NotSupported)
        }
    }
}
