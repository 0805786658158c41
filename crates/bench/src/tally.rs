//! What one thread counts.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{Direction, latency::Latencies, port::IoError};

/// Latencies per direction and errors.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) latencies: [Latencies; 3],
    /// I/Os that were in flight when the run ended and took long, with the time from their start to
    /// their completion or, if they had none, to the end of waiting.
    pub(crate) late: Vec<(Direction, Duration)>,
    /// How many of these did not complete.
    pub(crate) unanswered: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Tally {
    #[inline]
    pub(crate) fn record(&mut self, direction: Direction, latency: Duration) {
        self.latencies[direction as usize].record(latency);
    }

    #[cold]
    pub(crate) fn fail(&mut self, error: &IoError) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(error.to_string());
        }
    }

    /// Forgets the latencies of the ramp; errors are kept.
    pub(crate) fn start_measuring(&mut self) {
        self.latencies.iter_mut().for_each(Latencies::clear);
    }

    /// Whether no I/O has ended.
    pub(crate) fn counts_nothing(&self) -> bool {
        self.latencies.iter().all(|it| it.count() == 0) && self.late.is_empty() && self.errors == 0
    }

    /// The latencies of all I/Os, including those that were in flight when the run ended and took
    /// long.
    pub(crate) fn with_late(&self) -> [Latencies; 3] {
        let mut all = self.latencies.clone();
        for &(direction, latency) in &self.late {
            all[direction as usize].record(latency);
        }
        all
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
        self.late.extend(other.late);
        self.unanswered += other.unanswered;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// How many I/Os a thread has completed since it began to measure, for the thread that watches.
/// Each has cache lines of its own and is stored once per batch.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter([AtomicU64; 3]);

impl Counter {
    #[inline]
    pub(crate) fn publish(&self, tally: &Tally) {
        for (count, latencies) in self.0.iter().zip(&tally.latencies) {
            count.store(latencies.count(), Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> [u64; 3] {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
}
