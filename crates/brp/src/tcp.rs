//! BRP over a byte stream (TCP).
//!
//! Read first: docs/brp.md, "Messages".

mod host;
mod stream;
mod target;

pub use host::HostSession;
pub use target::TargetSession;
