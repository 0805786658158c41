//! Commands on the volume below in the lane of a thread that drives connections.

use std::sync::Arc;
use std::time::Instant;

use super::VolumeBacking;
use super::jobs::Jobs;
use crate::lanes::places::LaneRequests;
use crate::lanes::{LaneQueue, Turn};

/// The queue. When it ends, the backing's own thread goes on with its jobs.
#[derive(Debug)]
pub(super) struct VolumeLaneQueue {
    backing: Arc<VolumeBacking>,
    requests: Arc<LaneRequests>,
    /// Until it ends.
    jobs: Option<Jobs>,
    /// A turn has begun and not ended. After a panic it never does.
    is_in_turn: bool,
}

impl VolumeLaneQueue {
    pub(super) fn new(
        backing: &Arc<VolumeBacking>,
        requests: Arc<LaneRequests>,
        jobs: Jobs,
    ) -> Self {
        Self {
            backing: Arc::clone(backing),
            requests,
            jobs: Some(jobs),
            is_in_turn: false,
        }
    }

    fn take_turn(&mut self) -> Turn {
        let Some(jobs) = self.jobs.as_mut().filter(|_| !self.requests.is_closing()) else {
            return Turn::Over;
        };
        self.is_in_turn = true;
        self.requests.move_to(jobs.backlog());
        let has_worked = jobs.turn();
        self.is_in_turn = false;
        if has_worked { Turn::Worked } else { Turn::Idle }
    }
}

impl LaneQueue for VolumeLaneQueue {
    fn reap(&mut self) -> Turn {
        self.take_turn()
    }

    fn submit(&mut self) -> Turn {
        self.take_turn()
    }

    fn due(&self) -> Option<Instant> {
        self.jobs.as_ref().and_then(Jobs::due)
    }
}

impl Drop for VolumeLaneQueue {
    fn drop(&mut self) {
        self.backing.leave_lane(&self.requests);
        if let Some(mut jobs) = self.jobs.take() {
            self.requests.move_to(jobs.backlog());
            if self.is_in_turn {
                self.backing.submit_to_worker(jobs.backlog().drain(..));
                jobs.fail();
            } else {
                jobs.move_to_worker();
                self.backing.inherit(jobs);
            }
        }
        self.backing.end_queue();
    }
}
