//! Reading a discovery log: header, entries, header again. If the generation has changed, the log
//! is read again.
//!
//! Read first: NVM Express Base 2.0, "Discovery Log Page".

use zerocopy::FromBytes;

use super::{BufferRange, Command, Outcome, Transfer};
use crate::wire::discovery::{DiscoveryEntry, DiscoveryHeader};
use crate::wire::log::{GetLogPage, OffsetType, RetainEvent, lid};
use crate::wire::{Cid, Nsid, Sqe, Status, opcode};

/// Reads a discovery log, one command at a time.
#[derive(Debug)]
pub struct LogReader {
    slot: u16,
    entries_per_read: usize,
    phase: Phase,
    generation: u64,
    wanted: usize,
    entries: Vec<DiscoveryEntry>,
    restarts_left: u32,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// Submit this, and hand its outcome to [`LogReader::handle_outcome`].
    Submit(Command),
    /// The log has been read.
    Done,
}

/// Why a discovery log could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// The controller refused to give the log.
    #[error("reading the discovery log failed: {status}")]
    Refused {
        /// Its status.
        status: Status,
    },
    /// A record format that is not known (RECFMT).
    #[error("the discovery log has record format {record_format}; only 0 is known")]
    Format {
        /// The format.
        record_format: u16,
    },
    /// More entries than can be meant.
    #[error("the discovery log has {entries} entries; the maximum is {max}")]
    TooLong {
        /// What it claims.
        entries: u64,
        /// The most that is read.
        max: u64,
    },
    /// The log changed each time that it was read.
    #[error("the discovery log changed {restarts} times while it was read")]
    Unstable {
        /// How often it was read again.
        restarts: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Entries,
    HeadAgain,
    Done,
}

impl LogReader {
    /// The most entries that are read.
    pub const ENTRIES_MAX: u64 = 16 * 1024;
    /// How often a log is read again before that is given up.
    pub const RESTARTS_MAX: u32 = 16;
    /// The least that the buffer holds.
    pub const BUFFER_MIN_BYTES: usize = size_of::<DiscoveryHeader>();

    /// Reads through a slot's buffer of `buffer_bytes` bytes, at least [`Self::BUFFER_MIN_BYTES`].
    pub fn new(slot: u16, buffer_bytes: usize) -> Self {
        assert!(
            buffer_bytes >= Self::BUFFER_MIN_BYTES,
            "the buffer holds an entry"
        );
        Self {
            slot,
            entries_per_read: buffer_bytes / size_of::<DiscoveryEntry>(),
            phase: Phase::Head,
            generation: 0,
            wanted: 0,
            entries: Vec::new(),
            restarts_left: Self::RESTARTS_MAX,
        }
    }

    /// The next step. Not to be called while a command is in flight.
    pub fn poll(&self) -> LogStep {
        const HEAD_BYTES: usize = size_of::<DiscoveryHeader>();
        let (offset, len, event) = match self.phase {
            Phase::Head => (0, HEAD_BYTES, RetainEvent::Retain),
            Phase::Entries => (
                HEAD_BYTES + self.entries.len() * size_of::<DiscoveryEntry>(),
                self.entries_in_next_read() * size_of::<DiscoveryEntry>(),
                RetainEvent::Retain,
            ),
            // The last read lets the next change be reported.
            Phase::HeadAgain => (0, HEAD_BYTES, RetainEvent::Clear),
            Phase::Done => return LogStep::Done,
        };
        let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, Cid(0), Nsid::NONE);
        GetLogPage {
            page: lid::DISCOVERY,
            specific: 0,
            event,
            len_bytes: len as u64,
            offset_bytes: offset as u64,
            offset_type: OffsetType::Bytes,
        }
        .apply(&mut sqe);
        LogStep::Submit(Command {
            sqe,
            transfer: Transfer::ToHost(BufferRange::first(self.slot, len as u32)),
        })
    }

    /// The command has ended; `buffer` is the slot's.
    pub fn handle_outcome(
        &mut self,
        outcome: &Outcome,
        buffer: &[u8],
    ) -> Result<(), DiscoveryError> {
        if !outcome.status.is_success() {
            return Err(DiscoveryError::Refused {
                status: outcome.status,
            });
        }
        match self.phase {
            Phase::Head => self.on_head(buffer),
            Phase::Entries => {
                self.on_entries(buffer);
                Ok(())
            }
            Phase::HeadAgain => self.on_head_again(buffer),
            Phase::Done => Ok(()),
        }
    }

    /// The entries; all of them after [`LogStep::Done`].
    pub fn into_entries(self) -> Vec<DiscoveryEntry> {
        self.entries
    }

    fn on_head(&mut self, buffer: &[u8]) -> Result<(), DiscoveryError> {
        let head = head(buffer);
        let record_format = head.record_format.get();
        if record_format != 0 {
            return Err(DiscoveryError::Format { record_format });
        }
        let entries = head.records.get();
        if entries > Self::ENTRIES_MAX {
            return Err(DiscoveryError::TooLong {
                entries,
                max: Self::ENTRIES_MAX,
            });
        }
        self.generation = head.generation.get();
        self.wanted = entries as usize;
        self.entries.clear();
        self.phase = if self.wanted == 0 {
            Phase::HeadAgain
        } else {
            Phase::Entries
        };
        Ok(())
    }

    fn on_entries(&mut self, buffer: &[u8]) {
        let count = self.entries_in_next_read();
        let entries = buffer
            .chunks_exact(size_of::<DiscoveryEntry>())
            .take(count)
            .filter_map(|bytes| DiscoveryEntry::read_from_bytes(bytes).ok());
        self.entries.extend(entries);
        if self.entries.len() == self.wanted {
            self.phase = Phase::HeadAgain;
        }
    }

    fn on_head_again(&mut self, buffer: &[u8]) -> Result<(), DiscoveryError> {
        if head(buffer).generation.get() == self.generation {
            self.phase = Phase::Done;
            return Ok(());
        }
        self.restarts_left = self
            .restarts_left
            .checked_sub(1)
            .ok_or(DiscoveryError::Unstable {
                restarts: Self::RESTARTS_MAX,
            })?;
        self.phase = Phase::Head;
        Ok(())
    }

    fn entries_in_next_read(&self) -> usize {
        (self.wanted - self.entries.len()).min(self.entries_per_read)
    }
}

fn head(buffer: &[u8]) -> DiscoveryHeader {
    DiscoveryHeader::read_from_prefix(buffer).map_or_else(
        |_| unreachable!("the buffer holds 1024 bytes"),
        |(head, _)| head,
    )
}

#[cfg(test)]
mod tests;
