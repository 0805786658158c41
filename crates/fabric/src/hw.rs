//! Adapters: InfiniBand and RoCE, through rdma-core's libibverbs and librdmacm.
//!
//! The libraries are opened at run time, so the same binary runs where they are not installed.
//! Queue pairs, memory and completions use a context of this provider alone. Connections use
//! librdmacm, which knows queue pairs only by number.
//!
//! Read first: `ibv_post_send(3)`, `rdma_cm(7)`, and InfiniBand Architecture volume 1, chapters 10
//! to 12.
//!
//! # Why the unsafe code here is sound
//!
//! `library` finds functions by name and version, and gives them the types of the headers; `sys`
//! has the structures, whose layouts a test compares with those headers. `verbs`, `queue_pair` and
//! `cma` own what the libraries create. Each object is created once, holds the objects it was
//! created from, and is destroyed once, so a pointer to it is valid as long as its owner is. The
//! libraries get no pointer that must outlive a call.
//!
//! Adapters write memory while Rust code runs. They reach it by registration only (`Mr`), which
//! holds the mapping (`memory`) until the adapter has released it. If deregistration fails, the
//! mapping is never unmapped. A wrong key or address from a peer fails at the adapter's own check.
//! Bytes that are being written are numbers without invariants, and their readers are told to copy
//! them first ([`Provider::bytes`](crate::Provider::bytes)).
//!
//! # Modules
//!
//! Each imports only modules in lines above its own:
//!
//! ```text
//!  error  sys  work_tracker
//!  library  mapping
//!  verbs                                 what libibverbs makes
//!  cma  memory  queue_pair
//!  queues  queue_pairs  removal
//!  regions  connections
//!  adapter                               what the provider owns
//!  completions  connecting  pairing  registration  requests   what it does
//!  provider
//! ```

mod adapter;
mod checked;
mod cma;
mod completions;
mod connecting;
mod connections;
mod library;
mod mapping;
mod memory;
mod pairing;
mod provider;
mod queue_pair;
mod queue_pairs;
mod queues;
mod regions;
mod registration;
mod removal;
mod requests;
mod sys;
mod verbs;
mod work_tracker;

pub use adapter::Hw;
