//! Both ends of a protocol in one thread, in virtual time, over a network that misbehaves.
//!
//! A [`World`] holds a target with a RAM volume and several hosts. Bytes between them arrive in any
//! chunking and after any delay; connections are cut at any byte. A [`Model`] knows what each block
//! may hold, and every read is checked against it. All choices come from one seed: a failure is
//! replayed by its seed.
//!
//! It is for tests only, and refuses to know sockets and real clocks.
//!
//! ```
//! let report = sim::World::new(1, sim::Plan::default()).run();
//! assert!(report.reads_checked > 0);
//! ```

#![forbid(unsafe_code)]

mod host;
mod link;
mod model;
mod world;

pub use model::Model;
pub use world::{Plan, Report, World};
