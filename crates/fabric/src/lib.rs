//! Reliable-connected queue pairs with the semantics of verbs, whoever provides them.
//!
//! - [`Provider`] — what every provider does: memory and keys to it, queue pairs, connections, completions;
//! - [`runtime`] — a thread that drives protocol sessions over a provider's queue pairs;
//! - [`Soft`] — RoCEv2 over an ordinary UDP socket, by crate `roce`: no adapter, driver or privilege.
//!
//! The path of a byte: a protocol over RDMA posts requests whose data stay where they are; the provider moves them to or from the
//! peer's memory and says so by a completion.
//!
//! What this crate refuses to know: what protocols say, targets, who may do what.

#![forbid(unsafe_code)]

mod provider;
pub mod runtime;
mod soft;

pub use provider::{ConnectTo, FabricError, Provider, Wait};
pub use soft::{Segmentation, Soft, SoftOptions, SoftStatistics};

/// The vocabulary of requests, completions and events.
pub mod verbs {
    pub use roce::wire::cm::{CommId, RejReason};
    pub use roce::wire::{PathMtu, Qpn, Rkey};
    pub use roce::{
        Access, Completion, ConnectRequest, Data, Event, Gather, Inline, MessageTooLong, PostError,
        ProtectionDomain, QpConfig, QpFailure, QpState, RecvRequest, Region, Remote, SendOp,
        SendRequest, Signal, WorkId, WorkKind, WorkStatus,
    };
}
