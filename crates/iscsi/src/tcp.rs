//! iSCSI over TCP, the target's end.
//!
//! Read first: RFC 7143 §4.2 (sessions, numbering), §11 (PDUs).
//!
//! The path of a byte: [`TargetSession::handle_bytes`](::session::StreamSession::handle_bytes) cuts
//! the stream into PDUs (`receive`) and passes them to the core (`target`), which executes them;
//! `transmit` sends replies, R2Ts, data-in and SCSI Responses.

mod receive;
mod session;
#[cfg(test)]
mod tests;
mod transmit;

pub use self::session::TargetSession;
pub use self::transmit::SEND_LIST_MIN_BYTES;
