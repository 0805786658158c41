//! The CPU time of threads that drive connections. Other threads read it, so that these threads
//! count nothing.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The CPU-time clock of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

/// A thread that drives connections, and the CPU time that it has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// The number that its connections carry
    /// ([`ConnectionId::thread`](crate::ConnectionId::thread)).
    pub index: usize,
    /// Its name.
    pub name: String,
    /// CPU time since its start, in user and kernel mode.
    pub cpu_time: Duration,
}

impl ThreadClock {
    /// The clock of the calling thread.
    pub fn of_current() -> io::Result<Self> {
        let mut clock = MaybeUninit::uninit();
        // SAFETY: The calling thread exists, and `clock` is valid for a write.
        let status =
            unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), clock.as_mut_ptr()) };
        match status {
            // SAFETY: The call has succeeded, so it has written the clock.
            0 => Ok(Self(unsafe { clock.assume_init() })),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The CPU time that the thread has used, from any thread; `None` if it has ended.
    pub fn cpu_time(self) -> Option<Duration> {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: `time` is valid for a write. The system rejects the clock of an ended thread.
        let status = unsafe { libc::clock_gettime(self.0, time.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: The call has succeeded, so it has written the time.
        let time = unsafe { time.assume_init() };
        Some(Duration::new(
            u64::try_from(time.tv_sec).ok()?,
            u32::try_from(time.tv_nsec).ok()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_clock_advances_while_its_thread_works_and_is_none_after_its_end() {
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let worker = thread::spawn(move || {
            let clock = ThreadClock::of_current().expect("a clock");
            tell.send(clock).expect("sent");
            while clock.cpu_time().expect("it runs") < Duration::from_millis(20) {
                std::hint::black_box(Instant::now());
            }
            tell.send(clock).expect("sent");
            let _ = ended.recv();
        });
        let clock = told.recv().expect("a clock");
        told.recv().expect("it has worked");
        let used = clock.cpu_time().expect("it waits");
        assert!(used >= Duration::from_millis(20), "{used:?}");
        assert!(ThreadClock::of_current().expect("a clock").cpu_time() < Some(used));
        drop(end);
        worker.join().expect("ended");
        // The system removes the thread a moment after it can be joined.
        while clock.cpu_time().is_some() {
            thread::yield_now();
        }
    }
}
