//! Reader/writer locks over granules.
//!
//! A volume has a fixed table of lock words, over which its granules are spread, so the locks of
//! the largest volume stay in a core's cache and exist before any memory does. A word counts
//! readers and has a bit for a writer and one for a writer that waits. A thread that does not get a
//! lock spins, then yields: no lock is held longer than a copy of a granule or, for pins, a system
//! call that does not wait.
//!
//! Why nothing deadlocks:
//! - A writer that needs several locks never waits for one while it holds another
//!   ([`LockTable::write_all`]).
//! - So a thread that waits for a writer *at work* waits for a thread that waits for nothing.
//! - A thread that lets a *waiting* writer go first does so for a bounded number of polls,
//!   and not at all while its thread holds a pin, since that may be what the writer waits for.
//!
//! Why no thread starves: new readers let a waiting writer go first, so readers that overlap for
//! ever do not keep it out; and the bound ends, so writers that follow each other do not keep a
//! reader out either.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set while a writer holds the lock.
const WRITER: u32 = 1 << 31;
/// Set while a writer waits for it.
const WAITING: u32 = 1 << 30;
/// Polls of a lock between two yields of the processor.
const SPINS_PER_YIELD: u32 = 64;
/// Polls for which a read for a copy lets a waiting writer go first: longer than the copies of
/// other threads.
const YIELD_POLLS_READ: u32 = 64;
/// Polls for which a pin lets a waiting writer go first: some 200 µs, longer than the system calls
/// of others.
const YIELD_POLLS_PIN: u32 = 8192;
/// Spreads neighbouring granules over cache lines; odd, so that any run of granules no longer than
/// the table has distinct locks.
const SPREAD: u64 = 433;

thread_local! {
    /// Granules that this thread has pinned. Only fairness depends on it: if a pin ends on another
    /// thread than it began on, the locks are less fair, and nothing else happens.
    static PINS_HELD: Cell<usize> = const { Cell::new(0) };
}

/// The locks of one store.
#[derive(Debug)]
pub(crate) struct LockTable {
    words: Box<[AtomicU32]>,
}

/// A held read lock.
pub(crate) struct ReadGuard<'a>(&'a AtomicU32);

/// A held write lock.
pub(crate) struct WriteGuard<'a>(&'a AtomicU32);

/// Held write locks of a run of granules.
pub(crate) struct WriteAllGuard<'a> {
    table: &'a LockTable,
    first: u64,
    count: u64,
}

/// A lock of the table that is held.
pub(crate) trait Guard {}

impl Guard for ReadGuard<'_> {}
impl Guard for WriteGuard<'_> {}
impl Guard for WriteAllGuard<'_> {}

impl LockTable {
    pub(crate) fn new(locks: u32) -> Self {
        assert!(locks.is_power_of_two());
        Self {
            words: (0..locks).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn word(&self, granule: u64) -> &AtomicU32 {
        let mask = self.words.len() - 1;
        &self.words[granule.wrapping_mul(SPREAD) as usize & mask]
    }

    /// Locks a granule for reading, until the guard drops.
    pub(crate) fn read(&self, granule: u64) -> ReadGuard<'_> {
        let word = self.word(granule);
        count_in(word, YIELD_POLLS_READ);
        ReadGuard(word)
    }

    /// Locks a granule for reading, until [`unpin`](Self::unpin) on the same thread.
    pub(crate) fn pin(&self, granule: u64) {
        count_in(self.word(granule), YIELD_POLLS_PIN);
        PINS_HELD.set(PINS_HELD.get() + 1);
    }

    /// Ends a [`pin`](Self::pin) of the same granule.
    pub(crate) fn unpin(&self, granule: u64) {
        PINS_HELD.set(PINS_HELD.get().saturating_sub(1));
        drop(ReadGuard(self.word(granule)));
    }

    /// Locks a granule for writing, until the guard drops.
    pub(crate) fn write(&self, granule: u64) -> WriteGuard<'_> {
        let word = self.word(granule);
        if !try_write(word) {
            write_contended(word);
        }
        WriteGuard(word)
    }

    /// Locks `count` granules from `first` on for writing, until the guard drops.
    pub(crate) fn write_all(&self, first: u64, count: u64) -> WriteAllGuard<'_> {
        let count = count.min(self.words.len() as u64);
        let mut awaited = 0;
        loop {
            let waited_for = self.write(first + awaited);
            let failed = (0..count).find(|&i| i != awaited && !try_write(self.word(first + i)));
            let Some(failed) = failed else {
                std::mem::forget(waited_for);
                return WriteAllGuard {
                    table: self,
                    first,
                    count,
                };
            };
            for i in (0..failed).filter(|&i| i != awaited) {
                drop(WriteGuard(self.word(first + i)));
            }
            awaited = failed;
        }
    }

    /// The same, unless a lock is held by others.
    pub(crate) fn try_write_all(&self, first: u64, count: u64) -> Option<WriteAllGuard<'_>> {
        let count = count.min(self.words.len() as u64);
        let failed = (0..count).find(|&i| !try_write(self.word(first + i)));
        if let Some(failed) = failed {
            for i in 0..failed {
                drop(WriteGuard(self.word(first + i)));
            }
            return None;
        }
        Some(WriteAllGuard {
            table: self,
            first,
            count,
        })
    }

    /// Returns when every write that held a lock at the time of the call has ended.
    pub(crate) fn await_writers(&self) {
        for word in &self.words {
            word.fetch_add(1, Ordering::Acquire);
            await_no_writer(word);
            drop(ReadGuard(word));
        }
    }

    /// Returns when every lock that was held at the time of the call has been released. Do not call
    /// it on a thread that holds one.
    pub(crate) fn await_all(&self) {
        for word in &self.words {
            if !try_write(word) {
                write_contended(word);
            }
            drop(WriteGuard(word));
        }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Readers may have counted themselves in meanwhile, and writers may wait: leave their bits.
        self.0.fetch_and(!WRITER, Ordering::Release);
    }
}

impl Drop for WriteAllGuard<'_> {
    fn drop(&mut self) {
        for i in 0..self.count {
            drop(WriteGuard(self.table.word(self.first + i)));
        }
    }
}

/// Adds a reader. Lets writers that wait go first for at most `yield_polls` polls.
fn count_in(word: &AtomicU32, yield_polls: u32) {
    if word.fetch_add(1, Ordering::Acquire) & (WRITER | WAITING) != 0 {
        count_in_contended(word, yield_polls);
    }
}

fn try_write(word: &AtomicU32) -> bool {
    word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

#[cold]
fn write_contended(word: &AtomicU32) {
    let mut pace = Pace::default();
    loop {
        let now = word.load(Ordering::Relaxed);
        if now & !WAITING == 0 {
            // Taking the lock clears WAITING; other waiting writers set it again.
            let taken =
                word.compare_exchange_weak(now, WRITER, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return;
            }
        } else if now & WAITING == 0 {
            word.fetch_or(WAITING, Ordering::Relaxed);
        }
        pace.pause();
    }
}

/// Called by a reader that has counted itself in and met a writer, at work or waiting.
#[cold]
fn count_in_contended(word: &AtomicU32, yield_polls: u32) {
    if PINS_HELD.get() == 0 {
        word.fetch_sub(1, Ordering::Release);
        let mut pace = Pace::default();
        for _ in 0..yield_polls {
            if word.load(Ordering::Relaxed) & (WRITER | WAITING) == 0 {
                break;
            }
            pace.pause();
        }
        word.fetch_add(1, Ordering::Acquire);
    }
    await_no_writer(word);
}

/// Called by a reader that has counted itself in: no later writer gets in, so only the present one
/// is awaited.
fn await_no_writer(word: &AtomicU32) {
    let mut pace = Pace::default();
    while word.load(Ordering::Acquire) & WRITER != 0 {
        pace.pause();
    }
}

/// Spins, and yields the processor from time to time, since the holder may need it.
#[derive(Default)]
struct Pace {
    spins: u32,
}

impl Pace {
    fn pause(&mut self) {
        self.spins += 1;
        if self.spins.is_multiple_of(SPINS_PER_YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Waits, for a moment, until `done` holds.
pub(crate) fn spin_until(done: impl Fn() -> bool) {
    let mut pace = Pace::default();
    while !done() {
        pace.pause();
    }
}
