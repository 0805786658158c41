//! Volumes that are made of others: linear and striped.
//!
//! ```text
//!  sessions ──► Composite ─┬─ Map: which blocks are whose ──► member (Managed) ──► …
//!                          └─ Shares: leases of commands on members that wait
//! ```
//!
//! A composite has no memory of its own: it forwards each operation, split into pieces, to its
//! members. Over RAM alone it takes no lock, and bytes are sent from where they lie. A linear
//! volume that gets a member of another kind later keeps what sessions know of it. Its members are
//! held: nothing else uses them (`docs/design/0018-composition.md`).

mod map;

mod shares;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use block::{
    Admission, Allocation, BlockSize, Blocks, ByteRange, DataUse, Extent, Geometry, Intent, Lba,
    Op, OpKind, Persistence, Pinned, RawSpan, ReadDest, Settled, Status, Ticket, Volume,
    WriteCache,
};
use memory::{Part, Store, compare_and_write_across};

use crate::managed::{Extendable, ManagedVolume, Member, Storage};
use crate::members::Members;
use crate::{ByteSize, Platform, Relay, VolumeError, VolumeKind, VolumeSpec};

use map::{Ends, Map, Piece};

use shares::Shares;

/// A copy between members moves this much at a time, through the stack.
const COPY_BYTES: usize = 16 << 10;
/// The most extents of one command: those of a Dataset Management, and a destination.
const EXTENTS_MAX: usize = 257;

/// A linear or striped volume.
#[derive(Debug)]
pub struct Composite {
    block_size: BlockSize,
    map: Map,
    members: Members,
    /// Held while a member is added.
    adding: Mutex<()>,
    /// Volatile if that of a member was at creation. It never changes, so writes to members with a
    /// volatile cache that were added to a volume without one are durable.
    write_cache: WriteCache,
    /// Whether all members were memory at creation: sessions send bytes of these from where they
    /// lie.
    is_pinned: bool,
    relay: Arc<Relay>,
    /// Absent as long as all members are memory: commands do not wait, and stores have locks.
    waiting: OnceLock<Waiting>,
}

/// What keeps commands in order that may wait.
#[derive(Debug)]
struct Waiting {
    shares: Arc<Shares>,
    /// Held alone by a compare-and-write over several members.
    exclusion: RwLock<()>,
}

impl Waiting {
    fn new(relay: &Arc<Relay>) -> Self {
        Self {
            shares: Shares::new(relay),
            exclusion: RwLock::new(()),
        }
    }
}

impl Composite {
    /// The linear or striped volume that `spec` says, of `members`.
    ///
    /// # Errors
    /// If they are too few or too many, have other blocks or another size than `spec` says, or a
    /// unit is invalid.
    pub(crate) fn new(
        spec: &VolumeSpec,
        members: Vec<Member>,
        platform: &Platform,
    ) -> Result<Self, VolumeError> {
        let sizes: Vec<_> = members.iter().map(Member::size).collect();
        let size = spec.kind.size_over(&sizes)?;
        for member in &members {
            member.check_blocks(spec.block_size)?;
        }
        if size != spec.size {
            return Err(VolumeError::DerivedSize {
                given: spec.size,
                derived: size,
            });
        }
        let map = new_map(spec, &sizes);
        let is_pinned = members.iter().all(|member| member.store().is_some());
        let waiting = OnceLock::new();
        if !is_pinned {
            waiting.get_or_init(|| Waiting::new(&platform.relay));
        }
        let has_cache = members.iter().any(Member::is_volatile);
        Ok(Self {
            block_size: spec.block_size,
            map,
            members: Members::new(members),
            adding: Mutex::default(),
            write_cache: if has_cache {
                WriteCache::Volatile
            } else {
                WriteCache::Absent
            },
            is_pinned,
            relay: Arc::clone(&platform.relay),
            waiting,
        })
    }

    fn member(&self, index: usize) -> &dyn ManagedVolume {
        &*self.members.get(index).volume
    }

    fn check(&self, extent: Extent, data_len: Option<usize>) -> Result<(), Status> {
        let range = self.geometry().byte_range(extent)?;
        if data_len.is_some_and(|len| len as u64 != range.len) {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    /// The bytes of a piece in the data of the whole extent.
    fn data_range(&self, piece: Piece) -> std::ops::Range<usize> {
        let shift = self.block_size.shift();
        let start = (piece.before << shift) as usize;
        start..start + (piece.extent.blocks.0 << shift) as usize
    }

    /// The pieces of bytes that exist: the index of a member, and the bytes there.
    fn byte_pieces(&self, range: ByteRange) -> impl Iterator<Item = (usize, ByteRange)> + '_ {
        let shift = self.block_size.shift();
        let (first, end) = (range.offset >> shift, range.offset + range.len);
        let blocks = end.div_ceil(self.block_size.bytes()) - first;
        let pieces = self.map.pieces(Extent::new(Lba(first), Blocks(blocks)));
        pieces.map(move |piece| {
            let start = (first + piece.before) << shift;
            let skipped = range.offset.saturating_sub(start);
            let piece_end = end.min(start + (piece.extent.blocks.0 << shift));
            let part = ByteRange {
                offset: (piece.extent.lba.0 << shift) + skipped,
                len: piece_end - start - skipped,
            };
            (piece.member, part)
        })
    }

    /// Whether an extent lies in more than one piece.
    fn is_split(&self, extent: Extent) -> bool {
        self.check(extent, None).is_ok() && self.map.pieces(extent).nth(1).is_some()
    }

    /// The member and its blocks, for a command that lies in one piece, as most do.
    fn only_part(&self, extents: &[Extent]) -> Option<(usize, Extent)> {
        let [extent] = extents else {
            return None;
        };
        // An empty extent may lie at the end, where no member is.
        let blocks = extent.blocks.0;
        let piece = (blocks > 0).then(|| self.map.piece(extent.lba.0, blocks, 0))?;
        (piece.extent.blocks == extent.blocks).then_some((piece.member, piece.extent))
    }

    /// Admits a command at members that do not make it wait.
    #[cold]
    fn admit_in_memory(
        &self,
        now: Instant,
        ticket: Ticket,
        each_part: impl FnOnce(&mut dyn FnMut(usize, &Intent<'_>) -> ControlFlow<()>),
    ) -> Admission {
        let mut admission = Admission::Now;
        each_part(&mut |member, part| {
            match self.member(member).admit(now, part, ticket) {
                Admission::Now => {}
                Admission::NotBefore(due) => admission = admission.held_until(due),
                other => {
                    admission = other;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        admission
    }

    /// Calls `visit` with the part of a command that each member has, until it breaks.
    fn each_part(
        &self,
        intent: &Intent<'_>,
        visit: &mut dyn FnMut(usize, &Intent<'_>) -> ControlFlow<()>,
    ) {
        match intent.extents {
            // A flush, and a command on no blocks.
            [] => {
                for member in 0..self.members.iter().count() {
                    if visit(member, intent).is_break() {
                        return;
                    }
                }
            }
            [extent] => {
                for piece in self.map.extents(*extent) {
                    let extents = &[piece.extent];
                    let part = self.part(intent, piece.member, extents, intent.data_use);
                    if visit(piece.member, &part).is_break() {
                        return;
                    }
                }
            }
            extents => self.each_part_of_many(intent, extents, visit),
        }
    }

    /// The part of a command that a member has, on these blocks of it.
    fn part<'a>(
        &self,
        of: &Intent<'_>,
        member: usize,
        extents: &'a [Extent],
        data_use: DataUse,
    ) -> Intent<'a> {
        let is_unexpected_cache =
            self.write_cache == WriteCache::Absent && self.members.get(member).is_volatile();
        let blocks: u64 = extents.iter().map(|extent| extent.blocks.0).sum();
        let is_source = of.data_use == DataUse::Copy && data_use == DataUse::Read;
        Intent {
            kind: if is_source { OpKind::Read } else { of.kind },
            extents,
            len_bytes: of.len_bytes.min(blocks << self.block_size.shift()),
            data_use,
            persistence: if is_unexpected_cache {
                Persistence::Durable
            } else {
                of.persistence
            },
        }
    }

    #[cold]
    fn each_part_of_many(
        &self,
        intent: &Intent<'_>,
        extents: &[Extent],
        visit: &mut dyn FnMut(usize, &Intent<'_>) -> ControlFlow<()>,
    ) {
        let mut there = [Extent::new(Lba(0), Blocks(0)); EXTENTS_MAX];
        for member in 0..self.members.iter().count() {
            let mut count = 0;
            let mut add = |extent: &Extent| {
                let part = self.map.extent_in(member, *extent);
                if let Some(part) = part {
                    there[count] = part;
                    count += 1;
                }
                part.is_some()
            };
            let is_first = add(&extents[0]);
            let others = extents[1..].iter().filter(|extent| add(extent)).count();
            let data_use = match (intent.data_use, is_first, others) {
                (DataUse::Copy, true, 0) => DataUse::Overwrite,
                (DataUse::Copy, false, _) => DataUse::Read,
                (data_use, ..) => data_use,
            };
            let part = self.part(intent, member, &there[..count], data_use);
            if count > 0 && visit(member, &part).is_break() {
                return;
            }
        }
    }

    /// Executes an operation whose data lie nowhere, once per member.
    fn each_member(
        &self,
        extent: Extent,
        op: impl Fn(Extent) -> Op<'static>,
    ) -> Result<(), Status> {
        self.check(extent, None)?;
        for piece in self.map.extents(extent) {
            self.member(piece.member).execute(op(piece.extent))?;
        }
        Ok(())
    }

    fn read(&self, extent: Extent, dest: ReadDest<'_>) -> Result<(), Status> {
        let ReadDest::Copy(buffer) = dest else {
            return self.each_member(extent, |extent| Op::Read {
                extent,
                dest: ReadDest::InPlace,
            });
        };
        self.check(extent, Some(buffer.len()))?;
        for piece in self.map.pieces(extent) {
            let dest = ReadDest::Copy(&mut buffer[self.data_range(piece)]);
            let extent = piece.extent;
            self.member(piece.member)
                .execute(Op::Read { extent, dest })?;
        }
        Ok(())
    }

    fn write(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        self.check(extent, Some(data.len()))?;
        for piece in self.map.pieces(extent) {
            let (extent, data) = (piece.extent, &data[self.data_range(piece)]);
            self.member(piece.member)
                .execute(Op::Write { extent, data })?;
        }
        Ok(())
    }

    fn compare(&self, extent: Extent, data: &[u8]) -> Result<(), Status> {
        self.check(extent, Some(data.len()))?;
        for piece in self.map.pieces(extent) {
            let range = self.data_range(piece);
            let (extent, data) = (piece.extent, &data[range.clone()]);
            let compared = self
                .member(piece.member)
                .execute(Op::Compare { extent, data });
            compared.map_err(|status| in_whole(status, range.start))?;
        }
        Ok(())
    }

    fn compare_and_write(
        &self,
        extent: Extent,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        self.check(extent, Some(compare.len()))?;
        self.check(extent, Some(write.len()))?;
        let Some(first) = self.map.pieces(extent).next() else {
            return Ok(());
        };
        if first.extent.blocks == extent.blocks {
            let extent = first.extent;
            return self.member(first.member).execute(Op::CompareAndWrite {
                extent,
                compare,
                write,
            });
        }
        if self.waiting.get().is_none() {
            let all = u64::MAX;
            return self.compare_and_write_stores(extent, all, compare, write);
        }
        self.compare_and_write_pieces(extent, compare, write)
    }

    /// What lies in the `stored` members, under the locks of all their stores.
    fn compare_and_write_stores(
        &self,
        extent: Extent,
        stored: u64,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        let shift = self.block_size.shift();
        let mut ranges: [Option<(&Store, ByteRange)>; VolumeSpec::MEMBERS_MAX] =
            [None; VolumeSpec::MEMBERS_MAX];
        let mut index_of = [0; VolumeSpec::MEMBERS_MAX];
        let mut count = 0;
        let is_stored = |piece: &Piece| stored >> piece.member & 1 == 1;
        for piece in self.map.extents(extent).filter(is_stored) {
            let volume = self.member(piece.member);
            let op = Op::CompareAndWrite {
                extent: piece.extent,
                compare,
                write,
            };
            volume.controls().check(&op)?;
            let store = volume.storage().store().ok_or(Status::Gone)?;
            let range = ByteRange {
                offset: piece.extent.lba.0 << shift,
                len: piece.extent.blocks.0 << shift,
            };
            index_of[piece.member] = count;
            ranges[count] = Some((store, range));
            count += 1;
        }
        let Some((first, _)) = ranges[0] else {
            return Ok(());
        };
        let unused = ByteRange { offset: 0, len: 0 };
        let ranges = ranges.map(|range| range.unwrap_or((first, unused)));
        let parts = || {
            let pieces = self.map.pieces(extent).filter(is_stored);
            pieces.map(|piece| Part {
                store: index_of[piece.member],
                offset: piece.extent.lba.0 << shift,
                at: self.data_range(piece).start,
                len: self.data_range(piece).len(),
            })
        };
        compare_and_write_across(&ranges[..count], parts, compare, write)
    }

    /// While nothing else is executed, except for what began when all members were memory: what
    /// lies in memory is also locked there. If a piece fails, those that were written are written
    /// back.
    fn compare_and_write_pieces(
        &self,
        extent: Extent,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        self.compare(extent, compare)?;
        let stored = self.members.iter().enumerate();
        let stored = stored.fold(0, |set, (index, member)| {
            set | u64::from(member.store().is_some()) << index
        });
        self.compare_and_write_stores(extent, stored, compare, write)?;
        let is_stored = |piece: &Piece| stored >> piece.member & 1 == 1;
        let write_piece = |piece: Piece, data: &[u8]| {
            self.member(piece.member).execute(Op::Write {
                extent: piece.extent,
                data: &data[self.data_range(piece)],
            })
        };
        for piece in self.map.pieces(extent).filter(|piece| !is_stored(piece)) {
            if let Err(status) = write_piece(piece, write) {
                let written = self.map.pieces(extent);
                for done in written.filter(|it| is_stored(it) || it.before < piece.before) {
                    // It was written a moment ago, so it can be written again.
                    let _restored = write_piece(done, compare);
                }
                return Err(status);
            }
        }
        Ok(())
    }

    /// Copies run by run, in the direction in which an overlap does no harm: inside a member at
    /// once, between members through the stack.
    fn copy(&self, from: Extent, to: Lba) -> Result<(), Status> {
        self.check(from, None)?;
        self.check(Extent::new(to, from.blocks), None)?;
        let mut buffer = [0; COPY_BYTES];
        let forward = to <= from.lba;
        let mut done = 0;
        while done < from.blocks.0 {
            let left = from.blocks.0 - done;
            let at = self.run_at(from.lba.0, to.0, done, left, forward);
            let source = self.map.piece(from.lba.0 + at.0, at.1, 0);
            let dest = self.map.piece(to.0 + at.0, at.1, 0);
            if source.member == dest.member {
                let (from, to) = (source.extent, dest.extent.lba);
                self.member(source.member).execute(Op::Copy { from, to })?;
            } else {
                let len = (at.1 << self.block_size.shift()) as usize;
                let data = &mut buffer[..len];
                self.member(source.member).execute(Op::Read {
                    extent: source.extent,
                    dest: ReadDest::Copy(data),
                })?;
                self.member(dest.member).execute(Op::Write {
                    extent: dest.extent,
                    data,
                })?;
            }
            done += at.1;
        }
        Ok(())
    }

    /// The next run of a copy: its offset and length in blocks. Source and destination each lie in
    /// one member, and the run fits the buffer.
    fn run_at(&self, from: u64, to: u64, done: u64, left: u64, forward: bool) -> (u64, u64) {
        let max = COPY_BYTES as u64 >> self.block_size.shift();
        if forward {
            let len = left.min(max);
            let len = self.map.piece(from + done, len, 0).extent.blocks.0;
            return (done, self.map.piece(to + done, len, 0).extent.blocks.0);
        }
        // The last run of what is left: as long as both ends stay in their last pieces.
        let start = left - left.min(max);
        let last = |base: u64| {
            let window = Extent::new(Lba(base + start), Blocks(left - start));
            let last = self.map.pieces(window).last();
            last.map_or(left - start, |piece| piece.extent.blocks.0)
        };
        let len = last(from).min(last(to));
        (left - len, len)
    }

    fn execute_ordered(&self, op: Op<'_>) -> Result<(), Status> {
        match op {
            Op::Read { extent, dest } => self.read(extent, dest),
            Op::Write { extent, data } => self.write(extent, data),
            Op::WriteZeroes { extent, unmap } => {
                self.each_member(extent, |extent| Op::WriteZeroes { extent, unmap })
            }
            Op::Discard { extent } => self.each_member(extent, |extent| Op::Discard { extent }),
            Op::Flush => {
                let mut members = self.members.iter();
                members.try_for_each(|member| member.volume.execute(Op::Flush))
            }
            Op::Verify { extent } => self.each_member(extent, |extent| Op::Verify { extent }),
            Op::Compare { extent, data } => self.compare(extent, data),
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => self.compare_and_write(extent, compare, write),
            Op::Copy { from, to } => self.copy(from, to),
        }
    }
}

/// The map of members of these sizes, of which the size of the volume was derived.
fn new_map(spec: &VolumeSpec, sizes: &[ByteSize]) -> Map {
    let shift = spec.block_size.shift();
    if let VolumeKind::Stripe { unit, .. } = spec.kind {
        let members = sizes.len() as u64;
        return Map::Stripe {
            unit_shift: unit.0.trailing_zeros() - shift,
            members,
            member_blocks: (spec.size.0 / members) >> shift,
        };
    }
    let ends = Ends::new();
    for size in sizes {
        ends.push(Blocks(size.0 >> shift));
    }
    Map::Linear(ends)
}

/// A miscompare of a piece that starts `start` bytes into the whole.
fn in_whole(status: Status, start: usize) -> Status {
    match status {
        Status::Miscompare { offset_bytes } => Status::Miscompare {
            offset_bytes: start as u64 + offset_bytes,
        },
        other => other,
    }
}

impl Volume for Composite {
    fn geometry(&self) -> Geometry {
        Geometry::new(self.block_size, self.map.blocks())
    }

    fn is_read_only(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.volume.is_read_only())
    }

    fn is_ready(&self) -> bool {
        self.members.iter().all(|member| member.volume.is_ready())
    }

    fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    fn admit(&self, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        let geometry = self.geometry();
        if intent.extents.len() > EXTENTS_MAX {
            return Admission::Fail(Status::Invalid, None);
        }
        for extent in intent.extents {
            if let Err(status) = geometry.byte_range(*extent) {
                return Admission::Fail(status, None);
            }
        }
        let each = |visit: &mut dyn FnMut(usize, &Intent<'_>) -> ControlFlow<()>| {
            self.each_part(intent, visit);
        };
        // After the look at the size: what lies in a member that makes commands wait is in order
        // here.
        if let Some(waiting) = self.waiting.get() {
            return waiting.shares.admit(&self.members, now, ticket, each);
        }
        match self.only_part(intent.extents) {
            Some((member, extent)) => {
                let extents = &[extent];
                let part = Intent { extents, ..*intent };
                self.member(member).admit(now, &part, ticket)
            }
            None => self.admit_in_memory(now, ticket, each),
        }
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        let Some(Waiting { exclusion, .. }) = self.waiting.get() else {
            return self.execute_ordered(op);
        };
        // A panic in between leaves nothing half done that the lock protects.
        if matches!(op, Op::CompareAndWrite { extent, .. } if self.is_split(extent)) {
            let _alone = exclusion.write().unwrap_or_else(PoisonError::into_inner);
            return self.execute_ordered(op);
        }
        let _together = exclusion.read().unwrap_or_else(PoisonError::into_inner);
        self.execute_ordered(op)
    }

    fn allocation(&self, range: ByteRange) -> Allocation {
        match self.byte_pieces(range).next() {
            Some((member, part)) => self.member(member).allocation(part),
            None => Allocation {
                allocated: true,
                len_bytes: 0,
            },
        }
    }

    fn copies_discarded(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.volume.copies_discarded())
    }

    fn prefetch(&self, kind: OpKind, extent: Extent) {
        if self.check(extent, None).is_ok() {
            for piece in self.map.pieces(extent) {
                self.member(piece.member).prefetch(kind, piece.extent);
            }
        }
    }

    fn settle(&self, ticket: Ticket) -> Result<Settled, Status> {
        match self.waiting.get() {
            Some(waiting) => waiting.shares.settle(&self.members, ticket),
            None => Ok(Settled::Done),
        }
    }

    fn release(&self, ticket: Ticket) {
        if let Some(waiting) = self.waiting.get() {
            waiting.shares.release(&self.members, ticket);
        }
    }

    /// Also after a member was added that cannot be pinned: commands on it have leases, so sessions
    /// copy their data.
    fn pinned(&self) -> Option<&dyn Pinned> {
        self.is_pinned.then_some(self)
    }
}

impl Extendable for Composite {
    fn add_member(&self, new: Member) -> Result<(), VolumeError> {
        let _one_at_a_time = self.adding.lock();
        self.check_addition(&new)?;
        let Map::Linear(ends) = &self.map else {
            return Err(VolumeError::NotLinear);
        };
        let blocks = new.volume.geometry().blocks;
        if new.store().is_none() {
            // Before the new blocks exist, so every command on them finds it.
            self.waiting.get_or_init(|| Waiting::new(&self.relay));
        }
        self.members.add(self.members.iter().count(), new);
        ends.push(blocks);
        Ok(())
    }

    fn check_addition(&self, new: &Member) -> Result<(), VolumeError> {
        if !matches!(self.map, Map::Linear(_)) {
            return Err(VolumeError::NotLinear);
        }
        new.check_blocks(self.block_size)?;
        let mut sizes: Vec<_> = self.members.iter().map(Member::size).collect();
        sizes.push(new.size());
        let size = self.spec().kind.with_member(&new.name).size_over(&sizes)?;
        Ok(VolumeSpec {
            size,
            ..self.spec()
        }
        .check()?)
    }
}

impl Pinned for Composite {
    fn pin(&self, range: ByteRange, each: &mut dyn FnMut(RawSpan)) {
        for (member, part) in self.byte_pieces(range) {
            if let Some(memory) = self.member(member).pinned() {
                memory.pin(part, each);
            }
        }
    }

    fn unpin(&self, range: ByteRange) {
        for (member, part) in self.byte_pieces(range) {
            if let Some(memory) = self.member(member).pinned() {
                memory.unpin(part);
            }
        }
    }
}

impl Storage for Composite {
    fn spec(&self) -> VolumeSpec {
        let members = self.members.iter().map(|member| member.name.clone());
        let members = members.collect();
        let kind = match self.map {
            Map::Linear(_) => VolumeKind::Linear { members },
            Map::Stripe { unit_shift, .. } => VolumeKind::Stripe {
                members,
                unit: ByteSize(self.block_size.bytes() << unit_shift),
            },
        };
        VolumeSpec {
            size: ByteSize(self.geometry().len_bytes()),
            block_size: self.block_size,
            kind,
        }
    }

    fn used_bytes(&self) -> u64 {
        let used = self
            .members
            .iter()
            .map(|member| member.volume.storage().used_bytes());
        used.sum()
    }

    fn erase(&self) -> Result<(), VolumeError> {
        let mut members = self.members.iter();
        members.try_for_each(|member| member.volume.storage().erase())
    }

    fn close(&self) {
        // The members stay, and are free for other uses.
    }

    fn outlives_program(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.volume.storage().outlives_program())
    }

    fn problem(&self) -> Option<String> {
        let offline = self
            .members
            .iter()
            .find(|member| !member.volume.is_ready())?;
        Some(offline.problem())
    }

    fn extendable(&self) -> Option<&dyn Extendable> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
