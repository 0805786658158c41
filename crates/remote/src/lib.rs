//! Volumes on disks of other machines, which are reached through NVMe/TCP, NVMe/RDMA or iSCSI.
//!
//! ```text
//!                                                       ┌─ path thread: connects, checks the disk ─┐ one per URL
//!  sessions ──► RemoteVolume ──► window::Window ──► Paths ──► worker thread ──► initiator::Queue ──► other machine
//! ```
//!
//! On the path of a byte this crate stands where a file volume's backing stands: below a window,
//! which orders, fills and flushes. A command whose connection is lost is repeated on the next one
//! until its time limit is over.
//!
//! What this crate must not know: sessions, definitions, wire formats. It knows the status codes of
//! NVMe and SCSI, which tell what may be tried again. See `docs/design/0022-remote-volumes.md`.

#![forbid(unsafe_code)]

mod attach;
mod error;
mod job;
mod limits;
mod path;
mod remote_volume;
mod settings;
mod verdict;
mod waker;
mod worker;

pub use attach::{Form, OwnDisks, probe};
pub use error::RemoteError;
pub use limits::{IO_TIMEOUT_DEFAULT, URLS_MAX};
pub use remote_volume::{RemoteVolume, open, open_url};
pub use settings::check_url;
