//! Between the thread that keeps an association and the threads that own its queues.

use std::{
    fmt::Debug,
    io,
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use block::{Blocks, Geometry};

use crate::QueueError;
use crate::line::Line;
use crate::socket::Waker;

/// What all threads of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    is_stopping: AtomicBool,
    /// Wakes the keeper.
    pub(crate) keeper: Waker,
    geometry: GeometryCell,
}

/// The geometry of the namespace as last learned. The block size never changes.
#[derive(Debug)]
struct GeometryCell {
    initial: Geometry,
    blocks: AtomicU64,
}

/// One queue's mailbox: here it finds its next connection, or learns that there will be none.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Changes with each letter, so that a queue sees by a plain load that there is none.
    letters: AtomicU64,
    letter: Mutex<Option<Letter>>,
    is_abandoned: AtomicBool,
    /// The newest generation of connections whose loss was reported.
    lost_generation: AtomicU64,
    /// Before then the other side does not want the next connection.
    held_off: Mutex<Option<Instant>>,
    /// The connection that was delivered last, where there is one.
    last: Mutex<Option<Weak<dyn Sever>>>,
    /// Readable as long as there is a letter.
    pub(crate) waker: Waker,
}

/// What another thread can do to a connection.
pub(crate) trait Sever: Debug + Send + Sync {
    /// Ends it, so that its owner notices.
    fn sever(&self);
}

impl Sever for TcpStream {
    fn sever(&self) {
        // It fails only where the connection has ended already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// What a queue is told.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A new connection.
    Connection {
        line: Box<Line>,
        /// Its number among the connections of the queue (NVMe: of its association).
        generation: u64,
    },
    /// There will be no more.
    End(QueueError),
}

impl Shared {
    pub(crate) fn new(geometry: Geometry) -> io::Result<Self> {
        Ok(Self {
            is_stopping: AtomicBool::new(false),
            keeper: Waker::new()?,
            geometry: GeometryCell {
                initial: geometry,
                blocks: AtomicU64::new(geometry.blocks.0),
            },
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let blocks = self.geometry.blocks.load(Ordering::Relaxed);
        Geometry::new(self.geometry.initial.block_size, Blocks(blocks))
    }

    pub(crate) fn set_blocks(&self, blocks: Blocks) {
        self.geometry.blocks.store(blocks.0, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.keeper.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

impl Mailbox {
    pub(crate) fn several(count: u16) -> io::Result<Vec<Arc<Self>>> {
        (0..count).map(|_| Self::new().map(Arc::new)).collect()
    }

    fn new() -> io::Result<Self> {
        Ok(Self {
            letters: AtomicU64::new(0),
            letter: Mutex::new(None),
            is_abandoned: AtomicBool::new(false),
            lost_generation: AtomicU64::new(0),
            held_off: Mutex::new(None),
            last: Mutex::new(None),
            waker: Waker::new()?,
        })
    }

    /// Puts a letter in, in place of one that was not yet read.
    pub(crate) fn deliver(&self, letter: Letter) {
        if let Letter::Connection { line, .. } = &letter {
            *lock(&self.last) = Some(line.handle());
        }
        *lock(&self.letter) = Some(letter);
        self.letters.fetch_add(1, Ordering::Release);
        self.waker.wake();
    }

    /// How many letters there were; compare with the last look.
    pub(crate) fn letters(&self) -> u64 {
        self.letters.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Letter> {
        self.waker.clear();
        lock(&self.letter).take()
    }

    /// The other side does not want the next connection before `until`.
    pub(crate) fn hold_off(&self, until: Instant) {
        *lock(&self.held_off) = Some(until);
    }

    /// How long the next connection has to wait, once.
    pub(crate) fn take_hold_off(&self, now: Instant) -> Duration {
        let until = lock(&self.held_off).take();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The queue's connection of `generation` was lost; `keeper` is to be woken.
    pub(crate) fn report_loss(&self, generation: u64, keeper: &Waker) {
        self.lost_generation.fetch_max(generation, Ordering::AcqRel);
        keeper.wake();
    }

    /// Whether the connection of `generation` was lost.
    pub(crate) fn is_lost(&self, generation: u64) -> bool {
        self.lost_generation.load(Ordering::Acquire) >= generation
    }

    /// Ends the connection that was delivered last, so that its owner notices.
    pub(crate) fn cut(&self) {
        if let Some(last) = lock(&self.last).as_ref().and_then(Weak::upgrade) {
            last.sever();
        }
    }

    /// The queue is gone and needs no more connections.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        lock(&self.letter).take();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}

/// What a mutex guards is whole whenever it is unlocked, even by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
