//! One connection at the target, whatever carries it: login, keep-alive, events, its end.
//!
//! ```text
//!           LOGIN                  granted                 LOGOUT, FAULT, violation, silence, replaced
//!  Started ────────► LoggingIn ──────────────► Ready ────────────────────────────────────────────────► Closing
//!     │                  └── rejected, too late ──────────────────────────────────────────────────────►
//!     └── anything else, too late ────────────────────────────────────────────────────────────────────►
//! ```

use std::time::{Duration, Instant};

use block::WriteCache;
use zerocopy::little_endian::U16;

use super::backend::{Backend, LogIn, LoginRequest, Standing, UnitRef};
use super::commands::{Commands, Limits};
use super::merge::Merge;
use super::{SessionRecord, Tag};
use crate::wire::{
    DESCRIPTORS_MAX, EventCode, Features, Kind, Login, LoginReply, LoginStatus, MAGIC, ReplyFlags,
    SessionId, Short, Step, VERSION, Violation,
};

/// The settings of a target's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// Features that hosts may ask for: those of a [`Step`](crate::wire::Step).
    pub features: Features,
    /// When replies are joined, with [`Features::MERGE`].
    pub merge: Merge,
    /// The most tags of a session.
    pub tags_max: u16,
    /// The longest transfer in bytes.
    pub transfer_max_bytes: u32,
    /// The most data inside a WRITE over TCP, in bytes.
    pub stream_data_max_bytes: u32,
    /// The most data inside a WRITE over RDMA, in bytes.
    pub message_data_max_bytes: u32,
    /// The most data inside a READ's reply over RDMA, in bytes.
    pub reply_data_max_bytes: u32,
    /// The most data of one side of a COMPARE_AND_WRITE in bytes.
    pub compare_max_bytes: u32,
    /// The longest time for which a record is kept without a connection.
    pub hold_max: Duration,
    /// Reads of at least this many bytes are placed into the send list (TCP); shorter ones are
    /// copied.
    pub place_min_bytes: u32,
    /// How long a host may take from the start of the connection to a granted login (BRP-3).
    pub login_timeout: Duration,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            features: Step::Merge.features().or(Features::MERGE_ALWAYS),
            merge: Merge::Adaptive,
            tags_max: 256,
            transfer_max_bytes: 1 << 20,
            stream_data_max_bytes: 64 << 10,
            message_data_max_bytes: 4 << 10,
            reply_data_max_bytes: 4 << 10,
            compare_max_bytes: 64 << 10,
            hold_max: Duration::from_secs(120),
            place_min_bytes: 4 << 10,
            login_timeout: Duration::from_secs(10),
        }
    }
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The host broke the protocol; a FAULT reports it.
    #[error("the host broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The login was rejected.
    #[error("a login was rejected: {0}")]
    Rejected(LoginStatus),
    /// No login was granted in time.
    #[error("the host did not log in in time")]
    LoginTimeout,
    /// The host said that the target broke the protocol.
    #[error("the host ended the connection with fault {0}")]
    HostFault(u8),
}

/// How the transport bounds a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportTerms {
    /// The most data inside a WRITE in bytes.
    pub(crate) command_data_max_bytes: u32,
    /// The most data inside a READ's reply in bytes; 0 over TCP.
    pub(crate) reply_data_max_bytes: u32,
    /// The most tags of a session.
    pub(crate) tags_max: u16,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    config: TargetConfig,
    terms: TransportTerms,
    stage: Stage,
    /// The login that is being handled.
    login: Option<Box<Login>>,
    pub(crate) commands: Commands,
    outbox: Outbox,
    seen: Seen,
    /// When the host was last heard from.
    heard: Instant,
    /// How long it may be silent.
    silence_max: Option<Duration>,
    login_deadline: Instant,
    shutdown: Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Started,
    LoggingIn,
    Ready,
    Closing,
}

/// Whether the host was notified that the target shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    Untold,
    Told,
}

/// Messages about no command that are to be sent.
#[derive(Debug, Default)]
struct Outbox {
    login_reply: Option<Box<LoginReply>>,
    pong: Option<Short>,
    /// A bit for each event, by its code.
    events: u8,
    fault: Option<Violation>,
}

/// The unit as the host knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    blocks: u64,
    is_writable: bool,
    is_removed: bool,
}

impl Seen {
    fn of(unit: &UnitRef<'_>) -> Self {
        Self {
            blocks: unit.volume.geometry().blocks.0,
            is_writable: unit.permission.write.is_ok() && !unit.volume.is_read_only(),
            is_removed: false,
        }
    }
}

/// The flags of the reply to a login to `unit`, as it is `seen`.
fn reply_flags(login: &Login, seen: Seen, unit: &UnitRef<'_>) -> ReplyFlags {
    let has_cache = unit.volume.write_cache() == WriteCache::Volatile;
    let conditions = [
        (login.session != SessionId::NONE, ReplyFlags::RESUMED),
        (!seen.is_writable, ReplyFlags::READ_ONLY),
        (has_cache, ReplyFlags::WRITE_CACHE),
    ];
    let held = conditions.iter().filter(|(holds, _)| *holds);
    ReplyFlags(held.fold(0, |flags, (_, flag)| flags | flag.0))
}

/// What goes out next about no command.
#[derive(Debug)]
pub(crate) enum Notice {
    Login(Box<LoginReply>),
    Short(Short),
}

impl Connection {
    /// The shortest transfer that a host may ask for in bytes.
    const TRANSFER_MIN_BYTES: u32 = 4096;

    pub(crate) fn new(now: Instant, config: TargetConfig, terms: TransportTerms) -> Self {
        let nobody = SessionRecord::new(SessionId::NONE, 0);
        let limits = Limits {
            transfer_max_bytes: 0,
            compare_max_bytes: 0,
            reply_data_max_bytes: 0,
        };
        Self {
            terms,
            stage: Stage::Started,
            login: None,
            commands: Commands::new(now, nobody, 0, Features::default(), config.merge, limits),
            outbox: Outbox::default(),
            seen: Seen::default(),
            heard: now,
            silence_max: None,
            login_deadline: now + config.login_timeout,
            shutdown: Shutdown::Untold,
            config,
        }
    }

    pub(crate) fn config(&self) -> &TargetConfig {
        &self.config
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.stage == Stage::Closing
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.commands.is_idle()
    }

    /// The most data inside a command in bytes.
    pub(crate) fn command_data_max_bytes(&self) -> u32 {
        self.terms.command_data_max_bytes
    }

    /// Whether notices or replies are to be sent.
    pub(crate) fn wants_transmit(&self) -> bool {
        let outbox = &self.outbox;
        let has_notice =
            outbox.login_reply.is_some() || outbox.pong.is_some() || outbox.events != 0;
        match self.stage {
            Stage::Closing => outbox.login_reply.is_some() || outbox.fault.is_some(),
            _ => has_notice || self.commands.has_ready(),
        }
    }

    /// The next notice, if there is one; it is to be sent before any reply, or is the last message.
    pub(crate) fn take_notice(&mut self) -> Option<Notice> {
        let outbox = &mut self.outbox;
        if let Some(reply) = outbox.login_reply.take() {
            return Some(Notice::Login(reply));
        }
        if self.stage == Stage::Closing {
            return outbox
                .fault
                .take()
                .map(|violation| Notice::Short(Short::fault(violation)));
        }
        if let Some(pong) = outbox.pong.take() {
            return Some(Notice::Short(pong));
        }
        if outbox.events == 0 {
            return None;
        }
        let code = outbox.events.trailing_zeros() as u8;
        outbox.events &= outbox.events - 1;
        let event = EventCode::from_byte(code)?;
        let value = match event {
            EventCode::Resized => self.seen.blocks,
            _ => 0,
        };
        Some(Notice::Short(Short::event(event, value)))
    }

    /// Notes that the host was heard from, and starts a turn.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.commands.start_turn(now);
    }

    /// Handles LOGIN.
    pub(crate) fn on_login<B: Backend>(
        &mut self,
        now: Instant,
        login: &Login,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.stage != Stage::Started {
            return Err(Violation::Login.into());
        }
        self.login = Some(Box::new(*login));
        self.stage = Stage::LoggingIn;
        self.log_in(now, backend)
    }

    /// Asks for the session of the login, as often as it is not free.
    fn log_in<B: Backend>(&mut self, now: Instant, backend: &mut B) -> Result<(), SessionError> {
        let Some(login) = self.login.take() else {
            return Ok(());
        };
        let request = match self.check_login(&login) {
            Ok(request) => request,
            Err(status) => return Err(SessionError::Rejected(status)),
        };
        match backend.log_in(&request) {
            LogIn::Granted { record, volume } => self.grant(now, &login, record, volume, backend),
            LogIn::Rejected(status) => Err(SessionError::Rejected(status)),
            LogIn::Wait => {
                self.login = Some(login);
                Ok(())
            }
        }
    }

    /// Checks the fields of a login (BRP-4, BRP-5, BRP-7).
    fn check_login<'a>(&self, login: &'a Login) -> Result<LoginRequest<'a>, LoginStatus> {
        if login.magic != MAGIC {
            return Err(LoginStatus::Malformed);
        }
        if login.version.get() < VERSION {
            return Err(LoginStatus::Version);
        }
        let tags = login.tags().ok_or(LoginStatus::Malformed)?;
        if login.transfer_max_bytes.get() < Self::TRANSFER_MIN_BYTES {
            return Err(LoginStatus::Malformed);
        }
        Ok(LoginRequest {
            host: login.host.name().ok_or(LoginStatus::Malformed)?,
            target: login.target.name().ok_or(LoginStatus::Malformed)?,
            unit: login.unit.get(),
            session: login.session,
            tags: tags.min(self.terms.tags_max),
            hold_ms: self.hold_ms(login),
        })
    }

    /// How long the record is kept without a connection, in ms.
    fn hold_ms(&self, login: &Login) -> u32 {
        let max_ms = u32::try_from(self.config.hold_max.as_millis()).unwrap_or(u32::MAX);
        login.hold_ms.get().min(max_ms)
    }

    fn grant<B: Backend>(
        &mut self,
        now: Instant,
        login: &Login,
        record: SessionRecord,
        volume: [u8; 16],
        backend: &mut B,
    ) -> Result<(), SessionError> {
        let features = self.config.features.and(Features(login.features.get()));
        let limits = Limits {
            transfer_max_bytes: (self.config.transfer_max_bytes)
                .min(login.transfer_max_bytes.get()),
            compare_max_bytes: self.config.compare_max_bytes,
            reply_data_max_bytes: (self.terms.reply_data_max_bytes)
                .min(login.reply_data_max_bytes.get()),
        };
        let (session, tags) = (record.session(), record.tags());
        let connection = backend.connection();
        // BRP-38.
        let merge = if features.contains(Features::MERGE_ALWAYS) {
            Merge::Always
        } else {
            self.config.merge
        };
        self.commands = Commands::new(now, record, connection, features, merge, limits);
        let keep_alive_ms = login.keep_alive_ms.get();
        self.silence_max =
            (keep_alive_ms > 0).then(|| 2 * Duration::from_millis(keep_alive_ms.into()));
        // From here on the record goes back when the connection ends.
        self.stage = Stage::Ready;
        if tags > self.terms.tags_max {
            return Err(SessionError::Rejected(LoginStatus::Malformed));
        }
        let Some(unit) = backend.unit() else {
            return Err(SessionError::Rejected(LoginStatus::NoUnit));
        };
        let geometry = unit.volume.geometry();
        self.seen = Seen::of(&unit);
        let mut reply = LoginReply::rejected(LoginStatus::Ok);
        reply.flags = reply_flags(login, self.seen, &unit).0;
        reply.version = U16::new(VERSION);
        reply.tags.set(tags);
        reply.features.set(features.0);
        reply.credits.set(self.commands.credits());
        reply.block_shift = geometry.block_size.shift() as u8;
        reply.descriptors_max = DESCRIPTORS_MAX as u8;
        reply.blocks.set(geometry.blocks.0);
        reply.transfer_max_bytes.set(limits.transfer_max_bytes);
        reply
            .command_data_max_bytes
            .set(self.terms.command_data_max_bytes);
        reply.compare_max_bytes.set(limits.compare_max_bytes);
        reply.reply_data_max_bytes.set(limits.reply_data_max_bytes);
        reply.keep_alive_ms.set(keep_alive_ms);
        reply.hold_ms.set(self.hold_ms(login));
        reply.session = session;
        reply.volume = volume;
        self.outbox.login_reply = Some(Box::new(reply));
        Ok(())
    }

    /// Handles a message of 16 bytes other than DATA.
    pub(crate) fn on_short<B: Backend>(
        &mut self,
        kind: Kind,
        short: &Short,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        if self.stage != Stage::Ready {
            return Err(Violation::Login.into());
        }
        if short.data_bytes.get() != 0 {
            return Err(Violation::Length.into());
        }
        match kind {
            Kind::Abort => {
                let tag = Tag(short.tag.get());
                self.commands.abort(tag, short.first(), backend);
            }
            Kind::Ping => self.outbox.pong = Some(Short::pong(short)),
            Kind::Pong => {}
            Kind::Logout => {
                self.commands.close(backend);
                self.stage = Stage::Closing;
                backend.log_out();
            }
            Kind::Fault => return Err(SessionError::HostFault(short.code)),
            _ => return Err(Violation::Kind.into()),
        }
        Ok(())
    }

    /// Something has changed: the session is free, or ended, or the unit is another.
    pub(crate) fn on_wake<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        match self.stage {
            Stage::LoggingIn => self.log_in(now, backend),
            Stage::Ready => match backend.standing() {
                Standing::Good => {
                    self.commands.start_turn(now);
                    self.look_at_unit(backend);
                    Ok(())
                }
                Standing::Replaced => Err(Violation::Replaced.into()),
                Standing::Ended => {
                    self.commands.close(backend);
                    self.stage = Stage::Closing;
                    backend.log_out();
                    Ok(())
                }
            },
            Stage::Started | Stage::Closing => Ok(()),
        }
    }

    /// Notes events for what the host does not know yet (BRP-24).
    fn look_at_unit<B: Backend>(&mut self, backend: &mut B) {
        let now = match backend.unit() {
            Some(unit) => Seen::of(&unit),
            None => Seen {
                is_removed: true,
                ..self.seen
            },
        };
        let before = std::mem::replace(&mut self.seen, now);
        let events = &mut self.outbox.events;
        let writable = [EventCode::ReadOnly, EventCode::Writable];
        for (has_happened, event) in [
            (now.blocks != before.blocks, EventCode::Resized),
            (
                now.is_writable != before.is_writable,
                writable[usize::from(now.is_writable)],
            ),
            (now.is_removed && !before.is_removed, EventCode::Removed),
        ] {
            if has_happened {
                *events |= 1 << event as u8;
            }
        }
        self.commands.fail_without_unit(backend);
    }

    /// When [`Self::on_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Closing => None,
            Stage::Started | Stage::LoggingIn => Some(self.login_deadline),
            Stage::Ready => {
                let silence = self.silence_max.map(|max| self.heard + max);
                self.commands
                    .poll_timeout()
                    .into_iter()
                    .chain(silence)
                    .min()
            }
        }
    }

    pub(crate) fn on_timeout<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Result<(), SessionError> {
        match self.stage {
            Stage::Closing => {}
            Stage::Started | Stage::LoggingIn => {
                if now >= self.login_deadline {
                    return Err(SessionError::LoginTimeout);
                }
            }
            Stage::Ready => {
                if self.silence_max.is_some_and(|max| now >= self.heard + max) {
                    return Err(Violation::Silence.into());
                }
                self.commands.handle_timeout(now, backend);
            }
        }
        Ok(())
    }

    /// Whether a draining runtime may close the connection. The host is notified first.
    pub(crate) fn may_close(&mut self) -> bool {
        if self.stage == Stage::Ready && self.shutdown == Shutdown::Untold {
            self.shutdown = Shutdown::Told;
            self.outbox.events |= 1 << EventCode::Shutdown as u8;
        }
        self.is_idle() && !self.wants_transmit()
    }

    /// The connection has to end for this reason. The session can go on at once on another
    /// connection (BRP-27).
    pub(crate) fn close<B: Backend>(&mut self, error: SessionError, backend: &mut B) {
        let was_ready = self.stage == Stage::Ready;
        match error {
            SessionError::Violation(violation) => self.outbox.fault = Some(violation),
            SessionError::Rejected(status) => {
                self.outbox.login_reply = Some(Box::new(LoginReply::rejected(status)));
            }
            SessionError::LoginTimeout | SessionError::HostFault(_) => {}
        }
        self.stage = Stage::Closing;
        if was_ready {
            let record = self.commands.close(backend);
            backend.detach(record);
        }
    }

    /// The connection has ended, for whatever reason.
    pub(crate) fn on_close<B: Backend>(&mut self, backend: &mut B) {
        if self.stage == Stage::Ready {
            let record = self.commands.close(backend);
            backend.detach(record);
        }
        self.stage = Stage::Closing;
    }
}
