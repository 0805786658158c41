//! Which commands pass a reservation.
//!
//! Read first: NVM Express Base 2.0, "Command Behavior in the Presence of a Reservation".

use super::ReservationType;
use crate::controller::{Gate, Permit};

/// What a host is to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds it.
    Holder,
    /// It is registered but does not hold it.
    Registrant,
    /// It is not registered.
    Other,
}

const OPEN: Permit = Permit::ALL;
const READ_ONLY: Permit = Permit {
    read: Gate::Open,
    write: Gate::ReservationConflict,
};
const NOTHING: Permit = Permit {
    read: Gate::ReservationConflict,
    write: Gate::ReservationConflict,
};

/// For each type, in the order of its number, what a holder, a registrant and any other host may
/// do.
const RULES: [(ReservationType, [Permit; 3]); 6] = [
    (
        ReservationType::WriteExclusive,
        [OPEN, READ_ONLY, READ_ONLY],
    ),
    (ReservationType::ExclusiveAccess, [OPEN, NOTHING, NOTHING]),
    (
        ReservationType::WriteExclusiveRegistrantsOnly,
        [OPEN, OPEN, READ_ONLY],
    ),
    (
        ReservationType::ExclusiveAccessRegistrantsOnly,
        [OPEN, OPEN, NOTHING],
    ),
    (
        ReservationType::WriteExclusiveAllRegistrants,
        [OPEN, OPEN, READ_ONLY],
    ),
    (
        ReservationType::ExclusiveAccessAllRegistrants,
        [OPEN, OPEN, NOTHING],
    ),
];

/// What a host of this standing may do under a reservation of this type.
pub(super) const fn permit(kind: ReservationType, standing: Standing) -> Permit {
    RULES[kind as usize - 1].1[standing as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::CommandClass::{Read, Write};

    #[test]
    fn every_type_standing_and_class() {
        use Standing::{Holder, Other, Registrant};
        #[rustfmt::skip]
        let expected = [
            // type, standing, read passes, write passes
            (1, Holder, true, true), (1, Registrant, true,  false), (1, Other, true,  false),
            (2, Holder, true, true), (2, Registrant, false, false), (2, Other, false, false),
            (3, Holder, true, true), (3, Registrant, true,  true),  (3, Other, true,  false),
            (4, Holder, true, true), (4, Registrant, true,  true),  (4, Other, false, false),
            (5, Holder, true, true), (5, Registrant, true,  true),  (5, Other, true,  false),
            (6, Holder, true, true), (6, Registrant, true,  true),  (6, Other, false, false),
        ];
        for (raw, standing, read, write) in expected {
            let kind = ReservationType::from_raw(raw).expect("1 to 6");
            let permit = permit(kind, standing);
            assert_eq!(
                permit.check(Read).is_ok(),
                read,
                "{kind:?} {standing:?} read"
            );
            assert_eq!(
                permit.check(Write).is_ok(),
                write,
                "{kind:?} {standing:?} write"
            );
        }
    }

    #[test]
    fn rules_are_in_the_order_of_the_types_numbers() {
        for (at, (kind, _)) in RULES.iter().enumerate() {
            assert_eq!(*kind as usize, at + 1);
        }
    }
}
