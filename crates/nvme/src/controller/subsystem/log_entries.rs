//! What a controller keeps for its logs: errors, and namespaces that have changed.
//!
//! Read first: NVM Express Base 2.0, "Error Information", "Changed Namespace List".

use std::collections::{BTreeSet, VecDeque};

use block::Lba;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use crate::controller::QueueId;
use crate::controller::reply::Location;
use crate::wire::log::ErrorEntry;
use crate::wire::{Cid, Nsid, Status};

/// Entries of the Error Information log.
pub(in crate::controller) const ERROR_ENTRIES_MAX: usize = 64;

/// A failed command, as its entry in the error log describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCommand {
    /// Its identifier.
    pub cid: Cid,
    /// The namespace that it named.
    pub nsid: Nsid,
    /// Its opcode.
    pub opcode: u8,
    /// The first block that it named; 0 if it names none.
    pub lba: Lba,
}

/// The Error Information log of a controller.
#[derive(Debug, Default)]
pub(in crate::controller) struct Errors {
    /// Errors so far.
    pub(super) count: u64,
    /// The latest, newest first; at most [`ERROR_ENTRIES_MAX`].
    entries: VecDeque<ErrorEntry>,
}

impl Errors {
    /// Adds an entry for a command of `queue`.
    pub(in crate::controller) fn record(
        &mut self,
        queue: QueueId,
        command: &FailedCommand,
        status: Status,
        location: Location,
    ) {
        self.count += 1;
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count = U64::new(self.count);
        entry.sq_id = U16::new(queue.0);
        entry.cid = U16::new(command.cid.0);
        entry.status = U16::new(status.field() << 1);
        entry.location = U16::new(location.field());
        entry.lba = U64::new(command.lba.0);
        entry.nsid = U32::new(command.nsid.0);
        entry.opcode = command.opcode;
        self.entries.truncate(ERROR_ENTRIES_MAX - 1);
        self.entries.push_front(entry);
    }

    pub(super) fn page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = self
            .entries
            .iter()
            .flat_map(|entry| entry.as_bytes().iter().copied())
            .collect();
        page.resize(ERROR_ENTRIES_MAX * size_of::<ErrorEntry>(), 0);
        page
    }
}

/// The Changed Namespace List of a controller.
#[derive(Debug, Default)]
pub(in crate::controller) struct ChangedNamespaces {
    /// At most [`Self::ENTRIES_MAX`] plus one, which means too many.
    nsids: BTreeSet<Nsid>,
}

impl ChangedNamespaces {
    const ENTRIES_MAX: usize = 1024;

    pub(in crate::controller) fn insert(&mut self, nsid: Nsid) {
        if self.nsids.len() <= Self::ENTRIES_MAX {
            self.nsids.insert(nsid);
        }
    }

    pub(super) fn clear(&mut self) {
        self.nsids.clear();
    }

    pub(super) fn page(&self) -> Vec<u8> {
        if self.nsids.len() > Self::ENTRIES_MAX {
            return crate::wire::identify::namespace_list(std::iter::once(Nsid::ALL));
        }
        crate::wire::identify::namespace_list(self.nsids.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{StatusCode, opcode};

    #[test]
    fn the_newest_errors_come_first_and_old_ones_fall_off() {
        let mut errors = Errors::default();
        for cid in 0..100 {
            let command = FailedCommand {
                cid: Cid(cid),
                nsid: Nsid(1),
                opcode: opcode::READ,
                lba: Lba(7),
            };
            let status = Status::from(StatusCode::LbaOutOfRange);
            errors.record(QueueId(3), &command, status, Location::CDW10);
        }
        let page = errors.page();
        assert_eq!(page.len(), 64 * 64);
        assert_eq!(
            page[..16],
            [100, 0, 0, 0, 0, 0, 0, 0, 3, 0, 99, 0, 0x00, 0x81, 40, 0]
        );
        assert_eq!(page[63 * 64], 37);
    }

    #[test]
    fn more_changed_namespaces_than_fit_are_said_so() {
        let mut changed = ChangedNamespaces::default();
        for nsid in 1..=1024 {
            changed.insert(Nsid(nsid));
        }
        assert_eq!(changed.page()[..4], [1, 0, 0, 0]);
        assert_eq!(changed.page()[4092..], [0, 4, 0, 0]);
        changed.insert(Nsid(1025));
        assert_eq!(changed.page()[..8], [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]);
        changed.clear();
        assert_eq!(changed.page(), [0; 4096]);
    }
}
