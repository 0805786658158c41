//! One job: a queue, what to issue next on it, and what is in flight.

use std::time::{Duration, Instant};

use crate::{
    Direction, Kind, Order, Plan,
    order::{Permutation, SplitMix, fill_random},
    port::{Done, Port},
    tally::Tally,
    wait::SLEEP_MAX,
};

/// The bytes of a source that a run covers, in units of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset_bytes: u64,
    /// How many I/Os fit.
    pub(crate) units: u64,
}

/// What to issue next.
#[derive(Debug)]
struct Chooser {
    order: Order,
    kind: Kind,
    /// Of 2⁶⁴: a number below is a read.
    read_below: u64,
    region: Region,
    unit_bytes: u64,
    random: SplitMix,
    permutation: Permutation,
    /// Where sequential reads and writes, each for themselves, or the random order stand.
    next: [u64; 2],
}

impl Chooser {
    fn new(plan: &Plan, region: Region, seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let share = u128::from(plan.read_percent) << 64;
        Self {
            order: plan.pattern.order,
            kind: plan.pattern.kind,
            read_below: u64::try_from(share / 100).unwrap_or(u64::MAX),
            region,
            unit_bytes: u64::from(plan.block_len_bytes),
            permutation: Permutation::new(region.units, random.next()),
            random,
            next: [0; 2],
        }
    }

    #[inline]
    fn choose(&mut self) -> (Direction, u64) {
        let direction = match self.kind {
            Kind::Read => Direction::Read,
            Kind::Trim => Direction::Trim,
            Kind::Mixed if self.random.next() < self.read_below => Direction::Read,
            Kind::Mixed | Kind::Write => Direction::Write,
        };
        let unit = match self.order {
            Order::Sequential => {
                let next = &mut self.next[usize::from(direction != Direction::Read)];
                let unit = *next;
                *next = if unit + 1 == self.region.units {
                    0
                } else {
                    unit + 1
                };
                unit
            }
            Order::Random => {
                if self.next[0] == self.region.units {
                    self.permutation = Permutation::new(self.region.units, self.random.next());
                    self.next[0] = 0;
                }
                self.next[0] += 1;
                self.permutation.at(self.next[0] - 1)
            }
        };
        (direction, self.region.offset_bytes + unit * self.unit_bytes)
    }
}

/// When the next I/O of a rate-limited job is due.
#[derive(Debug)]
struct Pacer {
    pace: Duration,
    due: Option<Instant>,
}

impl Pacer {
    /// The intended start of the next I/O, if it is due.
    fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due.unwrap_or(now);
        if due > now {
            return None;
        }
        self.due = Some(due + self.pace);
        Some(due)
    }
}

/// A time in which a job had I/Os in flight and none of them completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) since: Instant,
    pub(crate) lasted: Duration,
}

/// I/Os that complete after the run's end are measured if they take at least this long: leaving
/// them out would hide an outage.
pub(crate) const LATE_MIN: Duration = Duration::from_secs(1);

/// One job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) port: Port,
    /// Which source it belongs to.
    pub(crate) source: usize,
    chooser: Chooser,
    pacer: Option<Pacer>,
    block_len_bytes: u32,
    /// Slots that are free; never grows beyond the depth.
    free: Vec<u16>,
    in_flight: Box<[(Instant, Direction)]>,
    /// I/Os still to issue.
    left: u64,
    /// I/Os completed while measuring.
    pub(crate) measured: u64,
    /// The last completion, or the first I/O that was issued while nothing was in flight.
    answered: Instant,
    /// The longest stall so far.
    pub(crate) stall: Stall,
}

impl Job {
    /// A job that issues `left` I/Os at most.
    pub(crate) fn new(
        mut port: Port,
        source: usize,
        plan: &Plan,
        region: Region,
        seed: u64,
        left: u64,
    ) -> Self {
        if plan.pattern.kind != Kind::Read {
            for slot in 0..plan.depth {
                fill_random(port.buffer_mut(slot), seed ^ u64::from(slot));
            }
        }
        let now = Instant::now();
        Self {
            port,
            source,
            chooser: Chooser::new(plan, region, seed),
            pacer: plan.pace().map(|pace| Pacer { pace, due: None }),
            block_len_bytes: plan.block_len_bytes,
            free: (0..plan.depth).rev().collect(),
            in_flight: vec![(now, Direction::Read); usize::from(plan.depth)].into_boxed_slice(),
            left,
            measured: 0,
            answered: now,
            stall: Stall {
                since: now,
                lasted: Duration::ZERO,
            },
        }
    }

    /// I/Os still to issue.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The most I/Os in flight.
    pub(crate) fn depth(&self) -> usize {
        self.in_flight.len()
    }

    /// Fills the queue.
    #[inline]
    pub(crate) fn issue(&mut self, now: Instant) {
        if self.is_idle() {
            self.answered = now;
        }
        while self.left > 0 {
            let Some(&slot) = self.free.last() else {
                return;
            };
            let started = match &mut self.pacer {
                None => now,
                Some(pacer) => match pacer.take(now) {
                    Some(due) => due,
                    None => return,
                },
            };
            self.free.pop();
            self.left -= 1;
            let (direction, offset_bytes) = self.chooser.choose();
            self.in_flight[usize::from(slot)] = (started, direction);
            self.port
                .submit(slot, direction, offset_bytes, self.block_len_bytes);
        }
    }

    /// Records what has completed at `now`.
    #[inline]
    pub(crate) fn complete(&mut self, now: Instant, done: &mut Vec<Done>, tally: &mut Tally) {
        self.note_completion(now, done);
        self.measured += done.len() as u64;
        for Done { slot, result } in done.drain(..) {
            self.free.push(slot);
            let (started, direction) = self.in_flight[usize::from(slot)];
            match result {
                Ok(()) => tally.record(direction, now.saturating_duration_since(started)),
                Err(error) => tally.fail(&error),
            }
        }
    }

    /// As [`complete`](Self::complete), for I/Os that were in flight when the run ended.
    pub(crate) fn complete_late(&mut self, now: Instant, done: &mut Vec<Done>, tally: &mut Tally) {
        self.note_completion(now, done);
        for Done { slot, result } in done.drain(..) {
            self.free.push(slot);
            let (started, direction) = self.in_flight[usize::from(slot)];
            let latency = now.saturating_duration_since(started);
            match result {
                Ok(()) if latency >= LATE_MIN => tally.late.push((direction, latency)),
                Ok(()) => {}
                Err(error) => tally.fail(&error),
            }
        }
    }

    /// Records that I/Os have completed, if `done` holds any.
    #[inline]
    fn note_completion(&mut self, now: Instant, done: &[Done]) {
        if !done.is_empty() {
            self.note_stall(now);
            self.answered = now;
        }
    }

    fn note_stall(&mut self, now: Instant) {
        let lasted = self.stalled_for(now);
        if lasted > self.stall.lasted {
            self.stall = Stall {
                since: self.answered,
                lasted,
            };
        }
    }

    /// How long I/Os have been in flight without a completion.
    pub(crate) fn stalled_for(&self, now: Instant) -> Duration {
        if self.is_idle() {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.answered)
    }

    /// Begins to measure.
    pub(crate) fn start_measuring(&mut self) {
        self.measured = 0;
        self.stall.lasted = Duration::ZERO;
    }

    /// Issues nothing more.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }

    /// Issues more, without an end.
    pub(crate) fn resume(&mut self) {
        self.left = u64::MAX;
    }

    /// Counts what is still in flight as unanswered, with the time that it has waited. Its slots
    /// stay in use.
    pub(crate) fn abandon(&mut self, now: Instant, tally: &mut Tally) {
        self.note_stall(now);
        let mut is_free = vec![false; self.in_flight.len()];
        for &slot in &self.free {
            is_free[usize::from(slot)] = true;
        }
        for (&(started, direction), is_free) in self.in_flight.iter().zip(is_free) {
            if !is_free {
                let waited = now.saturating_duration_since(started);
                tally.late.push((direction, waited));
                tally.unanswered += 1;
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.in_flight.len()
    }

    /// Nothing is in flight and nothing will be.
    pub(crate) fn is_finished(&self) -> bool {
        self.left == 0 && self.is_idle()
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// How long it may sleep: until something completes, or until the next I/O is due.
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        (self.is_paced() || self.is_idle()).then(|| self.until_due(now))
    }

    /// The time until the next I/O is due, if a slot is free for it, limited to the longest sleep
    /// of a thread.
    pub(crate) fn until_due(&self, now: Instant) -> Duration {
        let due = self.pacer.as_ref().and_then(|pacer| pacer.due);
        match due {
            Some(due) if !self.free.is_empty() => due.saturating_duration_since(now).min(SLEEP_MAX),
            _ => SLEEP_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn chooser(rw: &str, read_percent: u8, units: u64) -> Chooser {
        let plan = Plan {
            pattern: rw.parse::<Pattern>().expect("known"),
            read_percent,
            ..Plan::new(Vec::new())
        };
        let region = Region {
            offset_bytes: 8192,
            units,
        };
        Chooser::new(&plan, region, 7)
    }

    #[test]
    fn sequential_order_wraps_at_the_end_of_the_region() {
        let mut chooser = chooser("read", 0, 3);
        let offsets: Vec<u64> = (0..4).map(|_| chooser.choose().1).collect();
        assert_eq!(offsets, [8192, 12288, 16384, 8192]);
    }

    #[test]
    fn random_order_visits_every_block_once_per_pass() {
        let mut chooser = chooser("randwrite", 0, 100);
        for _ in 0..3 {
            let mut pass: Vec<u64> = (0..100).map(|_| chooser.choose().1).collect();
            pass.sort_unstable();
            assert!(pass.iter().copied().eq((0..100).map(|u| 8192 + u * 4096)));
        }
    }

    #[test]
    fn the_share_of_reads_is_as_requested() {
        for percent in [0, 70, 100] {
            let mut chooser = chooser("randrw", percent, 1000);
            let reads = (0..100_000)
                .filter(|_| chooser.choose().0 == Direction::Read)
                .count() as f64;
            let off = reads / 1000.0 - f64::from(percent);
            assert!(off.abs() < 1.0, "{percent}: {reads}");
        }
    }

    #[test]
    fn a_late_generator_catches_up_with_what_was_due() {
        let start = Instant::now();
        let pace = Duration::from_millis(1);
        let mut pacer = Pacer { pace, due: None };
        assert_eq!(pacer.take(start), Some(start));
        assert_eq!(pacer.take(start), None);
        let late = start + pace * 10;
        for due in 1..=10 {
            assert_eq!(pacer.take(late), Some(start + pace * due));
        }
        assert_eq!(pacer.take(late), None);
    }
}
