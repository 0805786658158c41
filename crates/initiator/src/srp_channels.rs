//! SRP: one nexus of one channel per queue.

mod link;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use scsi::host::Setup;
use srp::initiator::{
    InitiatorSession, MESSAGE_LEN_MAX_BYTES, RECEIVE_LEN_BYTES, RECEIVES_EXTRA, Terms, request,
};
use srp::wire::PortId;
use zerocopy::IntoBytes as _;

use crate::attached::Attached;
use crate::rdma::{PairShape, Providers, RdmaConnection};
use crate::scsi_sessions::{self, OWN_KEYS, ScsiPlan, TAIL_BYTES};
use crate::{ConnectError, DeviceOptions, Url, machine, random, socket};

/// Attaches to the logical unit that `url` names.
pub(crate) fn attach(url: &Url, options: &DeviceOptions) -> Result<Attached, ConnectError> {
    scsi_sessions::attach(Plan::new(url, options)?)
}

/// What to attach to, and how.
#[derive(Debug)]
struct Plan {
    url: Url,
    options: DeviceOptions,
    target: PortId,
    /// The initiator port of the first queue.
    initiator: PortId,
    providers: Mutex<Providers>,
}

impl Plan {
    fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        let name = url.target().unwrap_or_default();
        // Targets of others have no name, only a port identifier.
        let target = name.parse().unwrap_or_else(|_| PortId::of_target(name));
        let named = url.initiator().and_then(|name| name.parse().ok());
        let initiator = match named {
            Some(port) => port,
            None => own_port(options.session_qualifier)
                .map_err(|source| ConnectError::Resources { source })?,
        };
        Ok(Self {
            url: url.clone(),
            options: *options,
            target,
            initiator,
            providers: Mutex::new(Providers::new(url, options)),
        })
    }

    /// The initiator port of a queue. Each queue has a nexus of its own, so that a login after a
    /// lost connection ends what is left of that queue's commands, and of no other's.
    fn port(&self, index: u16) -> PortId {
        let first = u128::from_be_bytes(self.initiator.0);
        PortId(first.wrapping_add(u128::from(index) << 64).to_be_bytes())
    }

    fn log_in_at(
        &self,
        address: SocketAddr,
        index: u16,
    ) -> Result<RdmaConnection<InitiatorSession>, ConnectError> {
        let keys = self.options.depth + OWN_KEYS;
        let shape = PairShape {
            keys,
            slots: keys,
            slot_bytes: (self.options.buffer_bytes + TAIL_BYTES).max(Setup::BUFFER_BYTES),
            messages: keys,
            message_bytes: MESSAGE_LEN_MAX_BYTES,
            receives: keys + RECEIVES_EXTRA,
            receive_bytes: RECEIVE_LEN_BYTES,
        };
        let login = request(self.port(index), self.target);
        let mut providers = self
            .providers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (pair, established) = providers.connect(address, index, &shape, login.as_bytes())?;
        let terms = Terms::of(&established.private_data);
        let terms = terms.map_err(|error| ConnectError::Session {
            address,
            source: error.into(),
        })?;
        let session = InitiatorSession::new(terms, self.url.lun(), keys);
        Ok(RdmaConnection::new(pair, session, keys))
    }
}

impl ScsiPlan for Plan {
    type Connection = RdmaConnection<InitiatorSession>;

    fn url(&self) -> &Url {
        &self.url
    }

    fn options(&self) -> &DeviceOptions {
        &self.options
    }

    /// Logs in at the first of the host's addresses that accepts the login.
    fn log_in(&self, index: u16) -> Result<(SocketAddr, Self::Connection), ConnectError> {
        let mut failure = None;
        for address in socket::resolve(self.url.host(), self.url.port())? {
            match self.log_in_at(address, index) {
                Ok(connection) => return Ok((address, connection)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.expect("a name that resolves has an address"))
    }

    fn poll_idle(&self) -> Option<Duration> {
        let providers = self
            .providers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(providers.poll_idle())
    }
}

/// An initiator port of this machine: its GUID stays the same for the machine, the first six bytes
/// of its extension distinguish the device, and the last two are for the queues.
fn own_port(qualifier: Option<[u8; 3]>) -> std::io::Result<PortId> {
    let mut port = [0; 16];
    match qualifier {
        Some(qualifier) => port[..3].copy_from_slice(&qualifier),
        None => random::fill(&mut port[..6])?,
    }
    port[8..].copy_from_slice(&machine::id().as_bytes()[8..]);
    Ok(PortId(port))
}
