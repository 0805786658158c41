//! How a new admin queue comes to a controller that is ready, and what is learned on the way.
//!
//! Read first: NVM Express Base 2.0, "Controller Initialization" (message-based transports).
//!
//! ```text
//!  Connect ─┬──────────────────┬► Capabilities ─► Enable ─► Ready ─► Controller
//!           └► Authentication ─┘                            └─◄┘ not yet  │
//!                if required                                             │
//!      ┌─────────────────────────────────────────────────────────────────┤
//!      └► QueueCount ─► ActiveNamespaces ─► Namespace ─► Descriptors      │ discovery
//!                                                            └──────► Events ─► Done
//! ```

use std::fmt;

use block::{BlockSize, Blocks, Geometry};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::{
    Authenticator, AuthenticatorStep, BufferRange, Command, CommandKey, HostName, Outcome,
    Transfer, connect_admin,
};
use crate::auth::HostAuthError;
use crate::wire::auth::{CONNECT_AUTHENTICATION_REQUIRED, CONNECT_SECURE_CHANNEL_REQUIRED};
use crate::wire::fabrics::{
    Capabilities, Configuration, ControllerStatus, InvalidParameter, Property, PropertySqe,
};
use crate::wire::identify::{
    DATA_BYTES, IdentifyController, IdentifyNamespace, IdentifyNvmController, NamespaceDescriptor,
    cns, parse_namespace_list,
};
use crate::wire::{Cid, Nsid, Sqe, Status, StatusCode, feature, opcode};

/// Takes a new admin queue to a controller that is ready, one command at a time.
#[derive(Debug)]
pub struct Setup {
    config: SetupConfig,
    phase: Phase,
    is_in_flight: bool,
    ready: ReadyWait,
    authenticator: Option<Authenticator>,
    facts: Facts,
}

/// The wait for CSTS.RDY: reads and pauses in turn.
#[derive(Debug, Default)]
struct ReadyWait {
    timeout_ms: u32,
    waited_ms: u32,
    next: ReadyStep,
}

#[derive(Debug, Default)]
enum ReadyStep {
    #[default]
    Look,
    Pause,
}

/// What a set-up is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupConfig {
    /// The names to connect with.
    pub name: HostName,
    /// Entries of the admin queue.
    pub sq_entries: u16,
    /// Keep Alive Timeout (KATO) in milliseconds; 0 is none.
    pub keep_alive_timeout_ms: u32,
    /// What the association is for.
    pub purpose: Purpose,
}

/// What an association is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// I/O to one namespace.
    Io {
        /// The namespace.
        nsid: Nsid,
        /// How many I/O queues to ask for.
        queues: u16,
    },
    /// Reading the discovery log.
    Discovery,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Submit this under [`Setup::KEY`], and hand its outcome to [`Setup::handle_outcome`].
    Submit(Command),
    /// Let this many milliseconds pass, then poll again.
    Wait {
        /// How long.
        for_ms: u32,
    },
    /// The controller is ready.
    Done,
}

/// What was learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// About the controller.
    pub controller: ControllerFacts,
    /// How many I/O queues it grants; 0 in an association for discovery.
    pub io_queues: u16,
    /// About the namespace; none in an association for discovery.
    pub namespace: Option<NamespaceFacts>,
    /// Whether the controller required the host to authenticate in band.
    pub is_authenticated: bool,
}

/// The properties that a controller reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerFacts {
    /// Its identifier (CNTLID).
    pub id: u16,
    /// Model Number (MN).
    pub model: String,
    /// Serial Number (SN).
    pub serial: String,
    /// Firmware Revision (FR).
    pub firmware: String,
    /// The subsystem's name (SUBNQN).
    pub subsystem_nqn: String,
    /// The most bytes of one command (from MDTS); none if there is no limit.
    pub transfer_max_bytes: Option<u64>,
    /// The most bytes that one Verify checks (from VSL); none if there is no limit.
    pub verify_max_bytes: Option<u64>,
    /// The most bytes that one Write Zeroes clears (from WZSL); none if there is no limit.
    pub write_zeroes_max_bytes: Option<u64>,
    /// The most blocks of one range of Dataset Management (from DMRSL and DMSL); none if there is
    /// no limit.
    pub deallocate_max_blocks: Option<u64>,
    /// The most data inside a command capsule of an I/O queue (from IOCCSZ).
    pub in_capsule_max_bytes: u32,
    /// What it takes in SGLs (SGLS), bits as in [`crate::wire::identify::sgls`].
    pub sgls: u32,
    /// The most entries of an I/O queue (MQES, MAXCMD), 1's based.
    pub queue_entries_max: u32,
    /// Optional commands (ONCS), bits as in [`crate::wire::identify::oncs`].
    pub nvm_commands: u16,
    /// Whether compare-and-write can be fused (FUSES).
    pub fused: Fused,
    /// Whether it has a volatile write cache (VWC).
    pub has_volatile_write_cache: bool,
    /// Events that it can report (OAES), bits as in Asynchronous Event Configuration.
    pub events: u32,
}

/// Whether a controller takes fused compare-and-write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fused {
    /// It does not.
    #[default]
    Unsupported,
    /// It does.
    CompareAndWrite,
}

/// What a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its identifier.
    pub nsid: Nsid,
    /// Block size and capacity.
    pub geometry: Geometry,
    /// Namespace Globally Unique Identifier (NGUID); zeros if it has none.
    pub nguid: [u8; 16],
    /// Universally unique identifier, if it has one.
    pub uuid: Option<[u8; 16]>,
    /// Whether it is write protected at present (NSATTR).
    pub is_write_protected: bool,
}

/// Why a set-up failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The target has no such subsystem.
    #[error(
        "the target has no subsystem with this name for this host; `discover` lists its subsystems"
    )]
    UnknownSubsystem,
    /// The subsystem does not admit this host.
    #[error("the subsystem does not admit this host; allow its host NQN there, or set hostnqn=")]
    HostNotAllowed,
    /// The controller requires authentication, and the host has no secret.
    #[error(
        "the controller requires DH-HMAC-CHAP authentication; give the host's secret with dhchap-secret-file="
    )]
    AuthenticationRequired,
    /// The controller requires a secure channel.
    #[error("the controller requires TLS, which is not supported; connect where it does not")]
    SecureChannelRequired,
    /// The controller does not prove itself, and the host requires it.
    #[error(
        "the controller requires no authentication, so it cannot prove the secret of dhchap-ctrl-secret-file=; set the host's DH-HMAC-CHAP secrets there, or leave the option out"
    )]
    ControllerNotProven,
    /// The authentication failed.
    #[error("authentication failed: {0}")]
    Authentication(HostAuthError),
    /// The controller rejected a command.
    #[error("{phase} failed: {status}")]
    Refused {
        /// The state of the set-up.
        phase: Phase,
        /// The command's status.
        status: Status,
    },
    /// CSTS.RDY was not set in time.
    #[error("the controller did not become ready within {timeout_ms} ms")]
    NotReady {
        /// How long CAP.TO allows.
        timeout_ms: u32,
    },
    /// CSTS.CFS is set.
    #[error("the controller reports a fatal error")]
    Fatal,
    /// The namespace does not exist.
    #[error("the subsystem has no namespace {nsid} for this host; ns= selects another one")]
    NoNamespace {
        /// Which.
        nsid: Nsid,
    },
    /// Only blocks of 512 and 4096 bytes without metadata are supported.
    #[error(
        "namespace {nsid} has blocks of 2^{data_shift} bytes with {metadata_bytes} bytes of metadata; only 512 and 4096 without metadata are supported"
    )]
    Format {
        /// Which.
        nsid: Nsid,
        /// log2 of the block size (LBADS).
        data_shift: u8,
        /// Metadata per block (MS).
        metadata_bytes: u16,
    },
    /// The controller grants no I/O queue.
    #[error("the controller grants no I/O queue")]
    NoQueues,
}

/// The state of a set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Connecting the admin queue.
    Connect,
    /// Authenticating host and controller.
    Authentication,
    /// Reading CAP.
    Capabilities,
    /// Setting CC.EN.
    Enable,
    /// Waiting for CSTS.RDY.
    Ready,
    /// Identifying the controller.
    Controller,
    /// Reading the limits of commands without data.
    Limits,
    /// Asking for I/O queues.
    QueueCount,
    /// Looking for the namespace.
    ActiveNamespaces,
    /// Identifying the namespace.
    Namespace,
    /// Reading the namespace's identifiers.
    Descriptors,
    /// Enabling asynchronous events.
    Events,
    /// The controller is ready.
    Done,
}

/// Asynchronous Event Configuration: Namespace Attribute Notices.
const EVENT_NAMESPACE_ATTRIBUTES: u32 = 1 << 8;
/// Asynchronous Event Configuration: Discovery Log Page Change Notification.
const EVENT_DISCOVERY_LOG: u32 = 1 << 31;

impl Setup {
    /// The key of every command.
    pub const KEY: CommandKey = CommandKey(0);
    /// The buffer that every command uses.
    pub const SLOT: u16 = 0;
    /// What that buffer has to hold.
    pub const BUFFER_BYTES: usize = DATA_BYTES;
    /// The pause between two reads of CSTS.RDY.
    const READY_POLL_MS: u32 = 10;

    /// At the first step.
    pub fn new(config: SetupConfig) -> Self {
        Self {
            config,
            phase: Phase::Connect,
            is_in_flight: false,
            ready: ReadyWait::default(),
            authenticator: None,
            facts: Facts::default(),
        }
    }

    /// The same, with what the host proves if the controller requires authentication.
    #[must_use]
    pub fn with_authenticator(self, authenticator: Authenticator) -> Self {
        Self {
            authenticator: Some(authenticator),
            ..self
        }
    }

    /// The state of the set-up.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What was learned so far; all of it after [`SetupStep::Done`].
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The next step. Not to be called while a command is in flight. `buffer` is that of
    /// [`Self::SLOT`].
    pub fn poll(&mut self, buffer: &mut [u8]) -> Result<SetupStep, SetupError> {
        assert!(!self.is_in_flight, "one command at a time");
        if let Some(command) = self.poll_authentication(buffer)? {
            self.is_in_flight = true;
            return Ok(SetupStep::Submit(command));
        }
        Ok(self.next_step(buffer))
    }

    /// The next command of the authentication, if that is due.
    fn poll_authentication(&mut self, buffer: &mut [u8]) -> Result<Option<Command>, SetupError> {
        let (Phase::Authentication, Some(authenticator)) = (self.phase, &mut self.authenticator)
        else {
            return Ok(None);
        };
        let step = authenticator.poll(Self::SLOT, buffer);
        match step.map_err(SetupError::Authentication)? {
            AuthenticatorStep::Submit(command) => Ok(Some(command)),
            AuthenticatorStep::Done => {
                self.facts.is_authenticated = true;
                self.phase = Phase::Capabilities;
                Ok(None)
            }
        }
    }

    fn next_step(&mut self, buffer: &mut [u8]) -> SetupStep {
        let command = match self.phase {
            Phase::Connect => connect_admin(
                &self.config.name,
                self.config.sq_entries,
                self.config.keep_alive_timeout_ms,
                Self::SLOT,
                buffer,
            ),
            Phase::Authentication | Phase::Capabilities => {
                property(PropertySqe::get(Cid(0), Property::Capabilities))
            }
            Phase::Enable => property(PropertySqe::set(
                Cid(0),
                Property::Configuration,
                u64::from(Configuration::ENABLE_NVM.0),
            )),
            Phase::Ready => match self.ready.next {
                ReadyStep::Look => property(PropertySqe::get(Cid(0), Property::Status)),
                ReadyStep::Pause => {
                    self.ready.next = ReadyStep::Look;
                    self.ready.waited_ms += Self::READY_POLL_MS;
                    return SetupStep::Wait {
                        for_ms: Self::READY_POLL_MS,
                    };
                }
            },
            Phase::Controller => identify(cns::CONTROLLER, Nsid::NONE),
            Phase::Limits => identify(cns::COMMAND_SET_CONTROLLER, Nsid::NONE),
            Phase::QueueCount => set_feature(feature::NUMBER_OF_QUEUES, self.queue_count()),
            Phase::ActiveNamespaces => identify(
                cns::ACTIVE_NAMESPACES,
                Nsid(self.nsid().0.saturating_sub(1)),
            ),
            Phase::Namespace => identify(cns::NAMESPACE, self.nsid()),
            Phase::Descriptors => identify(cns::NAMESPACE_DESCRIPTORS, self.nsid()),
            Phase::Events => set_feature(feature::ASYNC_EVENT_CONFIGURATION, self.events()),
            Phase::Done => return SetupStep::Done,
        };
        self.is_in_flight = true;
        SetupStep::Submit(command)
    }

    /// The command has ended; `buffer` is that of [`Self::SLOT`].
    pub fn handle_outcome(&mut self, outcome: &Outcome, buffer: &[u8]) -> Result<(), SetupError> {
        self.is_in_flight = false;
        if let (Phase::Authentication, Some(authenticator)) = (self.phase, &mut self.authenticator)
        {
            let rejected = |status| SetupError::Refused {
                phase: Phase::Authentication,
                status,
            };
            return authenticator
                .handle_outcome(outcome, buffer)
                .map_err(rejected);
        }
        if !outcome.status.is_success() {
            return self.on_refusal(outcome);
        }
        self.phase = match self.phase {
            Phase::Connect => {
                self.facts.controller.id = outcome.dw0() as u16;
                self.on_connected(outcome.dw0())?
            }
            Phase::Authentication | Phase::Capabilities => {
                let cap = Capabilities(outcome.result);
                self.facts.controller.queue_entries_max = cap.queue_entries_max();
                self.ready.timeout_ms = cap.timeout_ms();
                Phase::Enable
            }
            Phase::Enable => Phase::Ready,
            Phase::Ready => self.on_controller_status(ControllerStatus(outcome.dw0()))?,
            Phase::Controller => self.on_controller(buffer),
            Phase::Limits => self.on_limits(buffer),
            Phase::QueueCount => self.on_queue_count(outcome.dw0())?,
            Phase::ActiveNamespaces => self.on_active_namespaces(buffer)?,
            Phase::Namespace => {
                let facts = namespace_facts(self.nsid(), buffer)?;
                self.facts.namespace = Some(facts);
                Phase::Descriptors
            }
            Phase::Descriptors => self.on_descriptors(buffer),
            Phase::Events | Phase::Done => Phase::Done,
        };
        Ok(())
    }

    fn on_refusal(&mut self, outcome: &Outcome) -> Result<(), SetupError> {
        // Older controllers report no such limits and no descriptors, and events are a convenience.
        match self.phase {
            Phase::Limits => {
                self.phase = Phase::QueueCount;
                return Ok(());
            }
            Phase::Descriptors => {
                self.phase = self.before_events();
                return Ok(());
            }
            Phase::Events => {
                self.phase = Phase::Done;
                return Ok(());
            }
            _ => {}
        }
        let code = outcome.status.code();
        let subsystem_nqn = InvalidParameter::Data(256);
        Err(match (self.phase, code) {
            (Phase::Connect, Some(StatusCode::ConnectInvalidHost)) => SetupError::HostNotAllowed,
            (Phase::Connect, Some(StatusCode::ConnectInvalidParameters))
                if InvalidParameter::from_dw0(outcome.dw0()) == subsystem_nqn =>
            {
                SetupError::UnknownSubsystem
            }
            _ => SetupError::Refused {
                phase: self.phase,
                status: outcome.status,
            },
        })
    }

    /// DW0 of Connect says whether authentication is required (AUTHREQ).
    fn on_connected(&self, dw0: u32) -> Result<Phase, SetupError> {
        if dw0 & CONNECT_SECURE_CHANNEL_REQUIRED != 0 {
            return Err(SetupError::SecureChannelRequired);
        }
        let is_required = dw0 & CONNECT_AUTHENTICATION_REQUIRED != 0;
        match &self.authenticator {
            None if is_required => Err(SetupError::AuthenticationRequired),
            Some(_) if is_required => Ok(Phase::Authentication),
            Some(authenticator) if authenticator.is_mutual() => {
                Err(SetupError::ControllerNotProven)
            }
            _ => Ok(Phase::Capabilities),
        }
    }

    fn on_controller_status(&mut self, status: ControllerStatus) -> Result<Phase, SetupError> {
        if status.is_fatal() {
            return Err(SetupError::Fatal);
        }
        if status.is_ready() {
            return Ok(Phase::Controller);
        }
        if self.ready.waited_ms >= self.ready.timeout_ms {
            return Err(SetupError::NotReady {
                timeout_ms: self.ready.timeout_ms,
            });
        }
        self.ready.next = ReadyStep::Pause;
        Ok(Phase::Ready)
    }

    fn on_controller(&mut self, buffer: &[u8]) -> Phase {
        const SQE_UNITS: u32 = 4;
        let Ok((id, _)) = IdentifyController::ref_from_prefix(buffer) else {
            unreachable!("the slot holds 4096 bytes");
        };
        let facts = &mut self.facts.controller;
        facts.model = text(&id.model);
        facts.serial = text(&id.serial);
        facts.firmware = text(&id.firmware);
        facts.subsystem_nqn = id.subsystem_nqn.name().unwrap_or_default().into();
        facts.transfer_max_bytes = size_limit_bytes(id.mdts);
        let data_units = id.command_capsule_units.get().saturating_sub(SQE_UNITS);
        facts.in_capsule_max_bytes = if id.in_capsule_data_offset_units.get() == 0 {
            data_units.saturating_mul(16)
        } else {
            0
        };
        facts.sgls = id.sgls.get();
        // MAXCMD 0 is not reported.
        if let maxcmd @ 1.. = u32::from(id.commands_max.get()) {
            facts.queue_entries_max = facts.queue_entries_max.min(maxcmd);
        }
        facts.nvm_commands = id.nvm_commands.get();
        facts.fused = if id.fused.get() & 1 == 0 {
            Fused::Unsupported
        } else {
            Fused::CompareAndWrite
        };
        facts.has_volatile_write_cache = id.volatile_write_cache & 1 != 0;
        facts.events = id.events.get();
        match self.config.purpose {
            Purpose::Io { .. } => Phase::Limits,
            Purpose::Discovery => self.before_events(),
        }
    }

    fn on_limits(&mut self, buffer: &[u8]) -> Phase {
        let Ok((id, _)) = IdentifyNvmController::ref_from_prefix(buffer) else {
            unreachable!("the slot holds 4096 bytes");
        };
        let facts = &mut self.facts.controller;
        facts.verify_max_bytes = size_limit_bytes(id.verify_max_shift);
        facts.write_zeroes_max_bytes = size_limit_bytes(id.write_zeroes_max_shift);
        let of_range = u64::from(id.dataset_range_blocks_max.get());
        let limits = [of_range, id.dataset_blocks_max.get()];
        facts.deallocate_max_blocks = limits.into_iter().filter(|&blocks| blocks > 0).min();
        Phase::QueueCount
    }

    /// DW0 holds the numbers of submission queues (NSQA) and completion queues (NCQA) granted, 0's
    /// based.
    fn on_queue_count(&mut self, dw0: u32) -> Result<Phase, SetupError> {
        let granted = (dw0 & 0xFFFF).min(dw0 >> 16) + 1;
        let Purpose::Io { queues, .. } = self.config.purpose else {
            return Ok(Phase::Events);
        };
        self.facts.io_queues = granted.min(u32::from(queues)) as u16;
        if self.facts.io_queues == 0 {
            return Err(SetupError::NoQueues);
        }
        Ok(Phase::ActiveNamespaces)
    }

    fn on_active_namespaces(&mut self, buffer: &[u8]) -> Result<Phase, SetupError> {
        let nsid = self.nsid();
        if parse_namespace_list(&buffer[..DATA_BYTES]).next() == Some(nsid) {
            Ok(Phase::Namespace)
        } else {
            Err(SetupError::NoNamespace { nsid })
        }
    }

    fn on_descriptors(&mut self, buffer: &[u8]) -> Phase {
        for descriptor in NamespaceDescriptor::parse(&buffer[..DATA_BYTES]) {
            if let (NamespaceDescriptor::Uuid(uuid), Some(facts)) =
                (descriptor, &mut self.facts.namespace)
            {
                facts.uuid = Some(uuid);
            }
        }
        self.before_events()
    }

    fn before_events(&self) -> Phase {
        if self.events() == 0 {
            Phase::Done
        } else {
            Phase::Events
        }
    }

    /// The events wanted, of those that the controller has.
    fn events(&self) -> u32 {
        self.facts.controller.events & (EVENT_NAMESPACE_ATTRIBUTES | EVENT_DISCOVERY_LOG)
    }

    /// Number of submission queues (NSQR) and completion queues (NCQR) requested, 0's based.
    fn queue_count(&self) -> u32 {
        let Purpose::Io { queues, .. } = self.config.purpose else {
            return 0;
        };
        let minus_1 = u32::from(queues.saturating_sub(1));
        minus_1 << 16 | minus_1
    }

    fn nsid(&self) -> Nsid {
        match self.config.purpose {
            Purpose::Io { nsid, .. } => nsid,
            Purpose::Discovery => Nsid::NONE,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting the admin queue",
            Self::Authentication => "authenticating the admin queue",
            Self::Capabilities => "reading the controller's capabilities",
            Self::Enable => "enabling the controller",
            Self::Ready => "waiting for the controller",
            Self::Controller => "identifying the controller",
            Self::Limits => "reading the limits of commands",
            Self::QueueCount => "asking for I/O queues",
            Self::ActiveNamespaces => "listing namespaces",
            Self::Namespace => "identifying the namespace",
            Self::Descriptors => "reading the namespace's identifiers",
            Self::Events => "enabling events",
            Self::Done => "using the controller",
        })
    }
}

/// A limit that is given as log2 of units of the smallest page; `None` if there is none.
fn size_limit_bytes(shift: u8) -> Option<u64> {
    const PAGE_BYTES: u64 = 4096;
    match shift {
        0 => None,
        shift => PAGE_BYTES.checked_shl(u32::from(shift)).filter(|&b| b > 0),
    }
}

/// Identify with data into [`Setup::SLOT`].
fn identify(cns: u8, nsid: Nsid) -> Command {
    identify_into(cns, nsid, Setup::SLOT)
}

/// Identify with data into a slot of at least [`DATA_BYTES`] bytes.
pub(super) fn identify_into(cns: u8, nsid: Nsid, slot: u16) -> Command {
    let mut sqe = Sqe::new(opcode::IDENTIFY, Cid(0), nsid);
    sqe.cdw10 = U32::new(u32::from(cns));
    Command {
        sqe,
        transfer: Transfer::ToHost(BufferRange::first(slot, DATA_BYTES as u32)),
    }
}

/// The properties that Identify Namespace reports.
pub(super) fn namespace_facts(nsid: Nsid, buffer: &[u8]) -> Result<NamespaceFacts, SetupError> {
    let Ok((id, _)) = IdentifyNamespace::ref_from_prefix(buffer) else {
        unreachable!("the slot holds 4096 bytes");
    };
    let blocks = id.size_blocks.get();
    if blocks == 0 {
        return Err(SetupError::NoNamespace { nsid });
    }
    let format = id.current_format();
    let block_size = 1u64
        .checked_shl(u32::from(format.data_shift))
        .and_then(BlockSize::from_bytes)
        .filter(|size| format.metadata_bytes.get() == 0 && blocks <= u64::MAX >> size.shift())
        .ok_or(SetupError::Format {
            nsid,
            data_shift: format.data_shift,
            metadata_bytes: format.metadata_bytes.get(),
        })?;
    Ok(NamespaceFacts {
        nsid,
        geometry: Geometry::new(block_size, Blocks(blocks)),
        nguid: id.nguid,
        uuid: None,
        is_write_protected: id.attributes & 1 != 0,
    })
}

pub(super) fn property(sqe: PropertySqe) -> Command {
    Command {
        sqe: zerocopy::transmute!(sqe),
        transfer: Transfer::None,
    }
}

fn set_feature(identifier: u8, value: u32) -> Command {
    let mut sqe = Sqe::new(opcode::SET_FEATURES, Cid(0), Nsid::NONE);
    sqe.cdw10 = U32::new(u32::from(identifier));
    sqe.cdw11 = U32::new(value);
    Command {
        sqe,
        transfer: Transfer::None,
    }
}

/// ASCII padded with blanks, or with zeros as some do.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field)
        .trim_end_matches(['\0', ' '])
        .to_owned()
}

#[cfg(test)]
mod tests;
