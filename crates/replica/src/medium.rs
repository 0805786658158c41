//! Where the bytes of a copy are.

use block::Extent;

/// A write for which the copy has no memory. Blocks of it may be written; each is wholly old or
/// wholly new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritten;

/// The bytes of one member's copy. Every extent is checked against the volume's size before.
pub trait Medium {
    /// Contents of an extent, cheap to clone: they are sent to several members and again after a
    /// loss.
    type Data: Clone;

    /// The present contents of `extent`. Later writes do not change what is returned.
    fn read(&self, extent: Extent) -> Self::Data;

    /// Replaces the contents of `extent` with `data`, which were made for an extent as long.
    ///
    /// # Errors
    /// If no memory is left.
    fn write(&mut self, extent: Extent, data: &Self::Data) -> Result<(), Unwritten>;

    /// How many blocks `data` cover. What peers send is checked with it.
    fn blocks(data: &Self::Data) -> u64;

    /// Whether `data` take memory for each block. Others, such as zeros, may cover more than
    /// [`Settings::piece_blocks`](crate::Settings::piece_blocks), up to
    /// [`Settings::ZEROS_PIECES_MAX`](crate::Settings::ZEROS_PIECES_MAX) times as many.
    fn needs_memory(data: &Self::Data) -> bool;
}
