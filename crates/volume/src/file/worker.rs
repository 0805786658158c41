//! The thread of a file volume: it carries out what threads without a lane request, and opens
//! queues in the lanes of the others.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use file_io::{FileIo, HostDisk};
use memory::Charge;
use window::{BackingClient, BackingError};

use super::backing::FileBacking;
use super::file_queue::{DEPTH, FileQueue};
use super::lane_queue::open_in;
use crate::Platform;

/// Carries requests out.
#[derive(Debug)]
pub(super) struct Worker {
    backing: Arc<FileBacking>,
    file_queue: FileQueue,
    /// Whether to end when nothing is left to do.
    is_last: bool,
    polling: Polling,
}

/// How long the worker polls for the next request while none is in flight. Polling that found work
/// is extended, polling that found none is shortened, so an idle worker only sleeps. To wake a
/// thread takes up to 30 µs on a virtual machine.
#[derive(Clone, Copy, Debug, Default)]
struct Polling {
    span: Duration,
}

impl Polling {
    /// The first span, and the shortest above nothing.
    const SPAN_MIN: Duration = Duration::from_micros(20);
    /// The longest span: a host on the same network has sent its next command by then.
    const SPAN_MAX: Duration = Duration::from_micros(80);

    fn is_over(self, polled: Duration) -> bool {
        polled >= self.span
    }

    /// Work came while the worker polled.
    fn found_work(&mut self, polled: Duration) {
        if polled < self.span {
            self.lengthen();
        }
    }

    /// Work came this long after the worker had none.
    fn woke(&mut self, waited: Duration) {
        if waited < Self::SPAN_MAX {
            self.lengthen();
        } else {
            self.span /= 2;
            if self.span < Self::SPAN_MIN {
                self.span = Duration::ZERO;
            }
        }
    }

    fn lengthen(&mut self) {
        self.span = (self.span * 2).clamp(Self::SPAN_MIN, Self::SPAN_MAX);
    }
}

impl Worker {
    /// The backing of a volume on `disk`, and its worker, which is to be started.
    pub(super) fn new(
        disk: &Arc<HostDisk>,
        frame_bytes: u32,
        charge: Charge,
        platform: &Platform,
    ) -> io::Result<(Arc<FileBacking>, Self)> {
        let mut queue = FileIo::on_disk(disk, DEPTH, frame_bytes as usize, None)?;
        let waker = queue.waker()?;
        let backing = Arc::new(FileBacking::new(disk, frame_bytes, waker, platform));
        let worker = Self {
            backing: Arc::clone(&backing),
            file_queue: FileQueue::new(queue, frame_bytes, charge),
            is_last: false,
            polling: Polling::default(),
        };
        Ok((backing, worker))
    }

    /// Starts the thread. It reports to `client`.
    pub(super) fn start(self, client: Arc<dyn BackingClient>) -> io::Result<()> {
        let backing = Arc::clone(&self.backing);
        let started = thread::Builder::new()
            .name("file-volume".to_owned())
            .spawn(move || self.run(&client));
        if started.is_err() {
            backing.end_queue();
        }
        started.map(drop)
    }

    fn run(mut self, client: &Arc<dyn BackingClient>) {
        loop {
            self.take_mail(client);
            self.file_queue.start(&**client);
            if self.is_last && self.file_queue.is_idle() {
                break;
            }
            if self.wait().is_err() {
                break;
            }
            self.file_queue.report(&**client);
        }
        let Self {
            backing,
            file_queue,
            ..
        } = self;
        let mut left = file_queue.leave(&**client);
        backing.take_mail(&mut left);
        for request in left {
            client.done(request.id, Err(BackingError::Gone));
        }
        backing.end_queue();
    }

    fn take_mail(&mut self, client: &Arc<dyn BackingClient>) {
        let Some(mail) = self.backing.take_mail(self.file_queue.backlog()) else {
            return;
        };
        self.is_last = mail.is_last;
        for lane in mail.wanted {
            open_in(&lane, &self.backing, client);
        }
    }

    /// Waits until a request has completed or there is mail.
    fn wait(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            if self.file_queue.poll()? > 0 || self.backing.has_mail() {
                self.polling.found_work(start.elapsed());
                return Ok(());
            }
            // What is in flight wakes the thread by an interrupt, as it would wake any.
            if self.file_queue.in_flight() > 0 || self.polling.is_over(start.elapsed()) {
                break;
            }
            std::hint::spin_loop();
        }
        self.backing.set_asleep(true);
        let waited = if self.backing.has_mail() {
            self.file_queue.poll()
        } else {
            self.file_queue.wait()
        };
        self.backing.set_asleep(false);
        self.polling.woke(start.elapsed());
        waited.map(drop)
    }
}
