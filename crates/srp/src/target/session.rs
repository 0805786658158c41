//! A channel, from the login on.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Instant;

use block::Completion;
use scsi::{HeldCompletions, SENSE_LEN_MAX, Workload};
use session::{MessageSession, RemoteKey, Session, WorkList};

use super::pending::{Ending, Management};
use super::tasks::Tasks;
use crate::backend::Backend;
use crate::wire::{
    ChannelFlags, CreditResponse, Login, LoginResponse, RejectReason, ResponseHeader, Tag,
    Violation, opcode,
};

/// The limits of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// The request limit: how many commands and task management requests may be in progress.
    pub requests_max: u16,
    /// RDMA READs outstanding.
    pub reads_max: u8,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            requests_max: 128,
            reads_max: 16,
        }
    }
}

impl TargetConfig {
    /// The longest message that is received, bytes: a command with 8 KiB of immediate data, which
    /// Linux's initiator places at byte 68.
    pub const RECEIVE_LEN_BYTES: u32 = (8 << 10) + 128;
    /// Receives beside one for each request: for SRP_I_LOGOUT and SRP_CRED_RSP, which the request
    /// limit does not count.
    const RECEIVES_EXTRA: u16 = 2;

    /// How many receives are posted. The transport makes initiators that send more wait (receiver
    /// not ready).
    pub const fn receives(&self) -> u16 {
        self.requests_max + Self::RECEIVES_EXTRA
    }
}

/// The longest message that is sent, bytes.
const RESPONSE_LEN_MAX_BYTES: u32 = (size_of::<ResponseHeader>() + SENSE_LEN_MAX) as u32;
const _: () = assert!(RESPONSE_LEN_MAX_BYTES >= 64);

/// How a login is accepted, before its nexus is open.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    login: Login,
    config: TargetConfig,
}

/// Checks the fields of a login that do not depend on the target.
///
/// # Errors
/// Why it is rejected.
pub fn accept(login: &Login, config: TargetConfig) -> Result<Accepted, RejectReason> {
    if login.request_len_bytes.get() > TargetConfig::RECEIVE_LEN_BYTES {
        return Err(RejectReason::RequestLength);
    }
    if !login.has_known_formats() {
        return Err(RejectReason::Formats);
    }
    Ok(Accepted {
        login: *login,
        config,
    })
}

impl Accepted {
    /// The answer. `others` are the channels that the nexus had: `None` if it had none, otherwise
    /// whether they go on.
    pub fn response(&self, others: Option<bool>) -> LoginResponse {
        let others = match others {
            None => 0,
            Some(false) => ChannelFlags::ENDED,
            Some(true) => ChannelFlags::MAINTAINED,
        };
        let immediate = self.login.immediate_offset();
        let immediate = immediate.map_or(0, |_| ChannelFlags::IMMEDIATE);
        let lens = [TargetConfig::RECEIVE_LEN_BYTES, RESPONSE_LEN_MAX_BYTES];
        let limit = self.config.requests_max;
        LoginResponse::new(&self.login, limit, lens, others | immediate)
    }
}

/// The target's end of one channel.
pub struct TargetSession<B> {
    /// Where immediate data begin in a message, if the initiator sends any.
    pub(super) immediate_offset: Option<u16>,
    pub(super) tasks: Tasks,
    pub(super) workload: Workload,
    pub(super) held: HeldCompletions,
    /// Task management whose effects are not over.
    pub(super) managements: VecDeque<Management>,
    /// Task management that is to be answered.
    pub(super) answers: VecDeque<Management>,
    pub(super) ending: Ending,
    /// An SRP_CRED_REQ is unanswered.
    pub(super) awaits_credit_response: bool,
    /// The number of what the login ended on other channels, until that is over: commands start
    /// after it.
    fence: Option<u64>,
    pub(super) requests_max: usize,
    backend: PhantomData<fn(&mut B)>,
}

impl<B: Backend> TargetSession<B> {
    /// The channel of a login that was accepted. It starts no command before that of a nexus which
    /// the login has ended are over on other threads.
    pub fn new(accepted: &Accepted, backend: &mut B) -> Self {
        let requests_max = accepted.config.requests_max;
        Self {
            immediate_offset: accepted.login.immediate_offset(),
            tasks: Tasks::new(requests_max, backend.connection()),
            workload: Workload::default(),
            held: HeldCompletions::default(),
            managements: VecDeque::new(),
            answers: VecDeque::new(),
            ending: Ending::Open,
            awaits_credit_response: false,
            fence: Some(backend.fence()),
            requests_max: usize::from(requests_max),
            backend: PhantomData,
        }
    }

    /// Whether another request may be in progress.
    pub(super) fn check_limit(&self) -> Result<(), Violation> {
        let managements = self.managements.len() + self.answers.len();
        if self.tasks.len() + managements < self.requests_max {
            Ok(())
        } else {
            Err(Violation::RequestLimit)
        }
    }

    /// Whether commands of a nexus that the login has ended may still be executed.
    pub(super) fn is_fenced(&mut self, backend: &mut B) -> bool {
        self.fence.take_if(|fence| backend.is_past(*fence));
        self.fence.is_some()
    }

    /// Whether no request in progress has this tag.
    pub(super) fn check_tag(&self, tag: Tag) -> Result<(), Violation> {
        let mut managements = self.managements.iter().chain(&self.answers);
        if managements.any(|other| other.tag == tag) || self.tasks.find(tag).is_some() {
            return Err(Violation::TagInUse);
        }
        Ok(())
    }

    /// Whether requests are to be returned by SRP_CRED_REQ: another channel of the nexus has
    /// aborted them, and no response is going to return them.
    pub(super) fn owes_credits(&self) -> bool {
        self.tasks.owed > 0
            && self.ending == Ending::Open
            && !self.awaits_credit_response
            && !self.tasks.has_ready()
            && self.answers.is_empty()
            && self.managements.is_empty()
    }

    fn take_message(
        &mut self,
        now: Instant,
        message: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        match message.first() {
            Some(&opcode::CMD) => self.on_command(now, message, backend),
            Some(&opcode::TSK_MGMT) => self.on_management(message, backend),
            Some(&opcode::CRED_RSP) if self.awaits_credit_response => {
                CreditResponse::parse(message)?;
                self.awaits_credit_response = false;
                Ok(())
            }
            Some(&opcode::I_LOGOUT) => {
                self.close();
                Ok(())
            }
            Some(&other) => Err(Violation::Opcode(other)),
            None => Err(Violation::Length(0)),
        }
    }

    /// Input has arrived that may be one of many at the same instant.
    fn start_turn(&mut self, now: Instant, backend: &mut B) {
        self.workload.continue_turn(now);
        self.check_standing(now, backend);
    }

    fn end_turn(&mut self, now: Instant, backend: &mut B) {
        self.start_unblocked(now, backend);
        self.answer_managements(backend);
        self.log_out_if_idle();
    }
}

impl<B: Backend> MessageSession for TargetSession<B> {
    fn handle_message(
        &mut self,
        now: Instant,
        message: &[u8],
        _: Option<RemoteKey>,
        backend: &mut B,
    ) -> Result<(), Violation> {
        self.start_turn(now, backend);
        if self.ending == Ending::Open {
            self.take_message(now, message, backend)?;
        }
        self.end_turn(now, backend);
        Ok(())
    }

    fn handle_read(
        &mut self,
        now: Instant,
        tag: u64,
        data: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        self.start_turn(now, backend);
        if let Ok(slot) = usize::try_from(tag) {
            self.on_read(slot, data, now, backend)?;
        }
        self.end_turn(now, backend);
        Ok(())
    }

    fn poll_transmit(&mut self, now: Instant, backend: &mut B, out: &mut dyn WorkList) {
        self.check_standing(now, backend);
        // Responses let blocked commands start, and a channel that drains log out. Each round
        // answers what is ready, or starts blocked commands, of which there are few.
        while self.transmit(backend, out) {
            self.end_turn(now, backend);
            if !self.wants_transmit() {
                return;
            }
        }
        self.end_turn(now, backend);
    }
}

impl<B: Backend> Session for TargetSession<B> {
    type Backend = B;
    type Error = Violation;

    fn wants_transmit(&self) -> bool {
        match self.ending {
            Ending::Open | Ending::Draining(_) => {
                self.tasks.has_ready() || !self.answers.is_empty() || self.owes_credits()
            }
            Ending::Logout => true,
            Ending::Closed => false,
        }
    }

    fn is_idle(&self) -> bool {
        let has_work = !self.tasks.is_empty() || !self.workload.is_empty();
        !has_work && self.managements.is_empty() && !self.wants_transmit()
    }

    fn is_closing(&self) -> bool {
        self.ending == Ending::Closed
    }

    fn handle_wake(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.workload.continue_turn(now);
        self.take_aborts(backend);
        self.release_reservations(backend);
        self.fail_without_unit(now, backend);
        self.check_standing(now, backend);
        self.end_turn(now, backend);
        Ok(())
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Result<(), Violation> {
        self.start_turn(now, backend);
        self.on_completion(now, completion, backend);
        self.end_turn(now, backend);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let draining = match self.ending {
            Ending::Draining(until) => Some(until),
            _ => None,
        };
        let times = [self.held.due(), self.workload.due(), draining];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.release_held(now);
        self.work_again(now, backend);
        self.check_draining(now);
        self.end_turn(now, backend);
        Ok(())
    }

    fn handle_close(&mut self, _: Instant, backend: &mut B) {
        self.close();
        self.hand_over_sanitizing(backend);
        backend.close();
    }
}
