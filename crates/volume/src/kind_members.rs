//! The volumes that a volume is made of.

use crate::ByteSize;
use crate::spec::{VolumeError, VolumeKind};

impl VolumeKind {
    /// The volumes that it is made of, and that have to stay as long as it does.
    pub fn parents(&self) -> &[String] {
        match self {
            Self::Ram { .. }
            | Self::File { .. }
            | Self::Remote { .. }
            | Self::Replicated { .. } => &[],
            Self::Snapshot { of } | Self::Clone { of } => std::slice::from_ref(of),
            Self::Linear { members }
            | Self::Stripe { members, .. }
            | Self::Mirror { members, .. } => members,
            Self::Cache { of, .. } => of,
        }
    }

    /// The volumes whose contents it overwrites when it is created: what the first member of a
    /// mirror holds is copied to the others.
    pub fn overwritten(&self) -> &[String] {
        match self {
            Self::Mirror { members, .. } => members.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether it holds what it is made of: nothing else may use these volumes.
    pub const fn holds_members(&self) -> bool {
        match self {
            Self::Ram { .. }
            | Self::File { .. }
            | Self::Remote { .. }
            | Self::Snapshot { .. }
            | Self::Clone { .. }
            | Self::Replicated { .. } => false,
            Self::Linear { .. }
            | Self::Stripe { .. }
            | Self::Mirror { .. }
            | Self::Cache { .. } => true,
        }
    }

    /// The size of a cache, a mirror, a linear or striped volume over members of these sizes.
    ///
    /// # Errors
    /// If a member is smaller than a unit, or the number of members is out of range.
    pub fn size_over(&self, sizes: &[ByteSize]) -> Result<ByteSize, VolumeError> {
        self.check()?;
        let smallest = sizes.iter().map(|size| size.0).min().unwrap_or(0);
        let unit = match self {
            Self::Stripe { unit, .. } => unit,
            Self::Mirror { .. } => return Ok(ByteSize(smallest)),
            _ => {
                let sum = sizes.iter().map(|size| size.0).fold(0, u64::saturating_add);
                return Ok(ByteSize(sum));
            }
        };
        let whole_units = smallest - smallest % unit.0;
        if whole_units == 0 {
            return Err(VolumeError::SmallMember {
                size: ByteSize(smallest),
                unit: *unit,
            });
        }
        Ok(ByteSize(whole_units.saturating_mul(sizes.len() as u64)))
    }
}
