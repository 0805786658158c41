//! Reliable-connected queue pairs with the semantics of verbs, whatever provides them.
//!
//! - [`Provider`] — the interface of all providers: memory and its keys, queue pairs, connections,
//!   completions;
//! - [`open`](fn@open) — opens the provider of an address: its adapter's, otherwise the one in
//!   software;
//! - [`devices`](fn@devices) — the adapters that there are;
//! - [`runtime`] — a thread that drives protocol sessions over a provider's queue pairs;
//! - [`Hw`] — adapters, through rdma-core's libraries, which are opened at run time;
//! - [`Soft`] — RoCEv2 over an ordinary UDP socket, by crate `roce`: no adapter, driver or
//!   privilege.
//!
//! The path of a byte: a protocol over RDMA posts requests whose data stay in place; the provider
//! moves them to or from the peer's memory and reports a completion.
//!
//! What this crate must not know: protocols' messages, targets, access rights.

#![deny(unsafe_code)]

mod devices;
mod error;
#[expect(
    unsafe_code,
    reason = "libraries in C and memory that adapters write; the module argues"
)]
#[allow(non_camel_case_types)]
mod hw;
mod open;
#[cfg(test)]
#[path = "../tests/ports/mod.rs"]
mod ports;
mod provider;
pub mod runtime;
mod soft;

pub use devices::{Device, DevicePort, LinkLayer, devices};
pub use error::{FabricError, HwError};
pub use hw::Hw;
pub use open::{AnyProvider, Choice, NoSuchChoice, Opened, ProviderKind, open, open_several};
pub use provider::{ConnectTo, PeerQp, Provider, Wait};
pub use soft::{Segmentation, Soft, SoftOptions, SoftStatistics};

/// The vocabulary of requests, completions and events.
pub mod verbs {
    pub use roce::wire::cm::{CommId, RejReason};
    pub use roce::wire::{PathMtu, Psn, Qpn, Rkey};
    pub use roce::{
        Access, Completion, ConnectRequest, Data, Event, Gather, Inline, MemoryId, MemoryRange,
        MessageTooLong, PostError, ProtectionDomain, QpConfig, QpFailure, QpState, RecvRequest,
        Region, Remote, SendOp, SendRequest, Signal, WorkId, WorkKind, WorkStatus,
    };
}
