//! What a copy has.

use block::{Extent, Lba};

use crate::ids::Epoch;

/// Which writes a copy has, except where it is unsettled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// All writes of epochs up to this one.
    pub through: Epoch,
    /// Below this block…
    pub below: Lba,
    /// …also all writes of epochs up to this one: a copy was interrupted there.
    pub below_through: Epoch,
}

impl Claim {
    /// The epoch up to which all writes of `extent` are held.
    pub(crate) fn at(&self, extent: Extent) -> Epoch {
        if extent.lba.0 + extent.blocks.0 <= self.below.0 {
            self.through.max(self.below_through)
        } else {
            self.through
        }
    }

    /// All writes of epochs up to `through`, of all blocks.
    pub(crate) fn everything(through: Epoch) -> Self {
        Self {
            through,
            below: Lba(0),
            below_through: Epoch(0),
        }
    }
}
