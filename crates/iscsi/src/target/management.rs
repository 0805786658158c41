//! Task management, on this connection and for other connections and nexuses.
//!
//! Read first: RFC 7143 §11.5, §11.6, §4.2.3.3.

use scsi::{Device, Lun, Response, ScsiStatus};

use super::full_feature::{FencedKind, FencedReply, FullFeature};
use super::reply::{Numbering, ReplyHeader};
use super::task::{Progress, Task, Work};
use crate::backend::{Abort, Backend, SessionKind};
use crate::window::order::AbortScope;
use crate::wire::command::{TaskManagementRequest, function, function_response};
use crate::wire::{BHS_LEN, Bhs, parse_lun, response, sn_before};

impl FullFeature {
    pub(super) fn on_task_management<B: Backend>(&mut self, bhs: &Bhs, backend: &mut B) {
        let request: &TaskManagementRequest = bhs.cast();
        // Commands on this connection arrived before the request, unless the request itself had to
        // wait.
        let own_before = (!bhs.is_immediate()).then_some(request.cmd_sn.get());
        let response = self.manage(request, own_before, backend);
        self.fence(FencedKind::Management(*request, response), backend);
    }

    /// Replies once what the request ended on other connections is over.
    pub(super) fn fence<B: Backend>(&mut self, kind: FencedKind, backend: &mut B) {
        let fence = backend.fence();
        self.fenced.push_back(FencedReply { fence, kind });
        self.answer_fenced(backend);
    }

    /// Answers task management and logouts once the commands and connections that they concern have
    /// ended elsewhere too (RFC 7143 §4.2.3.3, §11.15).
    pub(super) fn answer_fenced<B: Backend>(&mut self, backend: &mut B) {
        let is_over = |reply: &FencedReply, backend: &mut B| backend.is_past(reply.fence);
        while self
            .fenced
            .front()
            .is_some_and(|reply| is_over(reply, backend))
            && let Some(reply) = self.fenced.pop_front()
        {
            let (header, is_last) = match reply.kind {
                FencedKind::Management(request, response) => {
                    (self.management_response(&request, response, backend), false)
                }
                FencedKind::Logout(header, is_own) => (header, is_own),
            };
            self.replies.push(header, Vec::new(), Numbering::Status);
            if is_last {
                self.replies.close_after_last();
            }
        }
    }

    fn management_response<B: Backend>(
        &mut self,
        request: &TaskManagementRequest,
        response: Option<u8>,
        backend: &mut B,
    ) -> [u8; BHS_LEN] {
        let response = response.unwrap_or_else(|| self.find_elsewhere(request, backend));
        let header = ReplyHeader {
            byte_2: response,
            ..ReplyHeader::new(response::TASK_MANAGEMENT, request.itt.get())
        };
        header.encode()
    }

    /// The result of ABORT TASK for a task that is not on this connection. A command that has not
    /// arrived, but whose number may still arrive, is aborted when its number is taken (RFC 7143
    /// §11.6.1).
    fn find_elsewhere<B: Backend>(
        &mut self,
        request: &TaskManagementRequest,
        backend: &mut B,
    ) -> u8 {
        let window = &mut self.tasks.window;
        let ref_cmd_sn = request.ref_cmd_sn.get();
        let was_found = window.take_aborted(request.referenced_task_tag.get(), backend)
            || sn_before(ref_cmd_sn, request.cmd_sn.get())
                && window.abort_early(ref_cmd_sn, backend);
        if was_found {
            function_response::COMPLETE
        } else {
            function_response::NO_TASK
        }
    }

    /// Does what a request asks for. `own_before` limits it to commands of this connection with
    /// lower numbers. Returns the response, unless that depends on other connections.
    fn manage<B: Backend>(
        &mut self,
        request: &TaskManagementRequest,
        own_before: Option<u32>,
        backend: &mut B,
    ) -> Option<u8> {
        if self.kind == SessionKind::Discovery {
            return Some(function_response::REJECTED);
        }
        let lun = parse_lun(request.lun).filter(|lun| backend.view(*lun).is_some());
        let before = request.cmd_sn.get();
        let mut abort = |backend: &mut B, scope| {
            self.abort(scope, own_before, backend);
            self.tasks.window.abort_before(before, scope, backend);
            backend.abort_on_others(scope, before);
        };
        match (request.function & 0x7F, lun) {
            (function::ABORT_TASK, _) => {
                let tag = request.referenced_task_tag.get();
                let Some(slot) = self.tasks.find(tag) else {
                    backend.abort_on_others(AbortScope::Task(tag), before);
                    return None;
                };
                self.tasks.remove(slot, backend);
            }
            (
                function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LOGICAL_UNIT_RESET,
                None,
            ) => return Some(function_response::NO_LUN),
            (function::ABORT_TASK_SET, Some(lun)) => abort(backend, AbortScope::Lun(lun)),
            (function::CLEAR_TASK_SET, Some(lun)) => {
                abort(backend, AbortScope::Lun(lun));
                backend.with_device(|device, nexus| device.clear_task_set(nexus, lun));
            }
            (function::LOGICAL_UNIT_RESET, Some(lun)) => {
                abort(backend, AbortScope::Lun(lun));
                backend.with_device(|device, nexus| device.reset_unit(nexus, lun));
            }
            (function::TARGET_WARM_RESET | function::TARGET_COLD_RESET, _) => {
                abort(backend, AbortScope::All);
                backend.with_device(Device::reset_all);
            }
            (function::TASK_REASSIGN, _) => return Some(function_response::NO_REASSIGN),
            _ => return Some(function_response::NOT_SUPPORTED),
        }
        Some(function_response::COMPLETE)
    }

    /// Ends tasks without a response, as their own initiator asked. If a number is given, tasks
    /// that arrived after it are kept.
    fn abort<B: Backend>(&mut self, scope: AbortScope, before: Option<u32>, backend: &mut B) {
        for slot in self.in_scope(scope) {
            let is_later = |task: &Task| {
                let is_before = before.is_none_or(|before| sn_before(task.cmd_sn, before));
                task.windowed.is_some() && !is_before
            };
            if !self.tasks.get(slot).is_some_and(is_later) {
                self.tasks.remove(slot, backend);
            }
        }
    }

    /// Ends the tasks that others have aborted.
    pub(super) fn take_aborts<B: Backend>(&mut self, backend: &mut B) {
        for abort in backend.take_aborts() {
            match abort {
                Abort::ByAnother(lun) => self.answer_aborted(lun, backend),
                Abort::ByOwn { scope, before } => self.abort_for_another(scope, before, backend),
            }
        }
    }

    /// Does what another connection of the session asks for.
    fn abort_for_another<B: Backend>(&mut self, scope: AbortScope, before: u32, backend: &mut B) {
        if let AbortScope::Task(tag) = scope
            && let Some(slot) = self.tasks.find(tag)
        {
            self.tasks.remove(slot, backend);
            self.tasks.window.note_aborted(tag, backend);
        } else {
            self.abort(scope, Some(before), backend);
        }
    }

    fn in_scope(&self, scope: AbortScope) -> Vec<usize> {
        match scope {
            AbortScope::All => self.tasks.of_lun(None),
            AbortScope::Lun(lun) => self.tasks.of_lun(Some(lun)),
            AbortScope::Task(tag) => self.tasks.find(tag).into_iter().collect(),
        }
    }

    /// Ends the tasks of a LUN because of another nexus: each is answered with TASK ABORTED (TAS is
    /// 1).
    fn answer_aborted<B: Backend>(&mut self, lun: Lun, backend: &mut B) {
        for slot in self.tasks.of_lun(Some(lun)) {
            self.tasks.withdraw(slot, backend);
            if let Some(task) = self.tasks.get_mut(slot) {
                task.work = Work::None;
                (task.unsaved, task.fence) = (None, None);
                task.enter(Progress::Sending);
                task.response = Response {
                    status: ScsiStatus::TaskAborted,
                    sense: None,
                    data_in: Vec::new(),
                };
                self.tasks.queue(slot);
            }
        }
    }
}
