//! One job of a verification.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use super::{
    pattern::Stamp,
    report::{Mismatch, VerifyReport},
};
use crate::{
    Direction, End, Kind, Order, Plan, Stop, Wait,
    order::{Permutation, SplitMix},
    port::{Done, Port, PortError},
};

/// The part of a source that one job verifies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) offset_bytes: u64,
    /// How many I/Os it has.
    pub(super) units: u64,
    /// The source's own block size.
    pub(super) block_bytes: u32,
}

/// A queue and what its blocks must hold.
#[derive(Debug)]
pub(super) struct CheckJob {
    port: Port,
    share: Share,
    unit_bytes: u32,
    order: Order,
    kind: Kind,
    read_percent: u64,
    seed: u64,
    end: End,
    random: SplitMix,
    permutation: Permutation,
    units: Units,
    /// What is in flight in each slot.
    in_flight: Box<[(Direction, u64)]>,
    free: Vec<u16>,
    /// The last completion, or the first I/O that was issued while nothing was in flight.
    answered: Instant,
    /// How long the target may stay silent.
    patience: Duration,
    stop: Stop,
    done: Vec<Done>,
    found: VerifyReport,
}

/// What is known of each unit.
#[derive(Debug)]
struct Units {
    /// How often it was written; empty if an earlier run wrote it.
    generations: Vec<u32>,
    /// Whether an I/O on it is in flight.
    busy: Vec<bool>,
    /// Those whose last write failed: it may have been executed or not.
    uncertain: BTreeSet<u64>,
}

/// What a unit should hold.
#[derive(Clone, Copy)]
enum Expected {
    Generation(u64),
    /// Either this one or the one before.
    LastTwo(u64),
    /// Whatever generation it says.
    Any,
}

impl CheckJob {
    /// The most units of one job: they take 5 bytes of memory each.
    pub(super) const UNITS_MAX: u64 = 1 << 28;

    pub(super) fn new(port: Port, plan: &Plan, share: Share, order_seed: u64) -> Self {
        let mut random = SplitMix(order_seed);
        let writes = plan.pattern.kind != Kind::Read;
        let tracked = if writes { share.units as usize } else { 0 };
        Self {
            port,
            share,
            unit_bytes: plan.block_len_bytes,
            order: plan.pattern.order,
            kind: plan.pattern.kind,
            read_percent: u64::from(plan.read_percent).min(READ_PERCENT_MAX),
            seed: plan.seed,
            end: plan.end,
            permutation: Permutation::new(share.units, random.next()),
            random,
            units: Units {
                generations: vec![0; tracked],
                busy: vec![false; tracked],
                uncertain: BTreeSet::new(),
            },
            in_flight: vec![(Direction::Read, 0); usize::from(plan.depth)].into_boxed_slice(),
            free: (0..plan.depth).rev().collect(),
            answered: Instant::now(),
            patience: plan.patience(),
            stop: plan.stop.clone(),
            done: Vec::with_capacity(usize::from(plan.depth)),
            found: VerifyReport::default(),
        }
    }

    pub(super) fn run(mut self, wait: Wait, bar: &ProgressBar) -> Result<VerifyReport, PortError> {
        let verified = self.verify(wait, bar);
        self.port.close();
        verified.map(|()| self.found)
    }

    fn verify(&mut self, wait: Wait, bar: &ProgressBar) -> Result<(), PortError> {
        if self.kind != Kind::Read {
            self.write_all(wait)?;
        }
        for index in 0..self.share.units {
            if self.stop.is_requested() {
                break;
            }
            let unit = self.unit_at(index);
            self.await_slot(wait)?;
            self.issue(Direction::Read, unit);
            bar.inc(1);
        }
        self.await_all(wait)
    }

    /// Writes every unit, then again until time is up.
    fn write_all(&mut self, wait: Wait) -> Result<(), PortError> {
        let deadline = match self.end {
            End::After(runtime) => Some(Instant::now() + runtime),
            End::OnePass => None,
        };
        let mut is_first_pass = true;
        loop {
            for index in 0..self.share.units {
                let is_over = !is_first_pass && deadline.is_some_and(|at| Instant::now() >= at);
                if is_over || self.stop.is_requested() {
                    return self.await_all(wait);
                }
                while self.kind == Kind::Mixed && self.random.below(100) < self.read_percent {
                    self.await_slot(wait)?;
                    self.read_something();
                }
                self.await_slot(wait)?;
                let unit = self.unit_at(index);
                if !self.units.busy[unit as usize] {
                    self.issue(Direction::Write, unit);
                }
            }
            is_first_pass = false;
            if deadline.is_none_or(|at| Instant::now() >= at) {
                return self.await_all(wait);
            }
        }
    }

    fn unit_at(&self, index: u64) -> u64 {
        match self.order {
            Order::Sequential => index,
            Order::Random => self.permutation.at(index),
        }
    }

    /// Reads a random unit, if it was written and is not in flight.
    fn read_something(&mut self) {
        let unit = self.random.below(self.share.units);
        let known = &self.units;
        if known.generations[unit as usize] > 0 && !known.busy[unit as usize] {
            self.issue(Direction::Read, unit);
        }
    }

    fn issue(&mut self, direction: Direction, unit: u64) {
        if self.free.len() == self.in_flight.len() {
            self.answered = Instant::now();
        }
        let slot = self.free.pop().expect("a slot was waited for");
        if let Some(busy) = self.units.busy.get_mut(unit as usize) {
            *busy = true;
        }
        if direction == Direction::Write {
            let generation = &mut self.units.generations[unit as usize];
            *generation += 1;
            self.fill(slot, unit, u64::from(self.units.generations[unit as usize]));
        }
        self.in_flight[usize::from(slot)] = (direction, unit);
        let offset_bytes = self.share.offset_bytes + unit * u64::from(self.unit_bytes);
        self.port
            .submit(slot, direction, offset_bytes, self.unit_bytes);
    }

    fn fill(&mut self, slot: u16, unit: u64, generation: u64) {
        let (first_lba, seed) = (self.first_lba(unit), self.seed);
        let block_bytes = self.share.block_bytes as usize;
        let buffer = &mut self.port.buffer_mut(slot)[..self.unit_bytes as usize];
        for (lba, block) in (first_lba..).zip(buffer.chunks_exact_mut(block_bytes)) {
            let stamp = Stamp {
                lba,
                seed,
                generation,
            };
            stamp.fill(block);
        }
    }

    fn first_lba(&self, unit: u64) -> u64 {
        (self.share.offset_bytes + unit * u64::from(self.unit_bytes))
            / u64::from(self.share.block_bytes)
    }

    fn await_slot(&mut self, wait: Wait) -> Result<(), PortError> {
        while self.free.is_empty() {
            self.reap(wait)?;
        }
        Ok(())
    }

    fn await_all(&mut self, wait: Wait) -> Result<(), PortError> {
        while self.free.len() < self.in_flight.len() {
            self.reap(wait)?;
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait) -> Result<(), PortError> {
        let mut done = std::mem::take(&mut self.done);
        match wait {
            Wait::Spin => self.port.poll(Instant::now(), &mut done)?,
            Wait::Sleep | Wait::Adaptive(_) => self.port.wait(wait, None, &mut done)?,
        }
        let now = Instant::now();
        if !done.is_empty() {
            self.answered = now;
        }
        let waited = now.saturating_duration_since(self.answered);
        if waited > self.patience {
            return Err(PortError::Silent { waited });
        }
        for Done { slot, result } in done.drain(..) {
            let (direction, unit) = self.in_flight[usize::from(slot)];
            self.free.push(slot);
            if let Some(busy) = self.units.busy.get_mut(unit as usize) {
                *busy = false;
            }
            match (result, direction) {
                (Ok(()), Direction::Write) => {
                    self.found.written_blocks += self.blocks_per_unit();
                    self.units.uncertain.remove(&unit);
                }
                (Ok(()), _) => self.check(slot, unit),
                (Err(error), direction) => {
                    self.found.errors += 1;
                    self.found
                        .first_error
                        .get_or_insert_with(|| error.to_string());
                    if direction == Direction::Write {
                        self.units.uncertain.insert(unit);
                    }
                }
            }
        }
        self.done = done;
        Ok(())
    }

    fn blocks_per_unit(&self) -> u64 {
        u64::from(self.unit_bytes / self.share.block_bytes)
    }

    fn check(&mut self, slot: u16, unit: u64) {
        let expected = match self.units.generations.get(unit as usize) {
            None => Expected::Any,
            Some(&generation) if self.units.uncertain.contains(&unit) => {
                Expected::LastTwo(u64::from(generation))
            }
            Some(&generation) => Expected::Generation(u64::from(generation)),
        };
        let first_lba = self.first_lba(unit);
        let buffer = &self.port.buffer(slot)[..self.unit_bytes as usize];
        let blocks = buffer.chunks_exact(self.share.block_bytes as usize);
        for (lba, block) in (first_lba..).zip(blocks) {
            self.found.checked_blocks += 1;
            let Some(mismatch) = mismatch(block, lba, self.seed, expected) else {
                continue;
            };
            self.found.differing_blocks += 1;
            let first = &mut self.found.first_difference;
            if first.as_ref().is_none_or(|known| lba < known.lba) {
                *first = Some(mismatch);
            }
        }
    }
}

/// With reads alone, writing would never end.
const READ_PERCENT_MAX: u64 = 90;

fn mismatch(block: &[u8], lba: u64, seed: u64, expected: Expected) -> Option<Mismatch> {
    let stamp = |generation| Stamp {
        lba,
        seed,
        generation,
    };
    let wanted = match expected {
        Expected::Generation(generation) => stamp(generation),
        Expected::LastTwo(last) => {
            let before = last - 1;
            // A block never written before holds whatever it held.
            if before == 0 || stamp(before).first_difference(block).is_none() {
                return None;
            }
            stamp(last)
        }
        Expected::Any => stamp(Stamp::of(block).map_or(1, |found| found.generation)),
    };
    let byte = wanted.first_difference(block)?;
    Some(Mismatch::new(block, wanted, byte))
}
