//! Asymmetric logical unit access (ALUA): how well the ports of this machine lead to a logical unit
//! that several machines offer, and what hosts see of it.
//!
//! A host that is connected to several machines sees one logical unit with the target port groups
//! of all of them, so the numbers of ports and groups differ from machine to machine. Logical units
//! of one machine keep the plain numbers.
//!
//! Read first: SPC-5, "Target port group access states" and "REPORT TARGET PORT GROUPS command".

use block::{HostPath, PathState};

use crate::opcodes::Name;
use crate::sense::{Asc, Sense, SenseKey};

/// ASYMMETRIC ACCESS STATE.
const ACTIVE_OPTIMIZED: u8 = 0x0;
const ACTIVE_NON_OPTIMIZED: u8 = 0x1;
const UNAVAILABLE: u8 = 0x3;

/// The states that a group may have: AO_SUP; AN_SUP; U_SUP.
const OPTIMIZED_SUPPORTED: u8 = 1;
const NON_OPTIMIZED_SUPPORTED: u8 = 1 << 1;
const UNAVAILABLE_SUPPORTED: u8 = 1 << 3;

/// STATUS CODE: the state was altered by implicit asymmetric logical unit access behaviour.
const BY_IMPLICIT_BEHAVIOUR: u8 = 0x02;

/// Whether several machines offer the logical unit.
fn is_shared(path: HostPath) -> bool {
    path.machine != 0
}

/// Bytes 0 and 1 of a target port group descriptor, and STATUS CODE.
pub(crate) fn descriptor_fields(path: HostPath) -> ([u8; 2], u8) {
    let state = match path.state {
        PathState::Optimized => ACTIVE_OPTIMIZED,
        PathState::NonOptimized => ACTIVE_NON_OPTIMIZED,
        PathState::Inaccessible => UNAVAILABLE,
    };
    if !is_shared(path) && path.state == PathState::Optimized {
        return ([state, OPTIMIZED_SUPPORTED], 0);
    }
    let supported = OPTIMIZED_SUPPORTED | NON_OPTIMIZED_SUPPORTED | UNAVAILABLE_SUPPORTED;
    ([state, supported], BY_IMPLICIT_BEHAVIOUR)
}

/// The number of a target port, or of a group, as hosts of the logical unit see it: for one that
/// several machines offer, the machine in the high byte and what is below 256 of the number in the
/// low one. The machines of a cluster have different numbers if these differ by less than 255.
pub(crate) fn shown_number(number: u16, path: HostPath) -> u16 {
    if !is_shared(path) {
        return number;
    }
    let machine = (path.machine - 1) % 255 + 1;
    (machine as u16) << 8 | number & 0xFF
}

/// Why a command is not executed because of the path.
pub(crate) fn refusal(path: HostPath, name: Name, is_medium: bool) -> Option<Sense> {
    let needs_path = is_medium || name == Name::TestUnitReady;
    (needs_path && path.state == PathState::Inaccessible)
        .then(|| Sense::new(SenseKey::NotReady, Asc::NOT_READY_PORT_UNAVAILABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_from_machine_to_machine() {
        let on = |machine| HostPath {
            machine,
            ..HostPath::default()
        };
        for number in [1, 2, 255, u16::MAX] {
            assert_eq!(shown_number(number, on(0)), number);
            let shown: std::collections::BTreeSet<_> = (1..=255)
                .map(|machine| shown_number(number, on(machine)))
                .collect();
            assert_eq!(shown.len(), 255);
            assert!(!shown.contains(&0), "reserved");
        }
        assert_ne!(shown_number(1, on(3)), shown_number(2, on(3)));
        assert_eq!(shown_number(1, on(u32::MAX)) & 0xFF, 1);
    }
}
