//! The full feature phase of one connection: what it consists of, what ends it, and when it has to
//! be called.
//!
//! Read first: RFC 7143 §4.2 (sessions, numbering).

use std::collections::VecDeque;
use std::time::Instant;

use scsi::{HeldCompletions, Workload};

use super::ending::Ending;
use super::reply::{Numbering, Replies, ReplyHeader};
use super::task::{Progress, Task};
use super::tasks::Tasks;
use super::window::SessionWindow;
use crate::backend::{Backend, Completed, LoggedIn, SessionKind};
use crate::params::Parameters;
use crate::peer::{GAP_TIMEOUT, PING_AFTER, PING_TIMEOUT, PeerError};
use crate::window::order::WideCmdSn;
use crate::wire::command::TaskManagementRequest;
use crate::wire::{BHS_LEN, NO_TASK_TAG, response};

/// The Target Transfer Tag of the target's own NOP-Ins.
pub(super) const PING_TAG: u32 = 2;

/// A connection in full feature phase, whatever the transport.
///
/// The transport cuts PDUs out of its input and passes them on:
/// [`handle_header`](Self::handle_header) says where the data of a PDU go,
/// [`handle_data`](Self::handle_data) takes data-out in order and in any pieces, and
/// [`finish_pdu`](Self::finish_pdu) takes the end of the PDU. The transport sends what is in
/// `replies`, then the tasks that are ready, and calls [`retire_ready`](Self::retire_ready) after a
/// task's response.
pub(crate) struct FullFeature {
    pub(super) initiator: String,
    /// TargetName; `None` in a discovery session.
    pub(super) target: Option<String>,
    pub(super) kind: SessionKind,
    pub(crate) parameters: Parameters,
    pub(super) cid: u16,
    pub(crate) tasks: Tasks,
    pub(crate) replies: Replies,
    /// The rest of a text that is longer than one response.
    pub(super) text_left: Vec<u8>,
    pub(super) held: HeldCompletions,
    pub(super) workload: Workload,
    /// Replies that wait until what they ended on other connections is over.
    pub(super) fenced: VecDeque<FencedReply>,
    /// The missing number that keeps other commands waiting, and since when.
    gap: Option<(WideCmdSn, Instant)>,
    pub(super) liveness: Liveness,
    pub(super) ending: Ending,
}

/// A reply to a request that is done on its own connection.
pub(super) struct FencedReply {
    pub(super) fence: u64,
    pub(super) kind: FencedKind,
}

/// The request that a fenced reply answers.
pub(super) enum FencedKind {
    /// Task management, with its response; `None` if that depends on other connections.
    Management(TaskManagementRequest, Option<u8>),
    /// A logout, with the header of its response and whether it closes this connection.
    Logout([u8; BHS_LEN], bool),
}

/// Whether the initiator is known to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// Its last PDU arrived then.
    Heard(Instant),
    /// It was sent a NOP-In then, which it has not answered.
    Pinged(Instant),
}

impl FullFeature {
    /// The phase that follows a login which was done at `now`.
    pub(super) fn new<B: Backend>(
        logged_in: LoggedIn,
        replies: Replies,
        window: SessionWindow,
        now: Instant,
        backend: &mut B,
    ) -> Self {
        Self {
            initiator: logged_in.initiator,
            target: logged_in.target,
            kind: logged_in.kind,
            parameters: logged_in.parameters,
            cid: logged_in.cid,
            tasks: Tasks::new(window, backend.connection()),
            replies,
            text_left: Vec::new(),
            held: HeldCompletions::default(),
            workload: Workload::default(),
            fenced: VecDeque::new(),
            gap: None,
            liveness: Liveness::Heard(now),
            ending: Ending::Open,
        }
    }

    /// InitiatorName.
    pub(crate) fn initiator(&self) -> &str {
        &self.initiator
    }

    /// ExpCmdSN and MaxCmdSN.
    #[inline]
    pub(crate) fn numbers<B: Backend>(&self, backend: &mut B) -> (u32, u32) {
        self.tasks.window.numbers(backend)
    }

    /// Input has arrived: a time slice begins.
    #[inline]
    pub(crate) fn start_turn<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.workload.start_turn(now);
        self.check_session_state(now, backend);
    }

    /// Input has arrived that may be one of many at the same instant.
    #[inline]
    pub(crate) fn continue_turn<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        self.workload.continue_turn(now);
        self.check_session_state(now, backend);
    }

    /// At the end of each call: wakes the session's other connections, and notes whether a command
    /// is missing.
    #[inline]
    pub(crate) fn end_turn<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        if let Some(cid) = self.tasks.window.next_elsewhere(backend) {
            backend.wake_other(cid);
        }
        if self.tasks.has_early() || self.gap.is_some() {
            let since = |cmd_sn| match self.gap {
                Some((same, since)) if same == cmd_sn => (cmd_sn, since),
                _ => (cmd_sn, now),
            };
            self.gap = self.tasks.gap(backend).map(since);
        }
    }

    /// Whether PDUs are still taken.
    #[inline]
    pub(crate) fn takes_input(&self) -> bool {
        let is_served = matches!(self.ending, Ending::Open | Ending::LogoutRequested(_));
        is_served && !self.replies.is_finished()
    }

    /// Whether the connection is to be closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.ending == Ending::Closed || self.replies.is_finished()
    }

    /// Closes the connection: nothing more is sent.
    pub(crate) fn close(&mut self) {
        self.ending = Ending::Closed;
    }

    /// Whether no command is being executed and no reply waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
            && self.replies.is_empty()
            && self.fenced.is_empty()
            && self.workload.is_empty()
    }

    /// The instant at which [`handle_timeout`](Self::handle_timeout) is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let liveness = match self.liveness {
            Liveness::Pinged(since) => since + PING_TIMEOUT,
            Liveness::Heard(at) => at + PING_AFTER,
        };
        let ending = match self.ending {
            Ending::LogoutRequested(by) | Ending::Dropped(by) => Some(by),
            Ending::Open | Ending::Closed => None,
        };
        let gap = self.gap.map(|(_, since)| since + GAP_TIMEOUT);
        let held = self.held.due();
        let times = [Some(liveness), held, gap, self.workload.due(), ending];
        times.into_iter().flatten().min()
    }

    /// Time has passed.
    pub(crate) fn handle_timeout<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        self.release_held(now);
        self.work_again(now, backend);
        self.check_gap(now, backend)?;
        self.check_ending(now, backend)?;
        match self.liveness {
            Liveness::Pinged(since) if now >= since + PING_TIMEOUT => Err(PeerError::PingTimeout),
            Liveness::Heard(at) if now >= at + PING_AFTER => {
                self.ping(now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The connection has ended.
    pub(crate) fn handle_close<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        // Commands of other connections that waited for one of this connection need not wait any
        // more.
        self.tasks.clear(backend);
        self.end_turn(now, backend);
        self.hand_over_sanitizing(backend);
        backend.close();
    }

    /// A PDU has arrived.
    pub(super) fn note_heard(&mut self, now: Instant) {
        if let Liveness::Heard(at) = &mut self.liveness {
            *at = now;
        }
    }

    /// Asks the initiator by NOP-In whether it is alive.
    fn ping(&mut self, now: Instant) {
        self.liveness = Liveness::Pinged(now);
        let header = ReplyHeader {
            ttt: PING_TAG,
            ..ReplyHeader::new(response::NOP_IN, NO_TASK_TAG)
        };
        let header = header.encode();
        self.replies.push(header, Vec::new(), Numbering::Peek);
    }

    fn check_gap<B: Backend>(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        let is_late = |(_, since): (WideCmdSn, Instant)| now >= since + GAP_TIMEOUT;
        if !self.gap.is_some_and(is_late) {
            return Ok(());
        }
        backend.end_others(None);
        Err(PeerError::Gap)
    }

    /// Queues the tasks whose completion was held back until now.
    fn release_held(&mut self, now: Instant) {
        while let Some((slot, generation)) = self.held.pop_due(now) {
            let Some(task) = self.tasks.get_mut(slot) else {
                continue;
            };
            if task.generation == generation && task.progress() == Progress::Held {
                task.enter(Progress::Sending);
                self.tasks.queue(slot);
            }
        }
    }

    /// The first ready task has been answered: it ends.
    pub(crate) fn retire_ready<B: Backend>(&mut self, slot: usize, backend: &mut B) {
        self.tasks.pop_ready();
        if let Some(task) = self.tasks.get(slot) {
            account(task, backend);
        }
        self.tasks.remove(slot, backend);
        self.tasks.return_room(backend);
    }
}

/// Accounts for a finished command.
fn account<B: Backend>(task: &Task, backend: &mut B) {
    if let Some(kind) = task.counted_kind() {
        backend.completed(Completed {
            lun: task.lun,
            kind,
            len_bytes: task.moved,
            ok: task.response.status == scsi::ScsiStatus::Good,
            started: task.started,
        });
    }
}
