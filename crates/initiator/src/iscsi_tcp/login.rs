//! Creating a session: connecting, login, set-up of the logical unit.

use std::{fs, net::SocketAddr, thread, time::Duration};

use iscsi::Digest;
use iscsi::initiator::{Event, LoginError, PortalAddress, Session, SessionConfig, SessionError};
use scsi::Lun;
use scsi::host::{Command, Outcome, Setup, SetupStep, UnitFacts};
use session::Buffers;

use super::credentials::Secrets;
use super::queue_connection::IscsiQueueConnection;
use crate::connection::{Connection, Sizes};
use crate::device_state::DeviceState;
use crate::queue_connection::QueueConnection;
use crate::session_connection::{wait_outcome, wait_until};
use crate::session_supervisor::SessionPlan;
use crate::{Backoff, ConnectError, ConnectionError, DeviceOptions, Switch, Url, random, socket};

/// What to attach to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) url: Url,
    pub(crate) options: DeviceOptions,
    /// The template of each session's configuration.
    config: SessionConfig,
}

/// A session whose logical unit is ready.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) address: SocketAddr,
    pub(crate) connection: Connection<Session>,
    pub(crate) facts: UnitFacts,
}

/// How sessions with the unit that was attached first are made again.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) plan: Plan,
    pub(crate) facts: UnitFacts,
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
        let attached = self.plan.attach(index)?;
        let (before, now) = (&self.facts, &attached.facts);
        let block_size = |facts: &UnitFacts| facts.geometry.map(|it| it.block_size);
        let is_same = before.designator == now.designator
            && before.serial == now.serial
            && block_size(before) == block_size(now);
        if !is_same {
            return Err(ConnectError::ReplacedUnit {
                address: attached.address,
                lun: self.plan.lun(),
            });
        }
        if let Some(geometry) = now.geometry {
            shared.set_blocks(geometry.blocks);
        }
        let (lun, depth) = (self.plan.lun(), self.plan.options.depth);
        let connection = IscsiQueueConnection::new(attached.connection, lun, depth);
        Ok(Box::new(connection))
    }
}

/// Redirections that are followed (RFC 7143 §11.13.5, status class 1).
const MOVES_MAX: u32 = 4;

/// ISID of the random kind (RFC 7143 §11.12.5): type 10b, 24 random bits, then 16 bits for the
/// session's number.
const ISID_RANDOM: u8 = 0x80;

/// Where open-iscsi keeps the machine's name.
const INITIATOR_NAME_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

impl Plan {
    pub(crate) fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        let secrets = Secrets::gather(url)?;
        let digest = |switch| match switch {
            Switch::On => Digest::Crc32c,
            Switch::Off => Digest::None,
        };
        let mut isid = [0; 6];
        match options.iscsi_qualifier {
            Some(qualifier) => isid[1..4].copy_from_slice(&qualifier),
            None => {
                random::fill(&mut isid[1..4])
                    .map_err(|source| ConnectError::Resources { source })?;
            }
        }
        isid[0] = ISID_RANDOM;
        Ok(Self {
            url: url.clone(),
            options: *options,
            config: SessionConfig {
                initiator: match url.initiator() {
                    Some(name) => name.to_owned(),
                    None => machine_name(),
                },
                target: url.target().map(str::to_owned),
                lun: url.lun(),
                isid,
                credentials: secrets.ours,
                target_credentials: secrets.theirs,
                challenge: [0; 17],
                header_digest: digest(url.header_digest()),
                data_digest: digest(url.data_digest()),
                // One more, for the connection's own commands.
                keys: options.depth + 1,
            },
        })
    }

    pub(crate) fn lun(&self) -> Lun {
        self.config.lun
    }

    /// Logs in the session with this number and sets its logical unit up.
    pub(crate) fn attach(&self, index: u16) -> Result<Attached, ConnectError> {
        let (address, mut connection) = self.log_in(index)?;
        let lost = |source| ConnectError::Session { address, source };
        let timeout = self.options.connect_timeout;
        let mut buffers = Buffers::new(1, Setup::BUFFER_BYTES);
        let mut setup = Setup::new(self.lun());
        loop {
            match setup.poll() {
                SetupStep::Submit(command) => {
                    let outcome =
                        execute(&mut connection, &mut buffers, &command, timeout).map_err(lost)?;
                    setup
                        .handle_outcome(&outcome, buffers.slot(Setup::SLOT))
                        .map_err(|source| ConnectError::Unit { address, source })?;
                }
                SetupStep::Wait { for_ms } => thread::sleep(Duration::from_millis(for_ms.into())),
                SetupStep::Done => break,
            }
        }
        Ok(Attached {
            address,
            connection,
            facts: setup.facts().clone(),
        })
    }

    /// Logs in at the first of the host's addresses that accepts the login, and follows
    /// redirections.
    pub(crate) fn log_in(
        &self,
        index: u16,
    ) -> Result<(SocketAddr, Connection<Session>), ConnectError> {
        let mut addresses = socket::resolve(self.url.host(), self.url.port())?;
        for _ in 0..MOVES_MAX {
            let mut failure = None;
            for &address in &addresses {
                match self.log_in_at(address, index) {
                    Ok(connection) => return Ok((address, connection)),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            let failure = failure.expect("a name that resolves has an address");
            let Some(portal) = moved_to(&failure) else {
                return Err(failure);
            };
            addresses = socket::resolve(&portal.host, portal.port)?;
        }
        Err(ConnectError::MovesOn {
            host: self.url.host().to_owned(),
        })
    }

    fn log_in_at(
        &self,
        address: SocketAddr,
        index: u16,
    ) -> Result<Connection<Session>, ConnectError> {
        let lost = |source| ConnectError::Session { address, source };
        let timeout = self.options.connect_timeout;
        let stream = socket::connect(address, timeout)?;
        let mut config = self.config.clone();
        config.isid[4..].copy_from_slice(&index.to_be_bytes());
        random::fill(&mut config.challenge).map_err(|source| ConnectError::Resources { source })?;
        let session =
            Session::new(&config).map_err(|error| lost(SessionError::from(error).into()))?;
        let mut connection = Connection::new(stream, session, Sizes::IO, config.keys);
        let mut buffers = Buffers::new(1, 0);
        wait_until(&mut connection, &mut buffers, timeout, |connection| {
            let event = connection.session().poll_event()?;
            (event == Event::LoggedIn).then_some(())
        })
        .map_err(lost)?;
        Ok(connection)
    }
}

/// Submits a command and waits for its outcome.
fn execute(
    connection: &mut Connection<Session>,
    buffers: &mut Buffers,
    command: &Command,
    timeout: Duration,
) -> Result<Outcome, ConnectionError> {
    // If the session has ended, waiting for the outcome reports why.
    if connection
        .session()
        .submit(Setup::KEY, command, buffers)
        .is_err()
    {
        return Err(ConnectionError::Closed);
    }
    wait_outcome(connection, buffers, timeout)
}

/// The portal that a login was redirected to.
fn moved_to(error: &ConnectError) -> Option<PortalAddress> {
    match error {
        ConnectError::Session {
            source: ConnectionError::Session(SessionError::Login(LoginError::Moved { address })),
            ..
        } => PortalAddress::parse(address),
        _ => None,
    }
}

/// The machine's name as open-iscsi has it, else one that stays the same for the machine.
fn machine_name() -> String {
    let text = fs::read_to_string(INITIATOR_NAME_FILE).unwrap_or_default();
    let named = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("InitiatorName="));
    match named {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("iqn.2025-01.io.ramport:host.{}", crate::machine::id()),
    }
}
