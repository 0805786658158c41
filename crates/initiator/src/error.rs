//! What can go wrong: a command's end, a submission, a queue, an attachment; each has its own enum.

use std::{io, net::SocketAddr, time::Duration};

use crate::Slot;

/// Why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The connection was lost while the command was in flight; whether it was executed is unknown.
    #[error("the connection was lost while the command was in flight")]
    ConnectionLost,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The slot's last command has not completed.
    #[error("slot {} still has a command in flight", slot.0)]
    SlotBusy {
        /// The slot.
        slot: Slot,
    },
    /// The queue has fewer slots.
    #[error("slot {} is beyond the queue's depth of {depth}", slot.0)]
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// The queue's depth.
        depth: u16,
    },
    /// The data are longer than the slot's buffer or than the controller takes in one command.
    #[error("{len_bytes} bytes in one command, at most {max_bytes} are possible")]
    TooLong {
        /// The request's data length.
        len_bytes: u64,
        /// The most that fits.
        max_bytes: u64,
    },
    /// The command takes no extent of this many blocks.
    #[error("a command can't have {blocks} blocks")]
    BlockCount {
        /// The request's count.
        blocks: u64,
    },
    /// As many commands are in flight as the controller's queue takes (a fused pair counts twice); submit again
    /// after a completion.
    #[error("the queue is full; submit again after a completion")]
    Full,
}

/// Why a queue is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Connecting again did not succeed for as long as [`crate::Backoff::give_up_after`] says.
    #[error("no connection for {tried_for:?}: {last}")]
    GaveUp {
        /// How long it was tried.
        tried_for: Duration,
        /// What the last attempt met.
        last: String,
    },
}

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("can't find the address of {host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// No TCP connection.
    #[error("can't connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The connection ended or failed during the set-up.
    #[error("connection to {address} failed during the set-up: {source}")]
    Setup {
        /// Where to.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// A name to serve is missing where a device is wanted.
    #[error("the URL names no subsystem; add it as the path, e.g. {example}")]
    NoSubsystem {
        /// The URL with one.
        example: String,
    },
}
