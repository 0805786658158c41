//! What a file cannot give back of a volume.

use std::fmt;

use block::ByteRange;

/// Parts of a volume whose bytes in a file are damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first [`RANGES_MAX`](Self::RANGES_MAX) of them, in order, not adjacent.
    pub ranges: Vec<ByteRange>,
    /// All bytes that are damaged.
    pub total_bytes: u64,
}

impl Damage {
    /// The most ranges that are listed.
    pub const RANGES_MAX: usize = 16;

    /// Whether nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.total_bytes == 0
    }

    pub(crate) fn add(&mut self, range: ByteRange) {
        self.total_bytes += range.len;
        let has_room = self.ranges.len() < Self::RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.len == range.offset => last.len += range.len,
            _ if has_room => self.ranges.push(range),
            _ => {}
        }
    }
}

/// The ranges, as `bytes 0 to 262143, 524288 to 786431`.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes ")?;
        for (index, range) in self.ranges.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let last = range.offset + range.len - 1;
            write!(f, "{separator}{} to {last}", range.offset)?;
        }
        let listed_bytes: u64 = self.ranges.iter().map(|range| range.len).sum();
        match self.total_bytes - listed_bytes {
            0 => Ok(()),
            more_bytes => write!(f, " and {more_bytes} more"),
        }
    }
}
