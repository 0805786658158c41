//! What peers are given besides writes: rewritten extents after a failover, and pieces that a
//! returning member missed.

use block::{Extent, Lba};

use super::{Phase, PrimaryTerm, push};
use crate::base::Base;
use crate::ids::{Epoch, LocalTime};
use crate::medium::Medium;
use crate::message::EntryBody;
use crate::peer::{Copying, Peer, Standing};
use crate::sender::Sender;

/// How many pieces are looked at for a peer in one call.
const PIECES_SCANNED_MAX: usize = 4096;

impl<D: Clone> PrimaryTerm<D> {
    /// When every secondary has reported, and no predecessor serves: opens their streams and lists
    /// what may differ.
    pub(super) fn plan_rewriting<M: Medium>(
        &mut self,
        base: &Base<M>,
        now: LocalTime,
        own: &[Extent],
    ) {
        let has_all = self.peers.iter().all(|peer| peer.report.is_some());
        let is_due = has_all && self.has_succeeded(&base.settings, now);
        if !matches!(self.phase, Phase::Reports) || !is_due {
            return;
        }
        self.predecessor = None;
        let mut extents: Vec<Extent> = Vec::new();
        for peer in &mut self.peers {
            peer.progress_at = now;
            let Some(report) = &peer.report else {
                continue;
            };
            peer.stream = Some(Sender::new(report.stream, base.epoch()));
            for extent in report.unsettled.iter().chain(own) {
                if !extents.contains(extent) {
                    extents.push(*extent);
                }
            }
        }
        let pieces = extents
            .iter()
            .flat_map(|extent| base.settings.pieces(*extent));
        self.phase = Phase::Rewriting(pieces.collect());
    }

    /// Writes what may differ again, as far as queues have place.
    pub(super) fn rewrite<M: Medium<Data = D>>(&mut self, base: &mut Base<M>, now: LocalTime) {
        while self.places(base) > 0 {
            let Phase::Rewriting(extents) = &mut self.phase else {
                return;
            };
            let Some(extent) = extents.pop_front() else {
                break;
            };
            let data = base.medium.read(extent);
            // If the copy has no memory, what it holds is sent, and that is all that matters here.
            let _ = self.write(base, now, extent, &data, None);
            self.commit(base);
        }
        if let Phase::Rewriting(extents) = &self.phase
            && extents.is_empty()
            && self.writes.is_empty()
        {
            self.phase = Phase::Serving;
        }
    }

    /// Sends pieces to returning members, at the rate that is allowed.
    pub(super) fn copy<M: Medium<Data = D>>(&mut self, base: &mut Base<M>, now: LocalTime) {
        let last = self.last;
        for peer in &mut self.peers {
            while let Some(body) = next_entry(base, peer, now) {
                push(base, peer, now, last, body);
            }
        }
    }

    /// Opens the streams of members that wait to return: from this epoch on, they miss nothing.
    pub(super) fn open_waiting<M: Medium>(&mut self, base: &Base<M>, now: LocalTime) {
        let complete_through = Epoch(base.epoch().0 - 1);
        for peer in &mut self.peers {
            let (Standing::Waiting, Some(report)) = (&peer.standing, &peer.report) else {
                continue;
            };
            peer.stream = Some(Sender::new(report.stream, base.epoch()));
            peer.progress_at = now;
            peer.standing = Standing::Copying(Copying {
                next: Lba(0),
                is_end_sent: false,
                complete_through,
                next_piece_at: now,
            });
        }
    }
}

/// The next entry of a copy, if it may be sent now.
fn next_entry<M: Medium>(
    base: &Base<M>,
    peer: &mut Peer<M::Data>,
    now: LocalTime,
) -> Option<EntryBody<M::Data>> {
    let Standing::Copying(copying) = &peer.standing else {
        return None;
    };
    let stream = peer.stream.as_ref()?;
    let has_place = stream.places(&base.settings) > 0 && stream.pieces() < base.settings.pieces_max;
    if copying.is_end_sent || !has_place || now < copying.next_piece_at {
        return None;
    }
    let (mut next, complete_through) = (copying.next, copying.complete_through);
    let mut missed = None;
    for _ in 0..PIECES_SCANNED_MAX {
        let Some(piece) = base.settings.piece_at(next) else {
            break;
        };
        next = Lba(piece.lba.0 + piece.blocks.0);
        let stamp = base.stamps.at(piece.lba);
        if peer.misses(piece, stamp) {
            missed = Some((piece, stamp));
            break;
        }
    }
    let is_end = missed.is_none() && next.0 >= base.settings.blocks.0;
    let Standing::Copying(copying) = &mut peer.standing else {
        return None;
    };
    copying.next = next;
    copying.is_end_sent = is_end;
    if is_end {
        return Some(EntryBody::CopyEnd { complete_through });
    }
    let (extent, stamp) = missed?;
    copying.next_piece_at = now.plus(base.settings.piece_interval);
    Some(EntryBody::Piece {
        extent,
        data: base.medium.read(extent),
        stamp,
        below: next,
        complete_through,
    })
}
