//! Extended attributes: bytes under a name that programs attach to a file.

use std::fmt;

/// The name of an extended attribute: 1 to [`XattrName::LEN_MAX`] bytes without NUL. It has no
/// prefix: every attribute of a tree is of users (`user.` in Linux).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XattrName<'a>(&'a [u8]);

/// Why bytes are not an [`XattrName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XattrNameFault {
    /// No bytes at all.
    #[error(
        "the name of an attribute is empty; it has 1 to {} bytes",
        XattrName::LEN_MAX
    )]
    Empty,
    /// More than [`XattrName::LEN_MAX`] bytes.
    #[error("the name of an attribute has {0} bytes; it has 1 to {max} bytes", max = XattrName::LEN_MAX)]
    TooLong(usize),
    /// It contains NUL.
    #[error("the name of an attribute contains NUL")]
    ForbiddenByte,
}

impl<'a> XattrName<'a> {
    /// The most bytes of a name: what `XATTR_NAME_MAX` (255) of Linux leaves behind the prefix
    /// `user.`.
    pub const LEN_MAX: usize = 250;

    /// Checks the bytes.
    ///
    /// # Errors
    /// See [`XattrNameFault`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, XattrNameFault> {
        match bytes {
            [] => Err(XattrNameFault::Empty),
            _ if bytes.len() > Self::LEN_MAX => Err(XattrNameFault::TooLong(bytes.len())),
            _ if bytes.contains(&0) => Err(XattrNameFault::ForbiddenByte),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for XattrName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}

/// The most bytes of an extended attribute's value (`XATTR_SIZE_MAX` of Linux).
pub const XATTR_BYTES_MAX: usize = 65_536;

/// Whether an attribute that is set has to exist before (setxattr_option4, RFC 8276 section
/// 8.4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// It is created or replaced.
    Either,
    /// It does not exist yet; otherwise [`FileError::Exists`](crate::FileError::Exists).
    Create,
    /// It exists; otherwise [`FileError::NoXattr`](crate::FileError::NoXattr).
    Replace,
}

impl XattrMode {
    /// Checks it against whether the attribute exists.
    ///
    /// # Errors
    /// `Exists` and `NoXattr`, as above.
    pub fn check(self, exists: bool) -> Result<(), crate::FileError> {
        match (self, exists) {
            (Self::Create, true) => Err(crate::FileError::Exists),
            (Self::Replace, false) => Err(crate::FileError::NoXattr),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_an_attribute_has_any_bytes_but_nul() {
        assert_eq!(
            XattrName::new(b"a/\xff").map(XattrName::as_bytes),
            Ok(&b"a/\xff"[..])
        );
        assert_eq!(XattrName::new(b""), Err(XattrNameFault::Empty));
        assert_eq!(XattrName::new(b"a\0"), Err(XattrNameFault::ForbiddenByte));
        assert!(XattrName::new(&[b'a'; XattrName::LEN_MAX]).is_ok());
        let long = [b'a'; XattrName::LEN_MAX + 1];
        assert_eq!(XattrName::new(&long), Err(XattrNameFault::TooLong(251)));
    }
}
