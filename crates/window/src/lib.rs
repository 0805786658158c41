//! The window: blocks of a slower device that are in memory, between sessions, which work on memory
//! at once, and a [`Backing`], which takes time.
//!
//! ```text
//!  session ── admit ───────► Window: leases, frames ── Request: Read ──► Backing ──► file, disk, …
//!          ◄─ done(ticket) ─                        ◄── done(id, bytes) ──
//!          ── execute ─────► a frame's bytes
//!          ── settle ──────►                        ── Request: Write ─►
//!          ◄─ done(ticket) ─                        ◄── done(id) ───────
//! ```
//!
//! Coherence, the order of overlapping operations, flush and bounds are here, once for all kinds of
//! volume whose blocks are not in memory. A [`Backing`] only carries requests out, in any order.
//! The window never has two requests in flight whose order matters.
//!
//! What this crate must not know: files, protocols, definitions. See `docs/design/0016-window.md`.

#![forbid(unsafe_code)]

mod backing;
mod cache;
mod frame;
mod frames;
mod index;
mod lease;
mod options;
mod s3fifo;
mod sectors;
mod state;
mod streams;
mod window;

pub use backing::{Backing, BackingClient, BackingError, BackingOp, Ended, Request, RequestId};
pub use cache::{CacheMode, CacheOptions, CacheStatistics};
pub use options::WindowOptions;
pub use window::Window;

#[cfg(test)]
mod tests;
