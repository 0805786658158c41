//! A member's requests to the store of configurations.

use crate::base::Base;
use crate::config::Config;
use crate::ids::{LocalTime, StoreRequestId};
use crate::medium::Medium;
use crate::message::{Output, StoreOp};
use crate::pause::growing;

/// One request at a time, and one proposed configuration until its fate is known.
///
/// A request that timed out may still be executed later. So a proposal is repeated until a
/// configuration of its epoch is seen, its own or another, and no other is proposed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct StoreClient {
    proposal: Option<Config>,
    outstanding: Option<Outstanding>,
    last_id: StoreRequestId,
    last_asked: Option<LocalTime>,
    /// How many regular reads have brought nothing new.
    idle_polls: u32,
    next_poll: LocalTime,
}

/// How often the pause between two regular reads is doubled at most.
const POLL_DOUBLINGS_MAX: u32 = 5;

#[derive(Debug)]
struct Outstanding {
    id: StoreRequestId,
    is_read: bool,
    asked_at: LocalTime,
}

impl StoreClient {
    /// The configuration that may be in force without this member's knowledge.
    pub fn proposal(&self) -> Option<&Config> {
        self.proposal.as_ref()
    }

    /// Proposes `next`. Nothing else may be proposed.
    pub fn propose<M: Medium>(&mut self, base: &mut Base<M>, now: LocalTime, next: Config) {
        assert!(self.proposal.is_none(), "one proposal at a time");
        assert!(next.is_valid(), "a proposal obeys the limits");
        self.proposal = Some(next.clone());
        self.ask(base, now, StoreOp::Swap(next));
    }

    /// Asks for the present configuration, unless a request is outstanding or one was made less
    /// than a beacon's interval ago.
    pub fn read<M: Medium>(&mut self, base: &mut Base<M>, now: LocalTime) {
        let interval = base.settings.beacon_interval;
        let is_early = self.last_asked.is_some_and(|at| now.since(at) < interval);
        if self.outstanding.is_none() && !is_early {
            self.ask(base, now, StoreOp::Read);
        }
    }

    /// Reads the configuration regularly, and ever less often while that brings nothing new: many
    /// members may wait for a primary that does not return.
    pub fn poll<M: Medium>(&mut self, base: &mut Base<M>, now: LocalTime) {
        if self.outstanding.is_some() || now < self.next_poll {
            return;
        }
        let doublings = self.idle_polls.min(POLL_DOUBLINGS_MAX);
        let pause = growing(base.settings.beacon_interval, doublings, now);
        self.next_poll = now.plus(pause);
        self.idle_polls += 1;
        self.ask(base, now, StoreOp::Read);
    }

    /// A primary was heard, or the configuration is another one.
    pub fn on_news(&mut self) {
        self.idle_polls = 0;
        self.next_poll = LocalTime::default();
    }

    /// Repeats the proposal if its request has timed out.
    pub fn tick<M: Medium>(&mut self, base: &mut Base<M>, now: LocalTime) {
        let timeout = base.settings.store_timeout;
        self.outstanding
            .take_if(|request| now.since(request.asked_at) >= timeout);
        if self.outstanding.is_none()
            && let Some(next) = self.proposal.clone()
        {
            self.ask(base, now, StoreOp::Swap(next));
        }
    }

    /// Takes a reply; whether it answers an outstanding read, so that it is not older than that.
    pub fn handle_reply(&mut self, id: StoreRequestId) -> bool {
        let answered = self.outstanding.take_if(|request| request.id == id);
        answered.is_some_and(|request| request.is_read)
    }

    /// Forgets a proposal that `config` has decided.
    pub fn on_config(&mut self, config: &Config) {
        self.on_news();
        self.proposal
            .take_if(|proposal| proposal.epoch <= config.epoch);
    }

    fn ask<M: Medium>(&mut self, base: &mut Base<M>, now: LocalTime, op: StoreOp) {
        self.last_id.0 += 1;
        self.last_asked = Some(now);
        self.outstanding = Some(Outstanding {
            id: self.last_id,
            is_read: op == StoreOp::Read,
            asked_at: now,
        });
        base.outputs.push_back(Output::Store(self.last_id, op));
    }
}
