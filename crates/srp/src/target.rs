//! The target's end of a channel.
//!
//! ```text
//!  session ─┬─ request ── admission      work (execution, time slices)
//!           ├─ data (RDMA READs)         waiting (volumes that take time)
//!           ├─ management                standing (aborts by others, the end of the nexus)
//!           └─ transmit (RDMA READs and WRITEs, responses)
//! ```
//!
//! [`accept`] takes a login, and [`TargetSession`] is the open channel. Its tasks are in slots
//! (`tasks`); where their data are in the initiator's memory is in `places`.

mod admission;
mod data;
mod management;
mod pending;
mod places;
mod request;
mod session;
mod standing;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
mod transmit;
mod waiting;
mod work;

pub use session::{Accepted, TargetConfig, TargetSession, accept};
