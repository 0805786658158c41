//! Commands of this node's hosts.

use std::sync::Arc;

use block::{Admission, Blocks, DataUse, Extent, Intent, Lba, OpKind, Status, Ticket};
use memory::Store;
use replica::wire::{AnswerCode, CommandKind};
use replica::{Contents, HostRequest, LocalTime, Refusal, Settings};

use super::ReplicatedVolume;
use super::lease::{FETCHED_BYTES_MAX, LEASES_MAX, Lease, Part, Stage, span};
use super::state::{Failure, LocalWrite, Origin, State, failure};
use crate::clock::now;

impl ReplicatedVolume {
    /// Admits a command that needs a lease: a change, and a read of which this node is not the
    /// primary.
    pub(super) fn admit_with_lease(&self, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let mut state = self.lock();
        if state.is_closed {
            return Admission::Fail(Status::Gone, None);
        }
        if state.leases.len() >= LEASES_MAX {
            return Admission::Fail(Status::Busy, None);
        }
        let is_inside = |extent: &&Extent| self.geometry.byte_range(**extent).is_ok();
        if intent.extents.iter().any(|extent| !is_inside(&extent)) {
            return Admission::Fail(Status::LbaOutOfRange, None);
        }
        let now = now();
        let first = state.last_id + 1;
        let mut lease = Lease::new(intent.kind, Stage::Granted, now, first);
        if intent.kind != OpKind::Read {
            lease.span = span(intent.extents);
        }
        if intent.kind != OpKind::Read && self.admissible(&state) > 0 {
            state.leases.insert(ticket, lease);
            return Admission::NowThenSettle(None);
        }
        lease.stage = Stage::Parked;
        if intent.kind == OpKind::Read && intent.data_use != DataUse::Verify {
            lease.extents = intent.extents.to_vec();
            let blocks = intent
                .extents
                .iter()
                .map(|extent| extent.blocks.0)
                .sum::<u64>();
            lease.fetched_bytes = blocks << self.geometry.block_size.shift();
            if state.fetched_bytes + lease.fetched_bytes > FETCHED_BYTES_MAX {
                return Admission::Fail(Status::Busy, None);
            }
            state.fetched_bytes += lease.fetched_bytes;
        }
        state.leases.insert(ticket, lease);
        state.parked += 1;
        if intent.kind == OpKind::Read && self.forwards_to(&state).is_some() {
            self.fetch(&mut state, now, ticket);
        }
        Admission::Later(None)
    }

    /// How many changes can be admitted now, to be executed here or by the primary. Half of the
    /// places in queues are left to commands that were admitted before.
    fn admissible(&self, state: &State) -> usize {
        let places = if state.serves_writes() {
            state.write_places()
        } else if self.forwards_to(state).is_some() {
            self.writes_max.saturating_sub(state.forwards.changes())
        } else {
            0
        };
        places.saturating_sub(self.writes_max / 2)
    }

    /// Goes on with commands that waited for a primary.
    pub(super) fn resume(&self, state: &mut State, now: LocalTime) {
        if state.parked == 0 {
            return;
        }
        let mut admissible = self.admissible(state);
        let serves_reads = self.admits_reads();
        let can_fetch = !serves_reads && self.forwards_to(state).is_some();
        if admissible == 0 && !serves_reads && !can_fetch {
            return;
        }
        let parked = state.leases.iter();
        let parked = parked.filter(|(_, lease)| lease.stage == Stage::Parked);
        let mut parked: Vec<(LocalTime, Ticket, OpKind)> = parked
            .map(|(ticket, lease)| (lease.since, *ticket, lease.kind))
            .collect();
        parked.sort_unstable_by_key(|(since, ticket, _)| (*since, *ticket));
        for (_, ticket, kind) in parked {
            match kind {
                OpKind::Read if serves_reads => state.grant(ticket, Ok(())),
                OpKind::Read if can_fetch => self.fetch(state, now, ticket),
                OpKind::Read => {}
                _ if admissible > 0 => {
                    admissible -= 1;
                    state.grant(ticket, Ok(()));
                }
                _ => {}
            }
        }
    }

    /// Fetches the blocks of a parked read from the primary.
    pub(super) fn fetch(&self, state: &mut State, now: LocalTime, ticket: Ticket) {
        let fetch = state.next_id();
        let Some(lease) = state.leases.get_mut(&ticket) else {
            return;
        };
        let extents = lease.extents.iter();
        let pieces = extents.flat_map(|extent| self.pieces(*extent));
        let pieces: Vec<Extent> = pieces.collect();
        if pieces.is_empty() {
            // Its contents go nowhere, or it has no blocks.
            state.grant(ticket, Ok(()));
            return;
        }
        lease.fetch = fetch;
        lease.stage = Stage::Fetching;
        state.parked -= 1;
        let parts = pieces.into_iter().enumerate().map(|(place, extent)| Part {
            extent,
            forward: self.forward(state, now, extent, CommandKind::Read, Some((ticket, place))),
            contents: None,
        });
        let parts = parts.collect();
        if let Some(lease) = state.leases.get_mut(&ticket) {
            lease.parts = parts;
        }
    }

    /// Cuts an extent into pieces that one entry or command covers.
    pub(super) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        cut(extent, self.piece_bytes >> self.geometry.block_size.shift())
    }

    pub(super) fn write(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        let shift = self.geometry.block_size.shift();
        let mut rest = data;
        for piece in self.pieces(extent) {
            let (bytes, after) = rest.split_at((piece.blocks.0 << shift) as usize);
            rest = after;
            // The bytes are kept until every member has them.
            let contents = Contents::of_bytes(self.geometry.block_size, Arc::from(bytes));
            self.change(piece, &contents.ok_or(Status::Invalid)?)?;
        }
        Ok(())
    }

    pub(super) fn write_zeroes(&self, extent: Extent) -> Result<(), Status> {
        for part in cut(extent, self.zeros_blocks_max()) {
            let zeros = Contents::zeros(self.geometry.block_size, part.blocks.0);
            self.change(part, &zeros)?;
        }
        Ok(())
    }

    /// The most blocks that one entry or command makes zeros. The lock of the volume is held while
    /// their memory is freed.
    fn zeros_blocks_max(&self) -> u64 {
        let piece_blocks = self.piece_bytes >> self.geometry.block_size.shift();
        piece_blocks * Settings::ZEROS_PIECES_MAX
    }

    /// Executes a change here or at the primary.
    fn change(&self, extent: Extent, contents: &Contents) -> Result<(), Status> {
        self.drive(|volume, state, now| volume.change_locked(state, now, extent, contents))
    }

    fn change_locked(
        &self,
        state: &mut State,
        now: LocalTime,
        extent: Extent,
        contents: &Contents,
    ) -> Result<(), Status> {
        if state.serves_writes() {
            return state.execute_for_host(|state, origin| {
                self.write_here(state, now, extent, contents, origin)
            });
        }
        let kind = CommandKind::Write(contents.clone());
        self.forward_change(state, now, extent, kind)
    }

    fn forward_change(
        &self,
        state: &mut State,
        now: LocalTime,
        extent: Extent,
        kind: CommandKind,
    ) -> Result<(), Status> {
        if state.is_closed {
            return Err(Status::Gone);
        }
        if state.forwards.changes() >= self.writes_max {
            return Err(Status::Busy);
        }
        let id = self.forward(state, now, extent, kind, None);
        state.outstanding.insert(id);
        Ok(())
    }

    /// Executes a write as the primary. `origin` learns what becomes of it unless this fails.
    pub(super) fn write_here(
        &self,
        state: &mut State,
        now: LocalTime,
        extent: Extent,
        contents: &Contents,
        origin: Origin,
    ) -> Result<(), Failure> {
        if state.write_places() == 0 {
            return Err(failure(Refusal::Busy));
        }
        let range = self.byte_range(extent);
        let id = state.next_id();
        self.stripes.begin(range);
        let not_primary = Err(Refusal::NotPrimary(None));
        let member = state.member.as_mut();
        let written = member.map_or(not_primary, |member| {
            member.handle_write(now, HostRequest(id), extent, contents)
        });
        let origin = match written {
            Ok(()) => origin,
            // Until every member has what its blocks hold now, reads see what they held before.
            Err(Refusal::NoMemory) => Origin::Nobody,
            Err(refusal) => {
                self.stripes.end(range);
                return Err(failure(refusal));
            }
        };
        state.in_flight.push_back(LocalWrite { id, origin, extent });
        self.drain(state);
        written.map_err(failure)
    }

    pub(super) fn compare(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        let shift = self.geometry.block_size.shift();
        let mut offset = 0;
        for piece in self.pieces(extent) {
            let mut held = vec![0; (piece.blocks.0 << shift) as usize];
            self.read(piece, &mut held)?;
            compare(&held, &data[offset..offset + held.len()], offset)?;
            offset += held.len();
        }
        Ok(())
    }

    /// Only the primary compares and writes at once. A node that passes commands on would learn the
    /// result after it has to be known, so it asks the host to retry, best on another path.
    pub(super) fn compare_and_write(
        &self,
        extent: Extent,
        expected: &[u8],
        data: &[u8],
    ) -> Result<(), Status> {
        if extent.blocks.0 == 0 {
            return Ok(());
        }
        let contents = Contents::of_bytes(self.geometry.block_size, Arc::from(data));
        let contents = contents.ok_or(Status::Invalid)?;
        if data.len() as u64 > self.piece_bytes {
            return Err(Status::Invalid);
        }
        self.drive(|volume, state, now| {
            let store = volume.store.get().filter(|_| state.serves_writes());
            let store = store.ok_or(Status::Busy)?;
            let range = volume.byte_range(extent);
            let mut held = vec![0; expected.len()];
            store.read(range.offset, &mut held)?;
            if let Err(miscompare) = compare(&held, expected, 0) {
                let is_committed = !state
                    .overwritten()
                    .any(|write| write.extent.overlaps(extent));
                let is_final = is_committed && volume.serves_reads();
                return Err(if is_final { miscompare } else { Status::Busy });
            }
            volume.change_locked(state, now, extent, &contents)
        })
    }

    pub(super) fn copy(&self, from: Extent, to: Lba) -> Result<(), Status> {
        if from.blocks.0 == 0 {
            return Ok(());
        }
        self.drive(|volume, state, now| {
            if !state.serves_writes() {
                return volume.forward_change(state, now, from, CommandKind::Copy(to));
            }
            state.execute_for_host(|state, origin| volume.copy_here(state, now, from, to, origin))
        })
    }

    /// Copies inside the volume as the primary. Writes are committed in order, so the last part
    /// stands for all. If the copy has no memory for a part, the others are executed, and it fails.
    pub(super) fn copy_here(
        &self,
        state: &mut State,
        now: LocalTime,
        from: Extent,
        to: Lba,
        origin: Origin,
    ) -> Result<(), Failure> {
        let mut pieces: Vec<Extent> = self.pieces(from).collect();
        let store: &Store = match self.store.get() {
            Some(store) if pieces.len() <= state.write_places() => store,
            _ => return Err(failure(Refusal::Busy)),
        };
        // Overlapping blocks are read before they are written.
        if to > from.lba {
            pieces.reverse();
        }
        let last = pieces.len() - 1;
        // Other parts may have been executed, so nobody may send it again.
        let unknown = |status| (AnswerCode::Unknown, status);
        let mut outcome = Ok(());
        for (place, piece) in pieces.into_iter().enumerate() {
            let range = self.byte_range(piece);
            let mut bytes = vec![0; range.len as usize];
            store.read(range.offset, &mut bytes).map_err(unknown)?;
            let contents = Contents::of_bytes(self.geometry.block_size, bytes.into());
            let contents = contents.ok_or(unknown(Status::Invalid))?;
            let target = Lba(to.0 + (piece.lba.0 - from.lba.0));
            let target = Extent::new(target, piece.blocks);
            let is_decisive = place == last && outcome.is_ok();
            let origin = if is_decisive { origin } else { Origin::Nobody };
            let written = self.write_here(state, now, target, &contents, origin);
            outcome = outcome.and(written);
        }
        outcome
    }
}

/// Parts of an extent with as many blocks each, except the last.
fn cut(extent: Extent, blocks: u64) -> impl Iterator<Item = Extent> {
    let end = extent.lba.0 + extent.blocks.0;
    let starts = (extent.lba.0..end).step_by(blocks as usize);
    starts.map(move |lba| Extent::new(Lba(lba), Blocks(blocks.min(end - lba))))
}

fn compare(held: &[u8], expected: &[u8], before: usize) -> Result<(), Status> {
    let differs = held.iter().zip(expected).position(|(a, b)| a != b);
    differs.map_or(Ok(()), |place| {
        Err(Status::Miscompare {
            offset_bytes: (before + place) as u64,
        })
    })
}
