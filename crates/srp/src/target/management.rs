//! Task management.
//!
//! Read first: SRP_TSK_MGMT; SAM-5, "Task management functions".

use scsi::{Lun, parse_lun};

use super::pending::Management;
use super::session::TargetSession;
use crate::backend::Backend;
use crate::wire::{ManagementRequest, ManagementResult, Violation, function};

impl<B: Backend> TargetSession<B> {
    pub(super) fn on_management(
        &mut self,
        message: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let request = ManagementRequest::parse(message)?;
        self.check_limit()?;
        self.check_tag(request.tag)?;
        let result = self.manage(request, backend);
        let fence = backend.fence();
        self.managements.push_back(Management {
            tag: request.tag,
            result,
            fence,
        });
        Ok(())
    }

    fn manage(&mut self, request: &ManagementRequest, backend: &mut B) -> ManagementResult {
        let lun = parse_lun(request.lun).filter(|lun| backend.view(*lun).is_some());
        match (request.function, lun) {
            (function::ABORT_TASK, _) => {
                // A command that has ended was answered, or is so no more.
                if let Some(slot) = self.tasks.find(request.task_tag) {
                    self.tasks.remove(slot);
                }
            }
            (function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LUN_RESET, None) => {
                return ManagementResult::FieldsInvalid;
            }
            (function::ABORT_TASK_SET, Some(lun)) => self.abort_own(lun, backend),
            (function::CLEAR_TASK_SET, Some(lun)) => {
                self.abort_own(lun, backend);
                backend.with_device(|device, nexus| device.clear_task_set(nexus, lun));
            }
            (function::LUN_RESET, Some(lun)) => {
                self.abort_own(lun, backend);
                backend.with_device(|device, nexus| device.reset_unit(nexus, lun));
            }
            _ => return ManagementResult::NotSupported,
        }
        ManagementResult::Complete
    }

    /// Ends the nexus's commands of a LUN, on all of its channels.
    fn abort_own(&mut self, lun: Lun, backend: &mut B) {
        self.abort_lun(lun);
        backend.abort_on_others(lun);
    }

    /// Ends this channel's commands of a LUN without responses.
    pub(super) fn abort_lun(&mut self, lun: Lun) {
        for slot in self.tasks.of_lun(Some(lun)) {
            self.tasks.remove(slot);
        }
    }

    /// Answers requests whose effects are over: of what they aborted, nothing is executed on other
    /// channels, and no RDMA READ uses memory that the initiator takes for free.
    pub(super) fn answer_managements(&mut self, backend: &mut B) {
        while let Some(front) = self.managements.front() {
            if !backend.is_past(front.fence) || self.tasks.has_aborted() {
                return;
            }
            self.answers.extend(self.managements.pop_front());
        }
    }
}
