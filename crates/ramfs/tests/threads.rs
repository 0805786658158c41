//! Threads that work on one tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use file_tree::{
    AttributeChanges, Caller, Cookie, FileError, FileId, FileTree, Listing, Mode, Name, NewFile,
    Timestamp,
};
use memory::Budget;
use ramfs::{Quota, RamTree};

const ROOT: &Caller<'_> = &Caller::ROOT;
const ROUNDS: usize = 3000;
const PAGE: usize = 4096;

fn tree() -> (Arc<Budget>, RamTree) {
    let budget = Arc::new(Budget::new(64 << 20));
    let seconds = AtomicI64::new(1);
    let clock = Arc::new(move || Timestamp {
        seconds: seconds.fetch_add(1, Ordering::Relaxed),
        nanoseconds: 0,
    });
    let tree = RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock).expect("it fits");
    (budget, tree)
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

fn make(tree: &RamTree, directory: FileId, text: &str, new: NewFile<'_>) -> FileId {
    let changes = AttributeChanges {
        mode: Some(Mode::new(0o755)),
        ..AttributeChanges::default()
    };
    let created = tree.create(ROOT, directory, name(text), new, &changes);
    created.expect("it is created").value.attributes.id
}

/// A small generator, different for each seed.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn a_page_is_wholly_old_or_new_and_no_files_share_one() {
    let (budget, tree) = tree();
    let start = (budget.used_bytes(), tree.used_bytes());
    let files: Vec<_> = (0..3)
        .map(|i| make(&tree, tree.root(), &format!("f{i}"), NewFile::Guarded))
        .collect();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (tree, files) = (&tree, &files);
            scope.spawn(move || play_pages(tree, files, thread));
        }
    });
    for (i, _) in files.iter().enumerate() {
        tree.remove(ROOT, tree.root(), name(&format!("f{i}")))
            .expect("removed");
    }
    assert_eq!((budget.used_bytes(), tree.used_bytes()), start);
}

/// Each file's pages are filled with bytes that say which file it is.
fn play_pages(tree: &RamTree, files: &[FileId], thread: u64) {
    let mut random = random(thread + 1);
    for _ in 0..ROUNDS {
        let number = random(files.len());
        let file = files[number];
        let page = random(40);
        let offset = (page * PAGE) as u64;
        match random(10) {
            0 => {
                tree.punch_hole(ROOT, file, offset, (3 * PAGE) as u64)
                    .expect("punched");
            }
            1 => {
                let changes = AttributeChanges {
                    size_bytes: Some(offset),
                    ..AttributeChanges::default()
                };
                tree.set_attributes(ROOT, file, &changes, None)
                    .expect("cut");
            }
            2..6 => {
                let byte = (number * 64 + 1 + random(60)) as u8;
                let written = tree.write(ROOT, file, offset, &[byte; PAGE], true);
                assert_eq!(written.expect("written").value.len_bytes, PAGE);
            }
            _ => {
                let mut bytes = [0xee; PAGE];
                let read = tree.read(ROOT, file, offset, &mut bytes).expect("read");
                let bytes = &bytes[..read.len_bytes];
                let first = bytes.first().copied().unwrap_or(0);
                assert!(bytes.iter().all(|&byte| byte == first), "a torn page");
                assert!(
                    first == 0 || usize::from(first) / 64 == number,
                    "of another file"
                );
            }
        }
    }
}

#[test]
fn names_stay_consistent_while_threads_move_them() {
    let (budget, tree) = tree();
    let start = (budget.used_bytes(), tree.used_bytes(), tree.files());
    let directories: Vec<_> = (0..4)
        .map(|i| make(&tree, tree.root(), &format!("d{i}"), NewFile::Directory))
        .collect();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let lister = scope.spawn(|| list_until(&tree, &is_done));
        let movers: Vec<_> = (0..3)
            .map(|thread| {
                let (tree, directories) = (&tree, &directories);
                scope.spawn(move || play_names(tree, directories, thread))
            })
            .collect();
        let ended: Vec<_> = movers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        lister.join().expect("no panic");
    });
    check_links(&tree, tree.root());
    remove_below(&tree, tree.root());
    let end = (budget.used_bytes(), tree.used_bytes(), tree.files());
    assert_eq!(end, start);
}

fn play_names(tree: &RamTree, directories: &[FileId], thread: u64) {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut random = random(thread + 10);
    for _ in 0..ROUNDS {
        let mut place = || (directories[random(4)], name(NAMES[random(5)]));
        let ((from, old), (to, new)) = (place(), place());
        let outcome = match random(7) {
            0 => tree
                .create(
                    ROOT,
                    from,
                    old,
                    NewFile::Guarded,
                    &AttributeChanges::default(),
                )
                .map(|_| ()),
            1 => tree
                .create(
                    ROOT,
                    from,
                    old,
                    NewFile::Directory,
                    &AttributeChanges::default(),
                )
                .map(|_| ()),
            2 => tree.remove(ROOT, from, old).map(|_| ()),
            3 => tree.remove_directory(ROOT, from, old).map(|_| ()),
            4 => tree.rename(ROOT, (from, old), (to, new)).map(|_| ()),
            5 => match tree.lookup(ROOT, from, old) {
                Ok(found) => tree.link(ROOT, found.id, to, new).map(|_| ()),
                Err(error) => Err(error),
            },
            _ => match tree.lookup(ROOT, from, old) {
                Ok(found) => tree.write(ROOT, found.id, 0, &[1; 5000], true).map(|_| ()),
                Err(error) => Err(error),
            },
        };
        let expected = [
            FileError::NotFound,
            FileError::Exists,
            FileError::IsDirectory,
            FileError::NotDirectory,
            FileError::NotEmpty,
            FileError::Stale,
        ];
        assert!(outcome.is_ok() || expected.contains(&outcome.expect_err("checked")));
    }
}

fn list_until(tree: &RamTree, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Relaxed) {
        let mut count = 0;
        let mut take = |entry: &file_tree::DirectoryEntry<'_>| {
            assert!(entry.attributes.links > 0);
            count += 1;
            Listing::More
        };
        tree.list(ROOT, tree.root(), Cookie::START, &mut take)
            .expect("listed");
        assert_eq!(count, 4);
    }
}

fn entries(tree: &RamTree, directory: FileId) -> Vec<(Vec<u8>, file_tree::Attributes)> {
    let mut entries = Vec::new();
    let mut take = |entry: &file_tree::DirectoryEntry<'_>| {
        entries.push((entry.name.as_bytes().to_vec(), entry.attributes));
        Listing::More
    };
    tree.list(ROOT, directory, Cookie::START, &mut take)
        .expect("listed");
    entries
}

fn check_links(tree: &RamTree, directory: FileId) {
    let mut subdirectories = 0;
    for (_, attributes) in entries(tree, directory) {
        if attributes.kind == file_tree::FileKind::Directory {
            subdirectories += 1;
            let parent = tree.parent(ROOT, attributes.id).expect("it exists");
            assert_eq!(parent.id, directory);
            check_links(tree, attributes.id);
        }
    }
    assert_eq!(
        tree.attributes(directory).expect("it exists").links,
        2 + subdirectories
    );
}

fn remove_below(tree: &RamTree, directory: FileId) {
    for (text, attributes) in entries(tree, directory) {
        let name = Name::new(&text).expect("a name");
        if attributes.kind == file_tree::FileKind::Directory {
            remove_below(tree, attributes.id);
            tree.remove_directory(ROOT, directory, name)
                .expect("it is empty");
        } else {
            tree.remove(ROOT, directory, name).expect("it is a file");
        }
    }
}

#[test]
fn a_tree_is_closed_under_the_hands_of_others() {
    for round in 0..20 {
        let (budget, tree) = tree();
        thread::scope(|scope| {
            for thread in 0..3 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut random = random(thread + round * 3 + 1);
                    for i in 0.. {
                        let text = format!("{thread}-{i}");
                        let created = tree.create(
                            ROOT,
                            tree.root(),
                            name(&text),
                            NewFile::Guarded,
                            &AttributeChanges::default(),
                        );
                        let Ok(created) = created else { break };
                        let file = created.value.attributes.id;
                        let len = random(100_000);
                        let _stale = tree.write(ROOT, file, 0, &vec![1; len], true);
                    }
                });
            }
            thread::yield_now();
            while tree.files() < 50 {
                thread::yield_now();
            }
            tree.close();
        });
        assert_eq!((tree.used_bytes(), tree.files()), (0, 0));
        drop(tree);
        assert_eq!(budget.used_bytes(), 0);
    }
}

#[test]
fn clones_of_files_into_each_other_are_whole_and_end() {
    const LEN: usize = 3 * PAGE;
    let (budget, tree) = tree();
    let start = (budget.used_bytes(), tree.used_bytes());
    let files = ["a", "b"].map(|text| make(&tree, tree.root(), text, NewFile::Guarded));
    for (byte, file) in (1..).zip(files) {
        let written = tree.write(ROOT, file, 0, &[byte; LEN], true);
        assert_eq!(written.expect("written").value.len_bytes, LEN);
    }
    thread::scope(|scope| {
        for thread in 0..4 {
            let (tree, source, target) = (&tree, files[thread % 2], files[(thread + 1) % 2]);
            scope.spawn(move || {
                let mut bytes = [0; LEN];
                for _ in 0..ROUNDS / 10 {
                    let cloned = tree.clone_range(ROOT, (source, 0), (target, 0), LEN as u64);
                    cloned.expect("cloned");
                    let read = tree.read(ROOT, target, 0, &mut bytes);
                    assert_eq!(read.expect("read").len_bytes, LEN);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a part");
                }
            });
        }
    });
    for text in ["a", "b"] {
        tree.remove(ROOT, tree.root(), name(text)).expect("removed");
    }
    assert_eq!((budget.used_bytes(), tree.used_bytes()), start);
}
