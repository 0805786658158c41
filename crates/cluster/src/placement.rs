//! Where the copies of volumes are: a pure function of the nodes, the copies that are placed, and
//! the wish.
//!
//! Copies of a volume are in different zones. Among the nodes that have room, the emptiest in
//! proportion to its memory is taken. A fixed volume counts with all of its size. A thin one counts
//! with its size divided by the overcommitment that is allowed: with 1, which is the default, the
//! pool holds every volume full.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use volume::VolumeSpec;

pub use repair::{Copies, Repair};

mod repair;

/// A node that may hold copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolNode {
    /// Its number.
    pub number: u32,
    /// Nodes of a zone may fail together.
    pub zone: u32,
    /// What it lends.
    pub memory_bytes: u64,
    /// Whether new copies may be placed on it.
    pub is_usable: bool,
}

/// Whether memory is promised or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    /// Memory is taken when blocks are written.
    Thin,
    /// All memory is taken at once.
    Fixed,
}

/// A volume that is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Bytes of one copy.
    pub size_bytes: u64,
    /// How many copies.
    pub copies: usize,
    /// Whether the memory is taken at once.
    pub provision: Provision,
}

/// A placed volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// What was asked for.
    pub wish: Wish,
    /// The numbers of the nodes that hold copies. The first is the primary.
    pub nodes: Vec<u32>,
}

/// Why a volume cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A wish that is none.
    #[error("{copies} copies are out of range; choose 1 to {max}")]
    Copies {
        /// What was given.
        copies: usize,
        /// The most copies.
        max: usize,
    },
    /// Too few zones have a usable node.
    #[error(
        "{copies} copies need as many zones, and {zones} have a node that can be used; add nodes, give nodes other zones, or choose fewer copies"
    )]
    Zones {
        /// What was given.
        copies: usize,
        /// Zones with a usable node.
        zones: usize,
    },
    /// Too few zones have room.
    #[error(
        "a copy of {need_bytes} bytes fits in {zones} of the {copies} zones that are needed; the most that fits in all is {largest_bytes} bytes; choose a smaller size, remove volumes or add nodes"
    )]
    Room {
        /// What a copy counts with.
        need_bytes: u64,
        /// Zones with room.
        zones: usize,
        /// Zones that are needed.
        copies: usize,
        /// What would fit.
        largest_bytes: u64,
    },
    /// After the loss of a node its copies would not fit elsewhere.
    #[error(
        "after the loss of node {node} the copies that it held would not fit on the others; choose a smaller size, add nodes, or place it nevertheless"
    )]
    LossNotCovered {
        /// The node.
        node: u32,
    },
}

/// Whether copies may be placed that could not be made again after the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCover {
    /// No.
    Required,
    /// Yes.
    Ignored,
}

/// The most copies of a volume.
pub const COPIES_MAX: usize = VolumeSpec::COPIES_MAX as usize;

/// The nodes and what is placed on them.
#[derive(Clone, Debug)]
pub struct Pool {
    loads: Loads,
    placed: BTreeMap<u64, Placed>,
    /// How many per cent of the memory thin volumes may promise; at least 100.
    overcommit_percent: u64,
}

/// What a pool holds and could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCapacity {
    /// The memory of usable nodes.
    pub memory_bytes: u64,
    /// What copies on them count with.
    pub used_bytes: u64,
    /// What is left, over all nodes.
    pub free_bytes: u64,
    /// What is left after the largest node is lost and its copies are made again; 0 if those of
    /// some node do not fit.
    pub free_after_loss_bytes: u64,
}

/// A copy that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The volume.
    pub volume: u64,
    /// The node that it is read from.
    pub from: u32,
    /// The node that it is written to.
    pub to: u32,
    /// Bytes of the copy.
    pub size_bytes: u64,
}

/// How the copies of lost nodes are made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restoration {
    /// The copies.
    pub moves: Vec<Move>,
    /// Where each volume is that had a copy on a lost node and has one left.
    pub placements: BTreeMap<u64, Vec<u32>>,
    /// Volumes that have fewer copies afterwards, because no node has room in another zone.
    pub degraded: Vec<u64>,
    /// Volumes of which no copy is left.
    pub lost: Vec<u64>,
}

impl Pool {
    /// A pool without volumes. Thin volumes may promise `overcommit_percent` of the memory; less
    /// than 100 is taken for 100.
    pub fn new(nodes: impl IntoIterator<Item = PoolNode>, overcommit_percent: u64) -> Self {
        Self {
            loads: Loads::new(nodes),
            placed: BTreeMap::new(),
            overcommit_percent: overcommit_percent.max(100),
        }
    }

    /// The volumes, by their numbers.
    pub fn placed(&self) -> &BTreeMap<u64, Placed> {
        &self.placed
    }

    /// What copies on a node count with; nothing if the node does not exist.
    pub fn used_bytes(&self, node: u32) -> Option<u64> {
        self.loads.0.get(&node).map(|load| load.used_bytes)
    }

    /// Primaries on a node; nothing if the node does not exist.
    pub fn primaries(&self, node: u32) -> Option<u64> {
        self.loads.0.get(&node).map(|load| load.primaries)
    }

    /// What a copy counts with.
    pub fn charge_bytes(&self, wish: &Wish) -> u64 {
        match wish.provision {
            Provision::Fixed => wish.size_bytes,
            Provision::Thin => {
                let part = u128::from(wish.size_bytes) * 100;
                let part = part.div_ceil(u128::from(self.overcommit_percent));
                u64::try_from(part).expect("at most the size, as it is divided by 100 or more")
            }
        }
    }

    /// Places a volume that has no place yet, or says why not; then nothing changes.
    ///
    /// # Panics
    /// If a volume of that number is placed.
    pub fn place(
        &mut self,
        volume: u64,
        wish: Wish,
        cover: LossCover,
    ) -> Result<&Placed, PlacementError> {
        assert!(!self.placed.contains_key(&volume), "{volume} is placed");
        if !(1..=COPIES_MAX).contains(&wish.copies) {
            return Err(PlacementError::Copies {
                copies: wish.copies,
                max: COPIES_MAX,
            });
        }
        let charge = self.charge_bytes(&wish);
        let mut best = self.loads.best_of_zones(charge, &BTreeSet::new());
        if best.len() < wish.copies {
            return Err(self.refusal(&wish, charge, best.len()));
        }
        best.truncate(wish.copies);
        self.loads.primary_first(&mut best);
        self.loads.add(&best, charge);
        let nodes = best;
        self.placed.insert(volume, Placed { wish, nodes });
        if cover == LossCover::Required
            && let Some(node) = self.uncovered()
        {
            self.remove(volume);
            return Err(PlacementError::LossNotCovered { node });
        }
        Ok(&self.placed[&volume])
    }

    fn refusal(&self, wish: &Wish, charge: u64, zones: usize) -> PlacementError {
        let copies = wish.copies;
        let mut free = self.loads.largest_of_zones();
        if free.len() < copies {
            let zones = free.len();
            return PlacementError::Zones { copies, zones };
        }
        free.sort_unstable_by(|a, b| b.cmp(a));
        PlacementError::Room {
            need_bytes: charge,
            zones,
            copies,
            largest_bytes: free[copies - 1],
        }
    }

    /// Adds a volume that has its place.
    pub fn insert(&mut self, volume: u64, placed: Placed) {
        self.loads
            .add(&placed.nodes, self.charge_bytes(&placed.wish));
        self.placed.insert(volume, placed);
    }

    /// Removes a volume. Returns what it was.
    pub fn remove(&mut self, volume: u64) -> Option<Placed> {
        let placed = self.placed.remove(&volume)?;
        let charge = self.charge_bytes(&placed.wish);
        self.loads.subtract(&placed.nodes, charge);
        Some(placed)
    }

    /// What the pool holds and could hold.
    pub fn capacity(&self) -> PoolCapacity {
        let usable = || self.loads.0.values().filter(|load| load.node.is_usable);
        let free_bytes = usable().map(Load::free_bytes).sum::<u64>();
        // The lost node's free memory is gone, and its copies take as much elsewhere.
        let largest = usable()
            .map(|load| load.node.memory_bytes.max(load.used_bytes))
            .max();
        let free_after_loss_bytes = match self.uncovered() {
            None => free_bytes.saturating_sub(largest.unwrap_or(0)),
            Some(_) => 0,
        };
        PoolCapacity {
            memory_bytes: usable().map(|load| load.node.memory_bytes).sum(),
            used_bytes: usable().map(|load| load.used_bytes).sum(),
            free_bytes,
            free_after_loss_bytes,
        }
    }

    /// A node whose copies could not all be made again if it were lost.
    pub fn uncovered(&self) -> Option<u32> {
        let mut numbers = self.loads.0.keys().copied();
        numbers.find(|number| {
            let restoration = self.restoration(&BTreeSet::from([*number]));
            !restoration.degraded.is_empty()
        })
    }

    /// The node on which another copy of a volume is made best, if one has room: in a zone without
    /// one of the nodes `kept`, and none of those that hold a copy.
    pub fn another_node(&self, volume: u64, kept: &[u32]) -> Option<u32> {
        let placed = self.placed.get(&volume)?;
        let charge = self.charge_bytes(&placed.wish);
        let zones = self.loads.zones_of(kept);
        let mut loads = self.loads.clone();
        for node in &placed.nodes {
            loads.0.remove(node);
        }
        loads.best_of_zones(charge, &zones).first().copied()
    }

    /// How the copies of lost nodes are made again, larger ones first.
    pub fn restoration(&self, lost: &BTreeSet<u32>) -> Restoration {
        let mut loads = self.loads.clone();
        for number in lost {
            loads.0.remove(number);
        }
        let mut hit: Vec<_> = self.placed.iter().collect();
        hit.retain(|(_, placed)| placed.nodes.iter().any(|node| lost.contains(node)));
        hit.sort_by_key(|(volume, placed)| (u64::MAX - placed.wish.size_bytes, **volume));
        let mut restoration = Restoration::default();
        for (volume, placed) in hit {
            let charge = self.charge_bytes(&placed.wish);
            restore(
                &mut loads,
                (*volume, placed),
                charge,
                lost,
                &mut restoration,
            );
        }
        restoration
    }

    /// The pool after nodes were lost and their copies made again.
    #[must_use]
    pub fn after(&self, lost: &BTreeSet<u32>, restoration: &Restoration) -> Self {
        let mut after = self.clone();
        for volume in &restoration.lost {
            after.remove(*volume);
        }
        for (volume, nodes) in &restoration.placements {
            if let Some(placed) = after.remove(*volume) {
                let charge = after.charge_bytes(&placed.wish);
                after.loads.add(nodes, charge);
                let nodes = nodes.clone();
                after.placed.insert(*volume, Placed { nodes, ..placed });
            }
        }
        for number in lost {
            after.loads.0.remove(number);
        }
        after
    }
}

/// Makes the lost copies of one volume again.
fn restore(
    loads: &mut Loads,
    (volume, placed): (u64, &Placed),
    charge: u64,
    lost: &BTreeSet<u32>,
    restoration: &mut Restoration,
) {
    let mut nodes: Vec<_> = placed.nodes.clone();
    nodes.retain(|node| !lost.contains(node));
    let sources = nodes.clone();
    if sources.is_empty() {
        restoration.lost.push(volume);
        return;
    }
    while nodes.len() < placed.nodes.len() {
        let zones = loads.zones_of(&nodes);
        let Some(to) = loads.best_of_zones(charge, &zones).first().copied() else {
            restoration.degraded.push(volume);
            break;
        };
        restoration.moves.push(Move {
            volume,
            // In turn, so that no node is read for all copies.
            from: sources[restoration.moves.len() % sources.len()],
            to,
            size_bytes: placed.wish.size_bytes,
        });
        loads.add_secondary(to, charge);
        nodes.push(to);
    }
    restoration.placements.insert(volume, nodes);
}

/// Nodes with what is on them, by number.
#[derive(Clone, Debug)]
struct Loads(BTreeMap<u32, Load>);

/// A node with what is on it.
#[derive(Clone, Debug)]
struct Load {
    node: PoolNode,
    /// What its copies count with.
    used_bytes: u64,
    /// Copies that are primaries.
    primaries: u64,
}

impl Loads {
    fn new(nodes: impl IntoIterator<Item = PoolNode>) -> Self {
        let loads = nodes.into_iter().map(|node| {
            let load = Load {
                node,
                used_bytes: 0,
                primaries: 0,
            };
            (load.node.number, load)
        });
        Self(loads.collect())
    }

    /// The best node with room of each zone, the emptiest first; none of `excluded` zones.
    fn best_of_zones(&self, charge: u64, excluded: &BTreeSet<u32>) -> Vec<u32> {
        let mut best: BTreeMap<u32, &Load> = BTreeMap::new();
        let fits = |load: &&Load| {
            load.node.is_usable
                && load.free_bytes() >= charge
                && !excluded.contains(&load.node.zone)
        };
        for load in self.0.values().filter(fits) {
            let first = best.entry(load.node.zone).or_insert(load);
            if load.compare(first, charge).is_lt() {
                *first = load;
            }
        }
        let mut best: Vec<_> = best.into_values().collect();
        best.sort_by(|a, b| a.compare(b, charge));
        best.into_iter().map(|load| load.node.number).collect()
    }

    /// For each zone with a usable node, what fits on the one with the most room.
    fn largest_of_zones(&self) -> Vec<u64> {
        let mut largest: BTreeMap<u32, u64> = BTreeMap::new();
        for load in self.0.values().filter(|load| load.node.is_usable) {
            let most = largest.entry(load.node.zone).or_default();
            *most = load.free_bytes().max(*most);
        }
        largest.into_values().collect()
    }

    fn zones_of(&self, nodes: &[u32]) -> BTreeSet<u32> {
        let loads = nodes.iter().filter_map(|node| self.0.get(node));
        loads.map(|load| load.node.zone).collect()
    }

    /// Puts the node first that has the fewest primaries in proportion to its memory.
    fn primary_first(&self, nodes: &mut [u32]) {
        let weight = |at: &usize| {
            let load = &self.0[&nodes[*at]];
            let memory = u128::from(load.node.memory_bytes.max(1));
            // Scaled, so that integers can be compared.
            ((u128::from(load.primaries) + 1) << 64) / memory
        };
        if let Some(first) = (0..nodes.len()).min_by_key(weight) {
            nodes.swap(0, first);
        }
    }

    fn add(&mut self, nodes: &[u32], charge: u64) {
        for node in nodes {
            self.add_secondary(*node, charge);
        }
        if let Some(load) = nodes.first().and_then(|first| self.0.get_mut(first)) {
            load.primaries += 1;
        }
    }

    fn add_secondary(&mut self, node: u32, charge: u64) {
        if let Some(load) = self.0.get_mut(&node) {
            load.used_bytes += charge;
        }
    }

    fn subtract(&mut self, nodes: &[u32], charge: u64) {
        for (at, node) in nodes.iter().enumerate() {
            if let Some(load) = self.0.get_mut(node) {
                load.used_bytes -= charge;
                load.primaries -= u64::from(at == 0);
            }
        }
    }
}

impl Load {
    fn free_bytes(&self) -> u64 {
        self.node.memory_bytes.saturating_sub(self.used_bytes)
    }

    /// By which part of the memory would be used with another copy; then by number.
    fn compare(&self, other: &Self, charge: u64) -> Ordering {
        let used = |load: &Self| u128::from(load.used_bytes) + u128::from(charge);
        let memory = |load: &Self| u128::from(load.node.memory_bytes);
        let (own, others) = (used(self) * memory(other), used(other) * memory(self));
        own.cmp(&others)
            .then(self.node.number.cmp(&other.node.number))
    }
}

#[cfg(test)]
mod tests;
