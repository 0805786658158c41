//! The thread that makes a device's sessions again after a loss.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use scsi::host::UnitFacts;

use super::IscsiLine;
use super::login::Plan;
use crate::line::Line;
use crate::mailbox::{Letter, Mailbox, Shared};
use crate::pauses::{Pauses, pause};
use crate::socket::{Interest, sleep};
use crate::{ConnectError, QueueError};

/// The keeper's possessions.
#[derive(Debug)]
pub(crate) struct Keeper {
    plan: Plan,
    shared: Arc<Shared>,
    lanes: Vec<Lane>,
    /// What was attached first.
    facts: UnitFacts,
}

/// One queue's sessions.
#[derive(Debug)]
struct Lane {
    mailbox: Arc<Mailbox>,
    /// The number of its present session.
    generation: u64,
    has_ended: bool,
}

impl Keeper {
    /// The number of a queue's first session.
    pub(crate) const FIRST_GENERATION: u64 = 1;

    pub(crate) fn new(
        plan: Plan,
        shared: Arc<Shared>,
        mailboxes: Vec<Arc<Mailbox>>,
        facts: UnitFacts,
    ) -> Self {
        let lanes = mailboxes.into_iter().map(|mailbox| Lane {
            mailbox,
            generation: Self::FIRST_GENERATION,
            has_ended: false,
        });
        Self {
            plan,
            shared,
            lanes: lanes.collect(),
            facts,
        }
    }

    /// Makes sessions again until the device is dropped.
    pub(crate) fn run(mut self) {
        loop {
            self.shared.keeper.clear();
            if self.shared.is_stopping() {
                break;
            }
            if self.lanes.iter().any(Lane::needs_session) {
                self.restore();
                continue;
            }
            // Where waiting fails, looking again now and then does as well.
            if sleep(&[(self.shared.keeper.descriptor(), Interest::Read)], None).is_err() {
                pause(&self.shared, Duration::from_millis(100));
            }
        }
        for lane in &mut self.lanes {
            lane.mailbox.cut();
            lane.end(&QueueError::Detached);
        }
    }

    /// Tries to give every queue a session that needs one, until all have one, the device is dropped, or the patience
    /// is over.
    fn restore(&mut self) {
        let began = Instant::now();
        let generation = self.lanes.iter().map(|lane| lane.generation).sum();
        let backoff = self.plan.options.backoff;
        let mut pauses = Pauses::new(backoff, generation);
        let lost = self.lanes.iter().filter(|lane| lane.needs_session());
        let hold_offs = lost.map(|lane| lane.mailbox.take_hold_off(began));
        if let Some(longest) = hold_offs.max().filter(|it| !it.is_zero()) {
            // RFC 7143 §11.9: not before Time2Wait.
            pause(&self.shared, longest);
            if self.shared.is_stopping() {
                return;
            }
        }
        while let Err(error) = self.restore_once() {
            let tried_for = began.elapsed();
            if tried_for >= backoff.give_up_after {
                let gave_up = QueueError::GaveUp {
                    tried_for,
                    last: error.to_string(),
                };
                let lanes = self.lanes.iter_mut().filter(|lane| lane.needs_session());
                lanes.for_each(|lane| lane.end(&gave_up));
                return;
            }
            pause(&self.shared, pauses.next());
            if self.shared.is_stopping() {
                return;
            }
        }
    }

    fn restore_once(&mut self) -> Result<(), ConnectError> {
        for index in 0..self.lanes.len() {
            if !self.lanes[index].needs_session() {
                continue;
            }
            let attached = self.plan.attach(index as u16)?;
            let (before, now) = (&self.facts, &attached.facts);
            let block_size = |facts: &UnitFacts| facts.geometry.map(|it| it.block_size);
            let is_same = before.designator == now.designator
                && before.serial == now.serial
                && block_size(before) == block_size(now);
            if !is_same {
                return Err(ConnectError::ReplacedUnit {
                    address: attached.address,
                    lun: self.plan.lun(),
                });
            }
            if let Some(geometry) = now.geometry {
                self.shared.set_blocks(geometry.blocks);
            }
            let options = &self.plan.options;
            let line = IscsiLine::new(attached.connection, self.plan.lun(), options.depth);
            let lane = &mut self.lanes[index];
            lane.generation += 1;
            lane.mailbox.deliver(Letter::Connection {
                line: Box::new(Line::Iscsi(line)),
                generation: lane.generation,
            });
        }
        Ok(())
    }
}

impl Lane {
    fn needs_session(&self) -> bool {
        !self.has_ended && !self.mailbox.is_abandoned() && self.mailbox.is_lost(self.generation)
    }

    fn end(&mut self, error: &QueueError) {
        if !self.has_ended {
            self.has_ended = true;
            self.mailbox.deliver(Letter::End(error.clone()));
        }
    }
}
