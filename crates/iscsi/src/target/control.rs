//! Everything but SCSI commands: login, text, task management, NOP, logout, reject.
//!
//! Read first: RFC 7143 §11.5, §11.10, §11.12, §11.14, §11.17, §11.18.

use std::time::Instant;

use scsi::{Lun, Response, ScsiStatus};
use session::SendList;
use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use crate::backend::{Abort, AbortScope, Backend, Standing, TargetAddress, TargetRecord};
use crate::login::{LoginStatus, SessionKind};
use crate::params::{Digest, Phase};
use crate::target::command::is_plausible;
use crate::target::task::{Held, Progress, Task, Work};
use crate::tcp::session::{Connection, DROP_TIMEOUT, Full, PeerError, Stage};
use crate::tcp::transmit::{push_header, push_segment};
use crate::text::{self, TextBuilder};
use crate::window::Arrival;
use crate::window::order::Attribute;
use crate::wire::command::{TaskManagementRequest, function, function_response};
use crate::wire::login::{CONTINUE, LoginRequest, LogoutRequest, TextRequest};
use crate::wire::other::{NopOut, event, reason};
use crate::wire::{BHS_LEN, Bhs, FINAL, NO_TASK_TAG, U24, parse_lun, request, response, sn_before};

/// The only value of TTT that text continuations carry: one negotiation goes on at a time.
const TEXT_TAG: u32 = 1;
/// TTT of the target's own pings.
const PING_TAG: u32 = 2;
/// The longest ping data that are returned.
const PING_LEN_MAX: usize = 4096;

/// What happens to StatSN when a reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    /// It carries status: StatSN goes on.
    Status,
    /// It shows the next StatSN.
    Peek,
}

/// A PDU that waits to be sent. StatSN, ExpCmdSN and MaxCmdSN are filled in when it is.
pub(crate) struct Reply {
    header: [u8; BHS_LEN],
    segment: Vec<u8>,
    numbering: Numbering,
    header_digest: Digest,
    data_digest: Digest,
    /// The connection ends once this was sent.
    last: bool,
}

impl Reply {
    /// Bytes of header and data.
    pub(crate) fn len(&self) -> usize {
        BHS_LEN + self.segment.len()
    }

    /// The header and the data segment.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.header, &self.segment]
    }
}

/// Task management that has been done on its own connection.
pub(crate) struct Managing {
    ask: TaskManagementRequest,
    /// The answer; `None` where it depends on other connections.
    answer: Option<u8>,
}

/// The fields of a target's header that differ from one reply to another; all others are zero.
struct Head {
    opcode: u8,
    flags: u8,
    byte_2: u8,
    byte_3: u8,
    lun: [u8; 8],
    itt: u32,
    ttt: u32,
}

impl Head {
    fn new(opcode: u8, itt: u32) -> Self {
        Self {
            opcode,
            flags: FINAL,
            byte_2: 0,
            byte_3: 0,
            lun: [0; 8],
            itt,
            ttt: 0,
        }
    }

    fn encode(&self, segment_len: usize) -> [u8; BHS_LEN] {
        let mut header = [0; BHS_LEN];
        header[..4].copy_from_slice(&[self.opcode, self.flags, self.byte_2, self.byte_3]);
        header[5..8].copy_from_slice(U24::new(segment_len as u32).as_bytes());
        header[8..16].copy_from_slice(&self.lun);
        header[16..20].copy_from_slice(&self.itt.to_be_bytes());
        header[20..24].copy_from_slice(&self.ttt.to_be_bytes());
        header
    }
}

impl<B: Backend> Connection<B> {
    fn queue_reply(&mut self, head: &Head, segment: Vec<u8>, numbering: Numbering) {
        let header = head.encode(segment.len());
        self.queue_header(header, segment, numbering);
    }

    fn queue_header(&mut self, header: [u8; BHS_LEN], segment: Vec<u8>, numbering: Numbering) {
        self.replies.push_back(Reply {
            header,
            segment,
            numbering,
            header_digest: self.header_digest(),
            data_digest: self.data_digest(),
            last: false,
        });
    }

    /// The reply that was queued last is the connection's last.
    fn close_after_last_reply(&mut self) {
        if let Some(reply) = self.replies.back_mut() {
            reply.last = true;
        }
    }

    pub(crate) fn send_reply(&mut self, mut reply: Reply, _: Digest, out: &mut SendList) {
        self.number_reply(&mut reply);
        push_header(&reply.header, reply.header_digest, out);
        push_segment(&reply.segment, reply.data_digest, out);
    }

    /// Gives a reply that is about to be sent its numbers.
    pub(crate) fn number_reply(&mut self, reply: &mut Reply) {
        let (exp, max) = self.numbers();
        let numbers = [self.stat_sn, exp, max];
        for (i, number) in numbers.into_iter().enumerate() {
            reply.header[24 + 4 * i..28 + 4 * i].copy_from_slice(&number.to_be_bytes());
        }
        if reply.numbering == Numbering::Status {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        self.closing |= reply.last;
    }

    /// Rejects the current PDU: its header goes back.
    pub(crate) fn reject(&mut self, reason: u8) {
        let head = Head {
            byte_2: reason,
            ..Head::new(response::REJECT, NO_TASK_TAG)
        };
        let segment = self.bhs.as_bytes().to_vec();
        self.queue_reply(&head, segment, Numbering::Status);
    }

    /// Asks the initiator whether it is there.
    pub(crate) fn ping(&mut self, now: Instant) {
        self.pinged = Some(now);
        let head = Head {
            ttt: PING_TAG,
            ..Head::new(response::NOP_IN, NO_TASK_TAG)
        };
        self.queue_reply(&head, Vec::new(), Numbering::Peek);
    }

    /// A PDU that is not a SCSI command is whole.
    pub(crate) fn control(&mut self, backend: &mut B) {
        if self.bhs.opcode() == request::LOGIN {
            self.on_login(backend);
        } else if self.takes_turn() {
            self.serve(backend);
        }
    }

    /// A request's turn has come that waited. The PDU that is being received stands aside meanwhile.
    pub(crate) fn take_up(&mut self, bhs: Bhs, segment: Vec<u8>, backend: &mut B) {
        let receiving = std::mem::replace(&mut self.bhs, bhs);
        let received = std::mem::replace(&mut self.segment, segment);
        self.serve(backend);
        (self.bhs, self.segment) = (receiving, received);
    }

    fn serve(&mut self, backend: &mut B) {
        match self.bhs.opcode() {
            request::NOP_OUT => self.on_nop_out(),
            request::TASK_MANAGEMENT => self.on_task_management(backend),
            request::TEXT => self.on_text(backend),
            request::LOGOUT => self.on_logout(backend),
            request::SNACK => self.reject(reason::SNACK),
            _ => self.reject(reason::NOT_SUPPORTED),
        }
    }

    /// Checks CmdSN, which these requests carry at the same place; false where the PDU is to be ignored, or waits for
    /// those before it.
    fn takes_turn(&mut self) -> bool {
        let cmd_sn = u32::from_be_bytes([
            self.bhs.specific_20[4],
            self.bhs.specific_20[5],
            self.bhs.specific_20[6],
            self.bhs.specific_20[7],
        ]);
        let numbered = matches!(
            self.bhs.opcode(),
            request::NOP_OUT | request::TASK_MANAGEMENT | request::TEXT | request::LOGOUT
        );
        if !numbered {
            return true;
        }
        let Stage::Full(full) = &mut self.stage else {
            return false;
        };
        if self.bhs.is_immediate() {
            let (exp, _) = full.tasks.numbers();
            return is_plausible(cmd_sn, exp.wrapping_add(1 << 16));
        }
        match full.tasks.arrive(cmd_sn, Attribute::Control, 0) {
            Arrival::Now => true,
            Arrival::Ignored | Arrival::Aborted => false,
            Arrival::Held(place) => {
                let mut segment = std::mem::take(&mut self.segment);
                // Pings are answered with no more; a question of that length is none that is known.
                segment.truncate(PING_LEN_MAX);
                full.tasks
                    .hold(place, Held::Control(Box::new(self.bhs), segment));
                false
            }
        }
    }

    fn on_login(&mut self, backend: &mut B) {
        let request: LoginRequest = *self.bhs.cast();
        let Stage::Login(login) = &mut self.stage else {
            return;
        };
        let reply = login.handle(&request, &self.segment, backend);
        self.login_cmd_sn = request.cmd_sn.get();
        let mut header = [0; BHS_LEN];
        header[0] = response::LOGIN;
        header[1] = reply.flags;
        header[5..8].copy_from_slice(U24::new(reply.text.len() as u32).as_bytes());
        header[8..14].copy_from_slice(&request.isid);
        header[14..16].copy_from_slice(&reply.tsih.to_be_bytes());
        header[16..20].copy_from_slice(request.itt.as_bytes());
        header[36..38].copy_from_slice(&[reply.status.0, reply.status.1]);
        // Failures carry no StatSN that counts, but the connection ends anyway.
        self.queue_header(header, reply.text, Numbering::Status);
        if reply.status != LoginStatus::SUCCESS {
            self.close_after_last_reply();
        }
        if reply.done {
            let Stage::Login(login) = &mut self.stage else {
                return;
            };
            let login = std::mem::take(login.as_mut());
            if let Some(logged_in) = login.logged_in() {
                backend.logged_in(&logged_in);
                self.enter_full_feature(logged_in, backend.connection());
            }
        }
    }

    fn on_nop_out(&mut self) {
        let nop: NopOut = *self.bhs.cast();
        if nop.ttt.get() == PING_TAG {
            self.pinged = None;
        }
        if nop.itt.get() != NO_TASK_TAG {
            let max = self
                .parameters()
                .map_or(0, |p| p.send_segment_len_max as usize);
            let mut data = std::mem::take(&mut self.segment);
            data.truncate(PING_LEN_MAX.min(max));
            let head = Head {
                ttt: NO_TASK_TAG,
                lun: nop.lun,
                ..Head::new(response::NOP_IN, nop.itt.get())
            };
            self.queue_reply(&head, data, Numbering::Status);
        }
    }

    fn on_logout(&mut self, backend: &mut B) {
        const CLOSED: u8 = 0;
        const NO_CID: u8 = 1;
        const NO_RECOVERY: u8 = 2;
        let logout: LogoutRequest = *self.bhs.cast();
        let Stage::Full(full) = &self.stage else {
            return;
        };
        let mut end_others = |cid| {
            let opened = full.opened();
            opened.map_or(0, |opened| backend.end_others(opened, cid))
        };
        // Whether this connection is among those that close.
        let (answer, is_own) = match logout.reason & 0x7F {
            0 => {
                end_others(None);
                (CLOSED, true)
            }
            1 if logout.cid == U16::new(full.cid) => (CLOSED, true),
            1 if end_others(Some(logout.cid.get())) > 0 => (CLOSED, false),
            1 => (NO_CID, false),
            _ => (NO_RECOVERY, false),
        };
        let (wait, retain) = (full.parameters.time2wait_s, full.parameters.time2retain_s);
        let head = Head {
            byte_2: answer,
            ..Head::new(response::LOGOUT, logout.itt.get())
        };
        let mut header = head.encode(0);
        header[40..42].copy_from_slice(&(wait as u16).to_be_bytes());
        header[42..44].copy_from_slice(&(retain as u16).to_be_bytes());
        self.queue_header(header, Vec::new(), Numbering::Status);
        if is_own {
            self.close_after_last_reply();
        }
    }

    fn on_text(&mut self, backend: &mut B) {
        let request: TextRequest = *self.bhs.cast();
        let segment = std::mem::take(&mut self.segment);
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        if request.flags & CONTINUE != 0 {
            // A question that does not fit one PDU is none that this target knows.
            self.reject(reason::PROTOCOL_ERROR);
            return;
        }
        let text = if request.ttt.get() == NO_TASK_TAG {
            let Some(text) = answer_text(full, &segment, backend) else {
                self.reject(reason::PROTOCOL_ERROR);
                return;
            };
            text
        } else if request.ttt.get() == TEXT_TAG && !full.text_left.is_empty() {
            std::mem::take(&mut full.text_left)
        } else {
            self.reject(reason::PROTOCOL_ERROR);
            return;
        };
        self.send_text(request.itt.get(), text);
    }

    /// Sends as much of a text as the initiator takes in one PDU; the rest waits for its next request.
    fn send_text(&mut self, itt: u32, mut text: Vec<u8>) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let max = full.parameters.send_segment_len_max as usize;
        let mut head = Head {
            ttt: NO_TASK_TAG,
            ..Head::new(response::TEXT, itt)
        };
        if text.len() > max {
            full.text_left = text.split_off(max);
            head.flags = CONTINUE;
            head.ttt = TEXT_TAG;
        }
        self.queue_reply(&head, text, Numbering::Status);
    }

    fn on_task_management(&mut self, backend: &mut B) {
        let ask: TaskManagementRequest = *self.bhs.cast();
        let answer = self.manage(&ask, backend);
        self.managing.push_back(Managing { ask, answer });
        self.answer_management(backend);
    }

    /// Answers task management once the commands that it is about have ended on other connections too
    /// (RFC 7143 §4.2.3.3).
    fn answer_management(&mut self, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let is_done = full
            .opened()
            .is_none_or(|opened| backend.aborts_done(opened));
        if !is_done {
            return;
        }
        while let Some(Managing { ask, answer }) = self.managing.pop_front() {
            let answer = answer.unwrap_or_else(|| self.find_elsewhere(&ask));
            let head = Head {
                byte_2: answer,
                ..Head::new(response::TASK_MANAGEMENT, ask.itt.get())
            };
            self.queue_reply(&head, Vec::new(), Numbering::Status);
        }
    }

    /// What came of a task that is to be aborted and is not on this connection. One that has not come at all, but whose
    /// number may still come, is done with when its number is taken (RFC 7143 §11.6.1).
    fn find_elsewhere(&mut self, ask: &TaskManagementRequest) -> u8 {
        let Stage::Full(full) = &mut self.stage else {
            return function_response::NO_TASK;
        };
        let ref_cmd_sn = ask.ref_cmd_sn.get();
        let was_found = full.tasks.take_aborted(ask.referenced_task_tag.get())
            || sn_before(ref_cmd_sn, ask.cmd_sn.get()) && full.tasks.abort_ahead(ref_cmd_sn);
        if was_found {
            function_response::COMPLETE
        } else {
            function_response::NO_TASK
        }
    }

    /// Does what task management asks for; the answer, where it does not depend on other connections.
    fn manage(&mut self, ask: &TaskManagementRequest, backend: &mut B) -> Option<u8> {
        let Stage::Full(full) = &mut self.stage else {
            return Some(function_response::REJECTED);
        };
        let Some(opened) = full.opened() else {
            return Some(function_response::REJECTED);
        };
        let nexus = opened.nexus;
        let lun = parse_lun(ask.lun);
        let known = lun.filter(|lun| backend.view(nexus, *lun).is_some());
        let before = ask.cmd_sn.get();
        // What came on this connection came before, unless the request itself had to wait.
        let own_before = (!self.bhs.is_immediate()).then_some(before);
        let mut abort = |backend: &mut B, scope| {
            full.abort(scope, own_before);
            full.tasks.condemn(before, scope);
            backend.abort_on_others(opened, scope, before);
        };
        let function = ask.function & 0x7F;
        match (function, known) {
            (function::ABORT_TASK, _) => {
                let tag = ask.referenced_task_tag.get();
                let Some(slot) = full.tasks.find(tag) else {
                    backend.abort_on_others(opened, AbortScope::Task(tag), before);
                    return None;
                };
                full.tasks.remove(slot);
            }
            (
                function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LOGICAL_UNIT_RESET,
                None,
            ) => return Some(function_response::NO_LUN),
            (function::ABORT_TASK_SET, Some(lun)) => abort(backend, AbortScope::Lun(lun)),
            (function::CLEAR_TASK_SET, Some(lun)) => {
                abort(backend, AbortScope::Lun(lun));
                backend.with_device(|device| device.clear_task_set(nexus, lun));
            }
            (function::LOGICAL_UNIT_RESET, Some(lun)) => {
                abort(backend, AbortScope::Lun(lun));
                backend.with_device(|device| device.reset_unit(nexus, lun));
            }
            (function::TARGET_WARM_RESET | function::TARGET_COLD_RESET, _) => {
                abort(backend, AbortScope::All);
                backend.with_device(|device| device.reset_all(nexus));
            }
            (function::TASK_REASSIGN, _) => return Some(function_response::NO_REASSIGN),
            _ => return Some(function_response::NOT_SUPPORTED),
        }
        Some(function_response::COMPLETE)
    }

    /// Shared state changed: commands of ours were aborted by another nexus, or the session is to end.
    pub(crate) fn on_wake(&mut self, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(opened) = full.opened() else { return };
        for abort in backend.take_aborts(opened) {
            match abort {
                Abort::ByAnother(lun) => full.answer_aborted(lun),
                Abort::ByOwn { scope, before } => full.abort_for_another(scope, before),
            }
        }
        full.release_saved(backend);
        full.fail_without_unit(opened.nexus, backend);
        self.end_sanitizing_without_unit(now);
        self.look_at_standing(now, backend);
        self.begin_held(now, backend);
        self.answer_management(backend);
    }

    /// Looks whether the session was ended from outside. Where it was, nothing more is executed or answered, since an
    /// answer that the end of the nexus has spoiled would be taken for the medium's.
    pub(crate) fn look_at_standing(&mut self, now: Instant, backend: &mut B) {
        let Stage::Full(full) = &mut self.stage else {
            return;
        };
        let Some(opened) = full.opened() else { return };
        let (cid, parameters) = (full.cid, &full.parameters);
        let retain = (
            parameters.time2wait_s as u16,
            parameters.time2retain_s as u16,
        );
        match backend.standing(opened) {
            Standing::Good => {}
            Standing::Leaving(_) if self.leave_by.is_some() => {}
            Standing::Leaving(within) => {
                self.leave_by = Some(now + within);
                let within_s = within.as_secs().clamp(1, u64::from(u16::MAX));
                self.queue_async(event::LOGOUT_REQUEST, [0, 0, within_s as u16]);
            }
            Standing::SessionDropped => self.drop_out(now, event::SESSION_DROP, 0, retain),
            Standing::ConnectionDropped => self.drop_out(now, event::CONNECTION_DROP, cid, retain),
            Standing::Ended => {
                self.forget_all();
                self.closing = true;
            }
        }
    }

    /// Tells that the connection is dropped, and closes it once that is sent.
    fn drop_out(&mut self, now: Instant, event: u8, cid: u16, (wait, retain): (u16, u16)) {
        if self.is_dropped {
            return;
        }
        self.is_dropped = true;
        self.forget_all();
        self.leave_by = Some(now + DROP_TIMEOUT);
        self.queue_async(event, [cid, wait, retain]);
        self.close_after_last_reply();
    }

    fn forget_all(&mut self) {
        self.with_full(|full| full.tasks.clear());
        self.replies.clear();
        self.due.clear();
        self.managing.clear();
    }

    /// An Asynchronous Message with its three parameters (RFC 7143 §11.9).
    fn queue_async(&mut self, event: u8, parameters: [u16; 3]) {
        let mut header = Head::new(response::ASYNC, NO_TASK_TAG).encode(0);
        header[36] = event;
        for (i, parameter) in parameters.into_iter().enumerate() {
            header[38 + 2 * i..40 + 2 * i].copy_from_slice(&parameter.to_be_bytes());
        }
        self.queue_header(header, Vec::new(), Numbering::Status);
    }

    /// The time has come by which the initiator was to have left.
    pub(crate) fn check_leaving(&mut self, now: Instant, backend: &mut B) -> Result<(), PeerError> {
        if self.leave_by.is_none_or(|by| now < by) {
            return Ok(());
        }
        if self.is_dropped {
            return Err(PeerError::DropUnread);
        }
        self.leave_by = None;
        if let Stage::Full(full) = &self.stage
            && let Some(opened) = full.opened()
        {
            backend.drop_session(opened);
        }
        self.look_at_standing(now, backend);
        Ok(())
    }
}

impl Full {
    /// Ends tasks without a response, as their own initiator asked; where a number is given, not those that came after
    /// it.
    fn abort(&mut self, scope: AbortScope, before: Option<u32>) {
        for slot in self.in_scope(scope) {
            let is_later = |task: &Task| {
                let is_before = before.is_none_or(|before| sn_before(task.cmd_sn, before));
                task.windowed.is_some() && !is_before
            };
            if !self.tasks.get(slot).is_some_and(is_later) {
                self.tasks.remove(slot);
            }
        }
    }

    /// Does what another connection of the session asks for.
    fn abort_for_another(&mut self, scope: AbortScope, before: u32) {
        if let AbortScope::Task(tag) = scope
            && let Some(slot) = self.tasks.find(tag)
        {
            self.tasks.remove(slot);
            self.tasks.note_aborted(tag);
        } else {
            self.abort(scope, Some(before));
        }
    }

    fn in_scope(&self, scope: AbortScope) -> Vec<usize> {
        match scope {
            AbortScope::All => self.tasks.of_lun(None),
            AbortScope::Lun(lun) => self.tasks.of_lun(Some(lun)),
            AbortScope::Task(tag) => self.tasks.find(tag).into_iter().collect(),
        }
    }

    /// Ends the tasks of a LUN because of another nexus: each is answered with TASK ABORTED (TAS is 1).
    fn answer_aborted(&mut self, lun: Lun) {
        for slot in self.tasks.of_lun(Some(lun)) {
            self.tasks.withdraw(slot);
            if let Some(task) = self.tasks.get_mut(slot) {
                task.work = Work::None;
                task.unsaved = None;
                task.enter(Progress::Sending);
                let status = ScsiStatus::TaskAborted;
                task.response = Response {
                    status,
                    sense: None,
                    data_in: Vec::new(),
                };
                self.tasks.queue(slot);
            }
        }
    }
}

/// SendTargets, and keys that may be negotiated again; `None` where the text is malformed.
fn answer_text<B: Backend>(full: &mut Full, segment: &[u8], backend: &mut B) -> Option<Vec<u8>> {
    let pairs = text::parse(segment).ok()?;
    let mut answer = TextBuilder::default();
    for (key, value) in pairs {
        if key == "SendTargets" {
            for record in wanted(full, value, backend)? {
                describe(&record, &mut answer);
            }
            continue;
        }
        full.parameters
            .negotiate(Phase::FullFeature, key, value, &mut answer)
            .ok()?;
    }
    Some(answer.into_bytes())
}

/// The targets that SendTargets asks for: all (only in a discovery session), one, or the session's own.
fn wanted<B: Backend>(full: &Full, value: &str, backend: &mut B) -> Option<Vec<TargetRecord>> {
    let all = backend.targets(&full.initiator);
    match (value, &full.kind) {
        ("All", SessionKind::Discovery) => Some(all),
        ("All", SessionKind::Normal(_)) | ("", SessionKind::Discovery) => None,
        ("", SessionKind::Normal(_)) => {
            let own = full.target.clone();
            Some(
                all.into_iter()
                    .filter(|record| Some(&record.name) == own.as_ref())
                    .collect(),
            )
        }
        (name, _) => Some(
            all.into_iter()
                .filter(|record| record.name == name)
                .collect(),
        ),
    }
}

fn describe(record: &TargetRecord, answer: &mut TextBuilder) {
    answer.push("TargetName", &record.name);
    for TargetAddress { ip, port, group } in &record.addresses {
        let text = match ip {
            std::net::IpAddr::V4(v4) => format!("{v4}:{port},{group}"),
            std::net::IpAddr::V6(v6) => format!("[{v6}]:{port},{group}"),
        };
        answer.push("TargetAddress", &text);
    }
}
