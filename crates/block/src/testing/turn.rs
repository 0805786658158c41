//! Tests that measure time run without others beside them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The turn of one test of this process, until it is dropped.
///
/// The test harness runs as many tests at a time as there are processors, so a test that bounds a
/// delay would measure the others. It holds [`Turn::alone`]; every other test of the same program
/// that keeps a processor busy holds [`Turn::shared`], usually in its fixture. A test holds one
/// turn.
#[derive(Debug)]
#[must_use]
pub struct Turn(());

/// How many tests share a turn, or that one is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Shared(usize),
    Alone,
}

static RUNNING: Mutex<Running> = Mutex::new(Running::Shared(0));
static ENDED: Condvar = Condvar::new();

impl Turn {
    /// Waits while a test is alone.
    pub fn shared() -> Self {
        let mut running = lock();
        loop {
            match *running {
                Running::Shared(count) => {
                    *running = Running::Shared(count + 1);
                    return Self(());
                }
                Running::Alone => running = wait(running),
            }
        }
    }

    /// Waits until no other test has a turn.
    pub fn alone() -> Self {
        let mut running = lock();
        while *running != Running::Shared(0) {
            running = wait(running);
        }
        *running = Running::Alone;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = lock();
        *running = match *running {
            Running::Shared(count) => Running::Shared(count - 1),
            Running::Alone => Running::Shared(0),
        };
        drop(running);
        ENDED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(running: MutexGuard<'static, Running>) -> MutexGuard<'static, Running> {
    ENDED.wait(running).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn nobody_has_a_turn_beside_one_that_is_alone() {
        let running = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let running = &running;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let is_alone = number < 2;
                        let turn = if is_alone {
                            Turn::alone()
                        } else {
                            Turn::shared()
                        };
                        let others = running.fetch_add(1, Ordering::Relaxed);
                        assert!(!is_alone || others == 0, "{others} others");
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(*lock(), Running::Shared(0));
    }
}
