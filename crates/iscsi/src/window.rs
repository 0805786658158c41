//! The command window of a session: which CmdSN is expected next, and how many commands are outstanding.
//!
//! Read first: RFC 7143 §4.2.2.1, "Command Numbering and Acknowledging".
//!
//! Commands of a session with several connections come in any order, since each connection delivers on its own.
//! ExpCmdSN moves over what has come without a gap; what has come is begun in order ([`order`]).

pub(crate) mod order;

use std::sync::{Arc, Mutex, PoisonError};

use scsi::Lun;

use crate::backend::AbortScope;
use crate::params::Parameters;
use crate::target::task::COMMANDS_MAX;
use crate::window::order::{Attribute, Line, Member, Place};
use crate::wire::sn_before;

/// What the connections of one session share.
#[derive(Clone, Debug)]
pub struct SharedSession {
    /// What the leading login negotiated.
    pub(crate) parameters: Parameters,
    numbers: Arc<Mutex<Numbers>>,
}

impl SharedSession {
    /// Of a session whose first CmdSN is `cmd_sn`.
    pub(crate) fn new(parameters: Parameters, cmd_sn: u32) -> Self {
        Self {
            parameters,
            numbers: Arc::new(Mutex::new(Numbers::new(cmd_sn, COMMANDS_MAX))),
        }
    }

    /// How many connections it may have.
    pub fn connections_max(&self) -> u32 {
        self.parameters.connections_max
    }
}

impl PartialEq for SharedSession {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.numbers, &other.numbers)
    }
}

impl Eq for SharedSession {}

/// What becomes of a numbered request that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Its number lies outside of the window or came before: it is to be ignored.
    Ignored,
    /// It was aborted before it came.
    Aborted,
    /// It is begun now. After a SCSI command, [`Window::begun`] is due.
    Now,
    /// It waits until it is claimed.
    Held(Place),
}

/// A connection's hold on its session's window.
#[derive(Debug)]
pub(crate) enum Window {
    /// The session has this connection alone: no lock is needed.
    Own(Numbers),
    /// It may have others.
    Shared(Arc<Mutex<Numbers>>, Member),
}

impl Window {
    /// Of at most `commands_max` commands, and never more than [`COMMANDS_MAX`].
    pub(crate) fn own(cmd_sn: u32, commands_max: usize) -> Self {
        Self::Own(Numbers::new(cmd_sn, commands_max.min(COMMANDS_MAX)))
    }

    /// The window of a further connection, whose CID is `cid`.
    pub(crate) fn shared(session: &SharedSession, cid: u16) -> Self {
        let numbers = Arc::clone(&session.numbers);
        let number = {
            let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
            numbers.members += 1;
            numbers.members
        };
        Self::Shared(numbers, Member { number, cid })
    }

    /// Takes note of a request that has come. A SCSI command, for `lun`, is outstanding from now on, unless it is
    /// ignored or was aborted. On a single connection numbers come in order.
    pub(crate) fn arrive(&mut self, cmd_sn: u32, attribute: Attribute, lun: Lun) -> Arrival {
        match self {
            Self::Own(numbers) if cmd_sn != numbers.expected => Arrival::Ignored,
            Self::Own(numbers) if !attribute.is_barrier() && numbers.line.is_clear() => {
                if !numbers.take(cmd_sn) {
                    return Arrival::Ignored;
                }
                numbers.outstanding += usize::from(attribute == Attribute::Simple);
                Arrival::Now
            }
            _ => self.with(|numbers, member| numbers.arrive(cmd_sn, attribute, lun, member)),
        }
    }

    /// A SCSI command has been begun.
    pub(crate) fn begun(&mut self, attribute: Attribute) {
        self.with(|numbers, _| numbers.line.begun(attribute));
    }

    /// Takes the request out of the line whose turn it is, where it came on this connection.
    pub(crate) fn claim(&mut self) -> Option<Place> {
        self.with(|numbers, member| {
            let (expected, outstanding) = (numbers.place, numbers.outstanding);
            numbers.line.claim(member, expected, outstanding)
        })
    }

    /// A SCSI command has ended that was begun with this attribute.
    pub(crate) fn end(&mut self, attribute: Attribute) {
        self.with(|numbers, _| {
            numbers.outstanding -= 1;
            if attribute.is_barrier() {
                numbers.line.barrier_ended();
            }
        });
    }

    /// A SCSI command has ended before it was begun.
    pub(crate) fn forgo(&mut self, place: Place) {
        self.with(|numbers, _| {
            numbers.outstanding -= 1;
            numbers.line.remove(place);
        });
    }

    /// A SCSI command leaves the line without having been begun, and has yet to end.
    pub(crate) fn withdraw(&mut self, place: Place) {
        self.with(|numbers, _| numbers.line.remove(place));
    }

    /// Nothing of this connection waits any more.
    pub(crate) fn leave(&mut self) {
        self.with(|numbers, member| numbers.line.leave(member));
    }

    /// Commands with numbers before `cmd_sn` that have not come are aborted when they do.
    pub(crate) fn condemn(&mut self, cmd_sn: u32, scope: AbortScope) {
        if let Self::Shared(..) = self {
            self.with(|numbers, _| {
                let before = numbers.place_of(cmd_sn);
                numbers.line.condemn(before, scope, numbers.place);
            });
        }
    }

    /// Takes the number of a command that is aborted before it comes; false where it is not to come any more.
    pub(crate) fn abort_ahead(&mut self, cmd_sn: u32) -> bool {
        self.with(|numbers, _| numbers.take(cmd_sn))
    }

    /// The CID of the other connection whose turn has come, once.
    pub(crate) fn next_elsewhere(&mut self) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(..) => self.with(|numbers, member| {
                let (expected, outstanding) = (numbers.place, numbers.outstanding);
                let other = numbers.line.next_elsewhere(member, expected, outstanding);
                other.map(|other| other.cid)
            }),
        }
    }

    /// The place of the number that is expected next.
    pub(crate) fn expected(&mut self) -> Place {
        self.with(|numbers, _| numbers.place)
    }

    /// Tells the session's connections that the command of a tag was found and aborted.
    pub(crate) fn note_aborted(&mut self, tag: u32) {
        self.with(|numbers, _| {
            if numbers.aborted.len() >= ABORTED_MAX {
                numbers.aborted.remove(0);
            }
            numbers.aborted.push(tag);
        });
    }

    /// Whether the command of a tag was found and aborted by another connection.
    pub(crate) fn take_aborted(&mut self, tag: u32) -> bool {
        self.with(|numbers, _| {
            let at = numbers.aborted.iter().position(|other| *other == tag);
            at.map(|at| numbers.aborted.remove(at)).is_some()
        })
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let told = |numbers: &Numbers| (numbers.expected, numbers.max());
        match self {
            Self::Own(numbers) => told(numbers),
            Self::Shared(numbers, _) => {
                told(&numbers.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Numbers are complete between any two calls, whoever panics.
    fn with<R>(&mut self, call: impl FnOnce(&mut Numbers, Member) -> R) -> R {
        match self {
            Self::Own(numbers) => call(numbers, Member::ONLY),
            Self::Shared(numbers, member) => call(
                &mut numbers.lock().unwrap_or_else(PoisonError::into_inner),
                *member,
            ),
        }
    }
}

/// The most commands that were aborted for another connection and are not yet known to it.
const ABORTED_MAX: usize = 64;

/// The numbers of a window, and the line of those who came.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// ExpCmdSN.
    expected: u32,
    /// The same, not wrapping around.
    place: Place,
    /// Which numbers from `expected` on have come: bit n of word w stands for `expected + 64 w + n`. The first bit is
    /// never set.
    early: [u64; EARLY_WORDS],
    /// Commands that count in the window.
    outstanding: usize,
    /// The most of them.
    commands_max: usize,
    line: Line,
    /// How many connections there have been.
    members: u64,
    /// Tags of commands that were aborted for another connection.
    aborted: Vec<u32>,
}

const EARLY_WORDS: usize = COMMANDS_MAX / 64;
/// Far enough from 0 that every number before the first has a place.
const FIRST_PLACE: Place = Place(1 << 32);

impl Numbers {
    fn new(cmd_sn: u32, commands_max: usize) -> Self {
        Self {
            expected: cmd_sn,
            place: FIRST_PLACE,
            early: [0; EARLY_WORDS],
            outstanding: 0,
            commands_max,
            line: Line::default(),
            members: 0,
            aborted: Vec::new(),
        }
    }

    /// The place of a number, in serial number arithmetic.
    fn place_of(&self, cmd_sn: u32) -> Place {
        if sn_before(cmd_sn, self.expected) {
            Place(self.place.0 - u64::from(self.expected.wrapping_sub(cmd_sn)))
        } else {
            Place(self.place.0 + u64::from(cmd_sn.wrapping_sub(self.expected)))
        }
    }

    fn early_count(&self) -> usize {
        self.early
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// How many numbers from ExpCmdSN on may come.
    fn len(&self) -> usize {
        (self.early_count() + self.commands_max)
            .saturating_sub(self.outstanding)
            .min(self.commands_max)
    }

    fn max(&self) -> u32 {
        self.expected
            .wrapping_add(self.len() as u32)
            .wrapping_sub(1)
    }

    fn arrive(&mut self, cmd_sn: u32, attribute: Attribute, lun: Lun, member: Member) -> Arrival {
        let place = self.place_of(cmd_sn);
        if !self.take(cmd_sn) {
            return Arrival::Ignored;
        }
        if attribute != Attribute::Control {
            if self.line.is_condemned(place, lun) {
                return Arrival::Aborted;
            }
            self.outstanding += 1;
        }
        self.line.join(place, member, attribute);
        if self.line.claim_at(place, self.place, self.outstanding) {
            Arrival::Now
        } else {
            Arrival::Held(place)
        }
    }

    fn take(&mut self, cmd_sn: u32) -> bool {
        let ahead = cmd_sn.wrapping_sub(self.expected) as usize;
        if ahead >= self.len() || self.early[ahead / 64] >> (ahead % 64) & 1 != 0 {
            return false;
        }
        if ahead == 0 && self.early == [0; EARLY_WORDS] {
            // In order, as ever on a single connection.
            self.expected = self.expected.wrapping_add(1);
            self.place.0 += 1;
            return true;
        }
        self.early[ahead / 64] |= 1 << (ahead % 64);
        while self.early[0] & 1 != 0 {
            self.expected = self.expected.wrapping_add(1);
            self.place.0 += 1;
            for word in 0..EARLY_WORDS {
                let next = self.early.get(word + 1).map_or(0, |next| next & 1);
                self.early[word] = self.early[word] >> 1 | next << 63;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(window: &mut Window, cmd_sn: u32) -> Arrival {
        let arrival = window.arrive(cmd_sn, Attribute::Simple, 0);
        if arrival == Arrival::Now {
            window.begun(Attribute::Simple);
        }
        arrival
    }

    #[test]
    fn numbers_in_order_move_the_window_on() {
        let mut window = Window::own(u32::MAX, COMMANDS_MAX);
        assert_eq!(window.numbers(), (u32::MAX, 254));
        assert_eq!(take(&mut window, u32::MAX), Arrival::Now);
        assert_eq!(window.numbers(), (0, 254), "one is outstanding");
        assert_eq!(
            take(&mut window, u32::MAX),
            Arrival::Ignored,
            "it came before"
        );
        window.end(Attribute::Simple);
        assert_eq!(window.numbers(), (0, 255));
        assert_eq!(take(&mut window, 1), Arrival::Ignored, "0 has not come");
    }

    #[test]
    fn the_window_never_moves_back_whatever_the_order() {
        let session = SharedSession::new(Parameters::default(), 10);
        let mut window = Window::shared(&session, 1);
        let mut max = window.numbers().1;
        for cmd_sn in [12, 14, 11, 13, 80, 10] {
            let is_first = cmd_sn == 10;
            assert_eq!(take(&mut window, cmd_sn) == Arrival::Now, is_first);
            assert_eq!(take(&mut window, cmd_sn), Arrival::Ignored);
            assert!(window.numbers().1 >= max);
            max = window.numbers().1;
        }
        assert_eq!(window.numbers().0, 15, "80 waits for what is before it");
        let claimed = std::iter::from_fn(|| {
            let place = window.claim()?;
            window.begun(Attribute::Simple);
            window.end(Attribute::Simple);
            Some(place.0 - FIRST_PLACE.0)
        });
        assert_eq!(claimed.collect::<Vec<_>>(), [1, 2, 3, 4]);
        window.end(Attribute::Simple);
        window.forgo(Place(FIRST_PLACE.0 + 70));
        assert_eq!(window.numbers(), (15, 15 + 255));
    }

    #[test]
    fn a_full_window_takes_nothing() {
        let mut window = Window::own(1, COMMANDS_MAX);
        for cmd_sn in 1..=COMMANDS_MAX as u32 {
            assert_eq!(take(&mut window, cmd_sn), Arrival::Now);
        }
        assert_eq!(window.numbers(), (257, 256));
        assert_eq!(take(&mut window, 257), Arrival::Ignored);
        window.end(Attribute::Simple);
        assert_eq!(take(&mut window, 257), Arrival::Now);
    }
}
