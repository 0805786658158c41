//! The next step that makes the copies of a volume elsewhere. Each is one transaction, and the next
//! follows from what is there then, so that anyone can go on after an interruption.

use std::collections::BTreeSet;

/// The copies of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies<'a> {
    /// How many there are to be.
    pub wanted: usize,
    /// The nodes that hold them.
    pub nodes: &'a [u32],
    /// The nodes whose copies are in sync.
    pub in_sync: &'a [u32],
    /// The node that serves the volume.
    pub primary: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Another copy begins on this node.
    Add(u32),
    /// The copy on this node ends.
    Drop(u32),
}

impl Copies<'_> {
    /// The next step, if there is one, when copies are not to be on `avoided` nodes.
    ///
    /// A copy is added before another one is dropped, and a copy in sync is dropped only if as many
    /// are left in sync as there are to be. `another` says on which node a copy fits beside some.
    pub fn next_repair(
        &self,
        avoided: &BTreeSet<u32>,
        another: impl FnOnce(&[u32]) -> Option<u32>,
    ) -> Option<Repair> {
        let placed = self.nodes.iter().copied();
        let kept: Vec<u32> = placed
            .clone()
            .filter(|node| !avoided.contains(node))
            .collect();
        // A copy that has ended may have returned before its node knew.
        let mut forgotten = self.in_sync.iter().copied();
        let forgotten =
            forgotten.find(|node| !self.nodes.contains(node) && self.can_drop(*node, avoided));
        if forgotten.is_some() {
            return forgotten.map(Repair::Drop);
        }
        if self.nodes.len() > self.wanted {
            let is_copying = kept.iter().any(|node| !self.in_sync.contains(node));
            // It holds nothing that counts, and no other copy is about to take its place.
            let can_be_given_up =
                |node: u32| !is_copying && !kept.contains(&node) && !self.in_sync.contains(&node);
            let mut surplus: Vec<u32> = placed
                .filter(|node| self.can_drop(*node, avoided) || can_be_given_up(*node))
                .collect();
            surplus.sort_by_key(|node| (kept.contains(node), self.in_sync.contains(node)));
            return surplus.first().copied().map(Repair::Drop);
        }
        if kept.len() < self.wanted {
            return another(&kept).map(Repair::Add);
        }
        None
    }

    /// Whether enough copies in sync are left without this one. Those that are to leave do not
    /// count for one that is to stay: it may be about to take the place of one of them.
    fn can_drop(&self, node: u32, avoided: &BTreeSet<u32>) -> bool {
        let is_to_stay = self.nodes.contains(&node) && !avoided.contains(&node);
        let is_left = |other: &&u32| {
            **other != node
                && self.nodes.contains(other)
                && !(is_to_stay && avoided.contains(other))
        };
        let left = self.in_sync.iter().filter(is_left).count();
        node != self.primary && left >= self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to a volume until nothing is to be done: each copy that is added gets in sync,
    /// and the primary moves away from an avoided node when another one is in sync.
    fn run(wanted: usize, nodes: &[u32], avoided: &[u32], free: &[u32]) -> (Vec<u32>, u32) {
        let avoided: BTreeSet<u32> = avoided.iter().copied().collect();
        let (mut nodes, mut in_sync) = (nodes.to_vec(), nodes.to_vec());
        let mut primary = nodes[0];
        for _ in 0..20 {
            let movable = in_sync.iter().find(|node| !avoided.contains(node));
            if avoided.contains(&primary) {
                primary = movable.copied().unwrap_or(primary);
            }
            let copies = Copies {
                wanted,
                nodes: &nodes,
                in_sync: &in_sync,
                primary,
            };
            let is_free = |node: &&u32| !nodes.contains(node) && !avoided.contains(node);
            let another = |_: &[u32]| free.iter().find(is_free).copied();
            match copies.next_repair(&avoided, another) {
                None => break,
                Some(Repair::Add(node)) => {
                    nodes.push(node);
                    in_sync.push(node);
                }
                Some(Repair::Drop(node)) => {
                    assert_ne!(node, primary);
                    nodes.retain(|other| *other != node);
                    in_sync.retain(|other| *other != node);
                    assert!(in_sync.len() >= wanted, "{in_sync:?}");
                }
            }
            assert!(nodes.len() <= wanted + 1, "{nodes:?}");
        }
        nodes.sort_unstable();
        (nodes, primary)
    }

    #[test]
    fn copies_leave_the_nodes_that_are_avoided_if_there_is_room() {
        assert_eq!(run(2, &[1, 2], &[], &[3]), (vec![1, 2], 1));
        assert_eq!(run(2, &[1, 2], &[2], &[3]), (vec![1, 3], 1));
        assert_eq!(run(2, &[1, 2], &[1], &[3]), (vec![2, 3], 2));
        assert_eq!(run(1, &[1], &[1], &[2, 3]), (vec![2], 2));
        assert_eq!(run(2, &[1, 2], &[1, 2], &[3, 4]), (vec![3, 4], 3));
        assert_eq!(run(3, &[1, 2, 3], &[1, 3], &[4]), (vec![2, 3, 4], 2));
        // Without room nothing changes, except that the primary moves.
        assert_eq!(run(2, &[1, 2], &[1], &[]), (vec![1, 2], 2));
        assert_eq!(run(1, &[1], &[1], &[]), (vec![1], 1));
    }

    #[test]
    fn no_copy_in_sync_is_dropped_before_the_others_are_in_sync() {
        let none = |_: &[u32]| None;
        let step = |nodes: &[u32], in_sync: &[u32], avoided: &[u32]| {
            let copies = Copies {
                wanted: 2,
                nodes,
                in_sync,
                primary: 1,
            };
            copies.next_repair(&avoided.iter().copied().collect(), none)
        };
        assert_eq!(step(&[1, 2, 3], &[1, 2], &[2]), None);
        assert_eq!(step(&[1, 2, 3], &[1, 3], &[2]), Some(Repair::Drop(2)));
        // The one that was away has returned before the other one was in sync.
        assert_eq!(step(&[1, 2, 3], &[1, 2], &[]), Some(Repair::Drop(3)));
        assert_eq!(step(&[1, 2], &[1, 2, 3], &[]), Some(Repair::Drop(3)));
        assert_eq!(step(&[1, 2], &[1, 3], &[]), None);
        // Both are lost: the first one, and the one that was to replace it.
        assert_eq!(step(&[1, 2, 3], &[1], &[2]), None);
        assert_eq!(step(&[1, 2, 3], &[1], &[2, 3]), Some(Repair::Drop(2)));
    }
}
