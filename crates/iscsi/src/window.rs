//! The command window of a session: which CmdSN is expected next, and how many commands are outstanding.
//!
//! Read first: RFC 7143 §4.2.2.1, "Command Numbering and Acknowledging".
//!
//! Commands of a session with several connections come in any order, since each connection delivers on its own. They
//! are begun as they come: their task attribute lets the device server order them as it likes. ExpCmdSN moves over
//! what has come without a gap.

use std::sync::{Arc, Mutex, PoisonError};

use crate::params::Parameters;
use crate::task::COMMANDS_MAX;

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

/// A connection's hold on its session's window.
#[derive(Debug)]
pub(crate) enum Window {
    /// The session has this connection alone: no lock is needed.
    Own(Numbers),
    /// It may have others.
    Shared(Arc<Mutex<Numbers>>),
}

impl Window {
    /// Of at most `commands_max` commands, and never more than [`COMMANDS_MAX`].
    pub(crate) fn own(cmd_sn: u32, commands_max: usize) -> Self {
        Self::Own(Numbers::new(cmd_sn, commands_max.min(COMMANDS_MAX)))
    }

    pub(crate) fn shared(session: &SharedSession) -> Self {
        Self::Shared(Arc::clone(&session.numbers))
    }

    /// Takes note of a number that has come; false where it lies outside of the window or came before, so that its PDU
    /// is to be ignored. On a single connection numbers come in order.
    pub(crate) fn take(&mut self, cmd_sn: u32) -> bool {
        match self {
            Self::Own(numbers) => cmd_sn == numbers.expected && numbers.take(cmd_sn),
            Self::Shared(_) => self.with(|numbers| numbers.take(cmd_sn)),
        }
    }

    /// A command is outstanding from now on.
    pub(crate) fn begin(&mut self) {
        self.with(|numbers| numbers.outstanding += 1);
    }

    /// So many commands have ended.
    pub(crate) fn end(&mut self, commands: usize) {
        self.with(|numbers| numbers.outstanding -= commands);
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let told = |numbers: &Numbers| (numbers.expected, numbers.max());
        match self {
            Self::Own(numbers) => told(numbers),
            Self::Shared(numbers) => told(&numbers.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Numbers are complete between any two calls, whoever panics.
    fn with<R>(&mut self, call: impl FnOnce(&mut Numbers) -> R) -> R {
        match self {
            Self::Own(numbers) => call(numbers),
            Self::Shared(numbers) => {
                call(&mut numbers.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

/// The numbers of a window.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// ExpCmdSN.
    expected: u32,
    /// Which numbers from `expected` on have come: bit n of word w stands for `expected + 64 w + n`. The first bit is
    /// never set.
    early: [u64; EARLY_WORDS],
    /// Commands that count in the window.
    outstanding: usize,
    /// The most of them.
    commands_max: usize,
}

const EARLY_WORDS: usize = COMMANDS_MAX / 64;

impl Numbers {
    fn new(cmd_sn: u32, commands_max: usize) -> Self {
        Self {
            expected: cmd_sn,
            early: [0; EARLY_WORDS],
            outstanding: 0,
            commands_max,
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

    fn take(&mut self, cmd_sn: u32) -> bool {
        let ahead = cmd_sn.wrapping_sub(self.expected) as usize;
        if ahead >= self.len() || self.early[ahead / 64] >> (ahead % 64) & 1 != 0 {
            return false;
        }
        self.early[ahead / 64] |= 1 << (ahead % 64);
        while self.early[0] & 1 != 0 {
            self.expected = self.expected.wrapping_add(1);
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

    #[test]
    fn numbers_in_order_move_the_window_on() {
        let mut window = Window::own(u32::MAX, COMMANDS_MAX);
        assert_eq!(window.numbers(), (u32::MAX, 254));
        assert!(window.take(u32::MAX));
        window.begin();
        assert_eq!(window.numbers(), (0, 254), "one is outstanding");
        assert!(!window.take(u32::MAX), "it came before");
        window.end(1);
        assert_eq!(window.numbers(), (0, 255));
        assert!(!window.take(1), "0 has not come");
    }

    #[test]
    fn the_window_never_moves_back_whatever_the_order() {
        let session = SharedSession::new(Parameters::default(), 10);
        let mut window = Window::shared(&session);
        let mut max = window.numbers().1;
        for cmd_sn in [12, 14, 11, 13, 80, 10] {
            assert!(window.take(cmd_sn));
            window.begin();
            assert!(!window.take(cmd_sn));
            assert!(window.numbers().1 >= max);
            max = window.numbers().1;
        }
        assert_eq!(window.numbers().0, 15, "80 waits for what is before it");
        window.end(6);
        assert_eq!(window.numbers(), (15, 15 + 255));
    }

    #[test]
    fn a_full_window_takes_nothing() {
        let mut window = Window::own(1, COMMANDS_MAX);
        for cmd_sn in 1..=COMMANDS_MAX as u32 {
            assert!(window.take(cmd_sn));
            window.begin();
        }
        assert_eq!(window.numbers(), (257, 256));
        assert!(!window.take(257));
        window.end(1);
        assert!(window.take(257));
    }
}
