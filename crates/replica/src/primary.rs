//! A primary: writes and peers.

mod commands;
mod copying;
mod moving;
mod peers;

use std::collections::VecDeque;

use block::{Extent, Lba};

use crate::base::Base;
use crate::config::Config;
use crate::ids::{HostRequest, LocalTime, MemberId, WriteNumber};
use crate::medium::{Medium, Unwritten};
use crate::message::{Body, EntryBody, HostReply, Overwritten};
use crate::peer::{Peer, Standing};
use moving::Moving;
pub(crate) use moving::Predecessor;

/// What a primary has from the configuration that makes it one to that which makes another one.
///
/// ```text
///  Reports ── every secondary has reported ──► Rewriting ── all is written ──► Serving
/// ```
///
/// A predecessor that may still hold a lease prolongs `Reports`.
pub(crate) struct PrimaryTerm<D> {
    phase: Phase,
    peers: Vec<Peer<D>>,
    /// In ascending order of their numbers.
    writes: VecDeque<WriteInFlight<D>>,
    last: WriteNumber,
    /// All members in sync have the writes up to this one.
    committed: WriteNumber,
    last_beacon: Option<LocalTime>,
    /// Until it is known that it serves no more.
    predecessor: Option<Predecessor>,
    /// Where this primary is to move.
    moving: Option<Moving>,
}

enum Phase {
    /// Secondaries may hold writes of the former primary that others do not.
    Reports,
    /// These extents, which may differ, are written to all again.
    Rewriting(VecDeque<Extent>),
    Serving,
}

struct WriteInFlight<D> {
    number: WriteNumber,
    extent: Extent,
    /// `None`: no host waits for it.
    host: Option<HostWrite<D>>,
}

/// The command of a host, of which a write is the only or the last part.
struct HostWrite<D> {
    request: HostRequest,
    overwritten: Overwritten<D>,
}

impl<D: Clone> PrimaryTerm<D> {
    pub fn new(config: &Config, now: LocalTime, predecessor: Option<Predecessor>) -> Self {
        Self {
            phase: Phase::Reports,
            peers: Self::secondaries(config, now),
            writes: VecDeque::new(),
            last: WriteNumber::default(),
            committed: WriteNumber::default(),
            last_beacon: None,
            predecessor,
            moving: None,
        }
    }

    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether writes of hosts are executed.
    pub fn admits_writes(&self) -> bool {
        self.is_serving() && !self.is_stopping()
    }

    /// The members that are brought up to date, and the first block that was not looked at for
    /// each.
    pub fn copies(&self) -> impl Iterator<Item = (MemberId, Lba)> + '_ {
        self.peers.iter().filter_map(|peer| match &peer.standing {
            Standing::Copying(copying) => Some((peer.id, copying.next)),
            Standing::InSync | Standing::Waiting | Standing::Joining => None,
        })
    }

    /// The extents of writes in flight.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.writes.iter().map(|write| write.extent)
    }

    /// Writes `data` to the own copy and sends them to the peers. If the own copy has no memory,
    /// the blocks may hold old or new contents here, so what they hold is sent instead, in pieces:
    /// the queues may then hold the pieces of one write more than they have places.
    fn write<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        extent: Extent,
        data: &D,
        request: Option<HostRequest>,
    ) -> Result<(), Unwritten> {
        let is_kept = base.settings.allows(extent);
        let mut host = request.map(|request| HostWrite {
            request,
            overwritten: Overwritten {
                extent,
                old: is_kept.then(|| base.medium.read(extent)),
            },
        });
        let written = base.write(extent, data, base.epoch());
        if written.is_ok() {
            self.distribute(base, now, extent, data, host);
            return written;
        }
        let pieces: Vec<Extent> = base.settings.pieces(extent).collect();
        for (place, piece) in pieces.iter().enumerate() {
            let held = base.medium.read(*piece);
            let host = host.take_if(|_| place + 1 == pieces.len());
            self.distribute(base, now, *piece, &held, host);
        }
        written
    }

    /// Sends what the own copy holds to the peers.
    fn distribute<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        extent: Extent,
        data: &D,
        host: Option<HostWrite<D>>,
    ) {
        self.last.0 += 1;
        let number = self.last;
        self.writes.push_back(WriteInFlight {
            number,
            extent,
            host,
        });
        for peer in &mut self.peers {
            if !peer.takes(extent) {
                continue;
            }
            let data = data.clone();
            let body = EntryBody::Write { extent, data };
            push(base, peer, now, number, body);
        }
    }

    /// How many more writes have a place in every queue. A member that is copied to counts as one
    /// in sync does, so hosts become no faster than it is; otherwise it would never catch up.
    pub fn places<M: Medium>(&self, base: &Base<M>) -> usize {
        if self.is_stopping() {
            return 0;
        }
        let own = base.settings.writes_max.saturating_sub(self.writes.len());
        let streams = self.peers.iter().filter_map(|peer| peer.stream.as_ref());
        let places = streams.map(|stream| stream.places(&base.settings));
        places.fold(own, usize::min)
    }

    /// Commits what every peer that counts has, and goes on with what waited for that.
    pub fn advance<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        unsettled: &[Extent],
    ) {
        self.plan_rewriting(base, now, unsettled);
        self.commit(base);
        self.rewrite(base, now);
        self.commit(base);
    }

    fn commit<M: Medium<Data = D>>(&mut self, base: &mut Base<M>) {
        let effective = self.peers.iter().filter(|peer| peer.is_effective());
        let everyone_has = effective.map(|peer| peer.has).min().unwrap_or(self.last);
        self.committed = self.committed.max(everyone_has);
        let committed = self.committed;
        while let Some(write) = self.writes.front()
            && write.number <= committed
        {
            if let Some(host) = &write.host {
                base.reply(host.request, HostReply::Written);
            }
            self.writes.pop_front();
        }
        for stream in self
            .peers
            .iter_mut()
            .filter_map(|peer| peer.stream.as_mut())
        {
            stream.settle(committed);
        }
    }

    /// The term is over: nobody learns any more whether the writes in flight will last.
    pub fn end<M: Medium<Data = D>>(self, base: &mut Base<M>) {
        for host in self.writes.into_iter().filter_map(|write| write.host) {
            base.reply(host.request, HostReply::Deposed);
        }
    }

    fn peer(&mut self, id: MemberId) -> Option<&mut Peer<D>> {
        self.peers.iter_mut().find(|peer| peer.id == id)
    }
}

/// Adds an entry to the peer's stream, if it has one, and sends it.
fn push<M: Medium>(
    base: &mut Base<M>,
    peer: &mut Peer<M::Data>,
    now: LocalTime,
    through: WriteNumber,
    body: EntryBody<M::Data>,
) {
    let Some(stream) = &mut peer.stream else {
        return;
    };
    if stream.is_empty() {
        peer.progress_at = now;
    }
    let entry = stream.push(now, through, body);
    base.send(peer.id, Body::Entry(entry));
}
