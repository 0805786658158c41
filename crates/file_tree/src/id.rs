//! What names a file of a tree.

/// Names a file of one tree for as long as the file exists, and never another file of that tree
/// afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The number that attributes show (`st_ino`). It may be used again after the file was removed.
    pub number: u64,
    /// Differs between files that had the same number.
    pub generation: u64,
}
