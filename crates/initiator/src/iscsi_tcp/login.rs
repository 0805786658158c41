//! Creating a session: connecting, login, set-up of the logical unit.

use std::{fs, net::SocketAddr};

use iscsi::Digest;
use iscsi::initiator::{Event, LoginError, PortalAddress, Session, SessionConfig, SessionError};
use session::Buffers;

use super::credentials::Secrets;
use crate::connection::{Connection, Sizes};
use crate::scsi_sessions::{OWN_KEYS, ScsiPlan};
use crate::session_connection::wait_until;
use crate::{ConnectError, ConnectionError, DeviceOptions, Switch, Url, random, socket};

/// What to attach to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) url: Url,
    pub(crate) options: DeviceOptions,
    /// The template of each session's configuration.
    config: SessionConfig,
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
        match options.session_qualifier {
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
                keys: options.depth + OWN_KEYS,
            },
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

impl ScsiPlan for Plan {
    type Connection = Connection<Session>;

    fn url(&self) -> &Url {
        &self.url
    }

    fn options(&self) -> &DeviceOptions {
        &self.options
    }

    /// Logs in at the first of the host's addresses that accepts the login, and follows
    /// redirections.
    fn log_in(&self, index: u16) -> Result<(SocketAddr, Connection<Session>), ConnectError> {
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
