use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use super::*;
use crate::{Budget, Layout, Provision};

const LEN_BYTES: u64 = 64 << 10;
const LAYOUT: Layout = Layout::new(64 << 10, 16 << 10, 4 << 10, 8);

fn store(budget_bytes: u64) -> Store {
    let store = Store::new(Arc::new(Budget::new(budget_bytes)), Provision::Thin, LAYOUT);
    let resized = store.resize(LEN_BYTES, &mut |_| ControlFlow::Continue(()));
    resized.expect("within the budget");
    store
}

/// 1 KiB over two stores, in three parts: 256 bytes at the end of a granule of the first, 512 of
/// the second, and the rest of the first.
fn across(stores: &[Store; 2], compare: &[u8], write: &[u8]) -> Result<(), Status> {
    let part = |store, offset, at, len| Part {
        store,
        offset,
        at,
        len,
    };
    let parts = [
        part(0, 4096 - 256, 0, 256),
        part(1, 100, 256, 512),
        part(0, 4096, 768, 256),
    ];
    let range = |offset, len| ByteRange { offset, len };
    let ranges = [
        (&stores[0], range(4096 - 256, 512)),
        (&stores[1], range(100, 512)),
    ];
    compare_and_write_across(&ranges, || parts.into_iter(), compare, write)
}

fn read(stores: &[Store; 2]) -> Vec<u8> {
    let mut all = vec![0; 1024];
    let (first, rest) = all.split_at_mut(256);
    let (second, third) = rest.split_at_mut(512);
    stores[0].read(4096 - 256, first).expect("in range");
    stores[1].read(100, second).expect("in range");
    stores[0].read(4096, third).expect("in range");
    all
}

#[test]
fn all_stores_are_written_or_none() {
    let stores = [store(1 << 20), store(1 << 20)];
    let new: Vec<_> = (0..1024_usize).map(|at| at as u8).collect();
    across(&stores, &[0; 1024], &new).expect("they are zeros");
    assert_eq!(read(&stores), new);
    let mut other = new.clone();
    other[300] ^= 1;
    let miscompare = Status::Miscompare { offset_bytes: 300 };
    assert_eq!(across(&stores, &other, &[9; 1024]), Err(miscompare));
    assert_eq!(read(&stores), new);
}

#[test]
fn a_full_budget_of_one_store_leaves_every_store_old() {
    let stores = [store(1 << 20), store(16 << 10)];
    stores[1].write(32 << 10, &[1]).expect("one slab fits");
    let full = across(&stores, &[0; 1024], &[5; 1024]);
    assert_eq!(full, Err(Status::CapacityExceeded));
    assert_eq!(read(&stores), [0; 1024]);
}

#[test]
fn threads_that_count_by_it_lose_nothing_while_others_hold_pins() {
    const ROUNDS: u64 = 2000;
    let stores = [store(1 << 20), store(1 << 20)];
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut done = 0;
                while done < ROUNDS {
                    let old = read(&stores);
                    let count = u64::from_le_bytes(old[..8].try_into().expect("eight bytes"));
                    let new = [(count + 1).to_le_bytes(); 128].concat();
                    done += u64::from(across(&stores, &old, &new).is_ok());
                }
            });
        }
        scope.spawn(|| {
            let range = |offset| ByteRange { offset, len: 512 };
            for _ in 0..ROUNDS {
                stores[1].pin(range(0), &mut |_| {});
                stores[0].pin(range(3840), &mut |_| {});
                stores[0].unpin(range(3840));
                stores[1].unpin(range(0));
            }
        });
    });
    assert_eq!(read(&stores), [(2 * ROUNDS).to_le_bytes(); 128].concat());
}
