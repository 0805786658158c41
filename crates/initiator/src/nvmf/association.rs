//! Creating an association: the admin connection, its controller, and the I/O connections.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use nvme::auth::{Concatenation, GeneratedKey};
use nvme::host::{
    self, Authenticator, AuthenticatorStep, Buffers, Command, CommandKey, Facts, HostName, Outcome,
    Purpose, Renewal, RenewalStep, Setup, SetupConfig, SetupError, SetupStep, Shutdown,
    ShutdownStep,
};
use nvme::wire::auth::CONNECT_AUTHENTICATION_REQUIRED;
use tls::Key;

use super::authentication::Authentication;
use super::identity;
use super::transport::{NvmeConnection, QueueShape, Transport};
use crate::error::QueueName;
use crate::session_connection::wait_outcome;
use crate::{ConnectError, ConnectionError, DeviceOptions, Url, socket};

/// The device to attach to, and the options.
#[derive(Debug)]
pub(crate) struct Plan<T> {
    pub(crate) url: Url,
    pub(crate) options: DeviceOptions,
    pub(crate) transport: T,
    name: HostName,
    authentication: Authentication,
}

/// The parameters of the I/O queues of an association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoQueueConfig {
    /// Commands in flight.
    pub(crate) depth: u16,
    /// Command keys in use.
    pub(crate) keys: u16,
    /// The length of each buffer.
    pub(crate) buffer_bytes: usize,
}

/// An admin queue whose controller is ready.
#[derive(Debug)]
pub(crate) struct Admin<C> {
    pub(crate) address: SocketAddr,
    pub(crate) connection: C,
    pub(crate) buffers: Buffers,
    pub(crate) facts: Facts,
}

impl<C: NvmeConnection> Admin<C> {
    /// How long a controller may take to shut down before the host disconnects.
    const SHUTDOWN_TIME: Duration = Duration::from_secs(1);

    /// Shuts the controller down, so that it does not have to detect the loss by a timeout or a
    /// broken connection. Errors are ignored.
    pub(crate) fn shut_down(mut self) {
        let until = Instant::now() + Self::SHUTDOWN_TIME;
        let mut shutdown = Shutdown::new();
        loop {
            match shutdown.poll() {
                ShutdownStep::Submit(command) => match self.execute_until(&command, until) {
                    Ok(outcome) => shutdown.handle_outcome(&outcome),
                    Err(_) => return,
                },
                ShutdownStep::Wait { for_ms } if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(for_ms.into()));
                }
                ShutdownStep::Wait { .. } | ShutdownStep::Done => return,
            }
        }
    }

    /// Submits a command under [`Shutdown::KEY`] and waits for its outcome. Other outcomes are
    /// dropped.
    fn execute_until(
        &mut self,
        command: &Command,
        until: Instant,
    ) -> Result<Outcome, ConnectionError> {
        let submitted = self
            .connection
            .submit(Shutdown::KEY, command, &self.buffers);
        submitted.map_err(|_| ConnectionError::Closed)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let outcome = wait_outcome(&mut self.connection, &mut self.buffers, left)?;
            if outcome.key == Shutdown::KEY {
                return Ok(outcome);
            }
        }
    }
}

/// Entries of an admin queue.
const ADMIN_SQ_ENTRIES: u16 = 32;
const _: () = assert!(Renewal::BUFFER_BYTES <= Setup::BUFFER_BYTES);
/// Its other parameters.
const ADMIN_SHAPE: QueueShape = QueueShape {
    queue: QueueName::ADMIN,
    controller_id: 0,
    keys: Renewal::KEYS,
    in_flight_max: ADMIN_SQ_ENTRIES - 1,
    in_capsule_max_bytes: 0,
    slots: Renewal::KEYS,
    slot_bytes: Setup::BUFFER_BYTES,
};

impl<T: Transport> Plan<T> {
    pub(crate) fn new(url: &Url, options: &DeviceOptions) -> Result<Self, ConnectError> {
        Ok(Self {
            url: url.clone(),
            options: *options,
            name: identity::host_name(url)?,
            authentication: Authentication::new(url)?,
            transport: T::new(url, options)?,
        })
    }

    /// Connects an admin queue at the first of the host's addresses that accepts it.
    pub(crate) fn connect_admin(
        &mut self,
        purpose: Purpose,
    ) -> Result<Admin<T::Connection>, ConnectError> {
        let mut failure = None;
        for address in socket::resolve(self.url.host(), self.url.port())? {
            match self.connect_admin_at(address, purpose) {
                Ok(admin) => return Ok(admin),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.expect("a name that resolves has an address"))
    }

    /// Connects I/O queue `queue_id` of the association of `admin`.
    pub(crate) fn connect_io(
        &mut self,
        admin: &Admin<T::Connection>,
        queue_id: u16,
        config: &IoQueueConfig,
    ) -> Result<T::Connection, ConnectError> {
        let name = QueueName(queue_id);
        let controller = &admin.facts.controller;
        let shape = QueueShape {
            queue: name,
            controller_id: controller.id,
            keys: config.keys,
            in_flight_max: config.depth,
            in_capsule_max_bytes: T::in_capsule_max_bytes(controller),
            slots: config.depth,
            slot_bytes: config.buffer_bytes.max(Authenticator::BUFFER_BYTES),
        };
        let mut connection = self.transport.connect(admin.address, &shape)?;
        let mut buffers = Buffers::new(1, Authenticator::BUFFER_BYTES);
        let command = host::connect_io(
            &self.name,
            controller.id,
            queue_id,
            config.depth + 1,
            0,
            buffers.slot_mut(0),
        );
        let place = (admin.address, name);
        let outcome = self.send_connect(place, &mut connection, &mut buffers, &command)?;
        if outcome.dw0() & CONNECT_AUTHENTICATION_REQUIRED != 0 {
            let place = (admin.address, name, Concatenation::Refused);
            self.authenticate(place, &mut connection, &mut buffers)?;
        }
        Ok(connection)
    }

    /// Connects an admin queue without TLS only to authenticate, which generates the key for TLS of
    /// the connections that follow.
    fn generate_key(&mut self, address: SocketAddr) -> Result<(), ConnectError> {
        let name = QueueName::ADMIN;
        self.transport.secure_with(None);
        let mut connection = self.transport.connect(address, &ADMIN_SHAPE)?;
        let mut buffers = Buffers::new(1, Authenticator::BUFFER_BYTES);
        let buffer = buffers.slot_mut(0);
        let command = host::connect_admin(&self.name, ADMIN_SQ_ENTRIES, 0, 0, buffer);
        self.send_connect((address, name), &mut connection, &mut buffers, &command)?;
        let place = (address, name, Concatenation::Offered);
        let generated = self.authenticate(place, &mut connection, &mut buffers)?;
        let key = generated.and_then(|key| Key::generated(key.as_bytes()).ok());
        let key = key.ok_or(ConnectError::NoGeneratedKey { address })?;
        self.transport.secure_with(Some(key));
        Ok(())
    }

    /// Sends the Connect command of a queue, with the first of `buffers`; what the target answers
    /// if it accepts.
    fn send_connect(
        &self,
        (address, queue): (SocketAddr, QueueName),
        connection: &mut T::Connection,
        buffers: &mut Buffers,
        command: &Command,
    ) -> Result<Outcome, ConnectError> {
        let timeout = self.options.connect_timeout;
        let outcome = execute(connection, buffers, CommandKey(0), command, timeout)
            .map_err(|source| connection_error(address, queue, source))?;
        let status = outcome.status;
        if status.is_success() {
            Ok(outcome)
        } else {
            Err(ConnectError::QueueRefused {
                address,
                queue,
                status,
            })
        }
    }

    /// Authenticates a queue that has connected, by commands with the first of `buffers`.
    fn authenticate(
        &mut self,
        (address, queue, concatenation): (SocketAddr, QueueName, Concatenation),
        connection: &mut T::Connection,
        buffers: &mut Buffers,
    ) -> Result<Option<GeneratedKey>, ConnectError> {
        let setup_error = |source| ConnectError::Setup { address, source };
        let authenticator = self.authentication.start(&self.name, concatenation)?;
        let mut authenticator =
            authenticator.ok_or(setup_error(SetupError::AuthenticationRequired))?;
        loop {
            let step = authenticator.poll(0, buffers.slot_mut(0));
            let step = step.map_err(|error| setup_error(SetupError::Authentication(error)))?;
            let AuthenticatorStep::Submit(command) = step else {
                return Ok(authenticator.generated_key().cloned());
            };
            let timeout = self.options.connect_timeout;
            let outcome = execute(connection, buffers, CommandKey(0), &command, timeout)
                .map_err(|source| connection_error(address, queue, source))?;
            authenticator
                .handle_outcome(&outcome, buffers.slot(0))
                .map_err(|status| ConnectError::QueueRefused {
                    address,
                    queue,
                    status,
                })?;
        }
    }

    /// When to authenticate the admin queue of `admin` again, which has just been set up.
    pub(crate) fn renewal(&self, now: Instant, admin: &Admin<T::Connection>) -> Renewal {
        let is_proven = admin.facts.is_authenticated || self.url.tls().generates_key;
        Renewal::new(now, self.url.dhchap().interval.filter(|_| is_proven))
    }

    /// The next command that authenticates the admin queue again, if there is one to submit. A key
    /// for TLS that was generated replaces the one before.
    pub(crate) fn poll_renewal(
        &mut self,
        now: Instant,
        renewal: &mut Renewal,
        (address, buffers): (SocketAddr, &mut Buffers),
    ) -> Result<Option<Command>, ConnectError> {
        if renewal.is_due(now) {
            let concatenation = if self.url.tls().generates_key {
                Concatenation::Replacing
            } else {
                Concatenation::Refused
            };
            let authenticator = self.authentication.start(&self.name, concatenation)?;
            let authenticator = authenticator.ok_or(ConnectError::NoHostSecret)?;
            renewal.begin(now, authenticator, self.options.connect_timeout);
        }
        let step = renewal.poll(now, buffers);
        match step.map_err(|error| connection_error(address, QueueName::ADMIN, error.into()))? {
            RenewalStep::Submit(command) => Ok(Some(command)),
            RenewalStep::Done(key) => {
                if let Some(key) = key.and_then(|key| Key::generated(key.as_bytes()).ok()) {
                    self.transport.secure_with(Some(key));
                }
                Ok(None)
            }
            RenewalStep::Idle => Ok(None),
        }
    }

    fn connect_admin_at(
        &mut self,
        address: SocketAddr,
        purpose: Purpose,
    ) -> Result<Admin<T::Connection>, ConnectError> {
        let generates_key = self.url.tls().generates_key;
        if generates_key {
            self.generate_key(address)?;
        }
        let mut connection = self.transport.connect(address, &ADMIN_SHAPE)?;
        let mut buffers = Buffers::new(Renewal::KEYS, Setup::BUFFER_BYTES);
        let mut setup = Setup::new(SetupConfig {
            name: self.name,
            sq_entries: ADMIN_SQ_ENTRIES,
            keep_alive_timeout_ms: u32::try_from(self.options.keep_alive.as_millis())
                .unwrap_or(u32::MAX),
            purpose,
        });
        // The generated key is the proof.
        let authenticator = self
            .authentication
            .start(&self.name, Concatenation::Refused)?;
        if let Some(authenticator) = authenticator.filter(|_| !generates_key) {
            setup = setup.with_authenticator(authenticator);
        }
        let setup_error = |source| ConnectError::Setup { address, source };
        loop {
            let step = setup.poll(buffers.slot_mut(Setup::SLOT));
            match step.map_err(setup_error)? {
                SetupStep::Submit(command) => {
                    let timeout = self.options.connect_timeout;
                    let outcome =
                        execute(&mut connection, &mut buffers, Setup::KEY, &command, timeout)
                            .map_err(|source| {
                                connection_error(address, QueueName::ADMIN, source)
                            })?;
                    setup
                        .handle_outcome(&outcome, buffers.slot(Setup::SLOT))
                        .map_err(setup_error)?;
                }
                SetupStep::Wait { for_ms } => thread::sleep(Duration::from_millis(for_ms.into())),
                SetupStep::Done => break,
            }
        }
        Ok(Admin {
            address,
            connection,
            buffers,
            facts: setup.facts().clone(),
        })
    }
}

/// Submits a command and waits for its outcome.
pub(crate) fn execute<C: NvmeConnection>(
    connection: &mut C,
    buffers: &mut Buffers,
    key: CommandKey,
    command: &Command,
    timeout: Duration,
) -> Result<Outcome, ConnectionError> {
    if connection.submit(key, command, buffers).is_err() {
        return Err(ConnectionError::Closed);
    }
    wait_outcome(connection, buffers, timeout)
}

pub(crate) fn connection_error(
    address: SocketAddr,
    queue: QueueName,
    source: ConnectionError,
) -> ConnectError {
    ConnectError::Connection {
        address,
        queue,
        source,
    }
}
