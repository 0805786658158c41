//! What one I/O does.

/// What one I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Discard (fio's trim).
    Trim,
}

impl Direction {
    /// Every direction, in the order of its index.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];
}
