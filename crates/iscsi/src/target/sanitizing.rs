//! Sanitize operations, which outlive their commands and may outlive their connection.

use std::time::Instant;

use scsi::LeaseHolder;
use session::Resumed;

use super::full_feature::FullFeature;
use super::task::Progress;
use crate::backend::Backend;

impl FullFeature {
    /// Executes a sanitize operation for the rest of the time slice. Its end answers the command
    /// that waits for it.
    pub(super) fn sanitize(&mut self, number: usize, now: Instant) {
        let leases = &mut self.tasks.leases;
        let Some((response, (slot, generation))) = self.workload.sanitize(number, leases) else {
            return;
        };
        let task = self.tasks.get_mut(slot);
        if let Some(task) = task.filter(|task| task.generation == generation)
            && task.progress() == Progress::Working
        {
            task.response = response;
            self.complete(slot, now);
        }
    }

    /// The volume of a sanitize operation has answered.
    pub(super) fn resume_sanitizing<B: Backend>(
        &mut self,
        number: usize,
        resumed: Resumed,
        now: Instant,
        backend: &mut B,
    ) {
        if self.workload.resume_sanitizing(number, resumed) {
            self.work(now, backend);
        }
    }

    /// Ends the sanitize operations that wait for their volume and whose logical unit was removed.
    /// The others notice it in their next time slice.
    pub(super) fn end_sanitizing_without_unit(&mut self, now: Instant) {
        for number in self.workload.waiting_sanitizing() {
            self.sanitize(number, now);
        }
    }

    /// The connection ends: the program continues its sanitize operations.
    pub(super) fn hand_over_sanitizing<B: Backend>(&mut self, backend: &mut B) {
        for (number, mut work) in self.workload.take_sanitizing() {
            let lease = LeaseHolder::Sanitize(number).lease();
            if work.suspend(&mut self.tasks.leases, lease) {
                backend.adopt(work);
            }
        }
    }
}
