//! The receiver's end of a stream, and what a copy holds.

use std::collections::VecDeque;

use block::{Extent, Lba};

use crate::base::Base;
use crate::claim::Claim;
use crate::config::Config;
use crate::ids::{Epoch, LocalTime, Seq, StreamId};
use crate::medium::{Medium, Unwritten};
use crate::message::{Beacon, Entry, EntryBody, Report};
use crate::unsettled::Unsettled;

/// A member's copy as the receiver of a stream.
///
/// ```text
///  expected ── entry or beacon names the stream ──► open
///     ▲                                               │
///     └── a beacon names another, or another primary ─┘  with the next stream number
/// ```
#[derive(Debug)]
pub(crate) struct Receiver {
    stream: StreamId,
    applied: Seq,
    /// Writes and pieces of this stream that are not known to be settled. A piece may contain a
    /// write that is in flight.
    recent: VecDeque<(Seq, Extent)>,
    /// What was unsettled in earlier streams and terms.
    inherited: Unsettled,
    claim: Claim,
    /// What the copy that is in progress has brought.
    progress: Option<(Lba, Epoch)>,
    last_beacon: Option<LocalTime>,
    /// Whether the copy had no memory for the last entry.
    lacks_memory: bool,
    /// How many streams in a row have ended for want of memory.
    failed_streams: u32,
}

impl Receiver {
    pub fn new() -> Self {
        Self {
            stream: StreamId {
                number: 1,
                opened: Epoch(0),
            },
            applied: Seq::default(),
            recent: VecDeque::new(),
            inherited: Unsettled::default(),
            claim: Claim::everything(Epoch(0)),
            progress: None,
            last_beacon: None,
            lacks_memory: false,
            failed_streams: 0,
        }
    }

    pub fn is_open(&self) -> bool {
        self.stream.opened > Epoch(0)
    }

    /// How many streams have ended for want of memory since the copy was in sync.
    pub fn failed_streams(&self) -> u32 {
        self.failed_streams
    }

    pub fn report(&self) -> Report {
        Report {
            stream: StreamId {
                opened: Epoch(0),
                ..self.stream
            },
            claim: self.claim,
            unsettled: self.inherited.as_slice().to_vec(),
        }
    }

    /// Whether `beacon` is newer than all others of this primary.
    pub fn is_new(&mut self, beacon: &Beacon) -> bool {
        let is_new = self.last_beacon.is_none_or(|last| last < beacon.sent_at);
        if is_new {
            self.last_beacon = Some(beacon.sent_at);
        }
        is_new
    }

    /// Compares streams with the primary. Returns a report if the primary needs one.
    pub fn handle_beacon<M: Medium>(&mut self, base: &Base<M>, beacon: &Beacon) -> Option<Report> {
        if beacon.stream.is_some_and(|stream| self.accepts(stream)) {
            self.settle(beacon.settled);
            if beacon.is_reconciled && beacon.config.has(base.id) {
                self.inherited.clear();
            }
            return None;
        }
        if self.is_open() {
            self.close(base);
        }
        Some(self.report())
    }

    /// Executes `entry` if it is the next one. Returns the last that was executed, or `None` if the
    /// stream is another or the entry is invalid.
    pub fn handle_entry<M: Medium>(
        &mut self,
        base: &mut Base<M>,
        entry: &Entry<M::Data>,
    ) -> Option<(StreamId, Seq)> {
        if !is_valid(base, entry) || !self.accepts(entry.stream) {
            return None;
        }
        let is_next = entry.seq.0 == self.applied.0 + 1 && self.has_place(base, entry);
        if is_next {
            self.lacks_memory = self.execute(base, entry).is_err();
            self.applied.0 += u64::from(!self.lacks_memory);
        }
        Some((self.stream, self.applied))
    }

    /// The configuration of `base` replaces `former`.
    pub fn on_config<M: Medium>(&mut self, base: &mut Base<M>, former: Option<&Config>) {
        let config = base.config.as_ref();
        let primary = config.map(|config| config.primary);
        let is_member = config.is_some_and(|config| config.has(base.id));
        let has_other_primary = former.map(|config| config.primary) != primary;
        let is_removed = former.is_some_and(|config| config.has(base.id)) && !is_member;
        if has_other_primary {
            self.last_beacon = None;
        }
        if has_other_primary || is_removed {
            self.close(base);
        }
        let epoch = base.epoch();
        let recent = self.recent.iter().map(|(_, extent)| extent);
        for extent in recent.chain(self.inherited.as_slice()) {
            base.stamps.stamp(*extent, epoch);
        }
        if is_member {
            self.claim = Claim::everything(epoch);
            self.progress = None;
            self.failed_streams = 0;
        }
    }

    /// The primary's own unsettled extents.
    pub fn inherited(&self) -> &[Extent] {
        self.inherited.as_slice()
    }

    /// All members in sync have what was unsettled.
    pub fn on_reconciled(&mut self) {
        self.inherited.clear();
    }

    /// A former primary's writes in flight.
    pub fn inherit<M: Medium>(&mut self, base: &Base<M>, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            self.inherited.add(extent, base.settings.unsettled_max);
        }
    }

    /// Whether `stream` is the expected one. The first that is makes it open.
    fn accepts(&mut self, stream: StreamId) -> bool {
        let is_expected = stream.number == self.stream.number
            && (!self.is_open() || stream.opened == self.stream.opened);
        if is_expected {
            self.stream = stream;
        }
        is_expected
    }

    fn has_place<M: Medium>(&mut self, base: &Base<M>, entry: &Entry<M::Data>) -> bool {
        self.settle(entry.settled);
        self.recent.len() < base.settings.stream_max()
    }

    /// Executes the next entry. If the copy has no memory for it, the entry waits to be sent again,
    /// and its blocks may differ from the primary's until then.
    fn execute<M: Medium>(
        &mut self,
        base: &mut Base<M>,
        entry: &Entry<M::Data>,
    ) -> Result<(), Unwritten> {
        let (extent, data, stamp) = match &entry.body {
            EntryBody::Write { extent, data } => (*extent, data, base.epoch()),
            EntryBody::Piece {
                extent,
                data,
                stamp,
                ..
            } => (*extent, data, *stamp),
            EntryBody::CopyEnd { complete_through } => {
                self.progress = None;
                self.claim = Claim::everything(*complete_through);
                return Ok(());
            }
        };
        if self.recent.back() != Some(&(entry.seq, extent)) {
            self.recent.push_back((entry.seq, extent));
        }
        base.write(extent, data, stamp)?;
        if let EntryBody::Piece {
            below,
            complete_through,
            ..
        } = &entry.body
        {
            self.progress = Some((*below, *complete_through));
        }
        Ok(())
    }

    fn settle(&mut self, settled: Seq) {
        while let Some((seq, _)) = self.recent.front()
            && *seq <= settled
        {
            self.recent.pop_front();
        }
    }

    /// Gives the stream up. What it has brought stays, and the next one has another number.
    pub fn close<M: Medium>(&mut self, base: &Base<M>) {
        self.stream.number += 1;
        self.stream.opened = Epoch(0);
        self.applied = Seq::default();
        self.failed_streams += u32::from(self.lacks_memory);
        self.lacks_memory = false;
        for (_, extent) in self.recent.drain(..) {
            self.inherited.add(extent, base.settings.unsettled_max);
        }
        if let Some((below, through)) = self.progress.take()
            && below >= self.claim.below
        {
            self.claim.below = below;
            self.claim.below_through = through;
        }
    }
}

fn is_valid<M: Medium>(base: &Base<M>, entry: &Entry<M::Data>) -> bool {
    match &entry.body {
        EntryBody::Write { extent, data } | EntryBody::Piece { extent, data, .. } => {
            base.allows_write(*extent, data)
        }
        EntryBody::CopyEnd { .. } => true,
    }
}
