//! The host's side of SCSI, whatever the transport: which commands set a logical unit up and do I/O
//! on it, and what their answers mean.
//!
//! A transport (`iscsi::initiator`) carries [`Command`]s, whose data lie in [`session::Buffers`],
//! and gives [`Outcome`]s back. These create the commands: - [`Setup`], which finds out what is
//! behind a LUN; - [`io`], the commands of a disk.

mod command;
pub mod io;
mod received;
mod setup;

pub use command::{Command, CommandFailure, CommandKey, Outcome, Transfer};
pub use received::{Attention, ReceivedSense};
pub use setup::{Limits, Phase, Setup, SetupError, SetupStep, UnitFacts};
