//! The name of a directory's entry.

use std::fmt;

/// A name of one entry of a directory: 1 to [`Name::LEN_MAX`] bytes without `/` and NUL, and
/// neither `.` nor `..`. Any other bytes are allowed, as in POSIX; a name need not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

/// Why bytes are not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// No bytes at all.
    #[error("a name is empty; it has 1 to {} bytes", Name::LEN_MAX)]
    Empty,
    /// More than [`Name::LEN_MAX`] bytes.
    #[error("a name has {0} bytes; it has 1 to {max} bytes", max = Name::LEN_MAX)]
    TooLong(usize),
    /// `.` or `..`, which name no entry of their own.
    #[error("a name is . or .., which name no entry")]
    Dots,
    /// It contains `/` or NUL.
    #[error("a name contains / or NUL")]
    ForbiddenByte,
}

impl<'a> Name<'a> {
    /// The most bytes of a name (`NAME_MAX` of Linux).
    pub const LEN_MAX: usize = 255;

    /// Checks the bytes.
    ///
    /// # Errors
    /// See [`NameFault`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameFault> {
        match bytes {
            [] => Err(NameFault::Empty),
            _ if bytes.len() > Self::LEN_MAX => Err(NameFault::TooLong(bytes.len())),
            b"." | b".." => Err(NameFault::Dots),
            _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameFault::ForbiddenByte),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        assert_eq!(Name::new(b"a\xff").map(Name::as_bytes), Ok(&b"a\xff"[..]));
        assert_eq!(Name::new(b"..."), Ok(Name(b"...")));
        assert_eq!(Name::new(b""), Err(NameFault::Empty));
        assert_eq!(Name::new(b"."), Err(NameFault::Dots));
        assert_eq!(Name::new(b".."), Err(NameFault::Dots));
        assert_eq!(Name::new(b"a/b"), Err(NameFault::ForbiddenByte));
        assert_eq!(Name::new(b"a\0"), Err(NameFault::ForbiddenByte));
        assert!(Name::new(&[b'a'; Name::LEN_MAX]).is_ok());
        let long = [b'a'; Name::LEN_MAX + 1];
        assert_eq!(Name::new(&long), Err(NameFault::TooLong(256)));
    }
}
