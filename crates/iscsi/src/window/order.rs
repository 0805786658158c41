//! The line of a session's commands: which of those that have come may be begun.
//!
//! Read first: RFC 7143 §4.2.2.1, "Command Numbering and Acknowledging"; SAM-5, "Task set management", on task
//! attributes.
//!
//! Numbered requests are begun in the order of CmdSN, whichever connections they come on: one that is early waits
//! until all before it have come and have been begun, one by one. Beyond that,
//!
//! - an ORDERED command waits until all commands before it have ended, and those after it until it has;
//! - a HEAD OF QUEUE command passes those that wait for an ORDERED one; those after it wait until it has ended;
//! - requests that are not for the device server (task management among them) wait only for those before them to come.
//!
//! What is for immediate delivery is never in this line.

use std::collections::BTreeMap;

use scsi::Lun;

use crate::backend::AbortScope;

/// How a request stands to the others in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// SIMPLE, untagged, and ACA, which stands for SIMPLE where there is no auto contingent allegiance.
    Simple,
    Ordered,
    HeadOfQueue,
    /// Not a SCSI command.
    Control,
}

impl Attribute {
    /// ATTR of a SCSI Command (RFC 7143 §11.3.1).
    pub(crate) fn of(flags: u8) -> Self {
        match flags & 0x07 {
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            _ => Self::Simple,
        }
    }

    /// Those after it wait until it has ended.
    pub(crate) fn is_barrier(self) -> bool {
        matches!(self, Self::Ordered | Self::HeadOfQueue)
    }

    fn is_command(self) -> bool {
        self != Self::Control
    }

    /// Passes those that wait for a barrier.
    fn is_urgent(self) -> bool {
        matches!(self, Self::HeadOfQueue | Self::Control)
    }
}

/// A connection of a session, told from one that had the same CID before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) number: u64,
    pub(crate) cid: u16,
}

impl Member {
    /// The only connection of a session.
    pub(crate) const ONLY: Self = Self { number: 0, cid: 0 };
}

/// A place in line: CmdSN as a number that does not wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Waiter {
    member: Member,
    attribute: Attribute,
}

/// Commands that were aborted before they came.
#[derive(Clone, Copy, Debug)]
struct Condemned {
    before: Place,
    scope: AbortScope,
}

/// The most sets of commands that are aborted before they come; beyond them, all are.
const CONDEMNED_MAX: usize = 16;

/// What has come and has not been begun, with what bars it. At most as long as the command window.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: BTreeMap<Place, Waiter>,
    /// SCSI commands among those that wait.
    commands: usize,
    /// Requests among those that wait that pass barriers.
    urgent: usize,
    /// Barriers that were begun and have not ended.
    barriers: usize,
    /// The connection that is beginning a command at this moment.
    beginning: Option<Member>,
    condemned: Vec<Condemned>,
    /// Whose connection was last told that its turn has come.
    told: Option<Place>,
}

impl Line {
    /// Whether a SIMPLE command that comes in order need not look at the line at all.
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.barriers == 0 && self.beginning.is_none()
    }

    /// A request has come, and waits until it is claimed.
    pub(crate) fn join(&mut self, place: Place, member: Member, attribute: Attribute) {
        self.commands += usize::from(attribute.is_command());
        self.urgent += usize::from(attribute.is_urgent());
        self.waiting.insert(place, Waiter { member, attribute });
    }

    /// Who is next, of those before `expected`, while `outstanding` commands have come and not ended.
    fn next(&self, expected: Place, outstanding: usize) -> Option<(Place, Waiter)> {
        let mut come = self.waiting.range(..expected);
        let (&place, &first) = come.next()?;
        let is_free =
            |attribute: Attribute| attribute == Attribute::Control || self.beginning.is_none();
        let may_begin = match first.attribute {
            Attribute::Simple => self.barriers == 0,
            Attribute::Ordered => outstanding == self.commands,
            Attribute::HeadOfQueue | Attribute::Control => true,
        };
        if may_begin && is_free(first.attribute) {
            return Some((place, first));
        }
        if self.urgent == 0 {
            return None;
        }
        let passes = |(_, waiter): &(&Place, &Waiter)| {
            waiter.attribute.is_urgent() && is_free(waiter.attribute)
        };
        come.find(passes).map(|(&place, &waiter)| (place, waiter))
    }

    /// Takes what is next out of the line, where it is `member`'s. After a command, [`begun`](Self::begun) is due.
    pub(crate) fn claim(
        &mut self,
        member: Member,
        expected: Place,
        outstanding: usize,
    ) -> Option<Place> {
        let (place, waiter) = self.next(expected, outstanding)?;
        if waiter.member != member {
            return None;
        }
        self.take(place, waiter);
        Some(place)
    }

    /// Takes what waits at `place` out of the line, where that is next; else it stays.
    pub(crate) fn claim_at(&mut self, place: Place, expected: Place, outstanding: usize) -> bool {
        match self.next(expected, outstanding) {
            Some((next, waiter)) if next == place => {
                self.take(place, waiter);
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, place: Place, waiter: Waiter) {
        self.remove(place);
        if waiter.attribute.is_command() {
            self.beginning = Some(waiter.member);
        }
    }

    /// A command that was claimed has been begun.
    pub(crate) fn begun(&mut self, attribute: Attribute) {
        self.beginning = None;
        self.barriers += usize::from(attribute.is_barrier());
    }

    /// A command that was begun as a barrier has ended.
    pub(crate) fn barrier_ended(&mut self) {
        self.barriers -= 1;
    }

    /// A request leaves the line without having been begun.
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(Waiter { attribute, .. }) = self.waiting.remove(&place) {
            self.commands -= usize::from(attribute.is_command());
            self.urgent -= usize::from(attribute.is_urgent());
        }
    }

    /// All requests of a connection leave the line.
    pub(crate) fn leave(&mut self, member: Member) {
        let own = self.waiting.iter().filter(|(_, w)| w.member == member);
        let own: Vec<_> = own.map(|(place, _)| *place).collect();
        for place in own {
            self.remove(place);
        }
        if self.beginning == Some(member) {
            self.beginning = None;
        }
    }

    /// The other connection whose turn has come, where it has not been told yet.
    pub(crate) fn next_elsewhere(
        &mut self,
        own: Member,
        expected: Place,
        outstanding: usize,
    ) -> Option<Member> {
        let next = self.next(expected, outstanding);
        let next = next.filter(|(_, waiter)| waiter.member != own);
        let place = next.map(|(place, _)| place);
        let is_new = place != self.told;
        self.told = place;
        next.filter(|_| is_new).map(|(_, waiter)| waiter.member)
    }

    /// Commands before a place that have not come are aborted when they do.
    pub(crate) fn condemn(&mut self, before: Place, scope: AbortScope, expected: Place) {
        self.condemned.retain(|other| other.before > expected);
        if before <= expected {
            return;
        }
        self.condemned.push(Condemned { before, scope });
        if self.condemned.len() > CONDEMNED_MAX {
            let last = self.condemned.iter().map(|condemned| condemned.before);
            let before = last.max().unwrap_or(before);
            let scope = AbortScope::All;
            self.condemned = vec![Condemned { before, scope }];
        }
    }

    /// Whether a command that comes was aborted before.
    pub(crate) fn is_condemned(&self, place: Place, lun: Lun) -> bool {
        let is_meant = |condemned: &Condemned| {
            place < condemned.before
                && match condemned.scope {
                    AbortScope::All => true,
                    AbortScope::Lun(other) => other == lun,
                    // Its number was taken when it was aborted.
                    AbortScope::Task(_) => false,
                }
        };
        self.condemned.iter().any(is_meant)
    }
}
