//! Logging in: connecting, and going on with a session.

use std::{net::SocketAddr, time::Duration};

use brp::host::HostError;
use brp::host::{LoginError, Resumption, Terms};
use brp::tcp::HostSession;
use brp::wire::{Features, Login, LoginStatus, NAME_BYTES_MAX, TAGS_MAX};
use session::Buffers;

use super::Legacy;
use super::queue_connection::BrpQueueConnection;
use crate::connection::{Connection, Sizes};
use crate::device_state::DeviceState;
use crate::nvmf::host_nqn;
use crate::queue_connection::QueueConnection;
use crate::session_supervisor::SessionPlan;
use crate::{Backoff, ConnectError, ConnectionError, DeviceOptions, OnLoss, Url, socket};

/// What to attach to, and how.
#[derive(Debug)]
pub(super) struct Plan {
    url: Url,
    options: DeviceOptions,
    /// The login of each new session.
    login: Login,
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
        login.features.set(Features::ANY_ORDER.0);
        login.keep_alive_ms.set(ms(options.keep_alive));
        login.hold_ms.set(ms(HOLD));
        let transfer_bytes = options.buffer_bytes.max(TRANSFER_MIN_BYTES);
        login
            .transfer_max_bytes
            .set(u32::try_from(transfer_bytes).unwrap_or(u32::MAX));
        Ok(Self {
            url: url.clone(),
            options: *options,
            login,
        })
    }

    /// Logs in at the first of the host's addresses that grants the login.
    pub(super) fn log_in(
        &self,
        resumption: Option<&Resumption>,
    ) -> Result<(SocketAddr, Connection<HostSession>), ConnectError> {
        let mut failure = None;
        for address in socket::resolve(self.url.host(), self.url.port())? {
            match self.log_in_at(address, resumption) {
                Ok(connection) => return Ok((address, connection)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.expect("a name that resolves has an address"))
    }

    fn log_in_at(
        &self,
        address: SocketAddr,
        resumption: Option<&Resumption>,
    ) -> Result<Connection<HostSession>, ConnectError> {
        let timeout = self.options.connect_timeout;
        let stream = socket::connect(address, timeout)?;
        let session = HostSession::new(self.login, resumption);
        let mut connection = Connection::new(stream, session, Sizes::IO, self.login.tags.get());
        connection
            .wait_until(&mut Buffers::new(1, 0), timeout, |connection| {
                connection.session_ref().terms().map(|_| ())
            })
            .map_err(|source| ConnectError::Session { address, source })?;
        Ok(connection)
    }
}

impl Restored {
    /// Checks that a login has led to the same volume, with enough tags.
    pub(super) fn check(
        &self,
        address: SocketAddr,
        connection: &Connection<HostSession>,
    ) -> Result<(), ConnectError> {
        let now = connection.session_ref().terms();
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

    /// The connection of queue `index`. Whether the commands of `unknown` tags were executed is unknown.
    pub(super) fn connection(
        &self,
        index: u16,
        connection: Connection<HostSession>,
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

    /// Goes on with a session, or begins a new one if the target has forgotten it (BRP-33). Returns the tags whose
    /// commands have an unknown outcome.
    fn resume(
        &self,
        resumption: &Resumption,
    ) -> Result<(SocketAddr, Connection<HostSession>, Vec<u16>), ConnectError> {
        match self.plan.log_in(Some(resumption)) {
            Ok((address, connection)) => Ok((address, connection, Vec::new())),
            Err(error) if is_forgotten(&error) => {
                let (address, connection) = self.plan.log_in(None)?;
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

    fn restore(
        &self,
        index: u16,
        shared: &DeviceState,
    ) -> Result<Box<dyn QueueConnection>, ConnectError> {
        let legacy = &self.legacies[usize::from(index)];
        let before = legacy.take();
        let begin = || {
            let new = self.plan.log_in(None);
            new.map(|(address, connection)| (address, connection, Vec::new()))
        };
        let logged_in = before.as_ref().map_or_else(begin, |it| self.resume(it));
        let checked = logged_in.and_then(|(address, connection, unknown)| {
            self.check(address, &connection)?;
            Ok((connection, unknown))
        });
        let (connection, unknown) = checked.inspect_err(|_| legacy.put(before))?;
        if let Some(terms) = connection.session_ref().terms() {
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
