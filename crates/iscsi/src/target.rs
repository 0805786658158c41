//! The target's end of a connection, whatever the transport.
//!
//! ```text
//!  login_phase ──► full_feature ─┬─ pdu ──┬─ command ── admission      work (execution, time slices)
//!  (Login)         (Tasks,       │        ├─ data_out                  waiting (volumes that take time)
//!                   Replies,     │        └─ control ── text, management
//!                   window)      └─ state (aborts by others, end of the session)
//! ```
//!
//! A transport has a [`Stage`](stage::Stage). After the login it works on a
//! [`FullFeature`](full_feature::FullFeature), a plain struct: it passes PDUs in, and sends replies
//! and tasks.

mod admission;
mod command;
mod control;
mod data_out;
mod ending;
pub(crate) mod full_feature;
pub(crate) mod login_phase;
mod management;
pub(crate) mod pdu;
pub(crate) mod reply;
pub(crate) mod response;
mod sanitizing;
pub(crate) mod stage;
mod state;
pub(crate) mod task;
pub(crate) mod tasks;
mod text;
mod waiting;
mod window;
mod work;
