use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Nodes by zone and memory; their numbers count from 1.
fn pool(nodes: &[(u32, u64)], overcommit_percent: u64) -> Pool {
    let nodes = (1..)
        .zip(nodes)
        .map(|(number, (zone, memory_bytes))| PoolNode {
            number,
            zone: *zone,
            memory_bytes: *memory_bytes,
            is_usable: true,
        });
    Pool::new(nodes, overcommit_percent)
}

fn fixed(size_bytes: u64, copies: usize) -> Wish {
    Wish {
        size_bytes,
        copies,
        provision: Provision::Fixed,
    }
}

/// Panics if a rule of placements does not hold.
fn check(pool: &Pool) {
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    let mut primaries: BTreeMap<u32, u64> = BTreeMap::new();
    for placed in pool.placed().values() {
        let zones: BTreeSet<_> = placed
            .nodes
            .iter()
            .map(|node| pool.loads.0[node].node.zone)
            .collect();
        assert_eq!(zones.len(), placed.nodes.len(), "a zone holds two copies");
        assert!(!placed.nodes.is_empty() && placed.nodes.len() <= placed.wish.copies);
        for node in &placed.nodes {
            *used.entry(*node).or_default() += pool.charge_bytes(&placed.wish);
        }
        *primaries.entry(placed.nodes[0]).or_default() += 1;
    }
    for (number, load) in &pool.loads.0 {
        assert_eq!(
            load.used_bytes,
            used.remove(number).unwrap_or(0),
            "node {number}"
        );
        assert_eq!(load.primaries, primaries.remove(number).unwrap_or(0));
        assert!(
            load.used_bytes <= load.node.memory_bytes,
            "node {number} is overbooked"
        );
    }
    assert!(
        used.is_empty(),
        "copies on nodes that do not exist: {used:?}"
    );
}

fn nodes() -> impl Strategy<Value = Vec<(u32, u64)>> {
    vec((0..5_u32, 1..200_u64), 0..9)
}

fn wish() -> impl Strategy<Value = Wish> {
    let provision = prop_oneof![Just(Provision::Thin), Just(Provision::Fixed)];
    (1..60_u64, 0..5_usize, provision).prop_map(|(size_bytes, copies, provision)| Wish {
        size_bytes,
        copies,
        provision,
    })
}

proptest! {
    #[test]
    fn copies_are_in_different_zones_and_no_node_is_overbooked(
        nodes in nodes(),
        wishes in vec((wish(), any::<bool>()), 0..60),
        overcommit in 50..300_u64,
        removed in any::<u64>(),
    ) {
        let mut pool = pool(&nodes, overcommit);
        for (volume, (wish, covers)) in (0..).zip(&wishes) {
            let before = pool.loads.clone();
            let cover = if *covers { LossCover::Required } else { LossCover::Ignored };
            let placed = pool.place(volume, *wish, cover).cloned();
            check(&pool);
            match placed {
                Ok(placed) => prop_assert_eq!(placed.nodes.len(), wish.copies),
                // Nothing has changed, and the reason is true.
                Err(error) => {
                    prop_assert!(!pool.placed().contains_key(&volume));
                    for (number, load) in &before.0 {
                        prop_assert_eq!(Some(load.used_bytes), pool.used_bytes(*number));
                        prop_assert_eq!(Some(load.primaries), pool.primaries(*number));
                    }
                    check_refusal(&pool, wish, &error);
                }
            }
        }
        let volumes: Vec<_> = pool.placed().keys().copied().collect();
        for volume in volumes.iter().filter(|volume| removed >> (**volume % 64) & 1 == 1) {
            prop_assert!(pool.remove(*volume).is_some());
            check(&pool);
        }
    }

    #[test]
    fn what_was_placed_with_cover_survives_the_loss_of_any_node(
        nodes in nodes(),
        wishes in vec(wish(), 0..40),
    ) {
        let mut pool = pool(&nodes, 100);
        for (volume, wish) in (0..).zip(&wishes) {
            let copies = wish.copies.max(2);
            let _ = pool.place(volume, Wish { copies, ..*wish }, LossCover::Required);
        }
        for number in pool.loads.0.keys().copied() {
            let lost = BTreeSet::from([number]);
            let restoration = pool.restoration(&lost);
            prop_assert!(restoration.degraded.is_empty() && restoration.lost.is_empty());
            let after = pool.after(&lost, &restoration);
            check(&after);
            for (volume, placed) in after.placed() {
                prop_assert_eq!(placed.nodes.len(), placed.wish.copies, "volume {}", volume);
            }
        }
    }

    #[test]
    fn the_loss_of_any_nodes_loses_only_volumes_whose_copies_were_all_there(
        nodes in nodes(),
        wishes in vec(wish(), 0..40),
        mask in any::<u16>(),
    ) {
        let mut pool = pool(&nodes, 100);
        for (volume, wish) in (0..).zip(&wishes) {
            let _ = pool.place(volume, *wish, LossCover::Ignored);
        }
        let numbers = pool.loads.0.keys().copied();
        let lost: BTreeSet<_> = numbers.filter(|number| mask >> (number % 16) & 1 == 1).collect();
        let restoration = pool.restoration(&lost);
        let after = pool.after(&lost, &restoration);
        check(&after);
        for (volume, placed) in pool.placed() {
            let is_lost = placed.nodes.iter().all(|node| lost.contains(node));
            prop_assert_eq!(restoration.lost.contains(volume), is_lost);
            let copies = after.placed().get(volume).map_or(0, |placed| placed.nodes.len());
            let is_whole = copies == placed.nodes.len();
            prop_assert_eq!(is_whole, !is_lost && !restoration.degraded.contains(volume));
        }
        for step in &restoration.moves {
            prop_assert!(!lost.contains(&step.from) && !lost.contains(&step.to));
            prop_assert!(pool.placed()[&step.volume].nodes.contains(&step.from));
        }
    }
}

/// Panics if the reason of a refusal is not true.
fn check_refusal(pool: &Pool, wish: &Wish, error: &PlacementError) {
    let charge = pool.charge_bytes(wish);
    let zones = |fits: &dyn Fn(&Load) -> bool| {
        let loads = pool.loads.0.values().filter(|load| fits(load));
        loads
            .map(|load| load.node.zone)
            .collect::<BTreeSet<_>>()
            .len()
    };
    match *error {
        PlacementError::Copies { .. } => assert!(wish.copies == 0 || wish.copies > COPIES_MAX),
        PlacementError::Zones { zones: found, .. } => {
            assert_eq!(found, zones(&|_| true));
            assert!(found < wish.copies);
        }
        PlacementError::Room {
            largest_bytes,
            zones: found,
            ..
        } => {
            assert_eq!(found, zones(&|load| load.free_bytes() >= charge));
            assert!(found < wish.copies && largest_bytes < charge);
            assert!(zones(&|load| load.free_bytes() >= largest_bytes) >= wish.copies);
        }
        PlacementError::LossNotCovered { .. } => {
            let mut other = pool.clone();
            other
                .place(u64::MAX, *wish, LossCover::Ignored)
                .expect("there is room");
            assert!(other.uncovered().is_some());
        }
    }
}

#[test]
fn equal_volumes_on_equal_nodes_are_spread_evenly() {
    let nodes: Vec<_> = (0..10).map(|zone| (zone, 1_000)).collect();
    let mut pool = pool(&nodes, 100);
    for volume in 0..100 {
        pool.place(volume, fixed(10, 2), LossCover::Required)
            .expect("placed");
    }
    for node in 1..=10 {
        assert_eq!(pool.used_bytes(node), Some(200), "node {node}");
        let primaries = pool.primaries(node).expect("there");
        assert!((8..=12).contains(&primaries), "{primaries} primaries");
    }
}

#[test]
fn a_node_of_twice_the_memory_holds_twice_as_much() {
    let mut pool = pool(&[(0, 2_000), (1, 1_000), (2, 1_000)], 100);
    for volume in 0..40 {
        pool.place(volume, fixed(10, 1), LossCover::Ignored)
            .expect("placed");
    }
    let used: Vec<_> = (1..=3).map(|node| pool.used_bytes(node)).collect();
    assert_eq!(used, [Some(200), Some(100), Some(100)]);
}

#[test]
fn thin_volumes_count_with_their_share_of_the_overcommitment() {
    let mut pool = pool(&[(0, 100), (1, 100)], 200);
    let thin = Wish {
        provision: Provision::Thin,
        ..fixed(101, 2)
    };
    assert_eq!(
        (pool.charge_bytes(&thin), pool.charge_bytes(&fixed(101, 2))),
        (51, 101)
    );
    pool.place(1, thin, LossCover::Ignored).expect("placed");
    let error = pool
        .place(2, thin, LossCover::Ignored)
        .expect_err("no room");
    let expected = PlacementError::Room {
        need_bytes: 51,
        zones: 0,
        copies: 2,
        largest_bytes: 49,
    };
    assert_eq!(error, expected);
}

#[test]
fn the_capacity_says_what_is_left_after_a_loss() {
    let mut pool = pool(&[(0, 100), (1, 100), (2, 60)], 100);
    pool.place(1, fixed(30, 2), LossCover::Required)
        .expect("placed");
    let capacity = pool.capacity();
    let expected = PoolCapacity {
        memory_bytes: 260,
        used_bytes: 60,
        free_bytes: 200,
        free_after_loss_bytes: 100,
    };
    assert_eq!(capacity, expected);
    // Node 3 could not take the copy of either of the others.
    let error = pool
        .place(2, fixed(65, 2), LossCover::Required)
        .expect_err("not covered");
    assert!(
        matches!(error, PlacementError::LossNotCovered { .. }),
        "{error}"
    );
    pool.place(2, fixed(65, 2), LossCover::Ignored)
        .expect("placed nevertheless");
    assert_eq!(pool.capacity().free_after_loss_bytes, 0);
}
