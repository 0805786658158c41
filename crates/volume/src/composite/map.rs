//! Which block of a linear or striped volume is which block of which member.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use block::{Blocks, Extent, Lba};

use crate::VolumeSpec;

/// A run of blocks that lies in one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The member's index.
    pub(super) member: usize,
    /// The blocks of the member.
    pub(super) extent: Extent,
    /// Blocks of the whole extent before this piece.
    pub(super) before: u64,
}

/// Where blocks lie. An extent of the volume covers one extent of each member that it touches.
#[derive(Debug)]
pub(super) enum Map {
    /// One member after another.
    Linear(Ends),
    /// Units of the members in turn.
    Stripe {
        /// log2 of the blocks in a unit.
        unit_shift: u32,
        /// How many members.
        members: u64,
        /// Blocks used of each.
        member_blocks: u64,
    },
}

/// The first block after each member of a linear volume. Members are only added.
#[derive(Debug)]
pub(super) struct Ends {
    count: AtomicUsize,
    ends: Box<[AtomicU64]>,
}

impl Ends {
    /// No members yet.
    pub(super) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            ends: (0..VolumeSpec::MEMBERS_MAX)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Adds a member. The caller adds one at a time, at most [`VolumeSpec::MEMBERS_MAX`].
    pub(super) fn push(&self, blocks: Blocks) {
        let count = self.count.load(Ordering::Relaxed);
        self.ends[count].store(self.total() + blocks.0, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    fn total(&self) -> u64 {
        let count = self.count.load(Ordering::Acquire);
        count.checked_sub(1).map_or(0, |last| self.end(last))
    }

    fn start(&self, member: usize) -> u64 {
        member.checked_sub(1).map_or(0, |before| self.end(before))
    }

    fn end(&self, member: usize) -> u64 {
        self.ends[member].load(Ordering::Relaxed)
    }

    /// The member of a block that exists.
    fn member_of(&self, lba: u64) -> usize {
        let count = self.count.load(Ordering::Acquire);
        self.ends[..count].partition_point(|end| end.load(Ordering::Relaxed) <= lba)
    }
}

impl Map {
    /// How many blocks the volume has.
    pub(super) fn blocks(&self) -> Blocks {
        Blocks(match self {
            Self::Linear(ends) => ends.total(),
            Self::Stripe {
                members,
                member_blocks,
                ..
            } => members * member_blocks,
        })
    }

    /// The pieces of an extent that exists, in order.
    pub(super) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        let mut before = 0;
        std::iter::from_fn(move || {
            let left = extent.blocks.0 - before;
            (left > 0).then(|| {
                let piece = self.piece(extent.lba.0 + before, left, before);
                before += piece.extent.blocks.0;
                piece
            })
        })
    }

    /// The first piece of `blocks` blocks from `lba` on, which exist.
    pub(super) fn piece(&self, lba: u64, blocks: u64, before: u64) -> Piece {
        let (member, member_lba, run) = match self {
            Self::Linear(ends) => {
                let member = ends.member_of(lba);
                (member, lba - ends.start(member), ends.end(member) - lba)
            }
            Self::Stripe {
                unit_shift,
                members,
                ..
            } => {
                let (unit, inside) = (lba >> unit_shift, lba & ((1 << unit_shift) - 1));
                let member_lba = ((unit / members) << unit_shift) + inside;
                (
                    (unit % members) as usize,
                    member_lba,
                    (1 << unit_shift) - inside,
                )
            }
        };
        Piece {
            member,
            extent: Extent::new(Lba(member_lba), Blocks(run.min(blocks))),
            before,
        }
    }

    /// Like [`pieces`](Self::pieces), but as one extent per member, for operations whose data lie
    /// nowhere. `before` is 0.
    pub(super) fn extents(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        let (first, count, members) = self.touched(extent);
        (first..first + count).filter_map(move |number| {
            let member = number % members;
            let extent = self.extent_in(member, extent)?;
            Some(Piece {
                member,
                extent,
                before: 0,
            })
        })
    }

    /// The first member that an extent touches, how many in turn it touches at most, and how many
    /// there are.
    fn touched(&self, extent: Extent) -> (usize, usize, usize) {
        let Some(last) = extent.blocks.0.checked_sub(1) else {
            return (0, 0, 1);
        };
        let (first, last) = (extent.lba.0, extent.lba.0 + last);
        match self {
            Self::Linear(ends) => {
                let (first, last) = (ends.member_of(first), ends.member_of(last));
                (first, last - first + 1, last + 1)
            }
            Self::Stripe {
                unit_shift,
                members,
                ..
            } => {
                let (first, last) = (first >> unit_shift, last >> unit_shift);
                let count = (last - first + 1).min(*members);
                (
                    (first % members) as usize,
                    count as usize,
                    *members as usize,
                )
            }
        }
    }

    /// The blocks of a member that an extent covers, if it covers any. The extent exists.
    pub(super) fn extent_in(&self, member: usize, extent: Extent) -> Option<Extent> {
        let (first, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
        let (from, to) = match self {
            Self::Linear(ends) => {
                let start = ends.start(member);
                let to = end.min(ends.end(member));
                (
                    first.max(start).saturating_sub(start),
                    to.saturating_sub(start),
                )
            }
            Self::Stripe {
                unit_shift,
                members,
                ..
            } => {
                let below = |lba| blocks_below(lba, member as u64, *members, *unit_shift);
                (below(first), below(end))
            }
        };
        (from < to).then(|| Extent::new(Lba(from), Blocks(to - from)))
    }
}

/// How many blocks of a member lie below block `lba` of a striped volume.
fn blocks_below(lba: u64, member: u64, members: u64, unit_shift: u32) -> u64 {
    let (unit, inside) = (lba >> unit_shift, lba & ((1 << unit_shift) - 1));
    let whole = (unit / members) << unit_shift;
    match (unit % members).cmp(&member) {
        std::cmp::Ordering::Greater => whole + (1 << unit_shift),
        std::cmp::Ordering::Equal => whole + inside,
        std::cmp::Ordering::Less => whole,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn linear(sizes: &[u64]) -> Map {
        let ends = Ends::new();
        for &blocks in sizes {
            ends.push(Blocks(blocks));
        }
        Map::Linear(ends)
    }

    fn stripe(members: u64, unit_shift: u32, units: u64) -> Map {
        Map::Stripe {
            unit_shift,
            members,
            member_blocks: units << unit_shift,
        }
    }

    fn maps() -> impl Strategy<Value = Map> {
        prop_oneof![
            prop::collection::vec(1_u64..20, 1..6).prop_map(|sizes| linear(&sizes)),
            (1_u64..6, 0_u32..4, 1_u64..6).prop_map(|(m, shift, units)| stripe(m, shift, units)),
        ]
    }

    proptest! {
        #[test]
        fn every_block_is_one_block_of_one_member(map in maps()) {
            let blocks = map.blocks().0;
            let whole = Extent::new(Lba(0), Blocks(blocks));
            let mut places = std::collections::BTreeSet::new();
            let mut count = 0;
            for piece in map.pieces(whole) {
                prop_assert_eq!(piece.before, count);
                for block in 0..piece.extent.blocks.0 {
                    prop_assert!(places.insert((piece.member, piece.extent.lba.0 + block)));
                    count += 1;
                }
            }
            prop_assert_eq!(count, blocks);
        }

        #[test]
        fn the_pieces_of_an_extent_are_its_extent_in_each_member(
            map in maps(), at in any::<prop::sample::Index>(), len in any::<prop::sample::Index>(),
        ) {
            let blocks = map.blocks().0 as usize;
            let first = at.index(blocks);
            let len = 1 + len.index(blocks - first);
            let extent = Extent::new(Lba(first as u64), Blocks(len as u64));
            let mut by_pieces = std::collections::BTreeSet::new();
            for piece in map.pieces(extent) {
                let lbas = piece.extent.lba.0..piece.extent.lba.0 + piece.extent.blocks.0;
                by_pieces.extend(lbas.map(|lba| (piece.member, lba)));
            }
            let mut by_members = std::collections::BTreeSet::new();
            for piece in map.extents(extent) {
                let lbas = piece.extent.lba.0..piece.extent.lba.0 + piece.extent.blocks.0;
                by_members.extend(lbas.map(|lba| (piece.member, lba)));
            }
            prop_assert_eq!(by_pieces, by_members);
        }
    }

    #[test]
    fn units_go_to_the_members_in_turn() {
        let map = stripe(3, 1, 4);
        let pieces: Vec<_> = map.pieces(Extent::new(Lba(1), Blocks(6))).collect();
        let piece = |member, lba, blocks, before| Piece {
            member,
            extent: Extent::new(Lba(lba), Blocks(blocks)),
            before,
        };
        let expected = [
            piece(0, 1, 1, 0),
            piece(1, 0, 2, 1),
            piece(2, 0, 2, 3),
            piece(0, 2, 1, 5),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn an_added_member_comes_last() {
        let map = linear(&[4, 2]);
        let Map::Linear(ends) = &map else {
            unreachable!("it is linear")
        };
        ends.push(Blocks(3));
        assert_eq!(map.blocks(), Blocks(9));
        assert_eq!(map.piece(6, 3, 0).member, 2);
    }
}
