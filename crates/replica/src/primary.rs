//! A primary: writes, reads, peers.

mod commands;
mod copying;
mod peers;

use std::collections::VecDeque;

use block::{Extent, Lba};

use crate::base::Base;
use crate::config::Config;
use crate::ids::{HostRequest, LocalTime, MemberId, WriteNumber};
use crate::medium::{Medium, Unwritten};
use crate::message::{Body, EntryBody, HostReply, Refusal};
use crate::peer::{Peer, Standing};

/// What a primary has from the configuration that makes it one to that which makes another one.
///
/// ```text
///  Reports ── every secondary has reported ──► Rewriting ── all is written ──► Serving
/// ```
pub(crate) struct PrimaryTerm<D> {
    phase: Phase,
    peers: Vec<Peer<D>>,
    /// In ascending order of their numbers.
    writes: VecDeque<WriteInFlight>,
    last: WriteNumber,
    /// All members in sync have the writes up to this one.
    committed: WriteNumber,
    reads: Vec<WaitingRead<D>>,
    last_beacon: Option<LocalTime>,
}

enum Phase {
    /// Secondaries may hold writes of the former primary that others do not.
    Reports,
    /// These extents, which may differ, are written to all again.
    Rewriting(VecDeque<Extent>),
    Serving,
}

struct WriteInFlight {
    number: WriteNumber,
    extent: Extent,
    /// `None`: the primary writes what it has again.
    request: Option<HostRequest>,
    /// Whether the own copy had memory for it.
    written: Result<(), Unwritten>,
}

/// A read whose contents a failover could take back until a write is committed.
struct WaitingRead<D> {
    request: HostRequest,
    until: WriteNumber,
    data: D,
}

impl<D: Clone> PrimaryTerm<D> {
    pub fn new(config: &Config, now: LocalTime) -> Self {
        Self {
            phase: Phase::Reports,
            peers: Self::secondaries(config, now),
            writes: VecDeque::new(),
            last: WriteNumber::default(),
            committed: WriteNumber::default(),
            reads: Vec::new(),
            last_beacon: None,
        }
    }

    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
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
    /// the blocks may hold old or new contents here, so what they hold is sent instead.
    fn write<M: Medium<Data = D>>(
        &mut self,
        base: &mut Base<M>,
        now: LocalTime,
        extent: Extent,
        data: &D,
        request: Option<HostRequest>,
    ) {
        self.last.0 += 1;
        let number = self.last;
        let written = base.write(extent, data, base.epoch());
        let held = match written {
            Err(Unwritten) if M::needs_memory(data) => Some(base.medium.read(extent)),
            _ => None,
        };
        let data = held.as_ref().unwrap_or(data);
        self.writes.push_back(WriteInFlight {
            number,
            extent,
            request,
            written,
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

    /// Whether a write has a place in every queue.
    fn has_place<M: Medium>(&self, base: &Base<M>) -> bool {
        let is_full = |peer: &Peer<D>| {
            let stream = peer.stream.as_ref();
            stream.is_some_and(|stream| stream.is_full(&base.settings))
        };
        self.writes.len() < base.settings.writes_max && !self.peers.iter().any(is_full)
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
            if let Some(request) = write.request {
                let refused = |Unwritten| HostReply::Refused(Refusal::NoMemory);
                base.reply(
                    request,
                    write.written.map_or_else(refused, |()| HostReply::Written),
                );
            }
            self.writes.pop_front();
        }
        self.reads.retain(|read| {
            let is_over = read.until <= committed;
            if is_over {
                base.reply(read.request, HostReply::Read(read.data.clone()));
            }
            !is_over
        });
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
        let writes = self.writes.iter().filter_map(|write| write.request);
        for request in writes.chain(self.reads.iter().map(|read| read.request)) {
            base.reply(request, HostReply::Refused(Refusal::Deposed));
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
