use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use block::ByteRange;
use proptest::prelude::*;

use super::*;
use crate::{Budget, Layout, Provision, Snapshot};

const KIB: u64 = 1024;
const LEN: u64 = 256 * KIB;
const UNIT: u64 = 32 * KIB;

fn store(provision: Provision) -> Arc<Store> {
    let layout = Layout::new(64 * KIB, 16 * KIB, 8 * KIB, 8);
    let store = Store::new(Arc::new(Budget::new(16 << 20)), provision, layout);
    resize(&store, LEN);
    Arc::new(store)
}

fn resize(store: &Store, len_bytes: u64) {
    let progress = &mut |_| ControlFlow::Continue(());
    store.resize(len_bytes, progress).expect("fits");
}

fn snapshot(store: &Arc<Store>) -> Arc<Snapshot> {
    Arc::new(store.take_temporary_snapshot(0).expect("open"))
}

fn all(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    snapshot.read(0, &mut bytes).expect("in range");
    bytes
}

fn bytes(store: &Store) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    store.read(0, &mut bytes).expect("in range");
    bytes
}

/// The units in which two states differ.
fn differing(one: &[u8], two: &[u8]) -> Vec<u64> {
    let unit = UNIT as usize;
    let pairs = (0..).zip(one.chunks(unit).zip(two.chunks(unit)));
    let differing = pairs.filter(|(_, (one, two))| one != two);
    differing.map(|(number, _)| number).collect()
}

#[test]
fn only_what_changes_is_noted() {
    let store = store(Provision::Thin);
    store.write(0, &[1; 512]).expect("fits");
    let tracker = store.track_changes(UNIT).expect("open");
    assert_eq!(tracker.changed(), Some(vec![]));
    store.write(UNIT - 512, &[1; 1024]).expect("fits");
    store.write(5 * UNIT, &[1; 512]).expect("fits");
    assert_eq!(tracker.changed(), Some(vec![0, 1, 5]));
    let later = store.track_changes(UNIT).expect("open");
    drop(tracker);
    assert_eq!(later.changed(), Some(vec![]));
    store.erase().expect("thin");
    assert_eq!(later.changed(), None);
    drop(later);
    assert!(!store.has_snapshots(), "nothing is left");
    let last = store.track_changes(UNIT).expect("open");
    resize(&store, LEN - UNIT);
    resize(&store, LEN);
    assert_eq!(last.changed(), None);
    store.close();
    assert!(store.track_changes(UNIT).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Zero,
    Discard,
    Copy(u64),
    CompareAndWrite(u8),
    Snapshot,
    RollBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u8>().prop_map(Step::Write),
        Just(Step::Zero),
        Just(Step::Discard),
        (0..LEN / 512).prop_map(Step::Copy),
        any::<u8>().prop_map(Step::CompareAndWrite),
        Just(Step::Snapshot),
        Just(Step::RollBack),
    ]
}

fn make(store: &Arc<Store>, step: &Step, range: ByteRange, taken: &mut Option<Arc<Snapshot>>) {
    let data = |fill: u8| vec![fill; range.len as usize];
    match *step {
        Step::Write(fill) => store.write(range.offset, &data(fill)).expect("fits"),
        Step::Zero => store.zero(range).expect("fits"),
        Step::Discard => store.discard(range).expect("fits"),
        Step::Copy(to) => {
            let to = (to * 512).min(LEN - range.len);
            store.copy(range, to).expect("fits");
        }
        Step::CompareAndWrite(fill) => {
            let mut old = data(0);
            store.read(range.offset, &mut old).expect("in range");
            let swapped = store.compare_and_write(range.offset, &old, &data(fill));
            swapped.expect("it is equal");
        }
        Step::Snapshot => *taken = Some(snapshot(store)),
        Step::RollBack => {
            if let Some(taken) = taken {
                taken.roll_back(&mut |_| {}).expect("fits");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(64)))]

    #[test]
    fn every_change_is_noted(
        kind in 0..3,
        steps in prop::collection::vec((step(), 0..LEN / 512, 1..100_u64), 1..30),
        begin in 0..30_usize,
    ) {
        let store = match kind {
            0 => store(Provision::Thin),
            1 => store(Provision::Thick),
            _ => {
                let origin = store(Provision::Thin);
                origin.write(0, &vec![9; LEN as usize / 2]).expect("fits");
                let clone = Arc::new(Store::over(snapshot(&origin), LEN).expect("one deep"));
                resize(&clone, LEN);
                clone
            }
        };
        let (mut tracker, mut before, mut taken) = (None, Vec::new(), None);
        for (index, (step, block, blocks)) in steps.iter().enumerate() {
            if index == begin.min(steps.len() - 1) {
                before = bytes(&store);
                tracker = Some(store.track_changes(UNIT).expect("open"));
            }
            let offset = block * 512;
            let len = (blocks * 512).min(LEN - offset);
            make(&store, step, ByteRange { offset, len }, &mut taken);
        }
        if let Some(changed) = tracker.expect("it began").changed() {
            for unit in differing(&before, &bytes(&store)) {
                prop_assert!(changed.contains(&unit), "unit {}", unit);
            }
        }
    }
}

/// Snapshots are taken one after the other under writes: what differs between two of them is noted
/// in the map that began before the first.
#[test]
fn maps_cover_what_differs_between_snapshots_under_writes() {
    let store = store(Provision::Thin);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 1_u64;
            while !is_over.load(Relaxed) {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let block = (state >> 33) % (LEN / 512);
                let fill = [(state >> 20) as u8; 512];
                store.write(block * 512, &fill).expect("fits");
                if state >> 60 == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut tracker = store.track_changes(UNIT).expect("open");
        let mut before = all(&snapshot(&store));
        for _ in 0..200 {
            let next = store.track_changes(UNIT).expect("open");
            let taken = snapshot(&store);
            let changed = tracker.changed().expect("writes alone");
            let now = all(&taken);
            for unit in differing(&before, &now) {
                assert!(changed.contains(&unit), "unit {unit}");
            }
            taken.remove().expect("memory");
            (tracker, before) = (next, now);
        }
        is_over.store(true, Relaxed);
    });
}
