//! The command window of a session: which CmdSN is expected next, how many commands are
//! outstanding, and which of the received requests may start.
//!
//! Read first: RFC 7143 §4.2.2.1, "Command Numbering and Acknowledging".
//!
//! Commands of a session with several connections arrive in any order, since each connection
//! delivers on its own. ExpCmdSN moves over what has arrived without a gap; what has arrived is
//! started in order ([`order`]).
//!
//! The window is a plain value. The program around the connections owns the window of a session
//! that may have several connections, and locks it
//! ([`Backend::with_window`](crate::Backend::with_window)).

pub(crate) mod order;

use scsi::Lun;

use self::order::{AbortScope, Attribute, MemberId, StartQueue, WideCmdSn};
use crate::peer::COMMANDS_MAX;
use crate::wire::sn_before;

/// What happens to a numbered request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is ignored: its number is outside of the window, or arrived before.
    Ignored,
    /// It was aborted before it arrived.
    Aborted,
    /// It starts now. After a SCSI command, the caller calls [`CommandWindow::started`].
    Now,
    /// It waits until it is claimed.
    Early(WideCmdSn),
}

/// The most tags that [`CommandWindow::note_aborted`] remembers.
const ABORTED_MAX: usize = 64;
const EARLY_WORDS: usize = COMMANDS_MAX / 64;
/// Far enough from 0 that every number before the first has a wide number.
const FIRST: WideCmdSn = WideCmdSn(1 << 32);

/// The command window of a session.
#[derive(Debug)]
pub struct CommandWindow {
    /// ExpCmdSN.
    expected: u32,
    /// The same, not wrapping around.
    expected_wide: WideCmdSn,
    /// Which numbers from `expected` on have arrived: bit n of word w stands for
    /// `expected + 64 w + n`. The first bit is never set.
    early: [u64; EARLY_WORDS],
    /// Commands that count in the window.
    outstanding: usize,
    /// The most of them.
    commands_max: usize,
    queue: StartQueue,
    /// How many connections have joined.
    members: u64,
    /// Tags of commands that were aborted for another connection, oldest first.
    aborted: Vec<u32>,
}

impl CommandWindow {
    /// A window whose first CmdSN is `cmd_sn`, of at most `commands_max` commands, and never more
    /// than [`COMMANDS_MAX`].
    pub(crate) fn new(cmd_sn: u32, commands_max: usize) -> Self {
        Self {
            expected: cmd_sn,
            expected_wide: FIRST,
            early: [0; EARLY_WORDS],
            outstanding: 0,
            commands_max: commands_max.min(COMMANDS_MAX),
            queue: StartQueue::default(),
            members: 0,
            aborted: Vec::new(),
        }
    }

    /// Adds a connection with this CID.
    pub(crate) fn join(&mut self, cid: u16) -> MemberId {
        self.members += 1;
        let number = self.members;
        MemberId { number, cid }
    }

    /// Records an arriving request. A SCSI command, for `lun`, is outstanding from now on, unless
    /// it is ignored or was aborted.
    pub(crate) fn arrive(
        &mut self,
        cmd_sn: u32,
        attribute: Attribute,
        lun: Lun,
        member: MemberId,
    ) -> Arrival {
        let wide = self.wide(cmd_sn);
        if !self.take(cmd_sn) {
            return Arrival::Ignored;
        }
        if attribute != Attribute::Control {
            if self.queue.is_aborted(wide, lun) {
                return Arrival::Aborted;
            }
            self.outstanding += 1;
        }
        self.queue.push(wide, member, attribute);
        let (expected, outstanding) = (self.expected_wide, self.outstanding);
        if self.queue.claim_at(wide, expected, outstanding) {
            Arrival::Now
        } else {
            Arrival::Early(wide)
        }
    }

    /// The same on the only connection of a session, where numbers arrive in order.
    #[inline]
    pub(crate) fn arrive_in_order(
        &mut self,
        cmd_sn: u32,
        attribute: Attribute,
        lun: Lun,
    ) -> Arrival {
        if cmd_sn != self.expected {
            return Arrival::Ignored;
        }
        if attribute.is_barrier() || !self.queue.is_clear() {
            return self.arrive(cmd_sn, attribute, lun, MemberId::ONLY);
        }
        if !self.take(cmd_sn) {
            return Arrival::Ignored;
        }
        self.outstanding += usize::from(attribute == Attribute::Simple);
        Arrival::Now
    }

    /// A SCSI command has been started.
    pub(crate) fn started(&mut self, attribute: Attribute) {
        self.queue.started(attribute);
    }

    /// Takes the next request that may start, if it arrived on this connection.
    pub(crate) fn claim(&mut self, member: MemberId) -> Option<WideCmdSn> {
        let (expected, outstanding) = (self.expected_wide, self.outstanding);
        self.queue.claim(member, expected, outstanding)
    }

    /// A SCSI command has ended that was started with this attribute.
    pub(crate) fn end(&mut self, attribute: Attribute) {
        self.outstanding -= 1;
        if attribute.is_barrier() {
            self.queue.barrier_ended();
        }
    }

    /// A SCSI command has ended before it was started.
    pub(crate) fn end_early(&mut self, cmd_sn: WideCmdSn) {
        self.outstanding -= 1;
        self.queue.remove(cmd_sn);
    }

    /// A SCSI command will not be started. It stays outstanding until [`end`](Self::end).
    pub(crate) fn withdraw(&mut self, cmd_sn: WideCmdSn) {
        self.queue.remove(cmd_sn);
    }

    /// Removes all waiting requests of a connection.
    pub(crate) fn leave(&mut self, member: MemberId) {
        self.queue.leave(member);
    }

    /// Commands with numbers before `cmd_sn` that have not arrived are aborted when they do.
    pub(crate) fn abort_before(&mut self, cmd_sn: u32, scope: AbortScope) {
        let before = self.wide(cmd_sn);
        self.queue.abort_before(before, scope, self.expected_wide);
    }

    /// Takes the number of a command that is aborted before it arrives. Returns false if the
    /// command cannot arrive any more.
    pub(crate) fn abort_early(&mut self, cmd_sn: u32) -> bool {
        self.take(cmd_sn)
    }

    /// The CID of another connection of the session whose request is the next to start. Each
    /// request is returned once.
    pub(crate) fn next_elsewhere(&mut self, member: MemberId) -> Option<u16> {
        let (expected, outstanding) = (self.expected_wide, self.outstanding);
        let other = self.queue.next_elsewhere(member, expected, outstanding);
        other.map(|other| other.cid)
    }

    /// The number that is expected next.
    pub(crate) fn expected(&self) -> WideCmdSn {
        self.expected_wide
    }

    /// Records for the session's connections that the command with this tag was found and aborted.
    pub(crate) fn note_aborted(&mut self, tag: u32) {
        if self.aborted.len() >= ABORTED_MAX {
            self.aborted.remove(0);
        }
        self.aborted.push(tag);
    }

    /// Whether another connection found and aborted the command with this tag.
    pub(crate) fn take_aborted(&mut self, tag: u32) -> bool {
        let at = self.aborted.iter().position(|other| *other == tag);
        at.map(|at| self.aborted.remove(at)).is_some()
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let max = self.expected.wrapping_add(self.len() as u32);
        (self.expected, max.wrapping_sub(1))
    }

    /// The wide number of a CmdSN, in serial number arithmetic.
    fn wide(&self, cmd_sn: u32) -> WideCmdSn {
        let WideCmdSn(expected) = self.expected_wide;
        if sn_before(cmd_sn, self.expected) {
            WideCmdSn(expected - u64::from(self.expected.wrapping_sub(cmd_sn)))
        } else {
            WideCmdSn(expected + u64::from(cmd_sn.wrapping_sub(self.expected)))
        }
    }

    fn early_count(&self) -> usize {
        let counts = self.early.iter().map(|word| word.count_ones() as usize);
        counts.sum()
    }

    /// How many numbers from ExpCmdSN on are accepted.
    fn len(&self) -> usize {
        (self.early_count() + self.commands_max)
            .saturating_sub(self.outstanding)
            .min(self.commands_max)
    }

    /// Takes a number. Returns false if it is outside of the window or was taken before.
    fn take(&mut self, cmd_sn: u32) -> bool {
        let ahead = cmd_sn.wrapping_sub(self.expected) as usize;
        if ahead >= self.len() || self.early[ahead / 64] >> (ahead % 64) & 1 != 0 {
            return false;
        }
        if ahead == 0 && self.early == [0; EARLY_WORDS] {
            // In order, as always on a single connection.
            self.advance();
            return true;
        }
        self.early[ahead / 64] |= 1 << (ahead % 64);
        while self.early[0] & 1 != 0 {
            self.advance();
            for word in 0..EARLY_WORDS {
                let next = self.early.get(word + 1).map_or(0, |next| next & 1);
                self.early[word] = self.early[word] >> 1 | next << 63;
            }
        }
        true
    }

    fn advance(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.expected_wide.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(window: &mut CommandWindow, member: Option<MemberId>, cmd_sn: u32) -> Arrival {
        let arrival = match member {
            Some(member) => window.arrive(cmd_sn, Attribute::Simple, 0, member),
            None => window.arrive_in_order(cmd_sn, Attribute::Simple, 0),
        };
        if arrival == Arrival::Now {
            window.started(Attribute::Simple);
        }
        arrival
    }

    #[test]
    fn numbers_in_order_move_the_window_on() {
        let mut window = CommandWindow::new(u32::MAX, COMMANDS_MAX);
        assert_eq!(window.numbers(), (u32::MAX, 254));
        assert_eq!(take(&mut window, None, u32::MAX), Arrival::Now);
        assert_eq!(window.numbers(), (0, 254), "one is outstanding");
        assert_eq!(
            take(&mut window, None, u32::MAX),
            Arrival::Ignored,
            "it arrived before"
        );
        window.end(Attribute::Simple);
        assert_eq!(window.numbers(), (0, 255));
        assert_eq!(
            take(&mut window, None, 1),
            Arrival::Ignored,
            "0 has not arrived"
        );
    }

    #[test]
    fn the_window_never_moves_back_whatever_the_order() {
        let mut window = CommandWindow::new(10, COMMANDS_MAX);
        let member = window.join(1);
        let mut max = window.numbers().1;
        for cmd_sn in [12, 14, 11, 13, 80, 10] {
            let is_first = cmd_sn == 10;
            let arrival = take(&mut window, Some(member), cmd_sn);
            assert_eq!(arrival == Arrival::Now, is_first);
            let again = take(&mut window, Some(member), cmd_sn);
            assert_eq!(again, Arrival::Ignored);
            assert!(window.numbers().1 >= max);
            max = window.numbers().1;
        }
        assert_eq!(window.numbers().0, 15, "80 waits for what is before it");
        let claimed = std::iter::from_fn(|| {
            let cmd_sn = window.claim(member)?;
            window.started(Attribute::Simple);
            window.end(Attribute::Simple);
            Some(cmd_sn.0 - FIRST.0)
        });
        assert_eq!(claimed.collect::<Vec<_>>(), [1, 2, 3, 4]);
        window.end(Attribute::Simple);
        window.end_early(WideCmdSn(FIRST.0 + 70));
        assert_eq!(window.numbers(), (15, 15 + 255));
    }

    #[test]
    fn a_full_window_takes_nothing() {
        let mut window = CommandWindow::new(1, COMMANDS_MAX);
        for cmd_sn in 1..=COMMANDS_MAX as u32 {
            assert_eq!(take(&mut window, None, cmd_sn), Arrival::Now);
        }
        assert_eq!(window.numbers(), (257, 256));
        assert_eq!(take(&mut window, None, 257), Arrival::Ignored);
        window.end(Attribute::Simple);
        assert_eq!(take(&mut window, None, 257), Arrival::Now);
    }
}
