//! Peers: their messages, their beacons, and changes of the configuration.

use super::PrimaryTerm;
use crate::base::Base;
use crate::config::Config;
use crate::ids::{LocalTime, MemberId, Seq, StreamId};
use crate::medium::Medium;
use crate::message::{Beacon, Body, Report};
use crate::peer::{Peer, Standing};
use crate::sender::Sender;
use crate::settings::Settings;

impl<D: Clone> PrimaryTerm<D> {
    pub(super) fn secondaries(config: &Config, now: LocalTime) -> Vec<Peer<D>> {
        let secondaries = config.secondaries();
        secondaries
            .map(|id| Peer::new(id, Standing::InSync, now))
            .collect()
    }

    /// The configuration of `base`, in force from now on, has the same primary.
    pub fn on_config<M: Medium<Data = D>>(&mut self, base: &mut Base<M>, now: LocalTime) {
        let Some(config) = base.config.clone() else {
            return;
        };
        self.peers
            .retain(|peer| !peer.is_in_sync() || config.has(peer.id));
        for peer in &mut self.peers {
            if config.has(peer.id) {
                peer.standing = Standing::InSync;
            }
        }
        for write in &self.writes {
            base.stamps.stamp(write.extent, config.epoch);
        }
        self.open_waiting(base, now);
        self.end_move();
        self.last_beacon = None;
    }

    pub fn handle_beacon_ack(&mut self, now: LocalTime, from: MemberId, sent_at: LocalTime) {
        if let Some(peer) = self.peer(from)
            && sent_at <= now
        {
            peer.heard = now;
            peer.answered = peer.answered.max(Some(sent_at));
        }
    }

    pub fn handle_entry_ack(
        &mut self,
        now: LocalTime,
        from: MemberId,
        stream: StreamId,
        applied: Seq,
    ) {
        let Some(peer) = self.peer(from) else {
            return;
        };
        let sender = peer.stream.as_mut();
        let Some(sender) = sender.filter(|sender| sender.id() == stream) else {
            return;
        };
        peer.heard = now;
        let Some(acked) = sender.ack(now, applied) else {
            return;
        };
        peer.progress_at = now;
        peer.has = acked.through;
        if acked.has_copy_end {
            peer.standing = Standing::Joining;
        }
    }

    /// A member reports what it has: a secondary of a new term, or one that wants to return.
    pub fn handle_report(
        &mut self,
        now: LocalTime,
        from: MemberId,
        report: Report,
        proposal: Option<&Config>,
    ) {
        let is_serving = self.is_serving();
        let learners = self.peers.iter().filter(|peer| !peer.is_in_sync()).count();
        let Some(peer) = self.peer(from) else {
            if is_serving && learners < Settings::LEARNERS_MAX {
                let mut peer = Peer::new(from, Standing::Waiting, now);
                peer.report = Some(report);
                self.peers.push(peer);
            }
            return;
        };
        peer.heard = now;
        match &peer.standing {
            Standing::InSync if peer.stream.is_none() => peer.report = Some(report),
            Standing::InSync => {}
            Standing::Waiting => {
                peer.progress_at = now;
                peer.report = Some(report);
            }
            Standing::Copying(_) | Standing::Joining => {
                let is_proposed = proposal.is_some_and(|config| config.has(from));
                let known = peer.report.as_ref().map(|report| report.stream.number);
                if known < Some(report.stream.number) && !is_proposed {
                    *peer = Peer::new(from, Standing::Waiting, now);
                    peer.report = Some(report);
                }
            }
        }
    }

    /// Beacons, repetitions and copies that are due.
    pub fn tick<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        proposal: Option<&Config>,
    ) {
        self.expire_move(&base.settings, now);
        for peer in &mut self.peers {
            let owes = match &peer.stream {
                Some(stream) => !stream.is_empty(),
                None => peer.report.is_none(),
            };
            if !owes {
                peer.progress_at = now;
            }
            let stream = peer.stream.as_mut();
            let due = stream.map(|stream| stream.take_due(now, &base.settings));
            for entry in due.unwrap_or_default() {
                base.send(peer.id, Body::Entry(entry));
            }
        }
        let is_kept = |peer: &Peer<D>| {
            let is_proposed = proposal.is_some_and(|config| config.has(peer.id));
            peer.is_in_sync() || is_proposed || !peer.is_silent(now, &base.settings)
        };
        self.peers.retain(is_kept);
        self.copy(base, now);
        let interval = base.settings.beacon_interval;
        if self.last_beacon.is_none_or(|at| now.since(at) >= interval) {
            self.send_beacons(base, now);
        }
    }

    fn send_beacons<M: Medium<Data = D>>(&mut self, base: &mut Base<M>, now: LocalTime) {
        let Some(config) = base.config.clone() else {
            return;
        };
        self.last_beacon = Some(now);
        for peer in &self.peers {
            let stream = peer.stream.as_ref();
            let beacon = Beacon {
                sent_at: now,
                config: config.clone(),
                stream: stream.map(Sender::id),
                settled: stream.map_or(Seq::default(), Sender::settled),
                is_reconciled: self.is_serving(),
            };
            base.send(peer.id, Body::Beacon(beacon));
        }
    }

    /// The next configuration that this primary wants: without a member that does not answer, with
    /// another primary, with a member that has returned, or a new epoch for those that wait to
    /// return.
    pub fn wanted<M: Medium>(&self, base: &Base<M>, now: LocalTime) -> Option<Config> {
        let config = base.config.as_ref()?;
        let in_sync = || self.peers.iter().filter(|peer| peer.is_in_sync());
        if let Some(peer) = in_sync().find(|peer| peer.is_silent(now, &base.settings)) {
            return Some(config.without(peer.id));
        }
        if self.is_moving() {
            return self.wanted_move(base, config, now);
        }
        let is_ready = |peer: &&Peer<D>| {
            matches!(peer.standing, Standing::Joining)
                && peer.has >= self.committed
                && peer.has_lease(now, &base.settings)
        };
        if let Some(peer) = self.peers.iter().find(is_ready)
            && let Some(next) = config.with(peer.id)
        {
            return Some(next);
        }
        let is_waiting = |peer: &Peer<D>| matches!(peer.standing, Standing::Waiting);
        let waits = self.peers.iter().any(is_waiting);
        waits.then(|| config.renumbered())
    }
}
