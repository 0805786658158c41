//! iSCSI over TCP, the target's end.

pub(crate) mod session;
#[cfg(test)]
mod tests;
pub(crate) mod transmit;

pub use session::{Connection, LOGIN_TIMEOUT, PING_AFTER, PING_TIMEOUT, PeerError};
pub use transmit::SEND_LIST_MIN_BYTES;
