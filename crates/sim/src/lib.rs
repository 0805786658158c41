//! Both ends of a protocol in one thread, in virtual time, over a network that misbehaves.
//!
//! A [`World`] holds a target with a volume and several hosts, which reach it by one of six
//! protocols. Messages arrive after any delay, and bytes in any chunking; connections are cut at
//! any byte. The volume is in RAM, or makes commands wait and lets them go on in any order. A model
//! knows what each block may hold, and every read is checked against it. All choices come from one
//! seed: a failure is replayed by its seed.
//!
//! It is for tests only, and refuses to know sockets and real clocks.
//!
//! ```
//! use sim::{Plan, Protocol, World};
//!
//! let report = World::new(1, Plan::new(Protocol::NvmeTcp)).run();
//! assert!(report.reads_checked > 0);
//! ```

#![forbid(unsafe_code)]

mod commands;
mod host;
mod model;
mod path;
mod world;

pub use commands::{command_loop, requested_write_loop};
pub use world::{Plan, Protocol, Report, World};
