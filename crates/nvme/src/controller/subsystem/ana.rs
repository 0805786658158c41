//! Asymmetric Namespace Access: how well this machine's controllers lead to each namespace.
//!
//! Each namespace is an ANA group of its own, whose ID is its NSID: a group has one state, and
//! volumes are moved between machines one by one (`docs/design/0037-paths-of-hosts.md`).
//!
//! Read first: NVM Express Base 2.0, "Asymmetric Namespace Access Reporting" and "Asymmetric
//! Namespace Access".

use std::collections::BTreeMap;

use block::PathState;
use zerocopy::IntoBytes;

use super::events::Event;
use crate::controller::reply::{Failure, Location};
use crate::controller::{Limits, Subsystem};
use crate::wire::log::{AnaGroup, AnaHeader, AnaState};
use crate::wire::{Nsid, StatusCode};

/// ANA Capabilities (ANACAP): the states Optimized, Non-Optimized and Inaccessible in bits 2:0. The
/// group of a namespace stays the same, but bit 6, which says so, is clear: if it is set, nvme-cli
/// 2.3 requests a log too short to hold any namespaces.
pub(super) const CAPABILITIES: u8 = 0b111;
/// ANA Transition Time (ANATT), seconds. No namespace is ever in state Change.
pub(super) const TRANSITION_TIME_S: u8 = 10;

/// The states that hosts were notified of, or can read.
#[derive(Debug, Default)]
pub(super) struct Ana {
    groups: BTreeMap<Nsid, Group>,
    change_count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    state: AnaState,
    /// The change count of the log when the state was set.
    change_count: u64,
}

impl Ana {
    pub(super) fn state(&self, nsid: Nsid) -> Option<AnaState> {
        self.groups.get(&nsid).map(|group| group.state)
    }

    /// Sets the state of a namespace. Returns whether it is another one than before.
    pub(super) fn set(&mut self, nsid: Nsid, state: AnaState) -> bool {
        if self.state(nsid) == Some(state) {
            return false;
        }
        self.change_count += 1;
        let change_count = self.change_count;
        let group = Group {
            state,
            change_count,
        };
        self.groups.insert(nsid, group);
        true
    }

    pub(super) fn remove(&mut self, nsid: Nsid) {
        if self.groups.remove(&nsid).is_some() {
            self.change_count += 1;
        }
    }

    /// The log: its header, a descriptor of each group in the order of IDs, and after each the
    /// group's NSID unless only groups are requested.
    fn page(&self, contents: Contents) -> Vec<u8> {
        let count = self.groups.len() as u16;
        let mut page = AnaHeader::new(self.change_count, count).as_bytes().to_vec();
        for (nsid, group) in &self.groups {
            let members = match contents {
                Contents::Groups => 0,
                Contents::Namespaces => 1,
            };
            let descriptor = AnaGroup::new(nsid.0, members, group.change_count, group.state);
            page.extend_from_slice(descriptor.as_bytes());
            if contents == Contents::Namespaces {
                page.extend_from_slice(&nsid.0.to_le_bytes());
            }
        }
        page
    }
}

/// What the log is to hold: Return Groups Only (RGO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Groups,
    Namespaces,
}

/// The longest log, in bytes: as long as hosts calculate from NANAGRPID and MNAN, so that no host
/// reads beyond its end.
const fn log_bytes_max(limits: &Limits) -> usize {
    let of_namespace = size_of::<AnaGroup>() + size_of::<Nsid>();
    size_of::<AnaHeader>() + limits.namespaces_max as usize * of_namespace
}

impl Subsystem {
    /// The way to the namespace's volume may have changed: notifies the hosts if it has.
    pub fn path_changed(&mut self, nsid: Nsid) {
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        if self.ana.set(nsid, ana_state(namespace.volume.path().state)) {
            self.generation.advance();
            self.raise(Event::AnaChange);
        }
    }

    /// The Asymmetric Namespace Access log. `specific` is the Log Specific Field.
    pub(super) fn ana_log(&self, specific: u8) -> Result<Vec<u8>, Failure> {
        const GROUPS_ONLY: u8 = 1;
        let contents = match specific {
            0 => Contents::Namespaces,
            GROUPS_ONLY => Contents::Groups,
            _ => return Err(StatusCode::InvalidField.at(Location::CDW10)),
        };
        let mut page = self.ana.page(contents);
        if contents == Contents::Namespaces {
            page.resize(log_bytes_max(&self.config.limits), 0);
        }
        Ok(page)
    }
}

/// The ANA state that hosts see for the state of a volume's path.
pub(super) const fn ana_state(state: PathState) -> AnaState {
    match state {
        PathState::Optimized => AnaState::Optimized,
        PathState::NonOptimized => AnaState::NonOptimized,
        PathState::Inaccessible => AnaState::Inaccessible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_read_the_log_with_one_command() {
        // Linux uses no ANA if the log is longer than a transfer may be.
        let limits = Limits::default();
        assert!(log_bytes_max(&limits) as u64 <= limits.transfer_max_bytes());
        assert!(
            u16::try_from(limits.namespaces_max).is_ok(),
            "groups of the log"
        );
    }

    #[test]
    fn the_change_counts_name_the_last_change_of_each_group() {
        let mut ana = Ana::default();
        assert!(ana.set(Nsid(2), AnaState::Optimized));
        assert!(ana.set(Nsid(1), AnaState::Optimized));
        assert!(ana.set(Nsid(2), AnaState::Inaccessible));
        assert!(!ana.set(Nsid(2), AnaState::Inaccessible));
        let counts = |ana: &Ana| {
            let page = ana.page(Contents::Groups);
            let at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
            let groups = (16..page.len()).step_by(32).map(|group| at(group + 8));
            (at(0), groups.collect::<Vec<_>>())
        };
        assert_eq!(counts(&ana), (3, vec![2, 3]));
        ana.remove(Nsid(1));
        ana.remove(Nsid(1));
        assert_eq!(counts(&ana), (4, vec![3]));
        assert_eq!(ana.state(Nsid(1)), None);
    }
}
