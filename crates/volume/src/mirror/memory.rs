//! A mirror of members in memory: each operation is executed on them at once, in the thread of the
//! session.
//!
//! Changes take the locks of the stripes that they touch, so overlapping changes have the same
//! order on all members. Reads take none: they use one member, which is atomic per block by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::{
    Admission, ByteRange, Extent, Geometry, Intent, Lba, Op, OpKind, ReadDest, Status, Ticket,
};

use super::standing::Standings;
use crate::ManagedVolume;
use crate::members::{Members, bits};

/// Locks of one mirror.
const STRIPES: u64 = 64;
/// Log2 of the bytes that share a lock with those `STRIPES` times as far away.
const STRIPE_SHIFT: u32 = 16;

/// The locks of changes.
#[derive(Debug)]
pub(super) struct MemoryEngine {
    stripes: Box<[Mutex<()>]>,
    /// A window orders changes from now on. Read under the lock of a stripe.
    is_over: AtomicBool,
}

/// Held stripes: no other change and no copy touches their bytes.
#[expect(
    clippy::large_enum_variant,
    reason = "it stays where it is made, and most changes have one stripe"
)]
pub(super) enum Stripes<'a> {
    One {
        _held: MutexGuard<'a, ()>,
    },
    Several {
        _held: [Option<MutexGuard<'a, ()>>; STRIPES as usize],
    },
}

/// What an engine works on.
#[derive(Clone, Copy)]
pub(super) struct Bench<'a> {
    pub(super) geometry: Geometry,
    pub(super) members: &'a Members,
    pub(super) standings: &'a Standings,
}

impl Bench<'_> {
    fn member(&self, place: usize) -> &dyn ManagedVolume {
        &*self.members.get(place).volume
    }
}

impl MemoryEngine {
    pub(super) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Excludes changes of these ranges, unless a window orders them by now.
    pub(super) fn exclude(&self, ranges: &[ByteRange]) -> Option<Stripes<'_>> {
        let held = self.hold(ranges.iter().fold(0, |set, range| set | stripes_of(*range)));
        (!self.is_over.load(Ordering::Relaxed)).then_some(held)
    }

    /// Calls `begin`, after which a window orders changes, when no change is being executed. Those
    /// that are executed here later fail such that hosts retry.
    pub(super) fn end(&self, begin: impl FnOnce()) {
        let _all = self.hold(u64::MAX);
        begin();
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Locks are taken in the order of their numbers.
    fn hold(&self, set: u64) -> Stripes<'_> {
        if set.is_power_of_two() {
            let held = self.lock(set.trailing_zeros() as usize);
            return Stripes::One { _held: held };
        }
        let mut held = [const { None }; STRIPES as usize];
        for stripe in bits(set) {
            held[stripe] = Some(self.lock(stripe));
        }
        Stripes::Several { _held: held }
    }

    fn lock(&self, stripe: usize) -> MutexGuard<'_, ()> {
        // A panic of a member leaves what any failure may leave.
        let guard = self.stripes[stripe].lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn execute(&self, on: Bench<'_>, op: Op<'_>) -> Result<(), Status> {
        let range = |extent, data_len: Option<usize>| -> Result<ByteRange, Status> {
            let range = on.geometry.byte_range(extent)?;
            if data_len.is_some_and(|len| len as u64 != range.len) {
                return Err(Status::Invalid);
            }
            Ok(range)
        };
        match op {
            Op::Read { extent, dest } => match dest {
                ReadDest::InPlace => range(extent, None).map(drop),
                ReadDest::Copy(buffer) => {
                    let range = range(extent, Some(buffer.len()))?;
                    read(on, range, |member| {
                        let dest = ReadDest::Copy(buffer);
                        member.execute(Op::Read { extent, dest })
                    })
                }
            },
            Op::Verify { extent } => {
                let range = range(extent, None)?;
                read(on, range, |member| member.execute(Op::Verify { extent }))
            }
            Op::Compare { extent, data } => {
                let range = range(extent, Some(data.len()))?;
                read(on, range, |member| {
                    member.execute(Op::Compare { extent, data })
                })
            }
            // Memory is as durable as it gets.
            Op::Flush => Ok(()),
            Op::Write { extent, data } => {
                let range = range(extent, Some(data.len()))?;
                self.change(on, range, |member| {
                    member.execute(Op::Write { extent, data })
                })
            }
            Op::WriteZeroes { extent, unmap } => self.change(on, range(extent, None)?, |member| {
                member.execute(Op::WriteZeroes { extent, unmap })
            }),
            Op::Discard { extent } => self.change(on, range(extent, None)?, |member| {
                member.execute(Op::Discard { extent })
            }),
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                range(extent, Some(compare.len()))?;
                let range = range(extent, Some(write.len()))?;
                self.compare_and_write(on, extent, range, compare, write)
            }
            Op::Copy { from, to } => {
                let dest = range(Extent::new(to, from.blocks), None)?;
                self.copy(on, (from, range(from, None)?), (to, dest))
            }
        }
    }

    /// Executes a change on every member that is written.
    fn change(
        &self,
        on: Bench<'_>,
        range: ByteRange,
        apply: impl Fn(&dyn ManagedVolume) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let _order = self.exclude(&[range]).ok_or(Status::Busy)?;
        apply_to(on, on.standings.begin_write(range), range, apply)
    }

    /// A member in sync compares; the lock keeps what it found. Members that are not in sync may
    /// hold other bytes and are written in any case.
    fn compare_and_write(
        &self,
        on: Bench<'_>,
        extent: Extent,
        range: ByteRange,
        compare: &[u8],
        write: &[u8],
    ) -> Result<(), Status> {
        let _order = self.exclude(&[range]).ok_or(Status::Busy)?;
        let data = compare;
        read(on, range, |member| {
            member.execute(Op::Compare { extent, data })
        })?;
        apply_to(on, on.standings.begin_write(range), range, |member| {
            // One operation, so that it is atomic for those that read meanwhile.
            let both = member.execute(Op::CompareAndWrite {
                extent,
                compare,
                write,
            });
            match both {
                Err(Status::Miscompare { .. }) => member.execute(Op::Write {
                    extent,
                    data: write,
                }),
                result => result,
            }
        })
    }

    /// Members that are not in sync may hold other bytes at the source, so they miss the
    /// destination.
    fn copy(
        &self,
        on: Bench<'_>,
        (from, from_range): (Extent, ByteRange),
        (to, to_range): (Lba, ByteRange),
    ) -> Result<(), Status> {
        let order = self.exclude(&[from_range, to_range]);
        let _order = order.ok_or(Status::Busy)?;
        let targets = on.standings.begin_write(to_range);
        let in_sync = on.standings.in_sync();
        on.standings.mark(targets & !in_sync, to_range);
        apply_to(on, targets & in_sync, to_range, |member| {
            member.execute(Op::Copy { from, to })
        })
    }
}

/// Asks the filters and locks of members. A member that refuses fails, unless it is the last.
pub(super) fn admit(on: Bench<'_>, now: Instant, intent: &Intent<'_>, ticket: Ticket) -> Admission {
    let is_read = intent.kind == OpKind::Read;
    let mut admission = Admission::Now;
    let mut failure = None;
    let mut is_admitted = false;
    let mut left = if is_read {
        on.standings.in_sync()
    } else {
        on.standings.begin_write(ByteRange { offset: 0, len: 0 })
    };
    while let Some(place) = bits(left).next() {
        left &= !(1 << place);
        match on.member(place).admit(now, intent, ticket) {
            Admission::NotBefore(due) => admission = admission.held_until(due),
            Admission::Fail(status, due) => {
                failure.get_or_insert((status, due));
                for extent in intent.extents {
                    let range = on.geometry.byte_range(*extent).ok();
                    on.standings.fail(place, status, range);
                }
                continue;
            }
            _ => {}
        }
        is_admitted |= on.standings.in_sync() >> place & 1 == 1;
        if is_read && is_admitted {
            break;
        }
    }
    match failure {
        Some((status, due)) if !is_admitted => Admission::Fail(status, due),
        _ => admission,
    }
}

/// Reads one member in sync, and another one if that fails.
fn read(
    on: Bench<'_>,
    range: ByteRange,
    mut from: impl FnMut(&dyn ManagedVolume) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut tried = 0;
    let mut result = Err(Status::NotReady);
    while let Some(place) = bits(on.standings.in_sync() & !tried).next() {
        tried |= 1 << place;
        result = from(on.member(place));
        match result {
            Ok(()) | Err(Status::Miscompare { .. }) => return result,
            Err(status) => on.standings.fail(place, status, Some(range)),
        };
    }
    result
}

/// Applies a change to members. It succeeds if one in sync has it; the others are then out of sync.
/// If none has it, the first one that was in sync stays so, and what it holds is copied to the
/// others.
fn apply_to(
    on: Bench<'_>,
    targets: u64,
    range: ByteRange,
    apply: impl Fn(&dyn ManagedVolume) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut done = 0;
    let mut failures = Vec::new();
    for place in bits(targets) {
        match apply(on.member(place)) {
            Ok(()) => done |= 1 << place,
            Err(status) => failures.push((place, status)),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    on.standings.end_failed(range, done, &failures)
}

fn stripes_of(range: ByteRange) -> u64 {
    if range.len == 0 {
        return 0;
    }
    let first = range.offset >> STRIPE_SHIFT;
    let last = (range.offset + range.len - 1) >> STRIPE_SHIFT;
    if last - first >= STRIPES - 1 {
        return u64::MAX;
    }
    (first..=last).fold(0, |set, stripe| set | 1 << (stripe % STRIPES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_the_locks_of_its_stripes() {
        let stripes = |offset, len| stripes_of(ByteRange { offset, len });
        assert_eq!(stripes(0, 0), 0);
        assert_eq!(stripes(0, 65536), 1);
        assert_eq!(stripes(65535, 2), 0b11);
        assert_eq!(stripes(63 << 16, 2 << 16), 1 << 63 | 1);
        assert_eq!(stripes(5 << 16, 64 << 16), u64::MAX);
        assert_eq!(stripes(1, u64::MAX >> 1), u64::MAX);
    }
}
