//! Machines that form a cluster: who belongs to it, and what they agree on.
//!
//! Nothing here is on the path of a byte. etcd keeps what the nodes agree on; this crate starts it,
//! is its client, and shows there that this machine is up. It answers crate `control`'s requests
//! about the cluster, places replicated volumes, and opens this machine's part in them, which crate
//! `node_link` serves. It knows neither protocols nor how a volume keeps its bytes.

#![forbid(unsafe_code)]

mod agreement;
mod certificates;
mod client_tls;
mod connection;
mod etcd;
mod etcd_program;
mod fault;
mod keys;
mod link;
mod membership;
mod name;
mod node;
pub mod placement;
mod process;
mod url;

pub use certificates::CertificateFault;
pub use client_tls::{ClientTls, ClientTlsError};
pub use etcd::{Change, Entry, Etcd, EtcdError, Lease, Member, Txn, TxnOutcome, Watch};
pub use membership::FolderError;
pub use name::{Name, NameFault};
pub use node::{Node, NodeConfig, NodeError, PORT_DEFAULT};
pub use url::{EtcdUrl, EtcdUrlFault};
