//! Tests of snapshots and clones: rules, a model of vectors, and threads.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::{Budget, Overcommit, PagePolicy, Provision};

const KIB: u64 = 1024;
const BLOCK: u64 = 512;
/// As in the tests of stores: a few hundred KiB cross every boundary, and granules share locks.
const SMALL: Layout = Layout::new(64 * KIB, 16 * KIB, 8 * KIB, 8);
/// What is copied at a time: half a granule.
const COPY: u64 = 4 * KIB;

fn resize(store: &Store, len_bytes: u64) -> Result<(), MemoryError> {
    store.resize(len_bytes, &mut |_| ControlFlow::Continue(()))
}

fn small(budget: &Arc<Budget>, len_bytes: u64, provision: Provision) -> Arc<Store> {
    let store = Store::new(Arc::clone(budget), provision, SMALL);
    resize(&store, len_bytes).expect("within the budget");
    Arc::new(store)
}

fn thin(len_bytes: u64) -> Arc<Store> {
    small(&Arc::new(Budget::new(16 << 20)), len_bytes, Provision::Thin)
}

fn snapshot(store: &Arc<Store>) -> Arc<Snapshot> {
    let len_bytes = store.len_bytes();
    let taken = Store::take_snapshots(&[(Arc::clone(store), len_bytes)]);
    Arc::new(taken.expect("open").pop().expect("one store, one snapshot"))
}

fn clone(of: &Arc<Snapshot>) -> Arc<Store> {
    let clone = Store::over(Arc::clone(of), of.len_bytes()).expect("not too deep");
    resize(&clone, of.len_bytes()).expect("thin");
    Arc::new(clone)
}

fn all_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut read = vec![0xEE; snapshot.len_bytes() as usize];
    snapshot.read(0, &mut read).expect("in range");
    read
}

fn all(store: &Store) -> Vec<u8> {
    let mut read = vec![0xEE; store.len_bytes() as usize];
    store.read(0, &mut read).expect("in range");
    read
}

fn range(offset: u64, len: u64) -> ByteRange {
    ByteRange { offset, len }
}

#[test]
fn a_snapshot_shows_its_moment_and_holds_only_what_changed_since() {
    let store = thin(256 * KIB);
    store.write(0, &vec![1; 128 << 10]).expect("fits");
    let before = all(&store);
    let taken = snapshot(&store);
    assert_eq!(taken.allocated_bytes(), 0);
    store.write(10 * KIB, &[2; 512]).expect("fits");
    store.write(11 * KIB, &[3; 512]).expect("fits");
    assert_eq!(taken.allocated_bytes(), COPY, "both are in one copy");
    store.discard(range(32 * KIB, 32 * KIB)).expect("in range");
    store.zero(range(70 * KIB, 2 * KIB)).expect("in range");
    store.write(200 * KIB, &[4; 512]).expect("fits");
    assert_eq!(
        taken.allocated_bytes(),
        (1 + 8 + 1) * COPY,
        "what was never written takes no memory in a snapshot either"
    );
    assert_eq!(all_of(&taken), before);
    assert_eq!(taken.compare(0, &before), Ok(()));
    let offset_bytes = 20;
    let mut other = before[..4096].to_vec();
    other[offset_bytes as usize] = 9;
    assert_eq!(
        taken.compare(0, &other),
        Err(Status::Miscompare { offset_bytes })
    );
    assert_eq!(taken.changed_bytes(), 11 * COPY);
    taken.remove().expect("nothing is moved");
    assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
    assert_eq!(taken.read(0, &mut [0]), Err(Status::Gone));
}

#[test]
fn reads_beyond_the_end_of_a_snapshot_are_refused() {
    let store = thin(64 * KIB);
    let taken = snapshot(&store);
    resize(&store, 128 * KIB).expect("thin");
    let beyond = Err(Status::LbaOutOfRange);
    assert_eq!(taken.read(64 * KIB - 1, &mut [0; 2]), beyond);
    assert_eq!(taken.compare(u64::MAX, &[0; 2]), beyond);
}

#[test]
fn a_shrink_an_erase_and_growing_again_leave_snapshots_as_they_are() {
    for provision in [Provision::Thin, Provision::Thick] {
        let budget = Arc::new(Budget::new(4 << 20));
        let store = small(&budget, 256 * KIB, provision);
        store.write(0, &vec![7; 256 << 10]).expect("fits");
        let taken = snapshot(&store);
        resize(&store, 18 * KIB + 512).expect("fits");
        resize(&store, 256 * KIB).expect("fits");
        store.write(100 * KIB, &vec![8; 20 << 10]).expect("fits");
        let later = snapshot(&store);
        store.erase().expect("fits");
        store.write(0, &[9; 4096]).expect("fits");
        assert_eq!(all_of(&taken), vec![7; 256 << 10]);
        let mut expected = vec![0; 256 << 10];
        expected[..(18 << 10) + 512].fill(7);
        expected[100 << 10..120 << 10].fill(8);
        assert!(all_of(&later) == expected);
    }
}

#[test]
fn a_write_for_which_the_budget_cannot_keep_the_old_bytes_fails_and_changes_nothing() {
    let budget = Arc::new(Budget::new(16 * KIB + COPY));
    let store = small(&budget, 64 * KIB, Provision::Thin);
    store.write(0, &[1; 16 << 10]).expect("fits");
    let taken = snapshot(&store);
    store.write(0, &[2; 512]).expect("one copy fits");
    let refused = Err(Status::CapacityExceeded);
    assert_eq!(store.write(8 * KIB, &[2; 512]), refused);
    assert_eq!(store.discard(range(0, 64 * KIB)), refused);
    let equal = [1; 512];
    assert_eq!(store.compare_and_write(8 * KIB, &equal, &[3; 512]), refused);
    assert!(matches!(
        resize(&store, 4 * KIB),
        Err(MemoryError::OverBudget { .. })
    ));
    assert_eq!(store.len_bytes(), 64 * KIB);
    assert_eq!(budget.failed_writes(), 3);
    assert_eq!(all_of(&taken)[..16 << 10], [1; 16 << 10]);
    store.write(512, &[2; 512]).expect("this part is kept");
    taken.remove().expect("nothing is moved");
    store
        .write(8 * KIB, &[2; 512])
        .expect("nothing is kept any more");
}

#[test]
fn removing_a_snapshot_in_the_middle_moves_what_older_ones_need_without_a_charge() {
    let store = thin(64 * KIB);
    store.write(0, &vec![1; 64 << 10]).expect("fits");
    let [oldest, middle, newest] = [2, 3, 4].map(|fill| {
        let taken = snapshot(&store);
        store.write(0, &[fill; 8 << 10]).expect("fits");
        taken
    });
    store.write(20 * KIB, &[5; 4096]).expect("fits");
    // No room for anything.
    store.budget().set_total_bytes(0);
    let used_bytes = store.budget().used_bytes();
    newest.remove().expect("moved");
    assert_eq!(store.budget().used_bytes(), used_bytes - 2 * COPY);
    let mut expected = vec![1; 64 << 10];
    assert!(all_of(&oldest) == expected);
    expected[..8 << 10].fill(2);
    assert!(all_of(&middle) == expected);
    middle.remove().expect("moved");
    expected[..8 << 10].fill(1);
    assert!(all_of(&oldest) == expected);
    oldest.remove().expect("nothing is moved");
    assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
}

#[test]
fn a_store_has_at_most_so_many_snapshots_and_clones_lie_at_most_so_deep() {
    let store = thin(64 * KIB);
    let taken: Vec<_> = (0..Store::SNAPSHOTS_MAX)
        .map(|_| snapshot(&store))
        .collect();
    let another = Store::take_snapshots(&[(Arc::clone(&store), 4096)]);
    assert!(matches!(
        another,
        Err((0, MemoryError::TooManySnapshots { .. }))
    ));
    taken[7].remove().expect("nothing is moved");
    store.write(0, &[1; 4096]).expect("fits");
    let mut deepest = snapshot(&store);
    for _ in 1..Store::DEPTH_MAX {
        deepest = snapshot(&clone(&deepest));
    }
    let bottom = clone(&deepest);
    assert_eq!(all(&bottom)[..4096], [1; 4096]);
    let deeper = snapshot(&bottom);
    let refused = Store::over(deeper, 4096);
    assert!(matches!(refused, Err(MemoryError::TooDeep { .. })));
}

#[test]
fn a_closed_store_takes_no_snapshot_and_its_snapshots_are_gone() {
    let (store, other) = (thin(64 * KIB), thin(64 * KIB));
    store.write(0, &[1; 4096]).expect("fits");
    let taken = snapshot(&store);
    store.write(0, &[2; 4096]).expect("fits");
    store.close();
    assert_eq!(taken.read(0, &mut [0; 4]), Err(Status::Gone));
    let both = [(Arc::clone(&other), 4096), (Arc::clone(&store), 4096)];
    let refused = Store::take_snapshots(&both);
    assert!(matches!(refused, Err((1, MemoryError::Closed))));
    taken.remove().expect("it is gone already");
    drop(taken);
    assert_eq!(store.budget().used_bytes(), 0);
}

#[test]
fn the_tables_of_large_snapshots_are_charged() {
    let budget = Arc::new(Budget::new(8 << 20));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, Layout::DEFAULT);
    resize(&store, 1 << 40).expect("thin");
    let store = Arc::new(store);
    let taken = snapshot(&store);
    store.write(1 << 39, &[1; 512]).expect("fits");
    assert_eq!(budget.used_bytes(), (2 << 20) + (256 << 10));
    let mut read = [9; 512];
    taken.read(1 << 39, &mut read).expect("in range");
    assert_eq!(read, [0; 512]);
    let told = taken.allocation(range(0, 1 << 39));
    assert_eq!((told.allocated, told.len_bytes), (false, 1 << 39));
    taken.remove().expect("nothing is moved");
    drop(taken);
    assert_eq!(budget.used_bytes(), 2 << 20);
}

#[test]
fn allocation_of_a_snapshot_and_a_clone_distinguishes_holes_from_memory() {
    let store = thin(256 * KIB);
    store.write(16 * KIB, &vec![1; 32 << 10]).expect("fits");
    let taken = snapshot(&store);
    store.discard(range(0, 256 * KIB)).expect("in range");
    store.write(128 * KIB, &[2; 16 << 10]).expect("fits");
    let clone = clone(&taken);
    clone.discard(range(20 * KIB, 4 * KIB)).expect("in range");
    clone.write(200 * KIB, &[3; 512]).expect("fits");
    let of = |told: Allocation| (told.allocated, told.len_bytes);
    assert_eq!(of(taken.allocation(range(0, 256 * KIB))), (false, 16 * KIB));
    assert_eq!(
        of(taken.allocation(range(16 * KIB, 240 * KIB))),
        (true, 32 * KIB)
    );
    assert_eq!(
        of(taken.allocation(range(48 * KIB, 208 * KIB))),
        (false, 208 * KIB)
    );
    assert_eq!(of(clone.allocation(range(16 * KIB, 9))), (true, 9));
    assert_eq!(
        of(clone.allocation(range(20 * KIB, 99 * KIB))),
        (false, 4 * KIB)
    );
    assert_eq!(
        of(clone.allocation(range(48 * KIB, 208 * KIB))),
        (false, 152 * KIB)
    );
}

/// One step of a random history. Numbers choose among what exists.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u64, usize, u8),
    Zero(usize, u64, u64),
    Discard(usize, u64, u64),
    CompareAndWrite(usize, u64, usize, u8),
    Copy(usize, u64, u64, u64),
    Resize(usize, u64),
    Erase(usize),
    Snapshot(usize),
    Clone(usize),
    RemoveSnapshot(usize),
    RollBack(usize),
}

const MODEL_BYTES: u64 = 160 * KIB;

fn step() -> impl Strategy<Value = Step> {
    let which = 0..8_usize;
    let at = (0..MODEL_BYTES / BLOCK).prop_map(|block| block * BLOCK);
    let len = (0..40 * KIB / BLOCK).prop_map(|blocks| blocks * BLOCK);
    let fill = 1..=255_u8;
    prop_oneof![
        8 => (which.clone(), at.clone(), len.clone(), fill.clone()).prop_map(|(w, a, l, f)| Step::Write(w, a, l as usize, f)),
        1 => (which.clone(), at.clone(), len.clone()).prop_map(|(w, a, l)| Step::Zero(w, a, l)),
        3 => (which.clone(), at.clone(), len.clone()).prop_map(|(w, a, l)| Step::Discard(w, a, l)),
        2 => (which.clone(), at.clone(), len.clone(), fill).prop_map(|(w, a, l, f)| Step::CompareAndWrite(w, a, l as usize, f)),
        2 => (which.clone(), at.clone(), at.clone(), len).prop_map(|(w, a, b, l)| Step::Copy(w, a, b, l)),
        2 => (which.clone(), at).prop_map(|(w, a)| Step::Resize(w, a)),
        1 => which.clone().prop_map(Step::Erase),
        5 => which.clone().prop_map(Step::Snapshot),
        3 => which.clone().prop_map(Step::Clone),
        3 => which.clone().prop_map(Step::RemoveSnapshot),
        2 => which.prop_map(Step::RollBack),
    ]
}

/// Stores and snapshots with what each has to show.
struct Family {
    stores: Vec<(Arc<Store>, Vec<u8>)>,
    snapshots: Vec<(Arc<Snapshot>, Vec<u8>)>,
}

impl Family {
    fn new(budget: &Arc<Budget>, provision: Provision) -> Self {
        let origin = small(budget, MODEL_BYTES, provision);
        Self {
            stores: vec![(origin, vec![0; MODEL_BYTES as usize])],
            snapshots: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Snapshot(which) => {
                let (store, model) = &self.stores[which % self.stores.len()];
                self.snapshots.push((snapshot(store), model.clone()));
            }
            Step::Clone(which) => {
                if let Some((of, model)) = self.nth_snapshot(which)
                    && of.depth() <= Store::DEPTH_MAX
                {
                    self.stores.push((clone(of), model.clone()));
                }
            }
            Step::RemoveSnapshot(which) => {
                if let Some((of, _)) = self.nth_snapshot(which)
                    && !self.has_clones(of)
                {
                    of.remove().expect("the host has memory");
                    let index = which % self.snapshots.len();
                    self.snapshots.remove(index);
                }
            }
            Step::RollBack(which) => self.roll_back(which),
            Step::Write(which, ..)
            | Step::Zero(which, ..)
            | Step::Discard(which, ..)
            | Step::CompareAndWrite(which, ..)
            | Step::Copy(which, ..)
            | Step::Resize(which, _)
            | Step::Erase(which) => {
                let index = which % self.stores.len();
                let (store, model) = &mut self.stores[index];
                change(store, model, step);
            }
        }
    }

    fn nth_snapshot(&self, which: usize) -> Option<&(Arc<Snapshot>, Vec<u8>)> {
        self.snapshots.get(which % self.snapshots.len().max(1))
    }

    fn has_clones(&self, of: &Arc<Snapshot>) -> bool {
        let bases = self.stores.iter().filter_map(|(store, _)| store.base());
        bases.into_iter().any(|base| Arc::ptr_eq(base, of))
    }

    fn roll_back(&mut self, which: usize) {
        let Some((to, model)) = self.nth_snapshot(which).cloned() else {
            return;
        };
        let of_origin = |(store, _): &&mut (Arc<Store>, Vec<u8>)| Arc::ptr_eq(store, to.origin());
        let (store, now) = self.stores.iter_mut().find(of_origin).expect("it is kept");
        match to.roll_back(&mut |_| {}) {
            Ok(()) => *now = model,
            Err(Status::Invalid) => assert_ne!(now.len(), model.len()),
            // Blocks of a clone that was erased may be those of its base.
            Err(Status::CapacityExceeded) if store.base().is_some() => *now = all(store),
            Err(Status::CapacityExceeded) => accept(store, now, &model),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn check(&self) {
        for (store, model) in &self.stores {
            assert!(all(store) == *model);
            assert_eq!(store.compare(0, model), Ok(()));
            check_allocation(model, |range| store.allocation(range));
        }
        for (snapshot, model) in &self.snapshots {
            assert!(all_of(snapshot) == *model);
            assert_eq!(snapshot.compare(0, model), Ok(()));
            check_allocation(model, |range| snapshot.allocation(range));
        }
        let stores = self.stores.iter().map(|(store, _)| store.allocated_bytes());
        let snapshots = self.snapshots.iter();
        let snapshots = snapshots.map(|(snapshot, _)| snapshot.allocated_bytes());
        let used_bytes = self.stores[0].0.budget().used_bytes();
        assert_eq!(used_bytes, stores.sum::<u64>() + snapshots.sum::<u64>());
    }
}

/// What is said to have no memory is zeros.
fn check_allocation(model: &[u8], allocation: impl Fn(ByteRange) -> Allocation) {
    let mut at = 0;
    while at < model.len() {
        let told = allocation(range(at as u64, (model.len() - at) as u64));
        assert!(told.len_bytes > 0);
        let end = at + told.len_bytes as usize;
        assert!(told.allocated || model[at..end].iter().all(|&byte| byte == 0));
        at = end;
    }
}

/// Does a step on a store and its model.
fn change(store: &Store, model: &mut Vec<u8>, step: &Step) {
    let mut to = model.clone();
    let fits = on_model(&mut to, step).is_some();
    let done = match *step {
        Step::Write(_, offset, len, fill) => store.write(offset, &vec![fill; len]),
        Step::Zero(_, offset, len) => store.zero(range(offset, len)),
        Step::Discard(_, offset, len) => store.discard(range(offset, len)),
        Step::CompareAndWrite(_, offset, len, fill) => {
            let start = (offset as usize).min(model.len());
            let mut expected = model[start..(start + len).min(model.len())].to_vec();
            expected.resize(len, 0);
            store.compare_and_write(offset, &expected, &vec![fill; len])
        }
        Step::Copy(_, from, to, len) => store.copy(range(from, len), to),
        Step::Resize(_, len) => resize(store, len).map_err(|_| Status::CapacityExceeded),
        Step::Erase(_) => store.erase().map_err(|_| Status::CapacityExceeded),
        _ => unreachable!("these change no store"),
    };
    match done {
        Ok(()) => {
            assert!(fits, "{step:?}");
            *model = to;
        }
        Err(Status::LbaOutOfRange) => assert!(!fits, "{step:?}"),
        Err(Status::CapacityExceeded) => match step {
            Step::CompareAndWrite(..) | Step::Resize(..) => assert!(all(store) == *model),
            // Blocks of overlapping copies may be those of the middle.
            Step::Copy(..) => *model = all(store),
            _ => accept(store, model, &to),
        },
        Err(other) => panic!("{step:?}: {other:?}"),
    }
}

/// After a failure each block is old or new.
fn accept(store: &Store, model: &mut Vec<u8>, new: &[u8]) {
    let now = all(store);
    let blocks = now.chunks(BLOCK as usize).enumerate();
    for (number, block) in blocks {
        let at = number * BLOCK as usize;
        let part = at..at + block.len();
        assert!(block == &model[part.clone()] || block == &new[part]);
    }
    *model = now;
}

fn on_model(model: &mut Vec<u8>, step: &Step) -> Option<()> {
    let part = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
    match *step {
        Step::Write(_, offset, len, fill) | Step::CompareAndWrite(_, offset, len, fill) => {
            model.get_mut(part(offset, len as u64))?.fill(fill);
        }
        Step::Zero(_, offset, len) | Step::Discard(_, offset, len) => {
            model.get_mut(part(offset, len))?.fill(0);
        }
        Step::Copy(_, from, to, len) => {
            model.get(part(to, len))?;
            model.get(part(from, len))?;
            model.copy_within(part(from, len), to as usize);
        }
        Step::Resize(_, len) => model.resize(len as usize, 0),
        Step::Erase(_) => model.fill(0),
        _ => {}
    }
    Some(())
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(200)))]

    #[test]
    fn any_history_of_a_family_agrees_with_vectors(
        steps in history(),
        thick in any::<bool>(),
        strict in any::<bool>(),
    ) {
        let provision = if thick { Provision::Thick } else { Provision::Thin };
        let overcommit = if strict { Overcommit::Strict } else { Overcommit::Allowed };
        let budget = Budget::with_policy(64 << 20, PagePolicy::Ordinary, overcommit);
        let mut family = Family::new(&Arc::new(budget), provision);
        for step in &steps {
            family.take(step);
            family.check();
        }
    }

    #[test]
    fn a_budget_that_is_used_up_never_changes_a_snapshot(
        steps in history(),
        budget_bytes in (10..100_u64).prop_map(|copies| copies * COPY),
    ) {
        let mut family = Family::new(&Arc::new(Budget::new(budget_bytes)), Provision::Thin);
        for step in &steps {
            family.take(step);
            family.check();
        }
    }
}

/// Each thread writes a growing number to the first store, then to the second, while snapshots of
/// both are taken. What stands in the second must not be ahead of the first.
#[test]
fn a_snapshot_of_two_stores_under_writes_holds_each_write_that_came_before_another() {
    const WRITERS: u64 = 3;
    const ROUNDS: usize = 300;
    let budget = Arc::new(Budget::new(64 << 20));
    let stores = [(); 2].map(|()| small(&budget, 128 * KIB, Provision::Thin));
    let both = stores.clone().map(|store| (store, 128 * KIB));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (stores, done) = (&stores, &done);
            scope.spawn(move || write_numbers(writer, stores, done));
        }
        let mut kept = std::collections::VecDeque::new();
        for round in 0..ROUNDS {
            let taken = Store::take_snapshots(&both).expect("open");
            let numbers: Vec<_> = (0..WRITERS)
                .map(|writer| numbers_of(writer, &taken))
                .collect();
            for [first, second] in &numbers {
                let fit = second <= first && *first <= second + 1;
                assert!(fit, "round {round}: {first} and {second}");
            }
            kept.push_back((taken, numbers));
            if kept.len() > 4 {
                // Removed in any order; those that stay show what they showed.
                let (removed, _) = kept.remove(round % 4).expect("there are more");
                for snapshot in removed {
                    snapshot.remove().expect("the host has memory");
                }
            }
            for (taken, expected) in &kept {
                let now: Vec<_> = (0..WRITERS)
                    .map(|writer| numbers_of(writer, taken))
                    .collect();
                assert_eq!(now, *expected);
            }
        }
        done.store(true, Relaxed);
    });
}

/// Where a writer writes its number.
fn place_of(writer: u64) -> u64 {
    writer * 40 * KIB
}

fn write_numbers(writer: u64, stores: &[Arc<Store>; 2], done: &AtomicBool) {
    for number in 1_u64.. {
        // Elsewhere, too, across granules and slabs, so that there is always something to be kept.
        let elsewhere = (writer * 32 + number % 32) * BLOCK * 2;
        let block = number.to_le_bytes().repeat(BLOCK as usize / 8);
        for store in stores {
            store.write(place_of(writer), &block).expect("fits");
            store.write(elsewhere, &block).expect("fits");
        }
        if done.load(Relaxed) {
            return;
        }
    }
}

/// What a writer had written to each store.
fn numbers_of(writer: u64, taken: &[Snapshot]) -> [u64; 2] {
    [0, 1].map(|store| {
        let mut block = [0; BLOCK as usize];
        let read = taken[store].read(place_of(writer), &mut block);
        read.expect("in range");
        let (words, _) = block.as_chunks::<8>();
        assert!(words.iter().all(|word| *word == words[0]), "torn");
        u64::from_le_bytes(words[0])
    })
}

/// A compare-and-write over several granules belongs to a snapshot as a whole or not at all.
#[test]
fn a_compare_and_write_is_not_cut_by_a_snapshot() {
    let store = thin(64 * KIB);
    let (at, len) = (2 * KIB, 24 << 10);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut fill = 0_u8;
            while !done.load(Relaxed) {
                let (from, to) = (vec![fill; len], vec![fill.wrapping_add(1); len]);
                assert_eq!(store.compare_and_write(at, &from, &to), Ok(()));
                fill = fill.wrapping_add(1);
            }
        });
        for _ in 0..500 {
            let taken = snapshot(&store);
            let mut read = vec![0; len];
            taken.read(at, &mut read).expect("in range");
            assert!(read.iter().all(|&byte| byte == read[0]), "it was cut");
            taken.remove().expect("nothing is moved");
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn clones_are_read_and_written_while_their_origin_is() {
    let store = thin(128 * KIB);
    store.write(0, &vec![1; 128 << 10]).expect("fits");
    let taken = snapshot(&store);
    let clones = [clone(&taken), clone(&taken)];
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for fill in 2..4 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    store.write(0, &vec![fill; 128 << 10]).expect("fits");
                    store.discard(range(16 * KIB, 64 * KIB)).expect("in range");
                }
            });
        }
        let writers = clones.iter().zip([10, 20]).map(|(clone, fill)| {
            scope.spawn(move || {
                for at in (0..128 * KIB).step_by(1024) {
                    clone.write(at, &[fill; 512]).expect("fits");
                    assert_eq!(all_of_block(clone, at), vec![fill; 512]);
                    assert_eq!(all_of_block(clone, at + 512), vec![1; 512]);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.join().expect("it agrees");
        }
        done.store(true, Relaxed);
    });
    assert_eq!(all_of(&taken), vec![1; 128 << 10]);
}

fn all_of_block(store: &Store, at: u64) -> Vec<u8> {
    let mut read = vec![0xEE; BLOCK as usize];
    store.read(at, &mut read).expect("in range");
    read
}

#[test]
fn a_temporary_snapshot_gives_way_before_the_reserve_is_touched() {
    let store = thin(64 * KIB);
    store.write(0, &vec![1; 64 << 10]).expect("fits");
    let lasting = snapshot(&store);
    let temporary = store.take_temporary_snapshot(8 * COPY).expect("open");
    let budget = Arc::clone(store.budget());
    budget.set_total_bytes(budget.used_bytes() + 10 * COPY);
    store.write(0, &[2; 4096]).expect("kept");
    assert!(all_of(&temporary) == vec![1; 64 << 10]);
    for copy in 1..4 {
        store
            .write(copy * COPY, &[3; 4096])
            .expect("one of both keeps it");
    }
    assert!(temporary.is_gone());
    assert_eq!(temporary.read(60 * KIB, &mut [0]), Err(Status::Gone));
    assert!(all_of(&lasting) == vec![1; 64 << 10]);
    temporary.remove().expect("moved");
    assert!(all_of(&lasting) == vec![1; 64 << 10]);
    lasting.remove().expect("nothing is moved");
    assert_eq!(budget.used_bytes(), store.allocated_bytes());
}

#[test]
fn a_temporary_snapshot_fails_no_write_and_no_discard() {
    let store = thin(64 * KIB);
    store.write(0, &vec![1; 64 << 10]).expect("fits");
    let temporary = store.take_temporary_snapshot(0).expect("open");
    store.budget().set_total_bytes(0);
    store.write(0, &[2; 4096]).expect("the snapshot gives way");
    assert!(temporary.is_gone());
    let temporary = store.take_temporary_snapshot(0).expect("open");
    store
        .discard(range(0, 64 * KIB))
        .expect("the snapshot gives way");
    assert!(temporary.is_gone());
    assert_eq!(store.allocated_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(200)))]

    /// Steps: 0 to 3 write, 4 discards, 5 takes a temporary snapshot, 6 removes it, 7 takes a
    /// lasting one, 8 removes that.
    #[test]
    fn a_temporary_snapshot_shows_its_moment_or_nothing(
        steps in prop::collection::vec((0..9_u8, 0..60_u64, 1..20_u64, any::<u8>()), 1..60),
        budget_bytes in (16..60_u64).prop_map(|copies| copies * COPY),
    ) {
        let store = small(&Arc::new(Budget::new(budget_bytes)), 64 * KIB, Provision::Thin);
        let (mut lasting, mut temporary) = (None, None);
        for (step, kib, len, fill) in steps {
            let (at, len) = (kib * KIB, (len * KIB).min(64 * KIB - kib * KIB));
            match step {
                0..4 => drop(store.write(at, &vec![fill; len as usize])),
                4 => drop(store.discard(range(at, len))),
                5 if temporary.is_none() => {
                    let taken = store.take_temporary_snapshot(2 * COPY).expect("open");
                    temporary = Some((all(&store), taken));
                }
                6 => temporary.take().into_iter().for_each(|(_, taken): (Vec<u8>, Snapshot)| {
                    taken.remove().expect("moved");
                }),
                7 if lasting.is_none() => lasting = Some((all(&store), snapshot(&store))),
                8 => lasting.take().into_iter().for_each(|(_, taken): (Vec<u8>, Arc<Snapshot>)| {
                    taken.remove().expect("moved");
                }),
                _ => {}
            }
            if let Some((shown, taken)) = &lasting {
                prop_assert!(all_of(taken) == *shown, "a lasting snapshot stays");
            }
            if let Some((shown, taken)) = &temporary {
                let mut read = vec![0; 64 << 10];
                match taken.read(0, &mut read) {
                    Ok(()) => prop_assert!(read == *shown),
                    Err(status) => {
                        prop_assert_eq!(status, Status::Gone);
                        prop_assert!(taken.is_gone());
                    }
                }
            }
        }
        for taken in temporary.iter().map(|(_, taken)| taken) {
            taken.remove().expect("moved");
        }
        if let Some((_, taken)) = lasting {
            taken.remove().expect("nothing is moved");
        }
        prop_assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
    }
}

/// Two threads write while a third reads temporary snapshots, which give way now and then.
#[test]
fn a_temporary_snapshot_under_writes_shows_one_moment_or_is_gone() {
    let store = small(&Arc::new(Budget::new(96 << 10)), 64 * KIB, Provision::Thin);
    store.write(0, &vec![1; 64 << 10]).expect("fits");
    let is_over = AtomicBool::new(false);
    let (mut whole, mut gone) = (0, 0);
    thread::scope(|scope| {
        for half in 0..2 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut number = 0_u32;
                while !is_over.load(Relaxed) {
                    number += 1;
                    for copy in 0..8 {
                        let data = [number.to_le_bytes(); 1024].concat();
                        let at = (half * 8 + copy) * COPY;
                        store.write(at, &data).expect("the snapshot gives way");
                    }
                }
            });
        }
        for _ in 0..3000 {
            let taken = store.take_temporary_snapshot(0).expect("open");
            let mut first = vec![0; 64 << 10];
            let mut again = first.clone();
            let read = taken.read(0, &mut first);
            thread::yield_now();
            match (read, taken.read(0, &mut again)) {
                (Ok(()), Ok(())) => {
                    assert!(first == again, "it does not change");
                    whole += 1;
                }
                _ => gone += 1,
            }
            taken.remove().expect("moved");
        }
        is_over.store(true, Relaxed);
    });
    assert!(whole > 0, "{whole} whole, {gone} gone");
}
