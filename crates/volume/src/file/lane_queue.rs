//! A file volume's queue in the lane of a thread that drives connections.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use window::BackingClient;

use super::backing::FileBacking;
use super::file_queue::FileQueue;
use crate::lanes::places::LaneRequests;
use crate::lanes::{LaneHandle, LaneQueue, Turn};

/// The queue. When it ends, the volume's own thread goes on with what it has not begun.
struct FileLaneQueue {
    backing: Arc<FileBacking>,
    client: Arc<dyn BackingClient>,
    requests: Arc<LaneRequests>,
    /// Until it ends.
    file_queue: Option<FileQueue>,
}

/// Opens a queue in a lane whose thread has used the volume. If that is not possible, the volume's
/// own thread goes on with the requests of that thread.
pub(super) fn open_in(
    lane: &LaneHandle,
    backing: &Arc<FileBacking>,
    client: &Arc<dyn BackingClient>,
) {
    let Some(file_queue) = backing.new_file_queue(lane) else {
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
        file_queue: Some(file_queue),
    };
    // If the lane's thread has ended, the queue ends here and passes its requests on.
    drop(lane.adopt(Box::new(queue)));
}

impl LaneQueue for FileLaneQueue {
    fn reap(&mut self) -> Turn {
        let Some(file_queue) = &mut self.file_queue else {
            return Turn::Over;
        };
        match file_queue.poll() {
            Ok(0) => Turn::Idle,
            Ok(_) => {
                file_queue.report(&*self.client);
                Turn::Worked
            }
            Err(_) => Turn::Over,
        }
    }

    fn submit(&mut self) -> Turn {
        let Some(file_queue) = &mut self.file_queue else {
            return Turn::Over;
        };
        self.requests.move_to(file_queue.backlog());
        let has_started = file_queue.start(&*self.client);
        if self.requests.is_closing() && file_queue.is_idle() {
            return Turn::Over;
        }
        // What the system did not accept yet will not raise the lane's event.
        if has_started || file_queue.has_unsubmitted() {
            Turn::Worked
        } else {
            Turn::Idle
        }
    }
}

impl Drop for FileLaneQueue {
    fn drop(&mut self) {
        self.backing.leave_lane(&self.requests);
        let file_queue = self.file_queue.take();
        let mut left = file_queue.map_or_else(VecDeque::new, |it| it.leave(&*self.client));
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
            .field("file_queue", &self.file_queue)
            .finish_non_exhaustive()
    }
}
