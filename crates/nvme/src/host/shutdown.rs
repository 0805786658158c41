//! Taking leave: a normal shutdown of the controller, before its connections are closed.
//!
//! Read first: NVM Express Base 2.0, "Shutdown Processing".

use super::setup::property;
use super::{Command, CommandKey, Outcome, Setup};
use crate::wire::Cid;
use crate::wire::fabrics::{Configuration, ControllerStatus, Property, PropertySqe};

/// Shuts a controller down. No I/O should be submitted any more.
#[derive(Debug)]
pub struct Shutdown {
    next: Next,
    /// Reads of the status so far.
    looks: u32,
}

/// What to do next.
#[derive(Debug)]
pub enum ShutdownStep {
    /// Submit this under [`Shutdown::KEY`] and hand its outcome in.
    Submit(Command),
    /// Wait, then ask again.
    Wait {
        /// How long, in milliseconds.
        for_ms: u32,
    },
    /// The controller has shut down, or refuses to; the connections may be closed.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Notify,
    Look,
    Pause,
    Done,
}

/// Shutdown Notification (SHN): normal.
const NORMAL: u8 = 1;

impl Shutdown {
    /// The key of every command: that of the set-up, which is over.
    pub const KEY: CommandKey = Setup::KEY;
    /// The pause between two reads of the status.
    const POLL_MS: u32 = 20;
    /// Reads of the status before the host disconnects anyway.
    const LOOKS_MAX: u32 = 50;

    /// Of a controller that is ready.
    pub fn new() -> Self {
        Self {
            next: Next::Notify,
            looks: 0,
        }
    }

    /// What to do next. Not to be asked while a command is in flight.
    pub fn poll(&mut self) -> ShutdownStep {
        match self.next {
            Next::Notify => {
                let value = Configuration::ENABLE_NVM.with_shutdown(NORMAL).0;
                let set = PropertySqe::set(Cid(0), Property::Configuration, value.into());
                ShutdownStep::Submit(property(set))
            }
            Next::Look => {
                self.looks += 1;
                ShutdownStep::Submit(property(PropertySqe::get(Cid(0), Property::Status)))
            }
            Next::Pause => {
                self.next = Next::Look;
                ShutdownStep::Wait {
                    for_ms: Self::POLL_MS,
                }
            }
            Next::Done => ShutdownStep::Done,
        }
    }

    /// The command has ended.
    pub fn handle_outcome(&mut self, outcome: &Outcome) {
        let is_complete = ControllerStatus(outcome.dw0()).is_shutdown_complete();
        self.next = match self.next {
            _ if !outcome.status.is_success() => Next::Done,
            Next::Notify => Next::Look,
            Next::Look if !is_complete && self.looks < Self::LOOKS_MAX => Next::Pause,
            _ => Next::Done,
        };
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Status, StatusCode};

    fn submit(shutdown: &mut Shutdown) -> PropertySqe {
        match shutdown.poll() {
            ShutdownStep::Submit(command) => zerocopy::transmute!(command.sqe),
            other => panic!("expected a command, got {other:?}"),
        }
    }

    fn answer(shutdown: &mut Shutdown, status: Status, result: u64) {
        shutdown.handle_outcome(&Outcome {
            key: Shutdown::KEY,
            status,
            result,
        });
    }

    #[test]
    fn the_controller_is_notified_and_looked_at_until_it_is_done() {
        let mut shutdown = Shutdown::new();
        let set = submit(&mut shutdown);
        assert_eq!(set.offset.get(), Property::Configuration.offset());
        assert_eq!(set.value.get(), 0x0046_4001, "enabled, SHN 01b");
        answer(&mut shutdown, Status::SUCCESS, 0);
        for processing in [0b0001, 0b0101] {
            let get = submit(&mut shutdown);
            assert_eq!(get.offset.get(), Property::Status.offset());
            answer(&mut shutdown, Status::SUCCESS, processing);
            assert!(matches!(shutdown.poll(), ShutdownStep::Wait { .. }));
        }
        submit(&mut shutdown);
        answer(&mut shutdown, Status::SUCCESS, 0b1001);
        assert!(matches!(shutdown.poll(), ShutdownStep::Done));
    }

    #[test]
    fn a_controller_that_refuses_or_never_ends_is_left_all_the_same() {
        let mut shutdown = Shutdown::new();
        submit(&mut shutdown);
        answer(&mut shutdown, StatusCode::InvalidField.into(), 0);
        assert!(matches!(shutdown.poll(), ShutdownStep::Done));

        let mut shutdown = Shutdown::new();
        let mut steps = 0;
        loop {
            steps += 1;
            match shutdown.poll() {
                ShutdownStep::Submit(_) => answer(&mut shutdown, Status::SUCCESS, 1),
                ShutdownStep::Wait { .. } => {}
                ShutdownStep::Done => break,
            }
        }
        assert_eq!(steps, 1 + 50 + 49 + 1);
    }
}
