//! Commands of the program itself on a volume, one after another, on a thread that may wait.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block::{
    Admission, Completion, Completions, DataUse, Extent, Intent, Op, OpKind, Persistence, ReadDest,
    Settled, Status, Ticket, Unmap,
};

use crate::ManagedVolume;
use crate::relay::{Connections, Relay};

/// How long a command waits before it is tried again because the volume is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Runs commands on a volume of any kind, as a session does, and waits for each. For copies, resync
/// and the like; not for threads that drive connections, nor for those of volumes. Several commands
/// in flight need several drivers.
#[derive(Debug)]
pub struct Driver {
    volume: Arc<dyn ManagedVolume>,
    answers: Arc<Answers>,
    patience: Duration,
}

/// Why a command of a [`Driver`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// The volume failed it.
    #[error(transparent)]
    Status(#[from] Status),
    /// The volume did not answer. What has become of the command's effects is unknown.
    #[error("the volume did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// The completion of the one command in flight.
struct Answers {
    connections: Connections,
    awaited: Mutex<Awaited>,
    has_come: Condvar,
}

#[derive(Default)]
struct Awaited {
    generation: u32,
    result: Option<Result<(), Status>>,
}

impl Driver {
    /// A driver of `volume`, which reports to `relay`. A command fails that takes longer than
    /// `patience`.
    pub fn new(relay: &Arc<Relay>, volume: Arc<dyn ManagedVolume>, patience: Duration) -> Self {
        let answers = relay.join(1, |connections| Answers {
            connections,
            awaited: Mutex::default(),
            has_come: Condvar::new(),
        });
        Self {
            volume,
            answers,
            patience,
        }
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<dyn ManagedVolume> {
        &self.volume
    }

    /// Reads `extent` into `buffer`, which is as long.
    ///
    /// # Errors
    /// What the volume says, or if it does not answer.
    pub fn read(&mut self, extent: Extent, buffer: &mut [u8]) -> Result<(), DriveError> {
        let intent = Intent {
            kind: OpKind::Read,
            extents: &[extent],
            len_bytes: buffer.len() as u64,
            data_use: DataUse::Read,
            persistence: Persistence::Volatile,
        };
        self.run(&intent, &mut |volume| {
            let dest = ReadDest::Copy(buffer);
            volume.execute(Op::Read { extent, dest })
        })
    }

    /// Writes `data`, which is as long as `extent`.
    ///
    /// # Errors
    /// What the volume says, or if it does not answer.
    pub fn write(
        &mut self,
        extent: Extent,
        data: &[u8],
        persistence: Persistence,
    ) -> Result<(), DriveError> {
        let intent = Intent {
            kind: OpKind::Write,
            extents: &[extent],
            len_bytes: data.len() as u64,
            data_use: DataUse::Overwrite,
            persistence,
        };
        self.run(&intent, &mut |volume| {
            volume.execute(Op::Write { extent, data })
        })
    }

    /// Makes `extent` read as zeros, and frees what it takes if `unmap` allows it.
    ///
    /// # Errors
    /// What the volume says, or if it does not answer.
    pub fn write_zeroes(&mut self, extent: Extent, unmap: Unmap) -> Result<(), DriveError> {
        let len_bytes = extent.blocks.0 << self.volume.geometry().block_size.shift();
        let intent = Intent {
            kind: OpKind::Write,
            extents: &[extent],
            len_bytes,
            data_use: DataUse::Erase,
            persistence: Persistence::Volatile,
        };
        self.run(&intent, &mut |volume| {
            volume.execute(Op::WriteZeroes { extent, unmap })
        })
    }

    /// Makes what was written safe.
    ///
    /// # Errors
    /// What the volume says, or if it does not answer.
    pub fn flush(&mut self) -> Result<(), DriveError> {
        let intent = Intent {
            kind: OpKind::Flush,
            extents: &[],
            len_bytes: 0,
            data_use: DataUse::Flush,
            persistence: Persistence::Durable,
        };
        self.run(&intent, &mut |volume| volume.execute(Op::Flush))
    }

    /// Runs one command: admits it, waits for its blocks, executes it, and waits until its effects
    /// are safe. A busy volume is asked again; `execute` may then be called more than once.
    ///
    /// # Errors
    /// What the volume says, or if it does not answer. The command holds nothing any more.
    pub fn run(
        &mut self,
        intent: &Intent<'_>,
        execute: &mut dyn FnMut(&dyn ManagedVolume) -> Result<(), Status>,
    ) -> Result<(), DriveError> {
        let until = Instant::now() + self.patience;
        loop {
            match self.attempt(intent, execute, until) {
                Err(DriveError::Status(Status::Busy)) if Instant::now() < until => {
                    thread::sleep(BUSY_PAUSE);
                }
                result => return result,
            }
        }
    }

    fn attempt(
        &mut self,
        intent: &Intent<'_>,
        execute: &mut dyn FnMut(&dyn ManagedVolume) -> Result<(), Status>,
        until: Instant,
    ) -> Result<(), DriveError> {
        let ticket = self.next_ticket();
        match self.volume.admit(Instant::now(), intent, ticket) {
            Admission::Now => Ok(execute(&*self.volume)?),
            Admission::NotBefore(due) => {
                execute(&*self.volume)?;
                self.sleep_until(due, until)
            }
            Admission::Fail(status, due) => {
                due.map_or(Ok(()), |due| self.sleep_until(due, until))?;
                Err(status.into())
            }
            Admission::Later(due) => self.under_lease(ticket, due, until, |driver| {
                driver.wait(until)?;
                driver.execute_and_settle(ticket, intent, execute, until)
            }),
            Admission::NowThenSettle(due) => self.under_lease(ticket, due, until, |driver| {
                driver.execute_and_settle(ticket, intent, execute, until)
            }),
        }
    }

    fn under_lease(
        &self,
        ticket: Ticket,
        due: Option<Instant>,
        until: Instant,
        work: impl FnOnce(&Self) -> Result<(), DriveError>,
    ) -> Result<(), DriveError> {
        let result = work(self);
        self.volume.release(ticket);
        due.map_or(Ok(()), |due| self.sleep_until(due, until))?;
        result
    }

    fn execute_and_settle(
        &self,
        ticket: Ticket,
        intent: &Intent<'_>,
        execute: &mut dyn FnMut(&dyn ManagedVolume) -> Result<(), Status>,
        until: Instant,
    ) -> Result<(), DriveError> {
        execute(&*self.volume)?;
        if intent.kind != OpKind::Read && self.volume.settle(ticket)? == Settled::Later {
            self.wait(until)?;
        }
        Ok(())
    }

    fn next_ticket(&self) -> Ticket {
        let mut awaited = self.answers.awaited();
        awaited.generation = awaited.generation.wrapping_add(1);
        awaited.result = None;
        Ticket {
            connection: self.answers.connections.number(0),
            slot: 0,
            generation: awaited.generation,
        }
    }

    /// Waits for the completion of the last ticket.
    fn wait(&self, until: Instant) -> Result<(), DriveError> {
        let left = until.saturating_duration_since(Instant::now());
        let awaited = self.answers.awaited();
        let has_not_come = |awaited: &mut Awaited| awaited.result.is_none();
        let woken = self
            .answers
            .has_come
            .wait_timeout_while(awaited, left, has_not_come);
        let (mut awaited, _) = woken.unwrap_or_else(PoisonError::into_inner);
        match awaited.result.take() {
            Some(result) => Ok(result?),
            None => Err(DriveError::TimedOut(self.patience)),
        }
    }

    /// Waits as long as a filter says.
    fn sleep_until(&self, due: Instant, until: Instant) -> Result<(), DriveError> {
        thread::sleep(due.min(until).saturating_duration_since(Instant::now()));
        if due > until {
            return Err(DriveError::TimedOut(self.patience));
        }
        Ok(())
    }
}

impl Answers {
    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completions for Answers {
    fn done(&self, completion: Completion) {
        let mut awaited = self.awaited();
        // A command that has timed out may still complete.
        if completion.ticket.generation == awaited.generation {
            awaited.result = Some(completion.result);
            self.has_come.notify_all();
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answers({:?})", self.connections)
    }
}

#[cfg(test)]
mod tests;
