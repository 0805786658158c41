//! Results that a transport may place in the client's memory by themselves.
//!
//! Read first: RFC 8267 sections 2.1 and 6.1.

use std::ops::Range;

/// The most results of a call that are placed.
pub(crate) const PLACED_MAX: usize = 4;

/// Where in the output the data of READ and the paths of READLINK are, without their padding, in
/// the order of the operations. Results behind [`PLACED_MAX`] stay where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    ranges: [Range<usize>; PLACED_MAX],
    len: usize,
}

impl Results {
    /// A single result.
    pub(crate) fn one(range: Range<usize>) -> Self {
        let mut this = Self::default();
        this.push(range);
        this
    }

    /// Notes a result behind those that were noted before.
    pub(crate) fn push(&mut self, range: Range<usize>) {
        if let Some(next) = self.ranges.get_mut(self.len) {
            *next = range;
            self.len += 1;
        }
    }

    /// The bytes in front of the reply were removed.
    pub(crate) fn move_to_front(&mut self, by: usize) {
        for range in &mut self.ranges[..self.len] {
            *range = range.start - by..range.end - by;
        }
    }

    /// The results.
    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges[..self.len]
    }
}
