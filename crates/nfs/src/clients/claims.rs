//! What a client claims of a file: how it is opened, and which bytes are locked.

use crate::ExportId;
use crate::status4::Status4;

/// Names a file of any export: the bytes of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileKey(pub(crate) [u8; 32]);

impl FileKey {
    /// The export that the file is of.
    pub(super) fn export(&self) -> ExportId {
        let [export, _]: [[u8; 16]; 2] = zerocopy::transmute!(self.0);
        ExportId(export)
    }
}

/// What an open does, and denies others to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareModes {
    /// [`READ`](Self::READ), [`WRITE`](Self::WRITE) or both.
    pub(crate) access: u8,
    /// Any of them, or neither.
    pub(crate) deny: u8,
}

impl ShareModes {
    /// OPEN4_SHARE_ACCESS_READ and OPEN4_SHARE_DENY_READ.
    pub(crate) const READ: u8 = 1;
    /// OPEN4_SHARE_ACCESS_WRITE and OPEN4_SHARE_DENY_WRITE.
    pub(crate) const WRITE: u8 = 2;

    /// Whether two opens of different owners exclude each other.
    pub(super) const fn conflicts(self, other: Self) -> bool {
        self.access & other.deny != 0 || self.deny & other.access != 0
    }

    /// Its bit in a set of modes.
    pub(super) const fn bit(self) -> u16 {
        1 << (self.access << 2 | self.deny)
    }

    /// Those of a set of modes that this mode contains.
    pub(super) fn contained_in(self, modes: u16) -> u16 {
        let all = (0..16).map(|number| Self {
            access: number >> 2,
            deny: number & 3,
        });
        let contained = all.filter(|mode| self.contains(*mode));
        contained.fold(0, |bits, mode| bits | mode.bit()) & modes
    }

    /// Whether this is what several of a set of modes are together.
    pub(super) fn is_union_of(self, modes: u16) -> bool {
        let contained = self.contained_in(modes);
        let (mut access, mut deny) = (0, 0);
        for number in 0..16_u8 {
            if contained & 1 << number != 0 {
                access |= number >> 2;
                deny |= number & 3;
            }
        }
        self == Self { access, deny }
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            access: self.access | other.access,
            deny: self.deny | other.deny,
        }
    }

    pub(super) const fn contains(self, other: Self) -> bool {
        self.access & other.access == other.access && self.deny & other.deny == other.deny
    }
}

/// Whether a lock excludes readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LockKind {
    /// READ_LT: shared.
    Read = 1,
    /// WRITE_LT: exclusive.
    Write = 2,
}

/// A lock that excludes the one asked for (LOCK4denied).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// What is locked.
    pub(crate) range: LockRange,
    /// How.
    pub(crate) kind: LockKind,
    /// The client that holds it.
    pub(crate) client: u64,
    /// Its lock owner.
    pub(crate) owner: Box<[u8]>,
}

/// Bytes of a file, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    /// Every byte.
    pub(super) const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// `length` bytes from `offset` on; the largest length means up to the end of the file,
    /// wherever that is.
    pub(crate) fn new(offset: u64, length: u64) -> Result<Self, Status4> {
        let last = match length {
            0 => return Err(Status4::Invalid),
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length - 1).ok_or(Status4::Invalid)?,
        };
        Ok(Self {
            first: offset,
            last,
        })
    }

    /// Offset and length, as on the wire.
    pub(crate) const fn offset_and_length(self) -> (u64, u64) {
        let length = match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        };
        (self.first, length)
    }

    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether two ranges overlap or follow each other without a gap.
    pub(super) const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// Both, and what is between them.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    /// What is left of it in front of and behind `other`, which it overlaps.
    pub(super) fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let front = (self.first < other.first).then(|| Self {
            first: self.first,
            last: other.first - 1,
        });
        let back = (self.last > other.last).then(|| Self {
            first: other.last + 1,
            last: self.last,
        });
        front.into_iter().chain(back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_the_union_of_some_that_were_opened_or_not() {
        let mode = |access, deny| ShareModes { access, deny };
        let set = |modes: &[ShareModes]| modes.iter().fold(0, |set, mode| set | mode.bit());
        let both = set(&[mode(3, 0)]);
        assert!(mode(3, 0).is_union_of(both));
        assert!(!mode(1, 0).is_union_of(both));
        let parts = set(&[mode(1, 0), mode(2, 1), mode(3, 3)]);
        for (asked, expected) in [
            (mode(1, 0), true),
            (mode(2, 1), true),
            (mode(3, 1), true),
            (mode(3, 3), true),
            (mode(3, 0), false),
            (mode(2, 0), false),
            (mode(1, 1), false),
            (mode(3, 2), false),
        ] {
            assert_eq!(asked.is_union_of(parts), expected, "{asked:?}");
        }
        assert_eq!(
            mode(3, 1).contained_in(parts),
            set(&[mode(1, 0), mode(2, 1)])
        );
    }
}
