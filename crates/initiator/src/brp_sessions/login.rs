//! Logging in: connecting, and going on with a session.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brp::host::{HostError, LoginError, Resumption, Terms};
use brp::wire::{Command, Login, LoginStatus, NAME_BYTES_MAX, TAGS_MAX};
use brp::{rdma, tcp};
use session::Buffers;
use zerocopy::IntoBytes as _;

use super::Legacy;
use super::link::Link;
use super::queue_connection::BrpQueueConnection;
use crate::connection::{Connection, Sizes};
use crate::device_state::DeviceState;
use crate::nvmf::host_nqn;
use crate::queue_connection::QueueConnection;
use crate::rdma::{PairShape, Providers, RdmaConnection};
use crate::session_connection::wait_until;
use crate::session_supervisor::SessionPlan;
use crate::{Backoff, ConnectError, ConnectionError, DeviceOptions, OnLoss, Scheme, Url, socket};

/// What to attach to, and how.
#[derive(Debug)]
pub(super) struct Plan {
    url: Url,
    options: DeviceOptions,
    /// The login of each new session.
    login: Login,
    transport: Transport,
}

/// What carries the sessions.
#[derive(Debug)]
enum Transport {
    Tcp,
    Rdma(Box<Mutex<Providers>>),
}

/// How sessions with the volume that was attached first are made again.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) plan: Plan,
    /// Those of the first login.
    pub(super) terms: Terms,
    /// Tags in use.
    pub(super) depth: u16,
    /// By queue.
    pub(super) legacies: Vec<Legacy>,
}

/// How long a target is asked to keep a session without a connection.
const HOLD: Duration = Duration::from_secs(120);
/// The shortest transfer that a login may ask for, in bytes.
const TRANSFER_MIN_BYTES: usize = 4096;
/// The most data inside a message over RDMA, in bytes: a page.
const MESSAGE_DATA_MAX_BYTES: u32 = 4096;

impl Plan {
    pub(super) fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let (host, target) = (host_nqn(url), url.target().unwrap_or_default());
        let login = Login::new(&host, target, url.namespace());
        let mut login = login.ok_or_else(|| ConnectError::Name {
            name: if target.is_empty() {
                host
            } else {
                target.to_owned()
            },
            max_bytes: NAME_BYTES_MAX,
        })?;
        login.tags.set(options.depth.min(TAGS_MAX));
        login.features.set(url.features().0);
        login.keep_alive_ms.set(ms(options.keep_alive));
        login.hold_ms.set(ms(HOLD));
        let transfer_bytes = options.buffer_bytes.max(TRANSFER_MIN_BYTES);
        login
            .transfer_max_bytes
            .set(u32::try_from(transfer_bytes).unwrap_or(u32::MAX));
        let transport = match url.scheme() {
            Scheme::BrpRdma => {
                login.reply_data_max_bytes.set(MESSAGE_DATA_MAX_BYTES);
                Transport::Rdma(Box::new(Mutex::new(Providers::new(url, options))))
            }
            _ => Transport::Tcp,
        };
        Ok(Self {
            url: url.clone(),
            options: *options,
            login,
            transport,
        })
    }

    /// Logs in for queue `index` at the first of the host's addresses that grants the login.
    pub(super) fn log_in(
        &self,
        index: u16,
        resumption: Option<&Resumption>,
    ) -> Result<(SocketAddr, Box<dyn Link>), ConnectError> {
        let mut failure = None;
        for address in socket::resolve(self.url.host(), self.url.port())? {
            match self.log_in_at(address, index, resumption) {
                Ok(link) => return Ok((address, link)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.expect("a name that resolves has an address"))
    }

    fn log_in_at(
        &self,
        address: SocketAddr,
        index: u16,
        resumption: Option<&Resumption>,
    ) -> Result<Box<dyn Link>, ConnectError> {
        let timeout = self.options.connect_timeout;
        let mut link: Box<dyn Link> = match &self.transport {
            Transport::Tcp => {
                let stream = socket::connect(address, timeout)?;
                let session = tcp::HostSession::new(self.login, resumption);
                let tags = self.login.tags.get();
                Box::new(Connection::new(stream, session, Sizes::IO, tags))
            }
            Transport::Rdma(providers) => {
                let mut providers = providers.lock().unwrap_or_else(PoisonError::into_inner);
                Box::new(self.connect_pair(&mut providers, address, index, resumption)?)
            }
        };
        wait_until(link.as_mut(), &mut Buffers::new(1, 0), timeout, |link| {
            link.common().terms().is_some().then_some(())
        })
        .map_err(|source| ConnectError::Session { address, source })?;
        Ok(link)
    }

    /// Connects a queue pair (BRP-9).
    fn connect_pair(
        &self,
        providers: &mut Providers,
        address: SocketAddr,
        index: u16,
        resumption: Option<&Resumption>,
    ) -> Result<RdmaConnection<rdma::HostSession>, ConnectError> {
        let login = &self.login;
        let tags = login.tags.get();
        let (receives, receive_bytes) = rdma::HostSession::receives(login);
        let message_bytes = size_of::<Command>() as u32 + MESSAGE_DATA_MAX_BYTES;
        let shape = PairShape {
            keys: tags,
            slots: tags,
            slot_bytes: self.options.buffer_bytes,
            messages: tags,
            message_bytes,
            receives,
            receive_bytes,
        };
        let request = rdma::HostSession::request(login);
        let (pair, established) = providers.connect(address, index, &shape, request.as_bytes())?;
        let told = &established.private_data;
        let session = rdma::HostSession::new(*login, resumption, told, message_bytes);
        let session = session.map_err(|error| ConnectError::Session {
            address,
            source: error.into(),
        })?;
        Ok(RdmaConnection::new(pair, session, tags))
    }

    /// See [`SessionPlan::poll_idle`].
    fn poll_idle(&self) -> Option<Duration> {
        match &self.transport {
            Transport::Tcp => None,
            Transport::Rdma(providers) => {
                let providers = providers.lock().unwrap_or_else(PoisonError::into_inner);
                Some(providers.poll_idle())
            }
        }
    }
}

/// Where a session is, its connection, and the tags whose commands have an unknown outcome.
type Restoration = (SocketAddr, Box<dyn Link>, Vec<u16>);

impl Restored {
    /// Checks that a login has led to the same volume, with enough tags.
    pub(super) fn check(
        &self,
        address: SocketAddr,
        connection: &dyn Link,
    ) -> Result<(), ConnectError> {
        let now = connection.common().terms();
        let now = now.expect("the login was granted");
        let (before, needed) = (&self.terms, self.depth);
        if now.volume != before.volume || now.block_shift != before.block_shift {
            let unit = self.plan.url.namespace();
            return Err(ConnectError::ReplacedVolume { address, unit });
        }
        if now.tags < needed {
            return Err(ConnectError::FewerTags {
                address,
                granted: now.tags,
                needed,
            });
        }
        Ok(())
    }

    /// The connection of queue `index`. Whether the commands of `unknown` tags were executed is
    /// unknown.
    pub(super) fn connection(
        &self,
        index: u16,
        connection: Box<dyn Link>,
        unknown: &[u16],
    ) -> Box<dyn QueueConnection> {
        let legacy = self.legacies[usize::from(index)].clone();
        let mut connection = BrpQueueConnection::new(connection, self.depth, legacy);
        match self.plan.options.on_loss {
            OnLoss::Fail => connection.give_up(),
            OnLoss::Resubmit => connection.note_unknown(unknown),
        }
        Box::new(connection)
    }

    /// Goes on with a session, or begins a new one if the target has forgotten it (BRP-33). Returns
    /// the tags whose commands have an unknown outcome.
    fn resume(&self, index: u16, resumption: &Resumption) -> Result<Restoration, ConnectError> {
        match self.plan.log_in(index, Some(resumption)) {
            Ok((address, connection)) => Ok((address, connection, Vec::new())),
            Err(error) if is_forgotten(&error) => {
                let (address, connection) = self.plan.log_in(index, None)?;
                Ok((address, connection, resumption.unanswered().collect()))
            }
            Err(error) => Err(error),
        }
    }
}

impl SessionPlan for Restored {
    fn backoff(&self) -> Backoff {
        self.plan.options.backoff
    }

    fn poll_idle(&self) -> Option<Duration> {
        self.plan.poll_idle()
    }

    fn restore(
        &self,
        index: u16,
        shared: &DeviceState,
    ) -> Result<Box<dyn QueueConnection>, ConnectError> {
        let legacy = &self.legacies[usize::from(index)];
        let before = legacy.take();
        let begin = || {
            let new = self.plan.log_in(index, None);
            new.map(|(address, connection)| (address, connection, Vec::new()))
        };
        let logged_in = before
            .as_ref()
            .map_or_else(begin, |it| self.resume(index, it));
        let checked = logged_in.and_then(|(address, connection, unknown)| {
            self.check(address, connection.as_ref())?;
            Ok((connection, unknown))
        });
        let (connection, unknown) = checked.inspect_err(|_| legacy.put(before))?;
        if let Some(terms) = connection.common().terms() {
            shared.set_blocks(terms.blocks);
        }
        Ok(self.connection(index, connection, &unknown))
    }
}

fn is_forgotten(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Session {
            source: ConnectionError::Brp(HostError::Login(LoginError::Rejected(
                LoginStatus::NoSession
            ))),
            ..
        }
    )
}
