//! Threads that leave the processor to those that drive connections.

use std::io;

/// The highest nice value: the smallest share of a processor that others want as well.
const NICE: i32 = 19;
/// The longest time slice that Linux grants, in nanoseconds. A thread that is woken preempts one with a longer
/// slice than its own at once (`PREEMPT_SHORT`, since Linux 6.12), instead of when that slice ends.
const SLICE_NS: u64 = 100_000_000;

/// Lets all threads with usual priority that become runnable preempt the calling thread. It cannot be undone
/// without privileges, and the threads that it starts are like it.
///
/// # Errors
/// If the system forbids it.
pub fn enter_background() -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: NICE,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: The system reads `size` bytes of `attributes`, which is that long and lives until the call returns.
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
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
            let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
            // The 19th field; the third is the first after the name.
            fields.split(' ').nth(16).expect("proc(5)").to_owned()
        };
        let before = nice();
        let inside = std::thread::spawn(move || {
            enter_background().expect("a lower priority needs no privilege");
            let child = std::thread::spawn(nice).join().expect("it ends");
            (nice(), child)
        });
        let (own, child) = inside.join().expect("it ends");
        assert_eq!((own.as_str(), child.as_str()), ("19", "19"));
        assert_eq!(nice(), before);
    }
}
