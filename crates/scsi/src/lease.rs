//! What holds a lease on a volume that takes time.

/// The most commands of a transport's connection at a time.
pub const COMMAND_SLOTS_MAX: usize = 272;

/// What holds a lease. Each holder has a slot of its own in [`Leases`](session::Leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// The command in this slot.
    Command(usize),
    /// The command in this slot, an EXTENDED COPY, for what it reads. For what it writes it is a
    /// [`Command`](Self::Command).
    CopySource(usize),
    /// The sanitize operation of this number. A connection has at most one for each logical unit.
    Sanitize(usize),
}

impl LeaseHolder {
    /// The slot of its lease.
    pub const fn lease(self) -> usize {
        match self {
            Self::Command(slot) => slot,
            Self::CopySource(slot) => COMMAND_SLOTS_MAX + slot,
            Self::Sanitize(number) => 2 * COMMAND_SLOTS_MAX + number,
        }
    }

    /// The holder of the lease in a slot.
    pub const fn of(lease: usize) -> Self {
        match lease / COMMAND_SLOTS_MAX {
            0 => Self::Command(lease),
            1 => Self::CopySource(lease - COMMAND_SLOTS_MAX),
            _ => Self::Sanitize(lease - 2 * COMMAND_SLOTS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_a_lease_of_its_own() {
        let holders = |slot| {
            let sanitize = LeaseHolder::Sanitize(slot);
            [
                LeaseHolder::Command(slot),
                LeaseHolder::CopySource(slot),
                sanitize,
            ]
        };
        for holder in [0, 1, COMMAND_SLOTS_MAX - 1].into_iter().flat_map(holders) {
            assert_eq!(LeaseHolder::of(holder.lease()), holder);
        }
        let last = LeaseHolder::Sanitize(crate::UNITS_MAX - 1);
        assert_eq!(LeaseHolder::of(last.lease()), last);
    }
}
