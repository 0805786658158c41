//! How a volume that is not ready at once reports later that it is.
//!
//! ```text
//!  admit ──► Now ───────────────────────────────► execute ─────────────────────────────────► reply
//!    ├─────► NowThenSettle ─────────────────────► execute ──► settle ──► Done ─────────────► reply
//!    └─────► Later … Completions::done(ticket) ─► execute ──► settle ──► Later … done(ticket) ─► reply
//! ```
//!
//! `Later` and `NowThenSettle` grant a lease. The lease ends with
//! [`Volume::release`](crate::Volume::release).

use crate::Status;

/// Names one command of one connection for as long as a volume may have to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// The connection, by the number that its runtime assigned; below
    /// [`CONNECTIONS_MIN`](Self::CONNECTIONS_MIN) what has commands without a session.
    pub connection: u64,
    /// The command's slot in the connection's table, counted from 0.
    pub slot: u32,
    /// Distinguishes commands that use one slot after another.
    pub generation: u32,
}

impl Ticket {
    /// The smallest connection number that a runtime assigns. Smaller ones belong to commands of
    /// the program itself, such as those of a volume on the volumes that it is made of.
    pub const CONNECTIONS_MIN: u64 = 1 << 32;
}

/// A volume's report that a waiting command may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command.
    pub ticket: Ticket,
    /// Success, or the error with which the command completes.
    pub result: Result<(), Status>,
}

/// Where volumes report completions. The program around the protocols implements it and passes it
/// to each volume that may answer "later".
///
/// A volume calls [`done`](Self::done) once for each `Later` that it answered, from any thread, but
/// never from inside [`Volume::admit`](crate::Volume::admit),
/// [`Volume::settle`](crate::Volume::settle) or [`Volume::release`](crate::Volume::release). A
/// report for a ticket that has been released is ignored.
pub trait Completions: Send + Sync {
    /// Reports that the command may continue, or has failed. Never waits.
    fn done(&self, completion: Completion);

    /// Reports several commands: as [`done`](Self::done) for each, with fewer wake-ups of the
    /// threads that drive their connections.
    fn done_all(&self, completions: &[Completion]) {
        for completion in completions {
            self.done(*completion);
        }
    }
}

/// The answer of [`Volume::settle`](crate::Volume::settle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The effects are safe: the command may be answered.
    Done,
    /// Not yet: [`Completions::done`] reports when.
    Later,
}
