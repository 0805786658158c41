//! Extended attributes of a file: those of users that the host's file system has.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use file_tree::{
    Caller, Changed, FileError, FileId, XATTR_BYTES_MAX, XattrMode, XattrName, permission,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::DirTree;
use super::content::changed;
use crate::errors::of_host;
use crate::identity::ownership;

/// What names of users' attributes begin with on the host. Clients neither see nor change others.
const PREFIX: &[u8] = b"user.";
/// The longest list of names that the kernel gives (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 65_536;

/// Whether the file system of a directory has such attributes.
pub(super) fn are_supported(directory: &OwnedFd) -> bool {
    let asked = rustix::fs::fgetxattr(directory, c"user.ramport", &mut [0; 1][..]);
    // The attribute need not exist, and may be longer.
    matches!(asked, Ok(_) | Err(Errno::NODATA | Errno::RANGE))
}

impl DirTree {
    pub(super) fn get_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
        use_value: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError> {
        let found = self.resolver.find(file)?;
        let attributes = found.attributes;
        permission::check_read_xattr(caller, attributes.kind, &ownership(&attributes))?;
        let mut value = vec![0; XATTR_BYTES_MAX];
        let read = rustix::fs::getxattr(found.own_path(), host_name(name), &mut value[..]);
        use_value(&value[..read.map_err(of_xattr)?]);
        Ok(())
    }

    pub(super) fn put_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        (name, value): (XattrName<'_>, &[u8]),
        mode: XattrMode,
    ) -> Result<Changed, FileError> {
        if value.len() > XATTR_BYTES_MAX {
            return Err(FileError::XattrTooLong);
        }
        let flags = match mode {
            XattrMode::Either => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(caller, file, |path| {
            rustix::fs::setxattr(path, host_name(name), value, flags)
        })
    }

    pub(super) fn drop_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        name: XattrName<'_>,
    ) -> Result<Changed, FileError> {
        self.change_xattr(caller, file, |path| {
            rustix::fs::removexattr(path, host_name(name))
        })
    }

    pub(super) fn each_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        take: &mut dyn FnMut(XattrName<'_>),
    ) -> Result<(), FileError> {
        let found = self.resolver.find(file)?;
        let attributes = found.attributes;
        match permission::check_read_xattr(caller, attributes.kind, &ownership(&attributes)) {
            // Files of other kinds have none.
            Err(FileError::NoXattr) => return Ok(()),
            checked => checked?,
        }
        let mut list = vec![0; LIST_BYTES_MAX];
        let listed = rustix::fs::listxattr(found.own_path(), &mut list[..]);
        let names = list[..listed.map_err(of_xattr)?].split(|byte| *byte == 0);
        for name in names.filter_map(|name| name.strip_prefix(PREFIX)) {
            // The kernel allows no other names.
            if let Ok(name) = XattrName::new(name) {
                take(name);
            }
        }
        Ok(())
    }

    /// Changes an attribute of a file that the caller may write, through the file's own path.
    fn change_xattr(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        change: impl FnOnce(CString) -> Result<(), Errno>,
    ) -> Result<Changed, FileError> {
        let locked = self.lock_data(file);
        let found = self.resolver.find(file)?;
        let before = found.attributes;
        permission::check_write_xattr(caller, before.kind, &ownership(&before))?;
        change(found.own_path()).map_err(of_xattr)?;
        let after = self.look(&found.handle)?;
        drop(locked);
        self.make_file_durable(&found)?;
        Ok(changed(&before, after))
    }
}

fn host_name(name: XattrName<'_>) -> CString {
    let bytes = [PREFIX, name.as_bytes()].concat();
    // A name has no NUL, and an attribute without a name does not exist.
    CString::new(bytes).unwrap_or_default()
}

/// The error of a tree for one of an operation on an attribute.
fn of_xattr(error: Errno) -> FileError {
    match error {
        Errno::NODATA => FileError::NoXattr,
        Errno::TOOBIG => FileError::XattrTooLong,
        error => of_host(error),
    }
}
