//! Quota, budget, and what is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use file_tree::{FileError, FileTree, NewFile, XattrMode, XattrName};
use memory::Budget;

use super::{ROOT, Short, clock, name, size, tree_in};
use crate::{Quota, RamTree};

#[test]
fn everything_is_given_back() {
    let (budget, tree) = tree_in(64 << 20);
    let root = tree.root();
    let start = (
        budget.used_bytes(),
        tree.used_bytes(),
        tree.files(),
        tree.space(),
    );
    let directory = tree.dir(ROOT, root, "d");
    for i in 0..600 {
        let file = tree.file(ROOT, directory, &format!("file {i}"));
        tree.put(file, i * 1000, &vec![1; 10 * i as usize]);
    }
    tree.make(ROOT, root, "l", NewFile::SymbolicLink(b"some path"), 0o777)
        .expect("made");
    assert!(budget.used_bytes() > start.0 && tree.files() == 603);
    for i in 0..600 {
        tree.remove(ROOT, directory, name(&format!("file {i}")))
            .expect("removed");
    }
    tree.remove(ROOT, root, name("l")).expect("removed");
    tree.remove_directory(ROOT, root, name("d"))
        .expect("removed");
    let end = (
        budget.used_bytes(),
        tree.used_bytes(),
        tree.files(),
        tree.space(),
    );
    assert_eq!(end, start);
    drop(tree);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_closed_tree_is_stale_and_takes_nothing() {
    let (budget, tree) = tree_in(64 << 20);
    let root = tree.root();
    let directory = tree.dir(ROOT, root, "d");
    let file = tree.file(ROOT, directory, "f");
    tree.put(file, 0, &vec![1; 100_000]);
    tree.close();
    assert_eq!((tree.used_bytes(), tree.files()), (0, 0));
    for id in [root, directory, file] {
        assert_eq!(tree.attributes(id), Err(FileError::Stale));
    }
    let created = tree.make(ROOT, root, "x", NewFile::Guarded, 0o600);
    assert_eq!(created, Err(FileError::Stale));
    tree.close();
    drop(tree);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn the_quota_bounds_bytes_and_files() {
    let (_, tree) = tree_in(64 << 20);
    let root = tree.root();
    let file = tree.file(ROOT, root, "f");
    let quota = Quota {
        bytes: Some(tree.used_bytes() + 3 * 4096 + 500),
        files: 2,
    };
    tree.set_quota(quota);
    assert_eq!(tree.quota(), quota);
    let space = tree.space();
    assert_eq!(
        (space.free_bytes, space.free_files, space.total_files),
        (3 * 4096 + 500, 0, 2)
    );
    assert_eq!(Some(space.total_bytes), quota.bytes);
    let full = FileError::QuotaExceeded;
    assert_eq!(
        tree.make(ROOT, root, "g", NewFile::Guarded, 0o600),
        Err(full)
    );
    let written = tree
        .write(ROOT, file, 0, &vec![7; 5 * 4096], true)
        .expect("some of it");
    assert_eq!(written.value.len_bytes, 3 * 4096);
    assert_eq!(written.after.size_bytes, 3 * 4096);
    let before = tree.attributes(file);
    assert_eq!(
        tree.write(ROOT, file, 1 << 20, b"x", true).map(|_| ()),
        Err(full)
    );
    assert_eq!(tree.attributes(file), before);
    tree.put(file, 0, b"what exists is written again");
    tree.set_attributes(ROOT, file, &size(1 << 40), None)
        .expect("a hole takes nothing");
    tree.set_quota(Quota {
        bytes: Some(0),
        files: 0,
    });
    assert_eq!((tree.space().free_bytes, tree.space().free_files), (0, 0));
    tree.set_attributes(ROOT, file, &size(0), None)
        .expect("less is always possible");
    tree.remove(ROOT, root, name("f"))
        .expect("less is always possible");
    tree.set_quota(Quota::UNLIMITED);
    tree.file(ROOT, root, "f");
}

#[test]
fn a_full_budget_still_lends_what_slabs_have() {
    let (budget, tree) = tree_in(64 << 20);
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, 0, b"x");
    let spare = 256 * 1024 - 4096;
    let free = budget.free_bytes();
    assert_eq!(tree.space().free_bytes, free + spare);
    budget.try_charge(free - 1000).expect("it is free");
    assert_eq!(tree.space().free_bytes, 1000 + spare);
    let written = tree
        .write(ROOT, file, 0, &vec![1; 512 * 1024], true)
        .expect("some of it");
    assert_eq!(written.value.len_bytes, 256 * 1024);
    assert_eq!(tree.contents(file), vec![1; 256 * 1024]);
    let full = tree.write(ROOT, file, 256 * 1024, b"x", true).map(|_| ());
    assert_eq!(full, Err(FileError::NoSpace));
    budget.refund(free - 1000);
}

#[test]
fn a_slab_costs_what_the_budget_is_charged_for_the_first_page() {
    let (budget, tree) = tree_in(64 << 20);
    let file = tree.file(ROOT, tree.root(), "f");
    let before = budget.used_bytes();
    tree.put(file, 0, b"x");
    let slab = 256 * 1024;
    let map = budget.used_bytes() - before - slab;
    assert!(map < 512, "{map}");
    let other = tree.file(ROOT, tree.root(), "g");
    let before = budget.used_bytes();
    tree.put(other, 0, b"x");
    assert_eq!(
        budget.used_bytes() - before,
        map,
        "small files share a slab"
    );
}

/// Does everything that takes memory, and returns what failed.
fn exercise(tree: &RamTree) -> Result<(), FileError> {
    let root = tree.root();
    let directory = tree.make(ROOT, root, "d", NewFile::Directory, 0o755)?;
    let file = tree.make(ROOT, directory, "f", NewFile::Guarded, 0o644)?;
    let write = |offset, data: &[u8]| {
        let written = tree.write(ROOT, file, offset, data, true)?;
        if written.value.len_bytes < data.len() {
            return Err(FileError::NoSpace);
        }
        Ok(())
    };
    write(0, &vec![1; 40_000])?;
    write(1 << 30, &vec![2; 300_000])?;
    tree.punch_hole(ROOT, file, 8192, 4096)?;
    tree.make(ROOT, root, "l", NewFile::SymbolicLink(&[b'p'; 1000]), 0o777)?;
    tree.link(ROOT, file, root, name("another name of the same file"))?;
    let longer = "x".repeat(255);
    tree.rename(ROOT, (directory, name("f")), (root, name(&longer)))?;
    tree.allocate(ROOT, file, 30_000, 50_000)?;
    let clone = tree.make(ROOT, directory, "c", NewFile::Guarded, 0o644)?;
    tree.clone_range(ROOT, (file, 0), (clone, 4096), 81_920)?;
    let attribute = |name| XattrName::new(name).expect("a name");
    tree.set_xattr(ROOT, file, attribute(b"a"), &[1; 1000], XattrMode::Either)?;
    tree.set_xattr(ROOT, file, attribute(b"b"), &[1; 10], XattrMode::Create)?;
    tree.set_xattr(ROOT, file, attribute(b"a"), &[1; 2000], XattrMode::Replace)?;
    tree.remove_xattr(ROOT, file, attribute(b"b"))?;
    Ok(())
}

#[test]
fn the_budget_may_end_at_any_point() {
    let (budget, tree) = tree_in(64 << 20);
    let start = budget.used_bytes();
    exercise(&tree).expect("there is enough");
    let needed = budget.used_bytes() - start;
    drop(tree);
    let mut failures = 0;
    for free in (0..needed).step_by(97) {
        let budget = Arc::new(Budget::new(64 << 20));
        let tree = RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock()).expect("fits");
        let used = budget.used_bytes();
        assert_eq!(used, start);
        budget.set_total_bytes(used + free);
        if let Err(error) = exercise(&tree) {
            assert_eq!(error, FileError::NoSpace);
            failures += 1;
        }
        assert!(budget.used_bytes() <= used + free);
        drop(tree);
        assert_eq!(budget.used_bytes(), 0, "with {free} bytes");
    }
    assert!(failures > 1000, "{failures}");
}

#[test]
fn the_quota_may_end_at_any_point() {
    let (_, tree) = tree_in(64 << 20);
    let start = tree.used_bytes();
    exercise(&tree).expect("there is enough");
    let needed = tree.used_bytes() - start;
    for free in (0..needed).step_by(97) {
        let (budget, tree) = tree_in(64 << 20);
        tree.set_quota(Quota {
            bytes: Some(start + free),
            files: 100,
        });
        if let Err(error) = exercise(&tree) {
            assert!(matches!(
                error,
                FileError::QuotaExceeded | FileError::NoSpace
            ));
        }
        assert!(tree.used_bytes() <= start + free);
        drop(tree);
        assert_eq!(budget.used_bytes(), 0, "with {free} bytes");
    }
}

#[test]
fn a_tree_needs_a_budget() {
    for total in [0, 4096, 9000] {
        let budget = Arc::new(Budget::new(total));
        assert!(RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock()).is_err());
        assert_eq!(budget.used_bytes(), 0);
    }
}

/// A tree with a file of 40 MiB, of pages in one piece, or each apart from others.
fn tree_with_large_file(step: u64) -> (Arc<Budget>, RamTree, u64, file_tree::FileId) {
    let (budget, tree) = tree_in(400 << 20);
    let before = budget.used_bytes();
    let file = tree.file(ROOT, tree.root(), "large");
    for at in 0..10_240 {
        tree.put(file, at * step, &[1; 4096]);
    }
    (budget, tree, before, file)
}

#[test]
fn a_large_file_is_removed_at_once_and_freed_in_pieces() {
    for step in [4096, 8192] {
        let (budget, tree, before, _) = tree_with_large_file(step);
        let notified = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&notified);
        tree.set_notify(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let full = budget.used_bytes();
        tree.remove(ROOT, tree.root(), name("large"))
            .expect("removed");
        assert_eq!(notified.load(Ordering::Relaxed), 1);
        // Its pages take nothing of the quota, and their memory is free as clients see it.
        assert!(tree.used_bytes() < 1 << 20);
        assert!(tree.space().free_bytes >= 398 << 20);
        let mut left = budget.used_bytes();
        assert!(full - left < 1 << 20, "nothing is freed by the operation");
        let mut pieces = 0;
        while tree.free_piece() {
            let freed = left - budget.used_bytes();
            assert!(freed <= 5 << 20, "{freed} bytes in a piece");
            left -= freed;
            pieces += 1;
        }
        assert_eq!((pieces, budget.used_bytes()), (10, before), "{step}");
    }
}

#[test]
fn large_truncations_and_holes_are_freed_in_pieces_and_read_as_zeros() {
    let (budget, tree, _, file) = tree_with_large_file(4096);
    let full = budget.used_bytes();
    let mib = 1 << 20;
    let check = |ones: std::ops::Range<usize>| {
        let contents = tree.contents(file);
        assert!(contents[ones.clone()].iter().all(|&byte| byte == 1));
        assert!(contents[..ones.start].iter().all(|&byte| byte == 0));
        assert!(contents[ones.end..].iter().all(|&byte| byte == 0));
    };
    // In the middle, and then from there to the end.
    tree.punch_hole(ROOT, file, mib, 18 * mib).expect("a hole");
    tree.punch_hole(ROOT, file, 0, mib).expect("a hole");
    assert_eq!(
        full - budget.used_bytes(),
        mib,
        "a small hole is freed at once"
    );
    check(19 << 20..40 << 20);
    tree.set_attributes(ROOT, file, &size(20 * mib), None)
        .expect("cut off");
    tree.set_attributes(ROOT, file, &size(40 * mib), None)
        .expect("a hole");
    check(19 << 20..20 << 20);
    assert!(tree.used_bytes() < 2 * mib);
    assert!(full - budget.used_bytes() < 2 * mib);
    tree.put(file, 39 * mib, &[1; 4096]);
    while tree.free_piece() {}
    assert!(full - budget.used_bytes() > 37 * mib);
    check_end(&tree.contents(file));
}

/// Zeros, then a MiB of ones, then zeros, then a page of ones.
fn check_end(contents: &[u8]) {
    let ones = contents
        .split(|byte| *byte != 1)
        .map(<[u8]>::len)
        .sum::<usize>();
    assert_eq!(ones, (1 << 20) + 4096);
}

#[test]
fn memory_of_removed_files_is_freed_when_the_tree_needs_it() {
    let (budget, tree, _, _) = tree_with_large_file(4096);
    tree.remove(ROOT, tree.root(), name("large"))
        .expect("removed");
    let free = budget.free_bytes();
    budget.try_charge(free - 4096).expect("it is free");
    let file = tree.file(ROOT, tree.root(), "next");
    for at in 0..8 {
        tree.put(file, at << 20, &vec![2; 1 << 20]);
    }
    tree.close();
    budget.refund(free - 4096);
    drop(tree);
    assert_eq!(budget.used_bytes(), 0);
}
