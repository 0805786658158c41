//! What a host does with an admin queue that is set up: keep-alives in time, and events of the
//! controller.
//!
//! Read first: NVM Express Base 2.0, "Keep Alive", "Asynchronous Event Request command".

use std::time::{Duration, Instant};

use super::setup::{identify_into, namespace_facts};
use super::{
    BufferRange, Buffers, Command, CommandKey, NamespaceFacts, Outcome, SetupError, Transfer,
};
use crate::wire::identify::{DATA_BYTES, cns};
use crate::wire::log::{GetLogPage, OffsetType, RetainEvent, lid};
use crate::wire::{Cid, Nsid, Sqe, Status, opcode};

/// Keeps an association alive and learns what changes.
#[derive(Debug)]
pub struct Upkeep {
    config: UpkeepConfig,
    keep_alive: KeepAlive,
    events: Events,
    read: Read,
    /// The page of an event that came while something was read: what is read may be older than the
    /// event.
    next_page: Option<u8>,
}

/// What to keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpkeepConfig {
    /// The Keep Alive Timeout that Connect requested; zero is none.
    pub keep_alive_timeout: Duration,
    /// The namespace to watch.
    pub nsid: Nsid,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpkeepEvent {
    /// The namespace is now like this.
    Namespace(NamespaceFacts),
    /// The namespace is not there any more, or not usable.
    NamespaceGone,
    /// The discovery log changed.
    DiscoveryLog,
}

/// Why the association has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpkeepError {
    /// The controller did not answer a keep-alive within the timeout.
    #[error("the controller did not answer for {timeout:?}")]
    Silent {
        /// The keep alive timeout.
        timeout: Duration,
    },
    /// The controller refused a keep-alive.
    #[error("the controller rejected a keep-alive: {status}")]
    KeepAliveRefused {
        /// Its status.
        status: Status,
    },
}

#[derive(Debug)]
enum KeepAlive {
    Never,
    Due { at: Instant },
    InFlight { until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    Due,
    Requested,
    /// The controller takes no request for events.
    Unavailable,
}

/// What is read after an event, one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Idle,
    LogDue { page: u8 },
    Log { page: u8 },
    NamespaceDue,
    Namespace,
}

impl Upkeep {
    /// Keys that its commands use: [`super::Setup::KEY`] and those up to this less one. Each has
    /// the slot of its number as its buffer.
    pub const KEYS: u16 = 4;
    const EVENT_KEY: CommandKey = CommandKey(1);
    const KEEP_ALIVE_KEY: CommandKey = CommandKey(2);
    const READ_KEY: CommandKey = CommandKey(3);
    /// Keep-alives are sent this many times per timeout.
    const KEEP_ALIVES_PER_TIMEOUT: u32 = 3;
    /// What is read of log pages of which only the reading matters.
    const LOG_HEAD_BYTES: u32 = 512;

    /// Of an association that was set up at `now`.
    pub fn new(now: Instant, config: UpkeepConfig) -> Self {
        let mut upkeep = Self {
            config,
            keep_alive: KeepAlive::Never,
            events: Events::Due,
            read: Read::Idle,
            next_page: None,
        };
        upkeep.schedule_keep_alive(now);
        upkeep
    }

    /// The next command to submit, if any.
    pub fn poll_command(&mut self, now: Instant) -> Option<(CommandKey, Command)> {
        match self.keep_alive {
            KeepAlive::Due { at } if at <= now => {
                self.keep_alive = KeepAlive::InFlight {
                    until: now + self.config.keep_alive_timeout,
                };
                let sqe = Sqe::new(opcode::KEEP_ALIVE, Cid(0), Nsid::NONE);
                return Some((Self::KEEP_ALIVE_KEY, without_data(sqe)));
            }
            _ => {}
        }
        if self.events == Events::Due {
            self.events = Events::Requested;
            let sqe = Sqe::new(opcode::ASYNC_EVENT_REQUEST, Cid(0), Nsid::NONE);
            return Some((Self::EVENT_KEY, without_data(sqe)));
        }
        match self.read {
            Read::LogDue { page } => {
                self.read = Read::Log { page };
                Some((Self::READ_KEY, read_log(page)))
            }
            Read::NamespaceDue => {
                self.read = Read::Namespace;
                let command = identify_into(cns::NAMESPACE, self.config.nsid, Self::READ_KEY.0);
                Some((Self::READ_KEY, command))
            }
            Read::Idle | Read::Log { .. } | Read::Namespace => None,
        }
    }

    /// When [`poll_command`](Self::poll_command) and [`check`](Self::check) have something to do
    /// next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.keep_alive {
            KeepAlive::Never => None,
            KeepAlive::Due { at } => Some(at),
            KeepAlive::InFlight { until } => Some(until),
        }
    }

    /// Whether the controller still answers.
    pub fn check(&self, now: Instant) -> Result<(), UpkeepError> {
        match self.keep_alive {
            KeepAlive::InFlight { until } if until <= now => Err(UpkeepError::Silent {
                timeout: self.config.keep_alive_timeout,
            }),
            _ => Ok(()),
        }
    }

    /// One of its commands has ended.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        outcome: &Outcome,
        buffers: &Buffers,
    ) -> Result<Option<UpkeepEvent>, UpkeepError> {
        match outcome.key {
            Self::KEEP_ALIVE_KEY if !outcome.status.is_success() => {
                Err(UpkeepError::KeepAliveRefused {
                    status: outcome.status,
                })
            }
            Self::KEEP_ALIVE_KEY => {
                self.schedule_keep_alive(now);
                Ok(None)
            }
            Self::EVENT_KEY => Ok(self.on_event(outcome)),
            _ => Ok(self.on_read(outcome, buffers)),
        }
    }

    fn schedule_keep_alive(&mut self, now: Instant) {
        let timeout = self.config.keep_alive_timeout;
        self.keep_alive = if timeout.is_zero() {
            KeepAlive::Never
        } else {
            KeepAlive::Due {
                at: now + timeout / Self::KEEP_ALIVES_PER_TIMEOUT,
            }
        };
    }

    /// DW0: type in bits 2:0, information in bits 15:8, log page in bits 23:16.
    fn on_event(&mut self, outcome: &Outcome) -> Option<UpkeepEvent> {
        if !outcome.status.is_success() {
            self.events = Events::Unavailable;
            return None;
        }
        self.events = Events::Due;
        let page = (outcome.dw0() >> 16) as u8;
        if page == lid::DISCOVERY {
            return Some(UpkeepEvent::DiscoveryLog);
        }
        if self.read == Read::Idle {
            self.read = Read::LogDue { page };
        } else {
            self.next_page = Some(page);
        }
        None
    }

    fn after_read(&mut self) -> Read {
        match self.next_page.take() {
            Some(page) => Read::LogDue { page },
            None => Read::Idle,
        }
    }

    fn on_read(&mut self, outcome: &Outcome, buffers: &Buffers) -> Option<UpkeepEvent> {
        match self.read {
            Read::Log {
                page: lid::CHANGED_NAMESPACES,
            } => {
                self.read = Read::NamespaceDue;
                None
            }
            Read::Namespace => {
                self.read = self.after_read();
                let buffer = buffers.slot(Self::READ_KEY.0);
                let facts = if outcome.status.is_success() {
                    namespace_facts(self.config.nsid, buffer)
                } else {
                    Err(SetupError::NoNamespace {
                        nsid: self.config.nsid,
                    })
                };
                Some(facts.map_or(UpkeepEvent::NamespaceGone, UpkeepEvent::Namespace))
            }
            _ => {
                self.read = self.after_read();
                None
            }
        }
    }
}

/// Reads a log page so that its event may be reported again.
fn read_log(page: u8) -> Command {
    let len_bytes = if page == lid::CHANGED_NAMESPACES {
        DATA_BYTES as u32
    } else {
        Upkeep::LOG_HEAD_BYTES
    };
    let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, Cid(0), Nsid::ALL);
    GetLogPage {
        page,
        specific: 0,
        event: RetainEvent::Clear,
        len_bytes: u64::from(len_bytes),
        offset_bytes: 0,
        offset_type: OffsetType::Bytes,
    }
    .apply(&mut sqe);
    Command {
        sqe,
        transfer: Transfer::ToHost(BufferRange::first(Upkeep::READ_KEY.0, len_bytes)),
    }
}

fn without_data(sqe: Sqe) -> Command {
    Command {
        sqe,
        transfer: Transfer::None,
    }
}

#[cfg(test)]
mod tests;
