//! The order in which the commands of a session start: which of the received ones may start now.
//!
//! Read first: RFC 7143 §4.2.2.1, "Command Numbering and Acknowledging"; SAM-5, "Task set
//! management", on task attributes.
//!
//! Numbered requests start in the order of CmdSN, whichever connection they arrive on. A request
//! that arrives early waits until all requests before it have arrived and have been started, one by
//! one. In addition,
//!
//! - an ORDERED command waits until all commands before it have ended, and those after it wait
//!   until it has ended;
//! - a HEAD OF QUEUE command passes those that wait for an ORDERED one; those after it wait until
//!   it has ended;
//! - requests that are not for the device server (task management among them) wait only until those
//!   before them have arrived.
//!
//! Immediate requests are never queued here.

use std::collections::BTreeMap;

use scsi::Lun;

/// Which commands are to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortScope {
    /// All.
    All,
    /// Those of a LUN.
    Lun(Lun),
    /// The one with an Initiator Task Tag.
    Task(u32),
}

/// How a request is ordered among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// SIMPLE, untagged, and ACA, which is treated as SIMPLE because there is no auto contingent
    /// allegiance.
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

    /// Whether requests after it wait until it has ended.
    pub(crate) fn is_barrier(self) -> bool {
        matches!(self, Self::Ordered | Self::HeadOfQueue)
    }

    fn is_command(self) -> bool {
        self != Self::Control
    }

    /// Whether it passes requests that wait for a barrier.
    fn is_urgent(self) -> bool {
        matches!(self, Self::HeadOfQueue | Self::Control)
    }
}

/// Identifies a connection of a session, also against an earlier one with the same CID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberId {
    pub(crate) number: u64,
    pub(crate) cid: u16,
}

impl MemberId {
    /// The connection of a session that has only one.
    pub(crate) const ONLY: Self = Self { number: 0, cid: 0 };
}

/// CmdSN as a number that does not wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WideCmdSn(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    member: MemberId,
    attribute: Attribute,
}

/// Commands that are aborted before they arrive.
#[derive(Clone, Copy, Debug)]
struct EarlyAbort {
    before: WideCmdSn,
    scope: AbortScope,
}

/// The most [`EarlyAbort`]s of a session. Beyond that, all commands that have not arrived are
/// aborted.
const EARLY_ABORTS_MAX: usize = 16;

/// The requests that have arrived and have not been started, and what keeps them. At most as long
/// as the command window.
#[derive(Debug, Default)]
pub(crate) struct StartQueue {
    waiting: BTreeMap<WideCmdSn, Waiting>,
    /// SCSI commands among `waiting`.
    commands: usize,
    /// Requests among `waiting` that pass barriers.
    urgent: usize,
    /// Barriers that were started and have not ended.
    barriers: usize,
    /// The connection that is starting a command at this moment.
    starting: Option<MemberId>,
    early_aborts: Vec<EarlyAbort>,
    /// The request whose connection was last notified that it may start.
    last_notified: Option<WideCmdSn>,
}

impl StartQueue {
    /// Whether a SIMPLE command that arrives in order starts without being queued.
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.barriers == 0 && self.starting.is_none()
    }

    /// Queues a request until it is claimed.
    pub(crate) fn push(&mut self, cmd_sn: WideCmdSn, member: MemberId, attribute: Attribute) {
        self.commands += usize::from(attribute.is_command());
        self.urgent += usize::from(attribute.is_urgent());
        self.waiting.insert(cmd_sn, Waiting { member, attribute });
    }

    /// The next request to start, among those before `expected`, while `outstanding` commands have
    /// arrived and not ended.
    fn next(&self, expected: WideCmdSn, outstanding: usize) -> Option<(WideCmdSn, Waiting)> {
        let mut arrived = self.waiting.range(..expected);
        let (&cmd_sn, &first) = arrived.next()?;
        let is_free =
            |attribute: Attribute| attribute == Attribute::Control || self.starting.is_none();
        let may_start = match first.attribute {
            Attribute::Simple => self.barriers == 0,
            Attribute::Ordered => outstanding == self.commands,
            Attribute::HeadOfQueue | Attribute::Control => true,
        };
        if may_start && is_free(first.attribute) {
            return Some((cmd_sn, first));
        }
        if self.urgent == 0 {
            return None;
        }
        let passes = |(_, waiter): &(&WideCmdSn, &Waiting)| {
            waiter.attribute.is_urgent() && is_free(waiter.attribute)
        };
        arrived
            .find(passes)
            .map(|(&cmd_sn, &waiter)| (cmd_sn, waiter))
    }

    /// Takes the next request, if it is `member`'s. After a SCSI command, the caller calls
    /// [`started`](Self::started).
    pub(crate) fn claim(
        &mut self,
        member: MemberId,
        expected: WideCmdSn,
        outstanding: usize,
    ) -> Option<WideCmdSn> {
        let (cmd_sn, waiter) = self.next(expected, outstanding)?;
        if waiter.member != member {
            return None;
        }
        self.take(cmd_sn, waiter);
        Some(cmd_sn)
    }

    /// Takes the request with this number, if it is the next one.
    pub(crate) fn claim_at(
        &mut self,
        cmd_sn: WideCmdSn,
        expected: WideCmdSn,
        outstanding: usize,
    ) -> bool {
        match self.next(expected, outstanding) {
            Some((next, waiter)) if next == cmd_sn => {
                self.take(cmd_sn, waiter);
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, cmd_sn: WideCmdSn, waiter: Waiting) {
        self.remove(cmd_sn);
        if waiter.attribute.is_command() {
            self.starting = Some(waiter.member);
        }
    }

    /// A claimed command has been started.
    pub(crate) fn started(&mut self, attribute: Attribute) {
        self.starting = None;
        self.barriers += usize::from(attribute.is_barrier());
    }

    /// A command that is a barrier has ended.
    pub(crate) fn barrier_ended(&mut self) {
        self.barriers -= 1;
    }

    /// Removes a request that has not been started.
    pub(crate) fn remove(&mut self, cmd_sn: WideCmdSn) {
        if let Some(Waiting { attribute, .. }) = self.waiting.remove(&cmd_sn) {
            self.commands -= usize::from(attribute.is_command());
            self.urgent -= usize::from(attribute.is_urgent());
        }
    }

    /// Removes all requests of a connection.
    pub(crate) fn leave(&mut self, member: MemberId) {
        let own = self.waiting.iter().filter(|(_, w)| w.member == member);
        let own: Vec<_> = own.map(|(cmd_sn, _)| *cmd_sn).collect();
        for cmd_sn in own {
            self.remove(cmd_sn);
        }
        if self.starting == Some(member) {
            self.starting = None;
        }
    }

    /// The other connection whose request is the next to start, unless it has been notified of
    /// that.
    pub(crate) fn next_elsewhere(
        &mut self,
        own: MemberId,
        expected: WideCmdSn,
        outstanding: usize,
    ) -> Option<MemberId> {
        let next = self.next(expected, outstanding);
        let next = next.filter(|(_, waiter)| waiter.member != own);
        let cmd_sn = next.map(|(cmd_sn, _)| cmd_sn);
        let is_new = cmd_sn != self.last_notified;
        self.last_notified = cmd_sn;
        next.filter(|_| is_new).map(|(_, waiter)| waiter.member)
    }

    /// Commands with numbers below `before` that have not arrived are aborted when they do.
    pub(crate) fn abort_before(
        &mut self,
        before: WideCmdSn,
        scope: AbortScope,
        expected: WideCmdSn,
    ) {
        self.early_aborts.retain(|other| other.before > expected);
        if before <= expected {
            return;
        }
        self.early_aborts.push(EarlyAbort { before, scope });
        if self.early_aborts.len() > EARLY_ABORTS_MAX {
            let last = self.early_aborts.iter().map(|abort| abort.before);
            let before = last.max().unwrap_or(before);
            let scope = AbortScope::All;
            self.early_aborts = vec![EarlyAbort { before, scope }];
        }
    }

    /// Whether an arriving command is to be aborted.
    pub(crate) fn is_aborted(&self, cmd_sn: WideCmdSn, lun: Lun) -> bool {
        let is_meant = |abort: &EarlyAbort| {
            cmd_sn < abort.before
                && match abort.scope {
                    AbortScope::All => true,
                    AbortScope::Lun(other) => other == lun,
                    // Its number was taken when it was aborted.
                    AbortScope::Task(_) => false,
                }
        };
        self.early_aborts.iter().any(is_meant)
    }
}
