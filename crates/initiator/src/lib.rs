//! Hosts that reach a volume over the network: URLs, sockets, reconnection.
//!
//! [`Device::connect`] attaches to the namespace or logical unit that a [`Url`] names and returns
//! [`Queue`]s, one per thread that needs one. A queue's owner fills a slot's buffer,
//! [submits](Queue::submit) a [`Request`] for it and [polls](Queue::poll) for [`Completion`]s; the
//! slot's buffer then has read data. A thread of the [`Device`] keeps the attachment alive
//! (keep-alive, reconnection with back-off).
//!
//! This crate knows sockets, names and time. It does not know the protocols (`nvme::host`,
//! `nvme::tcp` and `nvme::rdma`, `scsi::host` with `iscsi::initiator` and `srp::initiator`, `brp`)
//! nor queue pairs
//! (`fabric`).
//!
//! ```
//! use initiator::Url;
//! let url: Url = "nvme+tcp://127.0.0.1/nqn.2014-08.example:rd0?ns=2&hdgst=on".parse().unwrap();
//! assert_eq!((url.host(), url.port(), url.namespace()), ("127.0.0.1", 4420, 2));
//! assert!("nvme+tcp://127.0.0.1/rd0?namespace=2".parse::<Url>().is_err());
//! ```

#![forbid(unsafe_code)]

mod attached;
mod backoff;
mod brp_sessions;
mod connection;
mod device;
mod device_state;
mod error;
mod iscsi_tcp;
mod machine;
mod mailbox;
mod nvmf;
mod options;
mod queue;
mod queue_connection;
mod random;
mod rdma;
mod request;
mod scsi_sessions;
mod secured;
mod session_connection;
mod session_supervisor;
mod slots;
mod socket;
mod srp_channels;
mod url;

pub use attached::DeviceInfo;
pub use backoff::BackoffDelays;
pub use device::Device;
pub use error::{
    ConnectError, ConnectionError, QueueError, QueueName, RdmaError, Rejection, SubmitError,
};
pub use fabric::Choice as RdmaChoice;
pub use iscsi_tcp::{TargetRecord, discover_targets};
pub use nvmf::{DiscoveryRecord, RecordKind, discover};
pub use options::{Backoff, DeviceOptions, OnLoss, WaitStrategy};
pub use queue::{Link, Queue};
pub use request::{CommandError, Completion, Operation, Request, Slot};
pub use url::{Scheme, Secret, Switch, Url, UrlError};
