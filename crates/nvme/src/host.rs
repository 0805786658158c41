//! The host side, whatever the transport: what a host sends to set up and keep an association, to
//! do I/O, and to read a discovery log; and what it makes of the answers.
//!
//! A transport (`tcp::HostSession`, `rdma::HostSession`) carries [`Command`]s, whose data lie in
//! [`Buffers`], and gives [`Outcome`]s back. What is to be sent is said by small state machines
//! that know neither transport nor clock:
//! - [`Setup`] takes a new admin queue to a controller that is ready;
//! - [`Authenticator`] proves the host's secret on a queue that has connected;
//! - [`connect_io`] and [`io`] are the commands of an I/O queue;
//! - [`Upkeep`] keeps the association alive and learns what changes;
//! - [`Renewal`] proves the host's secret again while the association is in use;
//! - [`LogReader`] reads a discovery log;
//! - [`Shutdown`] shuts the controller down.

mod authentication;
mod command;
mod connect;
mod discovery;
pub mod io;
mod renewal;
mod setup;
mod shutdown;
mod upkeep;

pub use authentication::{Authenticator, AuthenticatorStep};
pub(crate) use command::Generation;
pub use command::{Command, CommandKey, NoRoom, Outcome, Transfer};
pub use connect::{HostName, connect_admin, connect_io};
pub use discovery::{DiscoveryError, LogReader, LogStep};
pub use renewal::{Renewal, RenewalError, RenewalStep};
pub use session::{BufferRange, Buffers};
pub use setup::{
    ControllerFacts, Facts, Fused, NamespaceFacts, Phase, Purpose, Setup, SetupConfig, SetupError,
    SetupStep,
};
pub use shutdown::{Shutdown, ShutdownStep};
pub use upkeep::{Upkeep, UpkeepConfig, UpkeepError, UpkeepEvent};
