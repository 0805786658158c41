//! How a peer breaks the protocol.

/// How a peer breaks record marking, so that the connection must end. Everything else has a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The fragments of a record are longer than the longest call.
    #[error("a record has at least {len_bytes} bytes; the longest has {max_bytes} bytes")]
    RecordTooLong {
        /// The length of the fragments so far.
        len_bytes: u64,
        /// The longest record.
        max_bytes: u64,
    },
}
