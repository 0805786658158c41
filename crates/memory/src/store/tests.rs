//! Tests of the store: rules, a model, and threads.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::{Overcommit, PagePolicy};

const KIB: u64 = 1024;
/// Small sizes, so that a few hundred KiB cross many chunks, slabs and granules, and granules share
/// locks.
const SMALL: Layout = Layout::new(64 * KIB, 16 * KIB, 4 * KIB, 8);

fn small(len_bytes: u64, budget_bytes: u64, provision: Provision) -> Store {
    let store = Store::new(Arc::new(Budget::new(budget_bytes)), provision, SMALL);
    resize(&store, len_bytes).expect("within the budget");
    store
}

fn resize(store: &Store, len_bytes: u64) -> Result<(), MemoryError> {
    store.resize(len_bytes, &mut |_| ControlFlow::Continue(()))
}

fn bytes(store: &Store, offset: u64, len: usize) -> Vec<u8> {
    let mut read = vec![0xEE; len];
    store.read(offset, &mut read).expect("in range");
    read
}

fn range(offset: u64, len: u64) -> ByteRange {
    ByteRange { offset, len }
}

#[test]
fn what_was_never_written_reads_as_zeros_and_costs_nothing() {
    let store = small(1 << 20, 0, Provision::Thin);
    assert_eq!(bytes(&store, 60 * KIB, 20_000), vec![0; 20_000]);
    assert_eq!(store.allocated_bytes(), 0);
    assert_eq!(store.budget().used_bytes(), 0);
}

#[test]
fn a_full_budget_fails_the_write_that_needs_it_and_nothing_else() {
    let store = small(1 << 20, 32 * KIB, Provision::Thin);
    store.write(0, &[1; 512]).expect("first slab");
    store.write(512 * KIB, &[2; 512]).expect("second slab");
    assert_eq!(
        store.write(900 * KIB, &[3; 512]),
        Err(Status::CapacityExceeded)
    );
    store.write(8 * KIB, &[4; 512]).expect("an allocated slab");
    assert_eq!(bytes(&store, 512 * KIB, 512), [2; 512]);
    assert_eq!(bytes(&store, 900 * KIB, 512), [0; 512]);
    store.discard(range(0, 16 * KIB)).expect("in range");
    store.write(900 * KIB, &[3; 512]).expect("memory came back");
    assert_eq!(store.budget().used_bytes(), 32 * KIB);
}

#[test]
fn a_write_that_meets_the_budget_midway_leaves_whole_blocks() {
    let store = small(1 << 20, 16 * KIB, Provision::Thin);
    assert_eq!(
        store.write(8 * KIB, &[7; 16 << 10]),
        Err(Status::CapacityExceeded)
    );
    assert_eq!(bytes(&store, 8 * KIB, 8 << 10), [7; 8 << 10]);
    assert_eq!(bytes(&store, 16 * KIB, 8 << 10), [0; 8 << 10]);
}

#[test]
fn writes_that_the_budget_fails_are_counted_and_others_are_not() {
    let budget = Arc::new(Budget::new(16 * KIB));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, SMALL);
    resize(&store, 1 << 20).expect("thin");
    store.write(0, &[1; 4096]).expect("fits");
    assert_eq!(budget.failed_writes(), 0);
    for count in 1..3 {
        let refused = store.write(16 * KIB, &[1; 4096]);
        assert_eq!(refused, Err(Status::CapacityExceeded));
        assert_eq!(budget.failed_writes(), count);
    }
    store.write(0, &[2; 4096]).expect("it has memory");
    assert_eq!(budget.failed_writes(), 2);
}

#[test]
fn dropping_a_store_refunds_all_it_held() {
    let budget = Arc::new(Budget::new(1 << 20));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, SMALL);
    resize(&store, 1 << 20).expect("thin");
    for slab in 0..20 {
        store.write(slab * 16 * KIB, &[1; 4096]).expect("fits");
    }
    assert_eq!(budget.used_bytes(), 320 * KIB);
    drop(store);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn address_space_that_the_host_refuses_is_a_capacity_error() {
    const BEYOND_ALL: Layout = Layout::new(1 << 47, 1 << 46, 1 << 46, 1);
    let budget = Arc::new(Budget::new(u64::MAX));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, BEYOND_ALL);
    resize(&store, 1 << 20).expect("nothing is mapped yet");
    assert_eq!(store.write(0, &[1]), Err(Status::CapacityExceeded));
    assert_eq!(bytes(&store, 0, 1), [0]);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn operations_beyond_the_end_are_refused() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    let beyond = Err(Status::LbaOutOfRange);
    assert_eq!(store.read(64 * KIB - 1, &mut [0; 2]), beyond);
    assert_eq!(store.write(64 * KIB, &[1]), beyond);
    assert_eq!(store.write(u64::MAX, &[1; 2]), beyond);
    assert_eq!(store.compare(64 * KIB, &[1]), beyond);
    assert_eq!(store.compare_and_write(64 * KIB, &[1], &[2]), beyond);
    assert_eq!(store.zero(range(0, 64 * KIB + 1)), beyond);
    assert_eq!(store.discard(range(u64::MAX, u64::MAX)), beyond);
    assert_eq!(store.copy(range(0, 4096), 64 * KIB - 1), beyond);
    assert_eq!(store.copy(range(64 * KIB, 4096), 0), beyond);
}

#[test]
fn shrinking_frees_and_what_was_there_never_returns() {
    let store = small(256 * KIB, 1 << 20, Provision::Thin);
    store.write(0, &vec![9; 256 << 10]).expect("fits");
    resize(&store, 20 * KIB).expect("shrinking");
    assert_eq!(store.allocated_bytes(), 32 * KIB);
    assert_eq!(store.budget().used_bytes(), 32 * KIB);
    resize(&store, 256 * KIB).expect("growing");
    assert_eq!(bytes(&store, 0, 20 << 10), vec![9; 20 << 10]);
    assert_eq!(bytes(&store, 20 * KIB, 236 << 10), vec![0; 236 << 10]);
}

#[test]
fn a_thick_store_takes_all_at_once_or_nothing() {
    let budget = Arc::new(Budget::new(100 * KIB));
    let store = Store::new(Arc::clone(&budget), Provision::Thick, SMALL);
    assert!(matches!(
        resize(&store, 128 * KIB),
        Err(MemoryError::OverBudget { .. })
    ));
    assert_eq!((budget.used_bytes(), store.len_bytes()), (0, 0));
    resize(&store, 64 * KIB).expect("fits");
    assert_eq!(budget.used_bytes(), 64 * KIB);
    store.write(0, &vec![1; 64 << 10]).expect("reserved");
    store.discard(range(0, 64 * KIB)).expect("in range");
    assert_eq!(bytes(&store, 0, 64 << 10), vec![0; 64 << 10]);
    store.write(0, &[1; 4096]).expect("reserved");
    store.erase().expect("nothing is kept");
    assert_eq!(bytes(&store, 0, 4096), [0; 4096]);
    assert_eq!(
        budget.used_bytes(),
        64 * KIB,
        "a thick store keeps its memory"
    );
    resize(&store, 16 * KIB).expect("shrinking");
    assert_eq!(budget.used_bytes(), 16 * KIB);
}

#[test]
fn a_cancelled_allocation_is_undone() {
    let budget = Arc::new(Budget::new(64 << 20));
    let store = Store::new(Arc::clone(&budget), Provision::Thick, SMALL);
    resize(&store, 16 * KIB).expect("fits");
    let mut reports = Vec::new();
    let cancelled = store.resize(4 << 20, &mut |report| {
        reports.push(report.done_bytes);
        if report.done_bytes > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(cancelled, Err(MemoryError::Cancelled)));
    assert_eq!(reports, [0, SLABS_PER_REPORT * 16 * KIB]);
    assert_eq!(
        (store.len_bytes(), budget.used_bytes()),
        (16 * KIB, 16 * KIB)
    );
}

#[test]
fn a_closed_store_holds_nothing_and_stays_empty() {
    let store = small(256 * KIB, 1 << 20, Provision::Thick);
    store.close();
    assert_eq!(store.budget().used_bytes(), 0);
    assert_eq!(store.write(0, &[1]), Err(Status::LbaOutOfRange));
    assert!(matches!(resize(&store, 4096), Err(MemoryError::Closed)));
    assert_eq!(fetch(&store, range(0, 4096)), [0; 4096]);
}

#[test]
fn discarding_the_tail_frees_the_slab_that_the_end_cuts() {
    let store = small(20 * KIB, 1 << 20, Provision::Thin);
    store.write(0, &vec![1; 20 << 10]).expect("fits");
    store.discard(range(16 * KIB, 4 * KIB)).expect("in range");
    assert_eq!(store.allocated_bytes(), 16 * KIB);
    store.erase().expect("nothing is kept");
    assert_eq!(store.allocated_bytes(), 0);
}

#[test]
fn compare_names_the_first_difference_across_granules() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    store.write(4 * KIB, &[5; 4096]).expect("fits");
    let mut data = vec![0; 4096];
    data.extend([5; 4096]);
    data.extend([0; 4096]);
    assert_eq!(store.compare(0, &data), Ok(()));
    data[5000] = 6;
    data[9000] = 1;
    let offset_bytes = 5000;
    assert_eq!(
        store.compare(0, &data),
        Err(Status::Miscompare { offset_bytes })
    );
    data[5000] = 5;
    let offset_bytes = 9000;
    let differs = Err(Status::Miscompare { offset_bytes });
    assert_eq!(store.compare(0, &data), differs);
    assert_eq!(store.compare_and_write(0, &data, &[8; 12 << 10]), differs);
    assert_eq!(
        bytes(&store, 4 * KIB, 4096),
        [5; 4096],
        "nothing was written"
    );
}

#[test]
fn compare_and_write_beyond_the_budget_writes_nothing() {
    let store = small(64 * KIB, 16 * KIB, Provision::Thin);
    let result = store.compare_and_write(12 * KIB, &[0; 8 << 10], &[1; 8 << 10]);
    assert_eq!(result, Err(Status::CapacityExceeded));
    assert_eq!(bytes(&store, 0, 64 << 10), vec![0; 64 << 10]);
}

#[test]
fn copying_a_hole_leaves_a_hole() {
    let store = small(256 * KIB, 1 << 20, Provision::Thin);
    store.write(128 * KIB, &vec![1; 64 << 10]).expect("fits");
    store.copy(range(0, 64 * KIB), 128 * KIB).expect("in range");
    assert_eq!(store.allocated_bytes(), 0);
    assert_eq!(bytes(&store, 128 * KIB, 64 << 10), vec![0; 64 << 10]);
}

#[test]
fn allocation_distinguishes_holes_from_memory_in_runs() {
    let store = small(1 << 20, 1 << 20, Provision::Thin);
    let told = |offset, len| {
        let told = store.allocation(range(offset, len));
        (told.allocated, told.len_bytes)
    };
    assert_eq!(told(0, 1 << 20), (false, 1 << 20));
    store.write(80 * KIB, &vec![1; 20 << 10]).expect("fits");
    store.prefetch(range(80 * KIB, 20 * KIB));
    store.prefetch(range(0, 4 * KIB));
    store.prefetch(range(u64::MAX, 1));
    assert_eq!(told(0, 1 << 20), (false, 80 * KIB));
    assert_eq!(told(90 * KIB, 1 << 20), (true, 22 * KIB));
    assert_eq!(told(90 * KIB, KIB), (true, KIB));
    assert_eq!(told(112 * KIB, 32 << 20), (false, 32 << 20));
    assert_eq!(told(112 * KIB, 0), (false, 0));
}

/// The bytes at the spans' addresses, as an operating system would fetch them.
fn fetch(store: &Store, range: ByteRange) -> Vec<u8> {
    let mut fetched = Vec::new();
    store.pin(range, &mut |span| {
        let mut part = vec![0; span.len];
        // SAFETY: the span is valid while pinned.
        unsafe { std::ptr::copy_nonoverlapping(span.ptr, part.as_mut_ptr(), span.len) };
        fetched.extend(part);
    });
    store.unpin(range);
    fetched
}

#[test]
fn pinned_spans_show_the_bytes_and_zeros_for_holes() {
    let store = small(256 * KIB, 1 << 20, Provision::Thin);
    store.write(60 * KIB, &[3; 10_000]).expect("fits");
    let part = range(50 * KIB, 40 * KIB);
    assert_eq!(fetch(&store, part), bytes(&store, 50 * KIB, 40 << 10));
    resize(&store, 4 * KIB).expect("shrinking");
    assert_eq!(
        fetch(&store, part),
        vec![0; 40 << 10],
        "a stale range is harmless"
    );
}

#[test]
fn a_pin_whose_callback_unwinds_is_released() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.pin(range(0, 32 * KIB), &mut |_| panic!("callback"));
    }));
    assert!(unwound.is_err());
    store.write(0, &vec![1; 32 << 10]).expect("no lock is left");
}

#[test]
fn a_terabyte_costs_what_is_written() {
    let budget = Arc::new(Budget::new(8 << 20));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, Layout::DEFAULT);
    resize(&store, 64 << 40).expect("thin");
    for offset in [0, 1 << 40, (64 << 40) - 4096] {
        store.write(offset, &[1; 4096]).expect("fits");
        assert_eq!(bytes(&store, offset, 4096), [1; 4096]);
    }
    assert_eq!(budget.used_bytes(), 6 << 20);
    assert!(matches!(
        resize(&store, (64 << 40) + 1),
        Err(MemoryError::TooLong { .. })
    ));
    resize(&store, 1 << 20).expect("shrinking");
    assert_eq!(budget.used_bytes(), 2 << 20);
}

#[test]
fn under_strict_overcommit_slabs_come_and_go() {
    let budget = Budget::with_policy(1 << 20, PagePolicy::TransparentHuge, Overcommit::Strict);
    let store = Store::new(Arc::new(budget), Provision::Thin, SMALL);
    resize(&store, 1 << 20).expect("thin");
    for round in 1..=3 {
        store
            .write(10 * KIB, &vec![round; 100 << 10])
            .expect("fits");
        assert_eq!(bytes(&store, 10 * KIB, 100 << 10), vec![round; 100 << 10]);
        store.erase().expect("nothing is kept");
        assert_eq!(bytes(&store, 0, 128 << 10), vec![0; 128 << 10]);
        assert_eq!(store.budget().used_bytes(), 0);
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Zero(u64, u64),
    Discard(u64, u64),
    CompareAndWrite(u64, usize, u8),
    Copy(u64, u64, u64),
    Resize(u64),
    Erase,
}

const MODEL_BYTES: u64 = 256 * KIB;
const BLOCK: u64 = 512;

fn step() -> impl Strategy<Value = Step> {
    let at = (0..MODEL_BYTES / BLOCK).prop_map(|block| block * BLOCK);
    let len = (0..80 * KIB / BLOCK).prop_map(|blocks| blocks * BLOCK);
    let fill = 1..=255_u8;
    prop_oneof![
        6 => (at.clone(), len.clone(), fill.clone()).prop_map(|(a, l, f)| Step::Write(a, l as usize, f)),
        1 => (at.clone(), len.clone()).prop_map(|(a, l)| Step::Zero(a, l)),
        3 => (at.clone(), len.clone()).prop_map(|(a, l)| Step::Discard(a, l)),
        2 => (at.clone(), len.clone(), fill).prop_map(|(a, l, f)| Step::CompareAndWrite(a, l as usize, f)),
        3 => (at.clone(), at.clone(), len).prop_map(|(a, b, l)| Step::Copy(a, b, l)),
        2 => at.prop_map(Step::Resize),
        1 => Just(Step::Erase),
    ]
}

/// Does a step on the model; `None` where it is out of range.
fn on_model(model: &mut Vec<u8>, step: &Step) -> Option<()> {
    let part = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
    match *step {
        Step::Write(offset, len, fill) | Step::CompareAndWrite(offset, len, fill) => {
            model.get_mut(part(offset, len as u64))?.fill(fill);
        }
        Step::Zero(offset, len) | Step::Discard(offset, len) => {
            model.get_mut(part(offset, len))?.fill(0);
        }
        Step::Copy(from, to, len) => {
            model.get(part(to, len))?;
            model.get(part(from, len))?;
            model.copy_within(part(from, len), to as usize);
        }
        Step::Resize(len) => model.resize(len as usize, 0),
        Step::Erase => model.fill(0),
    }
    Some(())
}

fn on_store(store: &Store, model: &[u8], step: &Step) -> Result<(), Status> {
    match *step {
        Step::Write(offset, len, fill) => store.write(offset, &vec![fill; len]),
        Step::CompareAndWrite(offset, len, fill) => {
            let start = (offset as usize).min(model.len());
            let mut expected = model[start..(start + len).min(model.len())].to_vec();
            expected.resize(len, 0);
            store.compare_and_write(offset, &expected, &vec![fill; len])
        }
        Step::Zero(offset, len) => store.zero(range(offset, len)),
        Step::Discard(offset, len) => store.discard(range(offset, len)),
        Step::Copy(from, to, len) => store.copy(range(from, len), to),
        Step::Resize(len) => {
            resize(store, len).expect("the budget is large enough");
            Ok(())
        }
        Step::Erase => {
            store.erase().expect("nothing is kept");
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(200)))]

    #[test]
    fn any_history_agrees_with_a_vector(
        steps in prop::collection::vec(step(), 1..40),
        thick in any::<bool>(),
    ) {
        let provision = if thick { Provision::Thick } else { Provision::Thin };
        let store = small(MODEL_BYTES, 1 << 20, provision);
        let mut model = vec![0; MODEL_BYTES as usize];
        for step in &steps {
            let got = on_store(&store, &model, step);
            let expected = on_model(&mut model, step);
            prop_assert_eq!(got.is_ok(), expected.is_some(), "{:?}: {:?}", step, got);
            prop_assert_eq!(store.len_bytes(), model.len() as u64);
        }
        let all = range(0, model.len() as u64);
        prop_assert!(bytes(&store, 0, model.len()) == model);
        prop_assert!(fetch(&store, all) == model);
        prop_assert_eq!(store.compare(0, &model), Ok(()));
        prop_assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
        prop_assert!(store.allocated_bytes() <= SMALL.slab_ceil(store.len_bytes()));
    }
}

/// Runs each of `works` in a thread until `rounds` of the last are done.
fn race(rounds: usize, last: impl Fn(usize) + Sync, others: &[&(dyn Fn(usize) + Sync)]) {
    let done = AtomicBool::new(false);
    let all_work = Barrier::new(others.len() + 1);
    thread::scope(|scope| {
        for other in others {
            scope.spawn(|| {
                other(0);
                all_work.wait();
                for round in 1.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    other(round);
                }
            });
        }
        all_work.wait();
        (0..rounds).for_each(last);
        done.store(true, Ordering::Relaxed);
    });
}

fn assert_untorn(blocks: &[u8]) {
    for (number, block) in blocks.chunks(BLOCK as usize).enumerate() {
        assert!(
            block.iter().all(|&byte| byte == block[0]),
            "block {number} is torn"
        );
    }
}

#[test]
fn no_reader_ever_sees_a_torn_block() {
    let store = small(128 * KIB, 1 << 20, Provision::Thin);
    let area = range(14 * KIB, 8 * KIB);
    let len = area.len as usize;
    let write = |fill: usize| {
        let data = vec![fill as u8; len];
        store.write(area.offset, &data).expect("fits");
    };
    let vacate = |_: usize| store.discard(range(0, 64 * KIB)).expect("in range");
    let pin = |_: usize| assert_untorn(&fetch(&store, area));
    let copy = |_: usize| store.copy(area, 15 * KIB).expect("in range");
    let others: [&(dyn Fn(usize) + Sync); 5] = [&write, &write, &vacate, &pin, &copy];
    race(
        20_000,
        |_| assert_untorn(&bytes(&store, area.offset, len)),
        &others,
    );
    store.erase().expect("nothing is kept");
    assert_eq!(store.budget().used_bytes(), 0);
}

#[test]
fn nested_pins_in_any_order_do_not_deadlock_with_writers() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    let whole = vec![1; 32 << 10];
    store.write(0, &whole).expect("fits");
    let pin_nested = |round: usize| {
        let (first, second) = if round.is_multiple_of(2) {
            (0, 20)
        } else {
            (20, 0)
        };
        let outer = range(first * KIB, 12 * KIB);
        store.pin(outer, &mut |_| {});
        for _ in 0..3 {
            let inner = range(second * KIB, 12 * KIB);
            store.pin(inner, &mut |_| {});
            let _ = bytes(&store, second * KIB, 4096);
            store.unpin(inner);
        }
        store.unpin(outer);
    };
    let write = |_: usize| store.write(0, &whole).expect("fits");
    let compare_and_write = |_: usize| {
        let result = store.compare_and_write(0, &whole, &whole);
        assert!(matches!(result, Ok(()) | Err(Status::Miscompare { .. })));
    };
    let vacate = |_: usize| store.discard(range(16 * KIB, 16 * KIB)).expect("in range");
    let others: [&(dyn Fn(usize) + Sync); 4] = [&write, &compare_and_write, &vacate, &pin_nested];
    race(5_000, pin_nested, &others);
}

#[test]
fn a_writer_gets_in_between_pins_that_overlap() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    let area = range(0, 4 * KIB);
    let pin = |_: usize| {
        store.pin(area, &mut |_| {});
        thread::sleep(std::time::Duration::from_micros(100));
        store.unpin(area);
    };
    let others: [&(dyn Fn(usize) + Sync); 12] = [&pin; 12];
    let write = |round: usize| store.write(0, &[round as u8; 512]).expect("fits");
    race(200, write, &others);
}

#[test]
fn a_reader_gets_in_between_writers_that_follow_each_other() {
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    let write = |round: usize| store.write(0, &[round as u8; 4096]).expect("fits");
    let others: [&(dyn Fn(usize) + Sync); 4] = [&write; 4];
    race(2_000, |_| assert_untorn(&bytes(&store, 0, 512)), &others);
    race(
        200,
        |_| assert_eq!(fetch(&store, range(0, 512)).len(), 512),
        &others,
    );
}

#[test]
fn compare_and_write_is_a_lock_among_threads() {
    const THREADS: u8 = 4;
    const TURNS: u64 = 500;
    let store = small(64 * KIB, 1 << 20, Provision::Thin);
    // The lock spans two granules; the counter that it guards is read and written apart.
    let (lock, counter) = (3 * KIB + 512, 32 * KIB);
    let free = [0; 1024];
    thread::scope(|scope| {
        for owner in 1..=THREADS {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..TURNS {
                    while store
                        .compare_and_write(lock, &free, &[owner; 1024])
                        .is_err()
                    {
                        thread::yield_now();
                    }
                    let mut count = [0; 8];
                    store.read(counter, &mut count).expect("in range");
                    let next = u64::from_le_bytes(count) + 1;
                    store.write(counter, &next.to_le_bytes()).expect("fits");
                    let released = store.compare_and_write(lock, &[owner; 1024], &free);
                    assert_eq!(released, Ok(()), "another took a held lock");
                }
            });
        }
    });
    let count = bytes(&store, counter, 8);
    assert_eq!(count, (u64::from(THREADS) * TURNS).to_le_bytes());
}

#[test]
fn writers_cannot_leave_anything_beyond_a_moving_end() {
    let store = small(128 * KIB, 1 << 20, Provision::Thin);
    let write = |_: usize| match store.write(0, &vec![7; 128 << 10]) {
        Ok(()) | Err(Status::LbaOutOfRange) => {}
        other => panic!("{other:?}"),
    };
    let others: [&(dyn Fn(usize) + Sync); 2] = [&write, &write];
    let shrink_and_grow = |_: usize| {
        resize(&store, 20 * KIB).expect("shrinking");
        assert!(store.allocated_bytes() <= 32 * KIB);
        resize(&store, 128 * KIB).expect("growing");
    };
    race(1_000, shrink_and_grow, &others);
    resize(&store, 20 * KIB).expect("shrinking");
    resize(&store, 128 * KIB).expect("growing");
    assert_eq!(bytes(&store, 20 * KIB, 108 << 10), vec![0; 108 << 10]);
    assert_eq!(store.budget().used_bytes(), store.allocated_bytes());
}

#[test]
fn threads_that_allocate_the_same_slabs_charge_them_once() {
    let budget = Arc::new(Budget::new(8 << 20));
    let store = Store::new(Arc::clone(&budget), Provision::Thin, SMALL);
    resize(&store, 4 << 20).expect("thin");
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for slab in 0..256 {
                    let offset = slab * 16 * KIB + thread * 4 * KIB;
                    store.write(offset, &[1; 4096]).expect("fits");
                }
            });
        }
    });
    assert_eq!(budget.used_bytes(), 4 << 20);
    assert_eq!(store.allocated_bytes(), 4 << 20);
}
