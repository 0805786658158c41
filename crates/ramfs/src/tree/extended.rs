//! Extended attributes of a file.

use file_tree::permission;
use file_tree::{Caller, Changed, FileError, FileId, XattrMode, XattrName};

use super::RamTree;
use crate::inode::Inode;

impl RamTree {
    pub(super) fn get_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        use_value: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError> {
        let inode = self.inode(file)?;
        let xattrs = inode.xattrs();
        xattrs.check()?;
        permission::check_read_xattr(caller, inode.kind, &inode.meta().owner)?;
        use_value(xattrs.get(name).ok_or(FileError::NoXattr)?);
        Ok(())
    }

    pub(super) fn put_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        value: (XattrName<'_>, &[u8]),
        mode: XattrMode,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        let mut xattrs = inode.xattrs();
        xattrs.check()?;
        permission::check_write_xattr(caller, inode.kind, &inode.meta().owner)?;
        xattrs.set(&self.space.usage, value, mode)?;
        Ok(self.note_attributes(&inode))
    }

    pub(super) fn drop_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
    ) -> Result<Changed, FileError> {
        let inode = self.inode(file)?;
        let mut xattrs = inode.xattrs();
        xattrs.check()?;
        permission::check_write_xattr(caller, inode.kind, &inode.meta().owner)?;
        xattrs.remove(&self.space.usage, name)?;
        Ok(self.note_attributes(&inode))
    }

    pub(super) fn each_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        take: &mut dyn FnMut(XattrName<'_>),
    ) -> Result<(), FileError> {
        let inode = self.inode(file)?;
        let xattrs = inode.xattrs();
        xattrs.check()?;
        match permission::check_read_xattr(caller, inode.kind, &inode.meta().owner) {
            // Files of other kinds have none.
            Err(FileError::NoXattr) => return Ok(()),
            checked => checked?,
        }
        xattrs.names().for_each(take);
        Ok(())
    }

    /// Notes a change of attributes.
    fn note_attributes(&self, inode: &Inode) -> Changed {
        let now = self.now();
        let mut meta = inode.meta();
        let before = inode.attributes(&meta).before_change();
        meta.touch(now);
        Changed {
            before,
            after: inode.attributes(&meta),
            value: (),
        }
    }
}
