//! Threads that leave the processor to those that drive connections.

use std::io;

/// The highest nice value: the smallest share of a processor that others want as well, except for
/// `SCHED_IDLE`.
const NICE: i32 = 19;
/// The longest time slice that Linux grants, in nanoseconds. A thread that is woken preempts one
/// with a longer slice than its own at once (`PREEMPT_SHORT`, since Linux 6.12), instead of when
/// that slice ends.
const SLICE_NS: u64 = 100_000_000;

/// How much of a busy processor a thread of the background gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// About 1.5 % beside one busy thread: for work that someone waits for.
    Lowest,
    /// About 0.3 % beside one busy thread, and what is idle (`SCHED_IDLE`). Less than 1 % of the
    /// commands of a thread that is always busy meet it.
    Idle,
}

/// Lets all threads with usual priority that become runnable preempt the calling thread. It cannot
/// be undone without privileges, and the threads that it starts are like it.
///
/// # Errors
/// If the system forbids it.
pub fn enter_background(share: Background) -> io::Result<()> {
    let policy = match share {
        Background::Lowest => libc::SCHED_OTHER,
        Background::Idle => libc::SCHED_IDLE,
    };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy.cast_unsigned(),
        sched_flags: 0,
        sched_nice: NICE,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: The system reads `size` bytes of `attributes`, which is that long and lives until the
    // call returns.
    let status = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            this_thread,
            &raw const attributes,
            no_flags,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_enters_the_background_alone_and_its_children_are_there() {
        // Nice value and policy: fields 19 and 41; the third is the first after the name.
        let scheduling = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
            let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
            let fields: Vec<_> = fields.split(' ').collect();
            let number = |field: usize| fields[field - 3].parse::<i32>().expect("proc(5)");
            (number(19), number(41))
        };
        let before = scheduling();
        for (share, expected) in [
            (Background::Lowest, (19, libc::SCHED_OTHER)),
            // The nice value means nothing there.
            (Background::Idle, (before.0, libc::SCHED_IDLE)),
        ] {
            let inside = std::thread::spawn(move || {
                enter_background(share).expect("a lower priority needs no privilege");
                let child = std::thread::spawn(scheduling).join().expect("it ends");
                (scheduling(), child)
            });
            let (own, child) = inside.join().expect("it ends");
            assert_eq!((own, child), (expected, expected));
        }
        assert_eq!(scheduling(), before);
    }
}
