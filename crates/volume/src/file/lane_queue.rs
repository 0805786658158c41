//! A file volume's queue in the lane of a thread that drives connections.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use window::BackingClient;

use super::backing::FileBacking;
use super::carrier::Carrier;
use crate::lanes::places::LaneRequests;
use crate::lanes::{LaneDoor, LaneQueue, Turn};

/// The queue. When it ends, the volume's own thread goes on with what it has not begun.
struct FileLaneQueue {
    backing: Arc<FileBacking>,
    client: Arc<dyn BackingClient>,
    requests: Arc<LaneRequests>,
    /// Until it ends.
    carrier: Option<Carrier>,
}

/// Opens a queue in a lane whose thread has used the volume. If that is not possible, the volume's own
/// thread goes on with the requests of that thread.
pub(super) fn open_in(
    lane: &LaneDoor,
    backing: &Arc<FileBacking>,
    client: &Arc<dyn BackingClient>,
) {
    let Some(carrier) = backing.new_carrier(lane) else {
        return;
    };
    let requests = Arc::default();
    if !backing.enter_lane(lane, &requests) {
        return;
    }
    let queue = FileLaneQueue {
        backing: Arc::clone(backing),
        client: Arc::clone(client),
        requests,
        carrier: Some(carrier),
    };
    // If the lane's thread has ended, the queue ends here and passes its requests on.
    drop(lane.adopt(Box::new(queue)));
}

impl LaneQueue for FileLaneQueue {
    fn reap(&mut self) -> Turn {
        let Some(carrier) = &mut self.carrier else {
            return Turn::Over;
        };
        match carrier.poll() {
            Ok(0) => Turn::Idle,
            Ok(_) => {
                carrier.report(&*self.client);
                Turn::Worked
            }
            Err(_) => Turn::Over,
        }
    }

    fn submit(&mut self) -> Turn {
        let Some(carrier) = &mut self.carrier else {
            return Turn::Over;
        };
        self.requests.move_to(carrier.backlog());
        let has_started = carrier.start(&*self.client);
        if self.requests.is_closing() && carrier.is_idle() {
            return Turn::Over;
        }
        // What the system did not accept yet will not raise the lane's event.
        if has_started || carrier.has_unsubmitted() {
            Turn::Worked
        } else {
            Turn::Idle
        }
    }
}

impl Drop for FileLaneQueue {
    fn drop(&mut self) {
        self.backing.leave_lane(&self.requests);
        let carrier = self.carrier.take();
        let mut left = carrier.map_or_else(VecDeque::new, |it| it.leave(&*self.client));
        // Reports may have led to requests, before the lane was left.
        self.requests.move_to(&mut left);
        if !left.is_empty() {
            self.backing.submit_to_worker(left);
        }
        self.backing.end_queue();
    }
}

impl fmt::Debug for FileLaneQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("FileLaneQueue");
        fields
            .field("carrier", &self.carrier)
            .finish_non_exhaustive()
    }
}
