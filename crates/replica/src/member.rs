//! A node's part in a volume.

use block::{Extent, Lba};

use crate::base::Base;
use crate::claim::Claim;
use crate::config::Config;
use crate::ids::{Epoch, HostRequest, LocalTime, MemberId, StoreRequestId};
use crate::medium::Medium;
use crate::message::{Beacon, Body, Envelope, Output, Overwritten, Refusal, Report};
use crate::pause::growing;
use crate::primary::{Predecessor, PrimaryTerm};
use crate::receiver::Receiver;
use crate::settings::{InvalidSettings, Settings};
use crate::stamps::Stamps;
use crate::store::StoreClient;

/// One life of one copy of a volume: primary, secondary, or neither and on its way back.
///
/// The driver reads the clock *after* it received what it passes with the time, passes times in
/// ascending order, calls [`Self::handle_tick`] regularly, and takes all outputs after each call.
pub struct Member<M: Medium> {
    base: Base<M>,
    store: StoreClient,
    receiver: Receiver,
    term: Option<PrimaryTerm<M::Data>>,
    /// The last time when the primary was heard, or when it became primary. While this member is in
    /// sync, its promise not to take over lasts for [`Settings::grace`] from here.
    heard: LocalTime,
    /// The last report without a stream, or when the last stream was open.
    last_report: Option<LocalTime>,
}

impl<M: Medium> Member<M> {
    /// A member with an empty copy: `medium` holds only zeros. `id` was never used before.
    pub fn new(
        id: MemberId,
        settings: Settings,
        medium: M,
        now: LocalTime,
    ) -> Result<Self, InvalidSettings> {
        settings.check()?;
        Ok(Self {
            base: Base {
                id,
                stamps: Stamps::new(settings.blocks, settings.region_blocks),
                settings,
                medium,
                config: None,
                outputs: std::collections::VecDeque::new(),
            },
            store: StoreClient::default(),
            receiver: Receiver::new(),
            term: None,
            heard: now,
            last_report: None,
        })
    }

    /// The newest configuration that this member knows.
    pub fn config(&self) -> Option<&Config> {
        self.base.config.as_ref()
    }

    /// Which writes the copy has.
    pub fn claim(&self) -> Claim {
        self.receiver.report().claim
    }

    /// As the primary: the members that are brought up to date, and the first block that was not
    /// looked at for each.
    pub fn copies(&self) -> Vec<(MemberId, Lba)> {
        self.term
            .as_ref()
            .map_or_else(Vec::new, |term| term.copies().collect())
    }

    /// The copy.
    pub fn medium(&self) -> &M {
        &self.base.medium
    }

    /// Whether reads may be served now: this member is primary, and no other can be.
    pub fn serves_reads(&self, now: LocalTime) -> bool {
        let term = self.term.as_ref().filter(|term| term.is_serving());
        term.is_some_and(|term| term.has_lease(&self.base, now, self.store.proposal()))
    }

    /// Until when reads may be served if nothing is handled before: as [`Self::serves_reads`]. The
    /// last time of all if no other member holds a copy; `None` if this member does not serve.
    pub fn serves_reads_until(&self) -> Option<LocalTime> {
        let term = self.term.as_ref().filter(|term| term.is_serving())?;
        term.lease_end(&self.base, self.store.proposal())
    }

    /// What writes in flight have overwritten in the copy, in their order. A read returns what the
    /// copy holds, except for these blocks, which it takes from here, the newest first: a failover
    /// could take the writes back. [`Self::serves_reads`] has to hold afterwards.
    pub fn overwritten(&self) -> impl DoubleEndedIterator<Item = &Overwritten<M::Data>> {
        self.term.iter().flat_map(PrimaryTerm::overwritten)
    }

    /// Whether this member is primary and executes writes.
    pub fn serves_writes(&self) -> bool {
        self.term.as_ref().is_some_and(PrimaryTerm::admits_writes)
    }

    /// The members that could become primary instead of this one.
    pub fn successors(&self, now: LocalTime) -> Vec<MemberId> {
        let term = self.term.as_ref().filter(|term| term.is_serving());
        term.map_or_else(Vec::new, |term| {
            term.successors(&self.base.settings, now).collect()
        })
    }

    /// Begins to move the primary from this member to `to`, one of [`Self::successors`]. Writes are
    /// refused with [`Refusal::NotReady`] until the move has happened, which makes this member a
    /// secondary, or takes longer than [`Settings::answer_timeout`]. Returns whether it has begun.
    pub fn begin_move(&mut self, now: LocalTime, to: MemberId) -> bool {
        let settings = &self.base.settings;
        let term = self
            .term
            .as_mut()
            .filter(|_| self.store.proposal().is_none());
        let has_begun = term.is_some_and(|term| term.begin_move(settings, now, to));
        if has_begun {
            self.handle_tick(now);
        }
        has_begun
    }

    /// How many more writes this member executes before it refuses one with [`Refusal::Busy`]; 0
    /// if it executes none.
    pub fn write_places(&self) -> usize {
        let term = self.term.as_ref().filter(|term| term.admits_writes());
        term.map_or(0, |term| term.places(&self.base))
    }

    /// What the driver is to do next.
    pub fn poll_output(&mut self) -> Option<Output<M::Data>> {
        self.base.outputs.pop_front()
    }

    /// A host writes `data` to `extent`. Zeros may cover more blocks than other contents:
    /// [`Settings::ZEROS_PIECES_MAX`]. An [`Output::Reply`] follows.
    ///
    /// # Errors
    /// Why the command has failed. No reply follows, except after [`Refusal::NoMemory`]: each block
    /// then holds old or new contents, and the reply says when the blocks are the same in every
    /// member in sync.
    pub fn handle_write(
        &mut self,
        now: LocalTime,
        request: HostRequest,
        extent: Extent,
        data: &M::Data,
    ) -> Result<(), Refusal> {
        let is_allowed = self.base.allows_write(extent, data);
        let result = match &mut self.term {
            _ if !is_allowed => Err(Refusal::InvalidExtent),
            None => Err(self.not_primary()),
            Some(term) => term.handle_write(&mut self.base, now, request, extent, data),
        };
        self.advance(now);
        result
    }

    /// The store has `config`, or had it, as someone who watches it says.
    pub fn handle_config(&mut self, now: LocalTime, config: Config) {
        self.adopt(now, config);
        self.advance(now);
    }

    /// The store answers: `current` was its configuration after the operation.
    pub fn handle_store_reply(&mut self, now: LocalTime, id: StoreRequestId, current: Config) {
        let is_fresh = self.store.handle_reply(id);
        self.adopt(now, current);
        if is_fresh && let Some(term) = &mut self.term {
            term.handle_store_answer(now);
        }
        if is_fresh && self.is_abandoned(now) && self.store.proposal().is_none() {
            self.take_over(now);
        }
        self.advance(now);
    }

    /// A message of another member. It may be invalid, lost, late or repeated.
    pub fn handle_message(&mut self, now: LocalTime, message: Envelope<M::Data>) {
        if message.to != self.base.id || message.from == self.base.id {
            return;
        }
        match message.body {
            Body::Newer(config) => self.adopt(now, config),
            _ if message.epoch < self.base.epoch() => {
                if let Some(config) = self.base.config.clone() {
                    self.base.send(message.from, Body::Newer(config));
                }
            }
            Body::Beacon(beacon) => {
                let is_of_sender = beacon.config.primary == message.from;
                if is_of_sender && beacon.config.epoch == message.epoch {
                    self.handle_beacon(now, &beacon);
                }
            }
            _ if message.epoch > self.base.epoch() => self.store.read(&mut self.base, now),
            body => self.handle_current(now, message.from, body),
        }
        self.advance(now);
    }

    /// Time has passed. Everything that is due is done here.
    pub fn handle_tick(&mut self, now: LocalTime) {
        self.store.tick(&mut self.base, now);
        if let Some(term) = &mut self.term {
            term.tick(&mut self.base, now, self.store.proposal());
            if term.asks_store() {
                self.store.read(&mut self.base, now);
            }
            if self.store.proposal().is_none()
                && let Some(next) = term.wanted(&self.base, now)
            {
                self.store.propose(&mut self.base, now, next);
            }
        } else {
            self.tick_without_term(now);
        }
        self.advance(now);
    }

    fn tick_without_term(&mut self, now: LocalTime) {
        let is_silent = now.since(self.heard) > self.base.settings.grace();
        let Some(config) = &self.base.config else {
            return self.store.poll(&mut self.base, now);
        };
        let primary = config.primary;
        if config.has(self.base.id) {
            if is_silent {
                self.store.read(&mut self.base, now);
            }
            return;
        }
        if is_silent {
            self.store.poll(&mut self.base, now);
        }
        if self.receiver.is_open() {
            self.last_report = Some(now);
            if is_silent {
                self.receiver.close(&self.base);
            }
            return;
        }
        let interval = self.base.settings.beacon_interval;
        let failed = self.receiver.failed_streams();
        let is_due = |at| now.since(at) >= growing(interval, failed, at);
        if self.last_report.is_none_or(is_due) {
            self.last_report = Some(now);
            let report = self.receiver.report();
            self.base.send(primary, Body::Report(report));
        }
    }

    /// A message of this member's epoch.
    fn handle_current(&mut self, now: LocalTime, from: MemberId, body: Body<M::Data>) {
        match (&mut self.term, body) {
            (None, Body::Entry(entry)) => {
                let primary = self.base.config.as_ref().map(|config| config.primary);
                if primary != Some(from) {
                    return;
                }
                if let Some((stream, applied)) = self.receiver.handle_entry(&mut self.base, &entry)
                {
                    self.base.send(from, Body::EntryAck { stream, applied });
                }
            }
            (Some(term), Body::BeaconAck { sent_at }) => {
                term.handle_beacon_ack(now, from, sent_at);
            }
            (Some(term), Body::EntryAck { stream, applied }) => {
                term.handle_entry_ack(now, from, stream, applied);
            }
            (Some(term), Body::Report(report)) if is_valid(&self.base.settings, &report) => {
                term.handle_report(now, from, report, self.store.proposal());
            }
            _ => {}
        }
    }

    fn handle_beacon(&mut self, now: LocalTime, beacon: &Beacon) {
        self.adopt(now, beacon.config.clone());
        let is_current = self.base.config.as_ref() == Some(&beacon.config);
        if !is_current || self.term.is_some() || !self.receiver.is_new(beacon) {
            return;
        }
        self.heard = now;
        self.store.on_news();
        let primary = beacon.config.primary;
        if self.store.proposal().is_none() {
            let sent_at = beacon.sent_at;
            self.base.send(primary, Body::BeaconAck { sent_at });
        }
        if let Some(report) = self.receiver.handle_beacon(&self.base, beacon) {
            self.base.send(primary, Body::Report(report));
        }
    }

    /// Whether this member is in sync and has promised nothing to its primary any more.
    fn is_abandoned(&self, now: LocalTime) -> bool {
        let config = self.base.config.as_ref();
        let is_secondary = self.term.is_none() && config.is_some_and(|c| c.has(self.base.id));
        is_secondary && now.since(self.heard) > self.base.settings.grace()
    }

    fn take_over(&mut self, now: LocalTime) {
        if let Some(config) = &self.base.config {
            let next = config.taken_over_by(self.base.id);
            self.store.propose(&mut self.base, now, next);
        }
    }

    /// Takes `config` as the newest configuration, if it is.
    fn adopt(&mut self, now: LocalTime, config: Config) {
        if !config.is_valid() || config.epoch <= self.base.epoch() {
            return;
        }
        // Before it proposed itself, the lease that it had granted ended.
        let is_own = self.store.proposal() == Some(&config);
        let has_predecessor = !is_own && config.epoch > Epoch(1);
        self.store.on_config(&config);
        let former = self.base.config.replace(config);
        let config = self.base.config.as_ref();
        let primary = config.map(|config| config.primary);
        let is_primary = primary == Some(self.base.id);
        if primary != former.as_ref().map(|config| config.primary) {
            self.heard = now;
        }
        if !is_primary && let Some(term) = self.term.take() {
            self.receiver.inherit(&self.base, term.extents());
            term.end(&mut self.base);
            self.tell_successor();
        }
        self.receiver.on_config(&mut self.base, former.as_ref());
        if !is_primary {
            return;
        }
        if let Some(term) = &mut self.term {
            term.on_config(&mut self.base, now);
        } else {
            self.term = self.base.config.as_ref().map(|config| {
                let predecessor = Predecessor::of(config, former.as_ref(), now);
                PrimaryTerm::new(config, now, has_predecessor.then_some(predecessor))
            });
        }
    }

    /// A primary that has moved makes its successor begin.
    fn tell_successor(&mut self) {
        if let Some(config) = self.base.config.clone()
            && config.has(self.base.id)
        {
            self.base.send(config.primary, Body::Newer(config));
        }
    }

    fn advance(&mut self, now: LocalTime) {
        if let Some(term) = &mut self.term {
            term.advance(&mut self.base, now, self.receiver.inherited());
            if term.is_serving() {
                self.receiver.on_reconciled();
            }
        }
    }

    fn not_primary(&self) -> Refusal {
        Refusal::NotPrimary(self.base.config.as_ref().map(|config| config.primary))
    }
}

/// Whether a peer's report obeys the limits.
fn is_valid(settings: &Settings, report: &Report) -> bool {
    let is_inside = report.unsettled.iter().all(|extent| settings.has(*extent));
    report.unsettled.len() <= settings.unsettled_max && is_inside
}

#[cfg(test)]
mod tests;
