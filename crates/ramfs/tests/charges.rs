//! What a tree allocates is charged to the memory budget, and little more is.

use std::sync::Arc;

use file_tree::{AttributeChanges, Caller, FileTree, Name, NewFile, Timestamp};
use memory::Budget;
use ramfs::{Quota, RamTree};

const FILES: usize = 3000;
/// Of each charge, at least this part is allocated. A directory is charged the node that its first
/// entry allocates.
const ALLOCATED_PERCENT_MIN: u64 = 45;

fn tree() -> (Arc<Budget>, RamTree) {
    let budget = Arc::new(Budget::new(1 << 40));
    let clock = Arc::new(Timestamp::default);
    let tree = RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock).expect("it fits");
    (budget, tree)
}

/// Runs `fill` and compares what it has allocated with what was charged for it.
fn compare(what: &str, fill: impl FnOnce(&RamTree)) {
    let (budget, tree) = tree();
    let before = tree.used_bytes();
    let counted = allocation_counter::measure(|| fill(&tree));
    let allocated = u64::try_from(counted.bytes_current).expect("more was allocated than freed");
    // Pages are not from the allocator.
    let pages = tree_pages_bytes(&tree);
    let charged = tree.used_bytes() - before - pages;
    println!("{what}: {allocated} allocated, {charged} charged");
    assert!(
        allocated <= charged,
        "{what}: {allocated} allocated, only {charged} charged"
    );
    let least = charged * ALLOCATED_PERCENT_MIN / 100;
    assert!(
        allocated >= least,
        "{what}: only {allocated} allocated of {charged} charged"
    );
    drop(tree);
    assert_eq!(budget.used_bytes(), 0);
}

fn tree_pages_bytes(tree: &RamTree) -> u64 {
    let mut sum = 0;
    let mut take = |entry: &file_tree::DirectoryEntry<'_>| {
        if entry.attributes.kind == file_tree::FileKind::Regular {
            sum += entry.attributes.used_bytes;
        }
        file_tree::Listing::More
    };
    let all = file_tree::Cookie::START;
    tree.list(&Caller::ROOT, tree.root(), all, &mut take)
        .expect("listed");
    sum
}

fn make(tree: &RamTree, text: &str, new: NewFile<'_>) -> file_tree::FileId {
    let name = Name::new(text.as_bytes()).expect("a name");
    let none = AttributeChanges::default();
    let created = tree.create(&Caller::ROOT, tree.root(), name, new, &none);
    created.expect("it fits").value.attributes.id
}

#[test]
fn files_and_names_are_charged() {
    for len in [8, 100, 255] {
        compare(&format!("files with names of {len} bytes"), |tree| {
            for i in 0..FILES {
                make(tree, &format!("{i:0len$}"), NewFile::Guarded);
            }
        });
    }
}

#[test]
fn directories_and_links_are_charged() {
    compare("directories", |tree| {
        for i in 0..FILES {
            make(tree, &format!("{i:08}"), NewFile::Directory);
        }
    });
    compare("symbolic links", |tree| {
        for i in 0..FILES {
            make(
                tree,
                &format!("{i:08}"),
                NewFile::SymbolicLink(&[b'p'; 200]),
            );
        }
    });
}

#[test]
fn maps_of_pages_are_charged() {
    compare("a fragmented file", |tree| {
        let file = make(tree, "f", NewFile::Guarded);
        for i in 0..FILES as u64 {
            tree.write(&Caller::ROOT, file, i * 8192, b"x", true)
                .expect("it fits");
        }
    });
    compare("small files", |tree| {
        for i in 0..FILES {
            let file = make(tree, &format!("{i:08}"), NewFile::Guarded);
            tree.write(&Caller::ROOT, file, 0, b"x", true)
                .expect("it fits");
        }
    });
}
